"""An allocator that decides as a case of the contract says, and keeps all that it received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from control.allocator.model import (
    NOTHING,
    Application,
    CpuLimits,
    CpuRequests,
    Decision,
    Join,
    MemoryLimits,
    OomEvents,
    PeriodStats,
    Reason,
    Shrunk,
)
from control.allocator.ports import ReclaimRule
from control.allocator.roster import Roster

NO_LIMIT = (1 << 63) - 1


def cpu(ids, cores) -> CpuLimits:
    ids = np.atleast_1d(np.asarray(ids, np.int64))
    return CpuLimits(
        ids,
        np.broadcast_to(np.float64(cores), ids.shape).copy(),
        np.full(len(ids), Reason.RECOMMENDED, np.uint8),
    )


def requests(ids, cores) -> CpuRequests:
    ids = np.atleast_1d(np.asarray(ids, np.int64))
    return CpuRequests(ids, np.broadcast_to(np.float64(cores), ids.shape).copy())


def memory(ids, limit) -> MemoryLimits:
    ids = np.atleast_1d(np.asarray(ids, np.int64))
    return MemoryLimits(
        ids, np.broadcast_to(np.int64(limit), ids.shape).copy(), np.full(len(ids), Reason.OOM_GRANT, np.uint8)
    )


def copied(stats: PeriodStats) -> PeriodStats:
    """Return a copy, because a backend may reuse the arrays after the allocator's answer."""
    arrays = ("ids", "quota_cores", "unused_cores", "throttled", "usage_cores", "memory_bytes")
    copies = {name: getattr(stats, name).copy() for name in arrays}
    return PeriodStats(**copies, period_s=stats.period_s, at_s=stats.at_s)


@dataclass
class Scripted:
    """An allocator with fixed first decisions.

    quota, limit, requests: first values of all containers: one value, or one per container in the given
    order. requests None: no container gets a request.
    """

    quota: float | Sequence[float] = np.inf
    limit: int | Sequence[int] = NO_LIMIT
    traps_oom: bool = True
    reclaim: ReclaimRule | None = None
    requests: float | Sequence[float] | None = None
    period: Callable[[PeriodStats], Decision | None] = lambda stats: None
    oom: Callable[[OomEvents], Decision | None] = lambda event: None
    name: str = "scripted"
    periods: list[PeriodStats] = field(default_factory=list)
    ooms: list[OomEvents] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        self.roster = Roster(applications)
        return self.on_join(containers)

    def on_join(self, containers: Join) -> Decision:
        ids = self.roster.join(containers)
        quota = np.broadcast_to(np.float64(self.quota), ids.shape)
        limit = np.broadcast_to(np.int64(self.limit), ids.shape)
        reason = np.full(len(ids), Reason.INITIAL, np.uint8)
        decision = Decision(CpuLimits(ids, quota.copy(), reason), MemoryLimits(ids, limit.copy(), reason))
        asked = self.requests
        return decision if asked is None else replace(decision, requests=requests(ids, asked))

    def on_leave(self, ids) -> Decision:
        self.left.extend(ids.tolist())
        self.roster.leave(ids)
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:
        self.periods.append(copied(stats))
        return self.period(stats) or NOTHING

    def on_oom(self, event: OomEvents) -> Decision:
        self.ooms.append(event)
        return self.oom(event) or NOTHING

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        return NOTHING
