"""Limits of containers under their application's global limits, for policies that know no global limit.

For: keeping Σ limits ≤ Ω and ≤ M for VPA, Autopilot and Autothrottle, which decide for each container alone,
and their members. Not for: deciding what a container needs.

Recommended decreases are applied in full. Increases share what is then unallocated, in proportion to what
each container asks for. Older containers make room for containers that join. A policy whose limits overcommit
(VPA: twice the request) gets less than it asks for.

Source: the invariants are Escra's (ICDCS 2022). The sharing rule treats containers alike and does not depend
on their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import (
    KERNEL_MIN_QUOTA_S,
    NOTHING,
    PAGE_BYTES,
    Application,
    CpuLimits,
    Decision,
    Floats,
    Ids,
    Join,
    MemoryLimits,
    Reason,
    Reasons,
    Slots,
    reasons,
    slot,
)
from control.allocator.ports import WithoutReclaim
from control.allocator.roster import Roster
from twinbed import ScenarioError

_USUAL_PERIOD_S = 0.1
"""The kernel's default CFS period, s, used until telemetry reports another."""
_ROUNDING = 1.0 + 1e-12
"""Tolerance with which Ω / 0.01 containers fit, whatever the rounding of the product."""


class CappedLimits:
    """One resource's limits per slot. The limits of an application never sum to more than its `total`
    (float64[apps]).

    what: the resource's name in errors. least: minimum of every member. quantum: limits are whole multiples
    of it (0: any value). Values are float64, which holds bytes exactly up to 2^53.
    """

    def __init__(self, roster: Roster, what: str, total: Floats, least: float, quantum: int) -> None:
        self._roster = roster
        self._what = what
        self._total = total
        self._least = least
        self._quantum = quantum
        self._limits = roster.column(0.0, np.float64)

    @property
    def least(self) -> float:
        """Minimum of every member."""
        return self._least

    @property
    def values(self) -> Floats:
        """Limits, float64[size]; 0 where the slot is free. Do not write to it."""
        return self._limits.values[: self._roster.size]

    def check_room(self, apps: NDArray[np.int64]) -> None:
        """Raise ScenarioError if newcomers in `apps` (int64[k]) push the fair share below the minimum."""
        members = self._roster.members + np.bincount(apps, minlength=len(self._total))
        short = np.flatnonzero(members * self._least > self._total * _ROUNDING)
        if short.size:
            app = int(short[0])
            raise ScenarioError(
                f"application {self._roster.applications[app].name!r}: {members[app]} containers do not fit "
                f"its {self._what} limit: each needs at least {self._least:g}"
            )

    def fair_share(self, slots: Slots) -> Floats:
        """Return the application's limit divided by its number of members, for each slot, float64[n]."""
        app = self._roster.app[slots]
        return np.asarray(self._total[app] / self._roster.members[app], np.float64)

    def admit(self, new: Slots, wanted: Floats, keep: Floats) -> Slots:
        """Give newcomers (slots, already members) the limits that they want, or less if the application is
        short.

        wanted: float64[k]. keep: float64[size], the value that an older member should keep (its memory
        usage). Returns the slots of older members that were lowered for newcomers, ascending. Newcomers
        together get at least their fair share. Older members above the fair share make room, in proportion to
        their excess. A member falls below `keep` only if newcomers would otherwise get less than the minimum.
        """
        app = self._roster.app
        newcomer = np.zeros(self._roster.size, np.bool_)
        newcomer[new] = True
        count = np.bincount(app[new], minlength=len(self._total))
        fair = self._total / np.maximum(self._roster.members, 1)
        old = np.where(newcomer, 0.0, self.values)
        kept = self._rounded(np.minimum(old, np.maximum(fair[app], keep)))
        tight = self._total - self._sums(kept) < count * self._least
        kept = np.where(tight[app], self._rounded(np.minimum(old, fair[app])), kept)
        free = self._total - self._sums(old)
        budget = np.maximum(free, np.minimum(count * fair, self._total - self._sums(kept)))
        granted = np.zeros(self._roster.size)
        aim = np.maximum(self._rounded_up(wanted), self._least)
        granted[new] = self._scaled(app[new], aim, budget, count)
        excess = self._sums(granted) - free
        above = old - kept
        cut = np.minimum(_ratio(np.maximum(excess, 0.0), self._sums(above)), 1.0)
        lowered = np.where(cut[app] > 0, np.maximum(self._rounded(old - above * cut[app]), kept), old)
        self.values[:] = lowered + granted
        return np.flatnonzero(lowered < old)

    def require(self, least: float) -> tuple[Slots, Slots]:
        """Set a new minimum for every member.

        Returns (slots raised to it, slots lowered to make room for them).
        """
        self._least = least
        self.check_room(np.empty(0, np.int64))
        below = np.flatnonzero(self._roster.alive & (self.values < least))
        self.values[below] = 0.0
        return below, self.admit(below, np.full(len(below), least), np.zeros(self._roster.size))

    def change(self, slots: Slots, wanted: Floats) -> NDArray[np.bool_]:
        """Move limits towards `wanted` (float64[n]) as far as the totals allow. slots: int64[n], distinct
        members.

        Returns bool[n]: the slots whose limit changed.
        """
        before = self.values[slots]
        self.values[slots] = self.attainable(slots, wanted)
        return np.asarray(self.values[slots] != before, np.bool_)

    def attainable(self, slots: Slots, wanted: Floats) -> Floats:
        """Return the limits that `change` would set, float64[n], without setting them."""
        app = self._roster.app[slots]
        now = self.values[slots]
        aim = np.maximum(self._rounded_up(wanted), self._least)
        more = np.maximum(aim - now, 0.0)
        after_cuts = self.values.copy()
        after_cuts[slots] = np.minimum(aim, now)
        pool = np.maximum(self._total - self._sums(after_cuts), 0.0)
        share = np.minimum(_ratio(pool, _sums(app, more, len(pool))), 1.0)[app]
        part = self._rounded(now + more * share)
        # A limit that is not cut is set exactly: rounding must not move it off the end of its bucket.
        return np.where((aim <= now) | (share >= 1.0), aim, part)

    def vacate(self, slots: Slots) -> None:
        """Return the limits of members that left to their applications' pools."""
        self._limits.values[slots] = 0.0

    def _scaled(self, app: Slots, wanted: Floats, budget: Floats, count: NDArray[np.int64]) -> Floats:
        """Scale the part above the minimum so that each application stays within its budget."""
        base = np.asarray(count * self._least, np.float64)
        asked = _sums(app, wanted, len(budget)) - base
        share = np.minimum(_ratio(np.maximum(budget - base, 0.0), asked), 1.0)
        part = self._rounded(self._least + (wanted - self._least) * share[app])
        return np.where(share[app] >= 1.0, wanted, part)

    def _sums(self, values: Floats) -> Floats:
        return _sums(self._roster.app, values, len(self._total))

    def _rounded(self, values: Floats) -> Floats:
        return np.floor(values / self._quantum) * self._quantum if self._quantum else values

    def _rounded_up(self, values: Floats) -> Floats:
        return np.ceil(values / self._quantum) * self._quantum if self._quantum else values


class CappedFleet:
    """CPU and memory limits of all members. It implements the joins and leaves of `ports.Allocator`.

    cpu_factor, memory_factor: a profiled container starts at this factor times its peak, scaled down if the
    application is short. Other containers start at the fair share, Ω/k and M/k, because their use is unknown.
    """

    def __init__(
        self, applications: tuple[Application, ...], cpu_factor: float, memory_factor: float
    ) -> None:
        self.roster = Roster(applications)
        memory_total = np.floor(self.roster.memory_limit_bytes / PAGE_BYTES) * PAGE_BYTES
        self.period_s = _USUAL_PERIOD_S
        least = KERNEL_MIN_QUOTA_S / _USUAL_PERIOD_S
        self.cpu = CappedLimits(self.roster, "CPU", self.roster.cpu_limit_cores, least, 0)
        self.memory = CappedLimits(self.roster, "memory", memory_total, PAGE_BYTES, PAGE_BYTES)
        self._factors = cpu_factor, memory_factor

    def join(self, containers: Join, reason: Reason, memory_in_use: Floats) -> Decision:
        """Admit containers; this answers `ports.Allocator.start` and `on_join`.

        memory_in_use: float64[size before the join], bytes; a member is not lowered below it unless there is
        no other way. Older members' limits are lowered in place even under a policy that restarts containers
        to change them, because the application's limit acts here and not the policy. Raises ScenarioError,
        with nothing changed, if an application's limits cannot give each member the minimum.
        """
        self.cpu.check_room(containers.app)
        self.memory.check_room(containers.app)
        ids = self.roster.join(containers)
        new = slot(ids)
        keep = np.zeros(self.roster.size)
        keep[: len(memory_in_use)] = memory_in_use
        keep[new] = 0.0
        cpu_factor, memory_factor = self._factors
        cores = _first(self.cpu, new, containers.peak_cores, cpu_factor)
        cores = np.minimum(cores, containers.host_cores)
        cpu_lowered = self.cpu.admit(new, cores, np.zeros(self.roster.size))
        size = _first(self.memory, new, containers.peak_bytes, memory_factor)
        memory_lowered = self.memory.admit(new, size, keep)
        return Decision(
            cpu=self.cpu_limits(*self._entries(cpu_lowered, new, reason)),
            memory=self.memory_limits(*self._entries(memory_lowered, new, reason)),
        )

    def fit_period(self, period_s: float) -> Decision:
        """Adopt the telemetry's period. In a shorter period, the kernel's minimum of 1 ms is more cores.

        The decision is empty unless the period has just become shorter and a limit is below the new minimum.
        Raises ScenarioError if an application cannot give each member that minimum.
        """
        if period_s == self.period_s:
            return NOTHING
        self.period_s = period_s
        lifted, lowered = self.cpu.require(KERNEL_MIN_QUOTA_S / period_s)
        return Decision(cpu=self.cpu_limits(*self._entries(lowered, lifted, Reason.INITIAL)))

    def leave(self, ids: Ids) -> None:
        """Forget members and return their limits to the applications. Unknown ids are ignored."""
        gone = self.roster.leave(ids)
        self.cpu.vacate(gone)
        self.memory.vacate(gone)

    def cpu_limits(self, slots: Slots, reason: Reason | Reasons) -> CpuLimits:
        """Return the CPU part of a decision: the present limits of these slots, with their reasons."""
        return CpuLimits(self.roster.ids[slots], self.cpu.values[slots], reasons(len(slots), reason))

    def memory_limits(self, slots: Slots, reason: Reason | Reasons) -> MemoryLimits:
        """Return the memory part of a decision: the present limits of these slots in whole bytes."""
        limits = self.memory.values[slots].astype(np.int64)
        return MemoryLimits(self.roster.ids[slots], limits, reasons(len(slots), reason))

    def _entries(self, lowered: Slots, new: Slots, reason: Reason) -> tuple[Slots, Reasons]:
        codes = reasons(len(lowered) + len(new), reason)
        codes[: len(lowered)] = Reason.MADE_ROOM
        return np.concatenate([lowered, new]), codes


class CappedPolicy(WithoutReclaim, ABC):
    """`ports.Allocator` under global limits: joins and leaves. A subclass adds the name and `on_period`.

    cpu_factor, memory_factor: as in `CappedFleet`.
    """

    def __init__(self, cpu_factor: float, memory_factor: float) -> None:
        self._factors = cpu_factor, memory_factor

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set first limits (see `CappedFleet`). Any earlier fleet is forgotten."""
        self._fleet = CappedFleet(tuple(applications), *self._factors)
        self._last_bytes = self._fleet.roster.column(0, np.int64)
        self._set_up(self._fleet.roster)
        return self._fleet.join(containers, Reason.INITIAL, np.zeros(0))

    def on_join(self, containers: Join) -> Decision:
        """Start newcomers as `start` does. Containers above the fair share make room in place."""
        return self._fleet.join(containers, Reason.JOINED, self._memory_in_use)

    def on_leave(self, ids: Ids) -> Decision:
        """Redistribute nothing. The freed limits are available to the next increases."""
        self._fleet.leave(ids)
        return NOTHING

    @property
    def _memory_in_use(self) -> Floats:
        """Memory usage in the last report, bytes, float64[size]; 0 before the first report."""
        return self._last_bytes.values[: self._fleet.roster.size].astype(np.float64)

    @abstractmethod
    def _set_up(self, roster: Roster) -> None:
        """Create the policy's own columns, at `start`."""


def _first(limits: CappedLimits, new: Slots, peak: NDArray[np.generic] | None, factor: float) -> Floats:
    """Return each newcomer's first limit before any cut, float64[k]."""
    return limits.fair_share(new) if peak is None else np.asarray(peak, np.float64) * factor


def _sums(app: Slots, values: Floats, apps: int) -> Floats:
    """Return the sum of the values of each application's containers, float64[apps]."""
    return np.asarray(np.bincount(app, weights=values, minlength=apps), np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole, float64[n]; 0 where the whole is not above 0."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
