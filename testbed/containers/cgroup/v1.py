"""Control groups of version 1: a directory in each of the hierarchies cpu, cpuacct and memory.

For: the limits of one group, and making groups below the caller's own. Not for: choosing the version
(drivers.py) nor reading counters (meter.py). Sources: Documentation/admin-guide/cgroup-v1/memory.rst and
scheduler/sched-bwc.rst of the kernel.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.containers.cgroup import tree
from testbed.containers.cgroup.files import read, write
from testbed.containers.cgroup.group import (
    NO_LIMIT_BYTES,
    QUOTA_PERIOD_US,
    Group,
    quota_us,
    shares_of,
    whole_pages,
)
from testbed.containers.cgroup.oom_trap import TrapV1
from testbed.containers.ownership import MARK

CONTROLLERS = ("cpu", "cpuacct", "memory")


class GroupV1(Group):
    """A cgroup in the hierarchies cpu, cpuacct and memory, which may be mounted separately or together."""

    limit_bytes: int = NO_LIMIT_BYTES

    def __init__(self, by_controller: Mapping[str, Path]) -> None:
        self._by_controller = by_controller
        super().__init__(tuple(dict.fromkeys(by_controller.values())))

    def _open_files(self) -> None:
        cpu, memory = self._by_controller["cpu"], self._by_controller["memory"]
        self._open_doors()
        self._quota = self._open(cpu / "cpu.cfs_quota_us", os.O_RDWR)
        self._limit = self._open(memory / "memory.limit_in_bytes", os.O_RDWR)
        self._with_swap = self._open_where_counted(memory / "memory.memsw.limit_in_bytes")
        self._read_limits()

    def _read_limits(self) -> None:
        self._period_us = int(read(self._by_controller["cpu"] / "cpu.cfs_period_us"))
        quota_us_now = int(self._quota.read())
        self.quota_cores = math.inf if quota_us_now < 0 else quota_us_now / self._period_us
        self.limit_bytes = whole_pages(int(self._limit.read()))
        self._with_swap_bytes = NO_LIMIT_BYTES
        if self._with_swap is not None:
            self._with_swap_bytes = whole_pages(int(self._with_swap.read()))

    def _new_trap(self) -> TrapV1:
        return TrapV1(self._by_controller["memory"])

    def set_cpu_quota(self, cores: float) -> None:
        """See LimitedGroup.set_cpu_quota."""
        if self._period_us != QUOTA_PERIOD_US:
            write(self._by_controller["cpu"] / "cpu.cfs_period_us", str(QUOTA_PERIOD_US))
            self._period_us = QUOTA_PERIOD_US
        wanted_us = quota_us(cores)
        self._quota.write("-1" if wanted_us is None else str(wanted_us))
        self.quota_cores = math.inf if wanted_us is None else wanted_us / QUOTA_PERIOD_US

    def set_cpu_request(self, cores: float) -> None:
        """See LimitedGroup.set_cpu_request."""
        write(self._by_controller["cpu"] / "cpu.shares", str(shares_of(cores)))

    def set_memory_limit(self, limit_bytes: int) -> int:
        """See LimitedGroup.set_memory_limit. memsw covers swap; it cannot be below the limit itself."""
        if not self._limited_to(whole_pages(limit_bytes)):
            # The kernel has already reclaimed as much as possible, so no limit below the charge is possible.
            least = self.charged_bytes()
            if least < self.limit_bytes:
                self._limited_to(least)
        return self.limit_bytes

    def _limited_to(self, limit_bytes: int) -> bool:
        """Set the limit. Return False if the group holds more than this and the kernel cannot shrink it."""
        text = "-1" if limit_bytes == NO_LIMIT_BYTES else str(limit_bytes)
        raising = limit_bytes > self._with_swap_bytes
        if raising:
            self._cover_swap(limit_bytes, text)
        if not self._limit.try_write(text):
            return False
        self.limit_bytes = limit_bytes
        if not raising:
            self._cover_swap(limit_bytes, text)
        return True

    def _cover_swap(self, limit_bytes: int, text: str) -> None:
        """Limit memory and swap together. Memory that is in swap already cannot be reclaimed. Then the larger
        limit stays."""
        if self._with_swap is None or limit_bytes == self._with_swap_bytes:
            return
        if self._with_swap.try_write(text):
            self._with_swap_bytes = limit_bytes


_SHARES, _MOST_SHARES = 1024, 262_144
"""The kernel's default CPU weight of a group, and its largest (kernel/sched/sched.h, MAX_SHARES)."""


@dataclass(frozen=True, slots=True)
class V1:
    """The driver of version 1.

    base: controller (cpu, cpuacct, memory) → directory below which groups are made. mounts: mount points of
    all hierarchies, which are searched for leftovers.
    """

    base: Mapping[str, Path]
    mounts: tuple[Path, ...]
    version: int = 1

    def create(self, run: str, name: str) -> GroupV1:
        """Return a new, empty group `twinbed/<run>/<name>`. Raises BackendError where the kernel refuses."""
        directories = {controller: base / MARK / run / name for controller, base in self.base.items()}
        with tree.whole(directories.values()):
            for directory in dict.fromkeys(directories.values()):
                tree.make(directory)
            tree.weigh(self.base["cpu"] / MARK / run, "cpu.shares", _SHARES, _MOST_SHARES)
            return GroupV1(directories)

    def limit_memory(self, run: str, limit_bytes: int) -> None:
        """Limit the memory of all groups of a run together. Above the limit, the kernel takes page cache back
        from all of them, and then its OOM killer ends the largest process, in spite of any traps. Until that
        process's memory is free, which takes milliseconds, a page for another group ends one there, too."""
        write(self.base["memory"] / MARK / run / "memory.limit_in_bytes", str(limit_bytes))

    def mount_of(self, controller: str) -> Path:
        """Return where the hierarchy of a controller is mounted."""
        return next(mount for mount in self.mounts if self.base[controller].is_relative_to(mount))

    def finish(self, run: str) -> None:
        """Remove the run's directory once its groups are removed, and the mark's directory if it is empty.
        Give up the run."""
        tree.finish(run, [base / MARK / run for base in dict.fromkeys(self.base.values())])

    def sweep(self) -> list[str]:
        """End and remove the groups of runs whose owner is known to be dead; return their names."""
        return tree.sweep(self.mounts)
