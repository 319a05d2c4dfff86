"""Signal processes through handles (pidfds), which stay with their process when its id is reused.

For: processes that are found by a mark, such as a cgroup, a namespace or a lock. Not for: processes that the
caller started, whose ids stay reserved until it waits for them. Source: pidfd_open(2).
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def handles(find: Callable[[], Iterable[int]]) -> Iterator[dict[int, int]]:
    """Yield process id → handle of the processes that `find` lists. The handles are closed with the block.

    `find` is called twice. Only what it lists once the handles are open is about these processes.
    """
    opened: dict[int, int] = {}
    try:
        for pid in find():
            with suppress(ProcessLookupError):
                opened[pid] = os.pidfd_open(pid)
        listed = set(find()) if opened else set()
        yield {pid: handle for pid, handle in opened.items() if pid in listed}
    finally:
        for handle in opened.values():
            os.close(handle)


def send(handle: int, number: signal.Signals) -> None:
    """Send a signal to a handle's process. Does nothing if the process has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)


def ended(handle: int, within_s: float) -> bool:
    """Return whether a handle's process ends within `within_s`, s. The handle then becomes readable."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within_s * 1_000))


def end(handle: int, grace_s: float) -> bool:
    """Send SIGTERM, and SIGKILL after `grace_s`, s. Return whether the process ended within `grace_s` of
    either."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        send(handle, number)
        if ended(handle, grace_s):
            return True
    return False
