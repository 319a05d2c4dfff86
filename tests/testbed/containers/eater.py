"""A process that takes memory on command, which tests of limits hold, kill or let continue."""

from __future__ import annotations

import select
import subprocess
import sys
from types import TracebackType
from typing import Self

from testbed.containers.cgroup.drivers import Group

MIB = 1 << 20

_PROGRAM = """
import mmap, sys, time
print("ready", flush=True)
kept = []
for line in sys.stdin:
    kept.append(mmap.mmap(-1, int(line), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for page in range(0, int(line), 4096):
        kept[-1][page] = 1
    print(time.monotonic_ns(), flush=True)
"""


class Eater:
    """A process in a group. `take` returns at once; `done` says whether it has what it wants."""

    def __init__(self, group: Group) -> None:
        # No buffer on our side: a line that waits there would not be seen by select.
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", _PROGRAM],
            preexec_fn=group.enter,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._answer(20.0)

    def take(self, size_bytes: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{size_bytes}\n".encode())

    def done(self, timeout_s: float = 0.0) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], timeout_s)[0]) and bool(self._answer(0))

    def has_answered(self, or_readable: int, timeout_s: float = 20.0) -> bool:
        """Waits for its answer or for the descriptor; whether there is an answer, which stays unread."""
        ready, _, _ = select.select([self.process.stdout, or_readable], [], [], timeout_s)
        assert ready, "neither an answer from the process in the group nor an event"
        return self.process.stdout in ready

    def finished_ns(self, timeout_s: float) -> int:
        """When it had what it wanted, CLOCK_MONOTONIC; fails when it has not within the time."""
        answer = self._answer(timeout_s)
        assert answer, "the process in the group was killed"
        return int(answer)

    def _answer(self, timeout_s: float) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        assert ready, "no answer from the process in the group"
        return self.process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def readable(descriptor: int, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])
