"""The ports of the real control loop: containers, telemetry and clients.

For: the protocols between the loop (host/) and its parts: cgroup drivers (cgroup/drivers.py), telemetry
sources (cgroup/polling.py, cgroup/hooks.py) and load generators. Not for: any of them. CPU is in cores,
memory in whole bytes, time in nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, Flags, Floats, Ids
from twinbed import BackendError


class GroupGoneError(BackendError):
    """The cgroup was removed by others: its container counts as removed, and nothing else stops."""


class Trap(Protocol):
    """Holds a group's tasks at its memory limit instead of letting the kernel kill them. Raising the limit
    lets them go on."""

    @property
    def descriptor(self) -> int:
        """File descriptor that becomes readable (for epoll) when a task was held."""

    def held(self) -> bool:
        """Drain the descriptor and return whether tasks are held now."""

    def surrender(self) -> None:
        """Leave the held tasks to the kernel's OOM killer. The trap stays armed for later tasks."""

    def close(self) -> None:
        """End the trap and give the group back to the OOM killer. Idempotent."""


class LimitedGroup(Protocol):
    """One container's cgroup as the loop uses it: files kept open, `pread` and `pwrite` only. Every method
    raises GroupGoneError when the cgroup was removed under us, and BackendError (file and cure) when the
    kernel refuses otherwise."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where it is, one directory per v1 hierarchy, one in v2: telemetry sources find files and inodes
        there."""

    @property
    def quota_cores(self) -> float:
        """The quota in force, cores, as last written or found; inf where there is none."""

    @property
    def limit_bytes(self) -> int:
        """The memory limit in force, bytes, as last written or found; 2^63 − 1 where there is none."""

    def set_cpu_quota(self, cores: float) -> None:
        """Limit CPU to `cores` per CFS period, at least the kernel's 1 ms; inf = no limit. The quota is
        written even if it is unchanged: a write refills the group's runtime and lets throttled tasks run."""

    def set_cpu_request(self, cores: float) -> None:
        """Give the group the CPU weight of a request of `cores`, by Kubernetes' formula
        (control/allocator/shares.py). It matters while CPUs are short."""

    def set_memory_limit(self, limit_bytes: int) -> int:
        """Limit memory and swap together, and return the limit in force, in whole pages. It is larger than
        requested if the group holds more memory that cannot be reclaimed, because a smaller limit never
        kills. Later charges above the limit are killed by the kernel, or held by a trap."""

    def charged_bytes(self) -> int:
        """Return what counts against the limit now, page cache included, bytes."""

    def trap(self) -> Trap:
        """Arm the trap and return it. Raises BackendError where this kernel has none."""


class HostGroup(LimitedGroup, Protocol):
    """A limited group with the processes in it (cgroup.group.Group is one)."""

    def pids(self) -> set[int]:
        """Return the live processes inside."""

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each process inside."""

    def remove(self) -> None:
        """Kill the processes inside and remove the group. Idempotent. An attached group only gets its
        original limits back. Raise BackendError if the processes do not die."""


@dataclass(frozen=True, slots=True)
class Records:
    """Periods that ended, one row per container that has something to report (n rows, any order).

    ids: int64[n]; end_ns: int64[n], the period's end; throttled_s: float64[n], throttled time of the period,
    summed over CPUs; idle: bool[n], made up by the source because the kernel emits no periods for idle
    groups. The rest is as in control.allocator.model.PeriodStats.
    """

    ids: Ids
    end_ns: NDArray[np.int64]
    quota_cores: Floats
    unused_cores: Floats
    throttled: Flags
    usage_cores: Floats
    memory_bytes: Bytes
    throttled_s: Floats
    idle: Flags


class TelemetrySource(Protocol):
    """Where period records come from: polling of cgroup files, or hooks in the kernel; the records are the
    same. The loop sleeps until `due_ns()` or until `descriptor` (−1: none) is readable, and calls `collect`.
    """

    @property
    def descriptor(self) -> int:
        """A descriptor to be polled for reading, or −1."""

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """Report these containers from now on."""

    def remove(self, ids: Ids) -> None:
        """Stop reporting these containers. Unknown ids are ignored."""

    def due_ns(self) -> int:
        """Return the time of its next call."""

    def collect(self, now_ns: int) -> Records:
        """Return the records since the last call. A group that no longer exists is left out and listed in
        `gone`."""

    @property
    def gone(self) -> Ids:
        """Containers whose cgroup was found removed by the last `collect`."""

    @property
    def lost(self) -> int:
        """Periods known to have ended without a record of their own, so far."""

    def close(self) -> None:
        """Close its open files. Idempotent."""


class Client(Protocol):
    """A load generator that runs beside the containers for as long as it has work."""

    def start(self) -> int:
        """Start it, once all containers are ready; return when its schedule begins, ns."""

    def running(self) -> bool:
        """Return whether it still has work."""

    def stop(self) -> None:
        """End it now. Idempotent."""
