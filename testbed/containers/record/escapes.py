"""Find, count and end the processes of a recording that left its cgroups.

For: commands of root, which can move themselves out of a v1 cgroup, so that their use is not recorded. Not
for: processes inside (host/container.py). The recorder is the reaper of its orphans, so every process that a
command started stays below the recorder. Source: prctl(2), PR_SET_CHILD_SUBREAPER; proc(5).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from testbed import processes
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import Group
from twinbed import BackendError

ENDING_TIMEOUT_S = 10.0
"""Time for killed processes to end, s."""

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
"""linux/prctl.h."""

_LOOKS, _LOOK_AGAIN_S = 3, 0.005
"""Number of consecutive checks that must find nothing, and the time between two checks, s."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Process(NamedTuple):
    """A process. parent: process id of its parent. started: its start time, clock ticks since boot. dead:
    whether it has ended but was not reaped yet."""

    parent: int
    started: int
    dead: bool


class Escapes:
    """The processes below this one that are in none of the groups.

    groups: cgroups of the recording.
    apart: function that returns the processes that belong outside the groups, such as runc, with all
        below them. Earlier children of this process belong to other code.
    count: number of escaped processes seen so far.
    """

    def __init__(self, groups: Collection[Group], apart: Callable[[], Collection[int]]) -> None:
        self._groups, self._apart = groups, apart
        self._before = frozenset(pid for pid, process in _processes() if process.parent == os.getpid())
        self._seen: set[tuple[int, int]] = set()

    @property
    def count(self) -> int:
        """Number of escaped processes seen so far."""
        return len(self._seen)

    def look(self) -> dict[int, int]:
        """Return process id → start time of the processes that are outside now, and count them."""
        below = _below(os.getpid(), {*self._before, *self._apart()})
        inside = self._inside()
        outside = {}
        for pid, process in below.items():
            # A process that ended after it was listed is in no group either.
            if pid not in inside and not process.dead and _process(pid) == process:
                outside[pid] = process.started
        self._seen |= outside.items()
        return outside

    def end(self) -> None:
        """Kill escaped processes until several checks find none. Raises BackendError if a process does not
        die."""
        deadline = time.monotonic() + ENDING_TIMEOUT_S
        empty_looks = 0
        while empty_looks < _LOOKS:
            outside = self.look()
            empty_looks = 0 if outside else empty_looks + 1
            with processes.handles(lambda: _living(outside)) as found:  # noqa: B023 - called in the block
                for handle in found.values():
                    processes.send(handle, signal.SIGKILL)
            if outside and time.monotonic() > deadline:
                raise BackendError(
                    f"process {min(outside)} left its cgroup and does not die; look at it with ps"
                )
            time.sleep(_LOOK_AGAIN_S)

    def reap(self, ours: Collection[int]) -> None:
        """Wait for orphans that have ended, as the machine's first process would. ours: process ids for which
        the caller itself waits."""
        for pid, process in _processes():
            if process.dead and process.parent == os.getpid() and pid not in self._before and pid not in ours:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _inside(self) -> set[int]:
        """Return the processes that are in all hierarchies of a group."""
        members = (
            set.intersection(*(tree.pids([place]) for place in group.directories)) for group in self._groups
        )
        return set().union(*members)


@contextmanager
def reaper_of_orphans() -> Iterator[None]:
    """Make this process the parent of its descendants' orphans until the block ends."""
    before = ctypes.c_int()
    _libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _below(root: int, apart: Collection[int]) -> dict[int, _Process]:
    """Return all processes below `root`. Processes in `apart`, and all below them, are left out."""
    every = dict(_processes())
    children: dict[int, list[int]] = {}
    for pid, process in every.items():
        children.setdefault(process.parent, []).append(pid)
    below: dict[int, _Process] = {}
    left = [root]
    while left:
        for pid in children.get(left.pop(), ()):
            if pid not in apart:
                below[pid] = every[pid]
                left.append(pid)
    return below


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (process := _process(int(folder.name))) is not None:
            yield int(folder.name), process


def _process(pid: int) -> _Process | None:
    try:
        # The command's name may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(int(fields[1]), int(fields[19]), fields[0] in b"ZX")


def _living(outside: Mapping[int, int]) -> list[int]:
    """Return those of these processes that exist now. outside: process id → start time, as in `look`."""
    present = {pid: _process(pid) for pid in outside}
    return [pid for pid, now in present.items() if now is not None and now.started == outside[pid]]
