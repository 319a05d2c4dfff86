"""Remove the leftovers of a recorder as soon as it is killed.

For: recorders that cannot tidy up themselves (SIGKILL, out of memory). Not for: a recorder's own clean-up,
nor other leftovers on the machine (leftovers.py). A process of its own waits at a pipe that only the recorder
keeps open. The kernel closes the pipe when the recorder dies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.containers.ownership import end_run, is_alive, new_run
from testbed.waiting import until

_DONE = b"."
_WAIT_S = 60.0


@contextmanager
def watchdog() -> Iterator[None]:
    """Remove the leftovers of dead runs as soon as this process dies within the block.

    Without root there is no watchdog, because such a process makes nothing that outlives it and that it may
    remove.
    """
    if os.geteuid() != 0:
        yield
        return
    # The watchdog imports from where this process imports, and from the working directory only if this
    # process does.
    folders = (folder or str(Path.cwd()) for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    run = new_run()
    try:
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "testbed.containers.record.watchdog", run],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            # Ctrl-C at the terminal must reach only the recorder.
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            try:
                yield
            finally:
                with suppress(BrokenPipeError):
                    process.stdin.write(_DONE)
    finally:
        end_run(run)


def _watch() -> None:
    if sys.stdin.buffer.read(1) == _DONE:
        return
    # The objects of a run count as left over only when the process that waits for the recorder has noticed
    # its end.
    until(lambda: not is_alive(sys.argv[1]), _WAIT_S)
    # Only a watchdog that has work needs these imports.
    from testbed.containers import leftovers
    from testbed.containers.cgroup.drivers import detect

    leftovers.down(detect())


if __name__ == "__main__":
    _watch()
