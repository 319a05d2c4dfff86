"""Control groups of version 2: one directory of the unified hierarchy.

For: the limits of one group, and making groups at the mount point. Not for: choosing the version
(drivers.py), reading counters (meter.py) nor the memory limit (memory_v2.py). Source:
Documentation/admin-guide/cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from testbed.containers.cgroup import tree
from testbed.containers.cgroup.files import write
from testbed.containers.cgroup.group import QUOTA_PERIOD_US, Group, quota_us, shares_of, weight_of
from testbed.containers.cgroup.memory_v2 import MemoryV2
from testbed.containers.cgroup.oom_trap import TrapV2
from testbed.containers.ownership import MARK


class GroupV2(Group):
    """A cgroup of the unified hierarchy."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        super().__init__((directory,))

    def _open_files(self) -> None:
        directory = self._directory
        self._open_doors()
        self._quota = self._open(directory / "cpu.max", os.O_RDWR)
        self._memory = MemoryV2(directory, self._open, self._open_where_counted)
        self._read_limits()

    def _read_limits(self) -> None:
        self._memory.read_limit()
        quota, period = self._quota.read().split()[:2]
        self.quota_cores = math.inf if quota == b"max" else int(quota) / int(period)

    def _new_trap(self) -> TrapV2:
        return TrapV2(self._memory, self._directory / "memory.events")

    @property
    def limit_bytes(self) -> int:
        """See LimitedGroup.limit_bytes."""
        return self._memory.limit_bytes

    def set_cpu_quota(self, cores: float) -> None:
        """See LimitedGroup.set_cpu_quota."""
        wanted_us = quota_us(cores)
        self._quota.write(f"{'max' if wanted_us is None else wanted_us} {QUOTA_PERIOD_US}")
        self.quota_cores = math.inf if wanted_us is None else wanted_us / QUOTA_PERIOD_US

    def set_cpu_request(self, cores: float) -> None:
        """See LimitedGroup.set_cpu_request."""
        write(self._directory / "cpu.weight", str(weight_of(shares_of(cores))))

    def set_memory_limit(self, limit_bytes: int) -> int:
        """See LimitedGroup.set_memory_limit. Swap has a limit of its own here, which is set to 0."""
        return self._memory.set_limit(limit_bytes)


_WEIGHT, _MOST_WEIGHT = 100, 10_000
"""The kernel's default CPU weight of a group, and its largest (Documentation/admin-guide/cgroup-v2.rst)."""


@dataclass(frozen=True, slots=True)
class V2:
    """The driver of version 2. base: mount point of the unified hierarchy, below which groups are made."""

    base: Path
    version: int = 2

    @property
    def mounts(self) -> tuple[Path, ...]:
        """The mount points under which groups of ours may be."""
        return (self.base,)

    def create(self, run: str, name: str) -> GroupV2:
        """See V1.create."""
        directory = self.base / MARK / run / name
        with tree.whole([directory]):
            tree.make(directory)
            # A controller reaches a group when every group above it passes the controller down.
            for above in (self.base, self.base / MARK, self.base / MARK / run):
                write(above / "cgroup.subtree_control", "+cpu +memory")
            tree.weigh(self.base / MARK / run, "cpu.weight", _WEIGHT, _MOST_WEIGHT)
            return GroupV2(directory)

    def limit_memory(self, run: str, limit_bytes: int) -> None:
        """See V1.limit_memory."""
        write(self.base / MARK / run / "memory.max", str(limit_bytes))

    def finish(self, run: str) -> None:
        """See V1.finish."""
        tree.finish(run, [self.base / MARK / run])

    def sweep(self) -> list[str]:
        """See V1.sweep."""
        return tree.sweep((self.base,))
