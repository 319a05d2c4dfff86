"""The ports of the real control loop: containers, telemetry and clients.

For: the protocols between the loop (host/) and its parts: cgroup drivers (cgroup/drivers.py), telemetry
sources (cgroup/polling.py, cgroup/hooks.py) and load generators. Not for: their implementations. CPU is in
cores, memory in whole bytes, time in nanoseconds of CLOCK_MONOTONIC.
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
    """Raised when others removed the cgroup. Its container counts as removed, and the other containers
    continue."""


class Trap(Protocol):
    """Holds a group's tasks at its memory limit instead of letting the kernel kill them. They continue when
    the limit is raised."""

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
    """One container's cgroup as the loop uses it. Its files stay open, and only `pread` and `pwrite` are
    used. Every method raises GroupGoneError if others removed the cgroup, and BackendError (file and cure) if
    the kernel refuses for another reason."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """The group's directories: one per v1 hierarchy, one in v2. Telemetry sources find files and inodes
        there."""

    @property
    def quota_cores(self) -> float:
        """The quota in force, cores: the value last written, or found at the start; inf: no quota."""

    @property
    def limit_bytes(self) -> int:
        """The memory limit in force, bytes: the value last written, or found at the start; 2^63 − 1: no
        limit."""

    def set_cpu_quota(self, cores: float) -> None:
        """Limit CPU to `cores` per CFS period, at least the kernel's 1 ms; inf: no limit. The quota is
        written even if it is unchanged, because a write refills the group's runtime and lets throttled tasks
        run."""

    def set_cpu_request(self, cores: float) -> None:
        """Give the group the CPU weight of a request of `cores`, by Kubernetes' formula
        (control/allocator/shares.py). The weight matters only while CPUs are short."""

    def set_memory_limit(self, limit_bytes: int) -> int:
        """Limit memory and swap together, and return the limit in force, bytes, in whole pages. Lowering a
        limit never kills: the limit stays as large as the memory that cannot be reclaimed. If a task later
        needs more than the limit, the kernel kills it, or a trap holds it."""

    def charged_bytes(self) -> int:
        """Return the memory that counts against the limit now, page cache included, bytes."""

    def trap(self) -> Trap:
        """Arm the trap and return it. Raises BackendError if this kernel has none."""


class HostGroup(LimitedGroup, Protocol):
    """A limited group with the processes in it (cgroup.group.Group is one)."""

    def pids(self) -> set[int]:
        """Return the live processes inside."""

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each process inside."""

    def keep_limits(self) -> bool:
        """Set the limits in force again if another system has changed them. Return whether it had."""

    def remove(self) -> None:
        """Kill the processes inside and remove the group. Idempotent. An attached group only gets its
        original limits back. Raises BackendError if the processes do not die."""


@dataclass(frozen=True, slots=True)
class Records:
    """Periods that ended, one row per container that has something to report (n rows, any order).

    ids: int64[n], containers.
    end_ns: int64[n], end of the period, ns.
    throttled_s: float64[n], throttled time in the period, summed over CPUs, s.
    idle: bool[n], whether the source made the record up, because an idle group has no periods.
    The other fields are as in control.allocator.model.PeriodStats.
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
    """A source of period records: polling of cgroup files, or hooks in the kernel. Both give the same
    records. The loop sleeps until `due_ns()`, or until `descriptor` (−1: none) is readable, and then calls
    `collect`.
    """

    @property
    def descriptor(self) -> int:
        """A descriptor to be polled for reading, or −1."""

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """Report these containers from now on."""

    def remove(self, ids: Ids) -> None:
        """Stop reporting these containers. Unknown ids are ignored."""

    def due_ns(self) -> int:
        """Return the time at which `collect` is to be called next, ns."""

    def collect(self, now_ns: int) -> Records:
        """Return the records since the last call. A group that no longer exists is left out and listed in
        `gone`."""

    @property
    def gone(self) -> Ids:
        """Containers whose cgroup did not exist any more at the last `collect`."""

    @property
    def lost(self) -> int:
        """Number of periods so far that are known to have ended without a record of their own."""

    def close(self) -> None:
        """Close the source's open files. Idempotent."""


class Client(Protocol):
    """A load generator that runs beside the containers for as long as it has work."""

    def start(self) -> int:
        """Start the client once all containers are ready. Returns the time at which its schedule begins,
        ns."""

    def running(self) -> bool:
        """Return whether the client still has work."""

    def stop(self) -> None:
        """End the client now. Idempotent."""
