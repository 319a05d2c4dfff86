"""One container's cgroup of either version: its processes, its use, its limits.

For: the common part of the recorder, the control loop and attached cgroups. Not for: the files of either
version (v1.py, v2.py), nor finding the version of this machine (drivers.py).
"""

from __future__ import annotations

import math
import os
import signal
from abc import abstractmethod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from control.allocator.shares import shares, weight
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.files import ControlFile
from testbed.containers.cgroup.meter import Meter
from testbed.containers.ports import HostGroup, Trap

QUOTA_PERIOD_US = 100_000
"""CFS bandwidth period of every quota, µs: the kernel's own default."""

MIN_QUOTA_US = 1_000
"""Smallest quota that the kernel accepts, µs per period (kernel/sched/core.c, min_cfs_quota_period)."""

NO_LIMIT_BYTES = 2**63 - 1
"""Memory limit that means no limit, bytes."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """One container's counters at one moment.

    cpu_ns, throttled_ns: CPU time and throttled time since creation, ns.
    nr_periods, nr_throttled: CFS periods elapsed and throttled since creation.
    memory_bytes: the working set, bytes, as cAdvisor counts it: charged memory less inactive file pages.
    """

    cpu_ns: int
    throttled_ns: int
    nr_periods: int
    nr_throttled: int
    memory_bytes: int


NOTHING_USED = Usage(0, 0, 0, 0, 0)
"""The counters of a group in which nothing ever ran."""


class Group(HostGroup):
    """One container's cgroup, with its files kept open. ports.py describes its methods. A memory limit covers
    swap, too, if the kernel counts swap."""

    directories: tuple[Path, ...] = ()
    quota_cores: float = math.inf

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self.directories = directories
        self._files: list[ControlFile] = []
        self._doors: list[ControlFile] = []
        self._meter: Meter | None = None
        self._armed: Trap | None = None
        try:
            self._open_files()
            self._meter = Meter(directories)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _open_files(self) -> None:
        """Open the files of this version, and read the limits in force."""

    @abstractmethod
    def _read_limits(self) -> None:
        """Take the limits in the kernel's files for those in force."""

    def keep_limits(self) -> bool:
        """See HostGroup.keep_limits."""
        ours = self.quota_cores, self.limit_bytes
        self._read_limits()
        if ours == (self.quota_cores, self.limit_bytes):
            return False
        self.set_cpu_quota(ours[0])
        self.set_memory_limit(ours[1])
        return True

    @abstractmethod
    def _new_trap(self) -> Trap: ...

    def enter(self) -> None:
        """Move the calling process in. Safe between fork and exec: it only writes to open descriptors."""
        for door in self._doors:
            os.write(door.descriptor, b"0")

    def read(self) -> Usage:
        """Return the counters now. The CPU counters are read first."""
        assert self._meter is not None
        now = self._meter.read()
        working_set = max(0, now.charged_bytes - self._meter.inactive_file_bytes())
        return Usage(now.cpu_ns, now.throttled_ns, now.nr_periods, now.nr_throttled, working_set)

    def charged_bytes(self) -> int:
        """See LimitedGroup.charged_bytes."""
        assert self._meter is not None
        return self._meter.charged_bytes()

    def trap(self) -> Trap:
        """Arm the trap (oom_trap.py). Returns the same one for as long as it is open."""
        if self._armed is None or self._armed.descriptor < 0:
            self._armed = self._new_trap()
        return self._armed

    def pids(self) -> set[int]:
        """Return the live processes in the group and in groups that they made below it."""
        return tree.pids(self.directories)

    def send(self, number: signal.Signals) -> None:
        """See HostGroup.send."""
        tree.send(self.directories, number)

    def remove(self) -> None:
        """See HostGroup.remove."""
        if self._armed is not None:
            # If the trap were closed first, the OOM killer would kill the held tasks and count a kill.
            self.send(signal.SIGKILL)
        self.close()
        tree.remove(self.directories)

    def close(self) -> None:
        """Close the trap and the open files. The group and its limits stay unchanged."""
        try:
            if self._armed is not None:
                self._armed.close()
        finally:
            if self._meter is not None:
                self._meter.close()
            while self._files:
                self._files.pop().close()
            self._doors.clear()

    def _open(self, path: Path, flags: int = os.O_RDONLY) -> ControlFile:
        self._files.append(ControlFile(path, flags))
        return self._files[-1]

    def _open_where_counted(self, path: Path, flags: int = os.O_RDWR) -> ControlFile | None:
        """Open a file, or return None where this kernel does not have it, e.g. without swap accounting."""
        return self._open(path, flags) if path.exists() else None

    def _open_doors(self) -> None:
        """Open what `enter` writes to."""
        self._doors = [self._open(place / "cgroup.procs", os.O_WRONLY) for place in self.directories]


def quota_us(cores: float) -> int | None:
    """Return the quota of a period for `cores`, µs; None for no limit."""
    return None if math.isinf(cores) else max(MIN_QUOTA_US, round(cores * QUOTA_PERIOD_US))


def shares_of(cores: float) -> int:
    """Return cpu.shares of a CPU request in cores."""
    return int(shares(np.array([cores]))[0])


def weight_of(cpu_shares: int) -> int:
    """Return cpu.weight that stands for cpu.shares."""
    return int(weight(np.array([cpu_shares]))[0])


def whole_pages(limit_bytes: int) -> int:
    """Return a limit as the kernel rounds it, bytes. NO_LIMIT_BYTES is unchanged."""
    return (
        NO_LIMIT_BYTES
        if limit_bytes >= NO_LIMIT_BYTES - PAGE_BYTES
        else limit_bytes - limit_bytes % PAGE_BYTES
    )
