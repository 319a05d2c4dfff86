"""The data that allocators and backends exchange, as structures of arrays.

For: period and service statistics, OOM events, reclaim reports, limits and decisions. Not for: deciding.
There is one NumPy array per quantity over all containers of all applications, in the same order as `ids`.

A container id is issued by the allocator's `Roster` when the container joins. Its low 32 bits are its slot,
its high bits count the slot's occupants. So the id alone distinguishes late telemetry of a container that
left from its successor's, and both sides index their arrays by `slot(ids)`.

CPU quantities are in cores: a quota of 20 ms per 100 ms period is 0.2 core, and unused runtime is expressed
the same way. Memory is whole bytes (int64), so that conservation is exact. Source: Escra (ICDCS 2022), the
telemetry and the limits of a Distributed Container.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.paths import Spans
from twinbed import InvariantError

Ids = NDArray[np.int64]
Slots = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Reasons = NDArray[np.uint8]

SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1
PAGE_BYTES = 4096
KERNEL_MIN_QUOTA_S = 0.001
"""The kernel refuses a CFS quota below 1 ms per period (kernel/sched/core.c, min_cfs_quota_period)."""


def slot(ids: Ids) -> Slots:
    """Return the array index (from 0) of each container id, int64[n]."""
    return ids & SLOT_MASK


class Reason(IntEnum):
    """The reason of a changed limit. One byte per change; `describe` gives its text."""

    NONE = 0
    INITIAL = 1
    JOINED = 2
    MADE_ROOM = 3
    THROTTLED = 4
    UNUSED = 5
    OOM_GRANT = 6
    RECLAIMED = 7
    RECOMMENDED = 8
    OOM_BUMP = 9
    ABOVE_TARGET = 10
    BELOW_TARGET = 11
    ROLLED_BACK = 12
    CULPRIT = 13
    TAKEN_BACK = 14

    def describe(self) -> str:
        """Return the reason as a short clause for a table or a log line."""
        return _REASON_TEXT[self]


_REASON_TEXT = {
    Reason.NONE: "unchanged",
    Reason.INITIAL: "initial share at deployment",
    Reason.JOINED: "share given to a container that joined",
    Reason.MADE_ROOM: "lowered to make room for a container that joined",
    Reason.THROTTLED: "throttled in the last period: raised from the unallocated pool",
    Reason.UNUSED: "left more than the threshold unused: lowered",
    Reason.OOM_GRANT: "at its memory limit: granted from the pool",
    Reason.RECLAIMED: "memory above usage plus margin returned to the pool",
    Reason.RECOMMENDED: "the recommender's new estimate",
    Reason.OOM_BUMP: "raised after an out-of-memory kill",
    Reason.ABOVE_TARGET: "throttled in more of the last periods than the target allows: raised",
    Reason.BELOW_TARGET: "throttled no more than the target allows: lowered to recent usage plus a margin",
    Reason.ROLLED_BACK: "throttled too often since it was lowered: raised back and as far again",
    Reason.CULPRIT: "found to make requests slow, or close to it: raised",
    Reason.TAKEN_BACK: "not needed to keep the latency that was asked for: lowered",
}


def reasons(count: int, reason: Reason | Reasons) -> Reasons:
    """Return `reason` as uint8[count]: one reason for all, or an array of that length."""
    return np.full(count, reason, np.uint8)


def _same_length(what: str, first: NDArray[np.generic], *others: NDArray[np.generic] | None) -> None:
    for other in others:
        if other is not None and other.shape != first.shape:
            raise InvariantError(f"{what}: arrays of {first.shape} and {other.shape} side by side")


@dataclass(frozen=True, slots=True)
class Application:
    """A Distributed Container: all containers of one tenant under two global limits.

    cpu_limit_cores: Ω, cores, > 0. memory_limit_bytes: M, bytes, > 0.
    """

    name: str
    cpu_limit_cores: float
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True)
class History:
    """Use of containers in the periods of a profile.

    usage_cores: float64[T, k], CPU use of each period, NaN where the container was not there. memory_bytes:
    int64[T, k], usage at its end. period_s: length, s.
    """

    usage_cores: Floats
    memory_bytes: Bytes
    period_s: float

    def __post_init__(self) -> None:
        _same_length("History", self.usage_cores, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Join:
    """Containers that join.

    app: int64[k], index into the applications given to `start`. host_cores: float64[k], the largest useful
    quota. peak_cores, peak_bytes: profiled maxima (float64[k] cores, int64[k] bytes), or None without a
    profile (policies that need them require it). profile: use in the profile that the peaks are taken from,
    one column per container; None unless the policy asks for it (`ports.Given`). host: int64[k], each
    container's host; None: not known. workload: int64[k], equal for replicas of one workload; None: each
    container is a workload of its own.
    """

    app: NDArray[np.int64]
    host_cores: Floats
    peak_cores: Floats | None = None
    peak_bytes: Bytes | None = None
    profile: History | None = None
    host: NDArray[np.int64] | None = None
    workload: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        usage = None if self.profile is None else self.profile.usage_cores
        first = None if usage is None or not len(usage) else usage[0]
        known = (self.host_cores, self.peak_cores, self.peak_bytes, first, self.host, self.workload)
        _same_length("Join", self.app, *known)


@dataclass(frozen=True, slots=True)
class PeriodStats:
    """One CFS period's telemetry of the containers that reported (any subset, any order).

    quota_cores: float64[n], quota in force at the period's end. unused_cores: float64[n], runtime left in the
    pool then, over the period. throttled: bool[n], a runqueue is throttled at the period's end or was in it.
    usage_cores: float64[n], CPU time used over the period. memory_bytes: int64[n], usage at the period's end.
    period_s: length, s. at_s: the period's end on the backend's time line (data, not a clock), s.
    """

    ids: Ids
    quota_cores: Floats
    unused_cores: Floats
    throttled: Flags
    usage_cores: Floats
    memory_bytes: Bytes
    period_s: float
    at_s: float

    def __post_init__(self) -> None:
        _same_length(
            "PeriodStats",
            self.ids,
            self.quota_cores,
            self.unused_cores,
            self.throttled,
            self.usage_cores,
            self.memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """Rates and latencies of each application's clients over the last service interval, for
    `ports.ServiceAware`.

    rate_rps: float64[apps], requests that arrived, 1/s. latency_p99_s: float64[apps], p99 latency of the
    requests answered in the interval, NaN where none was. at_s: the interval's end on the backend's time
    line, s. spans: spans of requests answered in the interval, with container ids as owners; None unless the
    allocator is `ports.SpanAware` and the backend traces requests. mix: float64[apps, 3], shares of each
    application's three commonest kinds of request among those that arrived, largest first, 0 where there are
    fewer; None without spans. failed: float64[apps], share of the requests that ended in the interval without
    an answer, 0 where none ended; None: not known.
    """

    rate_rps: Floats
    latency_p99_s: Floats
    at_s: float
    spans: Spans | None = None
    mix: Floats | None = None
    failed: Floats | None = None

    def __post_init__(self) -> None:
        _same_length("ServiceStats", self.rate_rps, self.latency_p99_s)


@dataclass(frozen=True, slots=True)
class OomEvents:
    """Containers held at their memory limit: ids, and bytes of the charge above the limit (≥ 1)."""

    ids: Ids
    needed_bytes: Bytes
    at_s: float

    def __post_init__(self) -> None:
        _same_length("OomEvents", self.ids, self.needed_bytes)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Agents' report of a reclaim: the containers whose limit they lowered, and the new limits (bytes).

    apps: int64[m], the applications that were asked, including those where nothing could be freed. The report
    ends an allocator's wait for memory.
    """

    apps: NDArray[np.int64]
    ids: Ids
    limit_bytes: Bytes
    at_s: float

    def __post_init__(self) -> None:
        _same_length("Shrunk", self.ids, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """New CPU limits (cores) of the containers `ids`, each with its `Reason`."""

    ids: Ids
    quota_cores: Floats
    reason: Reasons

    def __post_init__(self) -> None:
        _same_length("CpuLimits", self.ids, self.quota_cores, self.reason)


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """New memory limits (bytes) of the containers `ids`, each with its `Reason`."""

    ids: Ids
    limit_bytes: Bytes
    reason: Reasons

    def __post_init__(self) -> None:
        _same_length("MemoryLimits", self.ids, self.limit_bytes, self.reason)


@dataclass(frozen=True, slots=True)
class CpuRequests:
    """CPU requests (cores, ≥ 0) of the containers `ids`.

    A request is the least CPU that a container gets, and its weight while its host is short of CPU
    (`shares.py`). A request is not an upper bound.
    """

    ids: Ids
    cores: Floats

    def __post_init__(self) -> None:
        _same_length("CpuRequests", self.ids, self.cores)


def _frozen(dtype: type) -> NDArray[Any]:
    array: NDArray[Any] = np.empty(0, dtype)
    array.setflags(write=False)
    return array


NO_IDS: Ids = _frozen(np.int64)
NO_CPU = CpuLimits(NO_IDS, _frozen(np.float64), _frozen(np.uint8))
NO_MEMORY = MemoryLimits(NO_IDS, NO_IDS, _frozen(np.uint8))
NO_REQUESTS = CpuRequests(NO_IDS, _frozen(np.float64))


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes that the backend must carry out. An empty part changes nothing.

    Decreases are carried out before increases. restart: containers whose new limits take effect only after a
    restart (VPA). kill: containers left to the OOM killer. reclaim: int64[m], applications whose containers
    the agents must shrink now; `on_reclaimed` receives the answer. requests: new CPU requests; a container
    that never got one keeps the backend's default weight.
    """

    cpu: CpuLimits = field(default=NO_CPU)
    memory: MemoryLimits = field(default=NO_MEMORY)
    restart: Ids = field(default_factory=lambda: NO_IDS)
    kill: Ids = field(default_factory=lambda: NO_IDS)
    reclaim: NDArray[np.int64] = field(default_factory=lambda: NO_IDS)
    requests: CpuRequests = field(default=NO_REQUESTS)

    @property
    def empty(self) -> bool:
        """True if there is nothing to carry out."""
        parts = (self.cpu.ids, self.memory.ids, self.requests.ids, self.restart, self.kill, self.reclaim)
        return all(part.size == 0 for part in parts)


NOTHING = Decision()


def together(*decisions: Decision) -> Decision:
    """Return decisions about different containers, merged into one."""
    told = [decision for decision in decisions if not decision.empty]
    if len(told) < 2:
        return told[0] if told else NOTHING

    def joined(part: str, kind: type[Any]) -> Any:
        arrays = [[getattr(getattr(decision, part), spec.name) for decision in told] for spec in fields(kind)]
        return kind(*map(np.concatenate, arrays))

    return Decision(
        cpu=joined("cpu", CpuLimits),
        memory=joined("memory", MemoryLimits),
        requests=joined("requests", CpuRequests),
        **{
            part: np.concatenate([getattr(decision, part) for decision in told])
            for part in ("restart", "kill", "reclaim")
        },
    )
