"""One container's cgroup, whatever its version: who is inside, what it used, its limits.

For: what the recorder, the control loop and attaching have in common. Not for: the files of either version
(v1.py, v2.py) nor for finding this machine's (drivers.py).
"""

from __future__ import annotations

import math
import os
import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from testbed.containers.cgroup import tree
from testbed.containers.cgroup.files import ControlFile
from testbed.containers.ports import Trap

QUOTA_PERIOD_US = 100_000
"""CFS bandwidth period that a quota is set with: the kernel's own default."""

MIN_QUOTA_US = 1_000
"""The kernel refuses a smaller quota (kernel/sched/core.c, min_cfs_quota_period)."""

NO_LIMIT_BYTES = 2**63 - 1
"""How a group without a memory limit is reported."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """One container's counters at one moment: CPU and throttled time since creation (ns), CFS periods
    elapsed and throttled since creation, and the working set (bytes)."""

    cpu_ns: int
    throttled_ns: int
    nr_periods: int
    nr_throttled: int
    memory_bytes: int


NOTHING_USED = Usage(0, 0, 0, 0, 0)
"""The counters of a group that nothing ever ran in."""


class Group(ABC):
    """One container's cgroup: its directories (one per v1 hierarchy, one in v2) with files kept open.

    Is a ports.LimitedGroup. A memory limit covers swap too where the kernel counts it, so that a limit is
    a limit. Methods raise GroupGoneError where the cgroup was removed under us, BackendError (file and cure)
    where the kernel refuses.
    """

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self.directories = directories
        self._files: list[ControlFile] = []
        self._doors: list[ControlFile] = []
        self._armed: Trap | None = None
        self._quota_cores = math.inf
        try:
            self._open_files()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _open_files(self) -> None:
        """Opens what the version needs, and finds the limits in force."""

    @abstractmethod
    def _new_trap(self) -> Trap: ...

    def enter(self) -> None:
        """Moves the calling process in. Safe between fork and exec: it only writes to open descriptors."""
        for door in self._doors:
            os.write(door.descriptor, b"0")

    @abstractmethod
    def read(self) -> Usage:
        """The counters now; the CPU time is read first."""

    @property
    def quota_cores(self) -> float:
        """The quota in force, as last written or found; inf where there is none."""
        return self._quota_cores

    @property
    @abstractmethod
    def limit_bytes(self) -> int:
        """The memory limit in force, as last written or found; NO_LIMIT_BYTES where there is none."""

    @abstractmethod
    def set_cpu_quota(self, cores: float) -> None:
        """Limits CPU to `cores` per period of QUOTA_PERIOD_US, at least the kernel's minimum; inf = no limit.

        Written though it may be unchanged: a write refills the group's runtime and lets throttled tasks run.
        """

    @abstractmethod
    def set_memory_limit(self, limit_bytes: int) -> int:
        """Limits memory and swap together; the limit in force, in whole pages.

        It is larger than what was asked for where the group holds more that cannot be reclaimed: nothing is
        killed by a smaller limit. What would go beyond it later is killed by the kernel, or held by a trap.
        """

    @abstractmethod
    def charged_bytes(self) -> int:
        """What counts against the limit now, page cache included."""

    def trap(self) -> Trap:
        """Arms the trap (oom_trap.py says what it promises); the same one for as long as it is open."""
        if self._armed is None or self._armed.descriptor < 0:
            self._armed = self._new_trap()
        return self._armed

    def pids(self) -> set[int]:
        """Live processes in the group and in groups that they made below it."""
        return tree.pids(self.directories)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to every process in the group."""
        tree.send(self.directories, number)

    def remove(self) -> None:
        """Kills what is left inside, closes the files and removes the directories. Idempotent.

        Raises BackendError when the processes do not die.
        """
        if self._armed is not None:
            # A trap that is closed first would hand what it holds to the killer, which counts a kill.
            self.send(signal.SIGKILL)
        self.close()
        tree.remove(self.directories)

    def close(self) -> None:
        """Closes the trap and the files kept open, and leaves the group and its limits as they are."""
        if self._armed is not None:
            self._armed.close()
        while self._files:
            self._files.pop().close()
        self._doors.clear()

    def _open(self, path: Path, flags: int = os.O_RDONLY) -> ControlFile:
        self._files.append(ControlFile(path, flags))
        return self._files[-1]

    def _open_where_counted(self, path: Path, flags: int = os.O_RDWR) -> ControlFile | None:
        """None where this kernel does not have the file: swap accounting can be left out, for one."""
        return self._open(path, flags) if path.exists() else None

    def _open_doors(self) -> None:
        """Opens what `enter` writes to."""
        self._doors = [self._open(each / "cgroup.procs", os.O_WRONLY) for each in self.directories]


def quota_us(cores: float) -> int | None:
    """The quota of a period for `cores`, µs; None without a limit."""
    return None if math.isinf(cores) else max(MIN_QUOTA_US, round(cores * QUOTA_PERIOD_US))


def whole_pages(limit_bytes: int) -> int:
    """As the kernel rounds a limit; NO_LIMIT_BYTES stays what it is."""
    return (
        NO_LIMIT_BYTES
        if limit_bytes >= NO_LIMIT_BYTES - PAGE_BYTES
        else limit_bytes - limit_bytes % PAGE_BYTES
    )
