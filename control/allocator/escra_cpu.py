"""Escra's CPU rule over all containers at once.

For: quotas at deployment, on joins and leaves, and at every period's end. Not for: memory (escra_memory.py).
Source: Escra (ICDCS 2022), with Υ in percent of the unallocated pool.

Quotas are kept as whole microcores (0.1 µs of a 100 ms period, finer than the kernel's 1 µs) in float64,
which adds and subtracts whole numbers exactly up to 2^53. So the books are kept incrementally without drift,
Σ quotas ≤ Ω holds exactly, and no sum depends on the containers' order.

The rule starts from the quota that the report says was in force. The pool is charged relative to the last
quota decided. The two differ only when telemetry is late. A throttled container is then never lowered below
the last quota decided. An unused-runtime report may lead to a quota above it, because the report is newer
than that decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, isfinite

import numpy as np
from numpy.typing import NDArray

from control.allocator.escra_settings import EscraSettings
from control.allocator.escra_settle import EscraBooks, Rule, Table
from control.allocator.model import (
    KERNEL_MIN_QUOTA_S,
    NO_CPU,
    CpuLimits,
    Flags,
    Floats,
    PeriodStats,
    Reason,
    Reasons,
    Slots,
    reasons,
)
from control.allocator.roster import Index, Roster
from control.allocator.windows import Windows
from twinbed import InvariantError, ScenarioError

MICRO = 1e6
"""Microcores per core."""

BLOCK = 16384
"""Containers per pass.

About 60 bytes of state and telemetry per container fit a core's L2 cache: the cost per container is constant.
"""

FEW = 32
"""Largest report, in containers, for which one container at a time is faster than NumPy over all.

A backend that serves each container's own period reports a handful at a time. After a sleep, one NumPy call
costs as much as two containers.
"""

_DEFAULT_PERIOD_S = 0.1
_UNUSED, _THROTTLED = int(Reason.UNUSED), int(Reason.THROTTLED)
_NOT_A_NUMBER = "telemetry has a quota or an unused runtime that is not a number"
_ROUNDING = 1e-6
"""Rounding tolerance, microcores: 0.29 · 10^6 = 289999.99999999994 becomes the whole number that was
meant."""


@dataclass(slots=True)
class _Changes:
    """Wanted changes of one block: throttled containers first, then those with unused runtime.

    rows: index into the report. raised: number of throttled containers. allocated, delta: the last decided
    quota and the change wanted, microcores.
    """

    rows: Slots
    slots: Slots
    raised: int
    allocated: Floats
    delta: Floats


_Change = tuple[int, int, int, float, float]
"""One container's id, slot and application, and its allocated and delta as in _Changes."""


class CpuRule:
    """Quotas of all members of a roster. Internal amounts are whole microcores."""

    def __init__(self, roster: Roster, settings: EscraSettings) -> None:
        self._roster = roster
        self._settings = settings
        self._windows = Windows(roster, settings.window)
        self._allocated = roster.column(0.0, np.float64)
        self._cap = roster.column(0.0, np.float64)
        self._limit: Floats = np.floor(roster.cpu_limit_cores * MICRO + _ROUNDING)
        self._used: Floats = np.zeros(len(self._limit))
        self._period_s = _DEFAULT_PERIOD_S
        self._least = _least(_DEFAULT_PERIOD_S)
        self.settle: Callable[..., int] | None = None
        """`escra_settle.settle`, compiled. None: the rule runs in NumPy."""

    @property
    def allocated_cores(self) -> Floats:
        """Last decided quota of each slot, float64[size]; 0 where the slot is free."""
        return self._allocated.values[: self._roster.size] / MICRO

    @property
    def pool_cores(self) -> Floats:
        """Unallocated cores of each application, Ω − Σ quotas, float64[apps]."""
        return (self._limit - self._used) / MICRO

    def check_room(self, apps: Slots) -> None:
        """Raise ScenarioError if the minimum for all, with newcomers in `apps` (int64[k]), exceeds Ω."""
        self._check_members(self._roster.members + np.bincount(apps, minlength=len(self._limit)), self._least)

    def admit(self, slots: Slots) -> tuple[Floats, Slots]:
        """Give newcomers min(Ω/k, host), where k counts them. Return (their quotas in cores, lowered slots).

        What the pool lacks is taken from members that hold more than Ω/k, in proportion to their excess. That
        is always enough, because all others hold at most Ω/k.
        """
        app = self._roster.app[slots]
        # No host is smaller than the kernel's minimum. A host that is declared smaller gets the minimum.
        cap = np.maximum(np.floor(self._roster.host_cores[slots] * MICRO + _ROUNDING), self._least)
        self._cap.values[slots] = cap
        fair = self._fair()
        wanted: Floats = np.minimum(fair[app], cap)
        lowered = self._make_room(self._per_app(app, wanted), fair)
        self._allocated.values[slots] = wanted
        self._used += self._per_app(app, wanted)
        return wanted / MICRO, lowered

    def release(self, slots: Slots) -> None:
        """Take back the quotas of members that left (slots int64[m])."""
        self._used -= self._per_app(self._roster.app[slots], self._allocated.values[slots])
        self._allocated.values[slots] = 0.0

    def step(self, stats: PeriodStats) -> CpuLimits:
        """Apply the rule at a period's end. Raises InvariantError if a quota or unused runtime is NaN."""
        rows, slots = self._roster.find(stats.ids)
        if stats.period_s != self._period_s:
            divided_anew = self._learn_period(stats.period_s)
            if divided_anew.ids.size:
                return divided_anew
        if isinstance(rows, slice):
            ids, quota = stats.ids, stats.quota_cores
            unused, throttled = stats.unused_cores, stats.throttled
        else:
            ids, quota = stats.ids[rows], stats.quota_cores[rows]
            unused, throttled = stats.unused_cores[rows], stats.throttled[rows]
        if isinstance(slots, slice):
            self._windows.advance()
        if self.settle is not None:
            return self._step_compiled(self.settle, ids, slots, quota, unused, throttled)
        if not isinstance(slots, slice) and len(slots) <= FEW:
            return self._step_few(ids, slots, quota, unused, throttled)
        pool = self._limit - self._used
        asked = np.zeros(len(pool))
        blocks: list[_Changes] = []
        for start in range(0, len(ids), BLOCK):
            part = slice(start, min(start + BLOCK, len(ids)))
            columns = part if isinstance(slots, slice) else slots[part]
            changes = self._wanted(columns, start, quota[part], unused[part], throttled[part], pool)
            if changes is not None:
                asked += self._per_app_of(changes.slots, np.maximum(changes.delta, 0.0))
                blocks.append(changes)
        if not blocks:
            return NO_CPU
        if not isfinite(asked.sum()):
            raise InvariantError(_NOT_A_NUMBER)
        return self._settle(blocks, pool, asked, ids)

    def _step_compiled(
        self,
        settle: Callable[..., int],
        ids: NDArray[np.int64],
        slots: Index,
        quota: Floats,
        unused: Floats,
        throttled: Flags,
    ) -> CpuLimits:
        """Do the rest of `step` in one compiled pass."""
        everyone = isinstance(slots, slice)
        rows, cores = np.empty(len(ids), np.int64), np.empty(len(ids))
        reason = np.empty(len(ids), np.uint8)
        changed = settle(
            *self._rule_and_books(),
            self._windows.position,
            rows if isinstance(slots, slice) else slots,
            everyone,
            quota,
            unused,
            throttled,
            rows,
            cores,
            reason,
        )
        if not everyone:
            self._windows.fall_out_of_line()
        if changed < 0:
            raise InvariantError(_NOT_A_NUMBER)
        if changed == 0:
            return NO_CPU
        return CpuLimits(ids.take(rows[:changed]), cores[:changed], reason[:changed])

    def table(self, ids: NDArray[np.int64], period_s: float) -> Table | None:
        """Return the arrays that `settle` works on, for reports of `ids`; see `Escra.table`."""
        rows, slots = self._roster.find(ids)
        if self.settle is None or period_s != self._period_s or not isinstance(rows, slice):
            return None
        if not isinstance(slots, slice):
            return Table(*self._rule_and_books(), slots, False, self._windows.position)
        self._windows.align()
        return Table(*self._rule_and_books(), np.empty(0, np.int64), True, self._windows.position)

    def close(self, table: Table, reports: int) -> None:
        """Record that `settle` has taken `reports` reports through the table."""
        self._windows.move(reports if table.everyone else 0)
        if reports and not table.everyone:
            self._windows.fall_out_of_line()

    def _rule_and_books(self) -> tuple[Rule, EscraBooks]:
        settings, roster = self._settings, self._roster
        raised, lowered, change = settings.upsilon / 100.0, settings.kappa * MICRO, settings.min_change
        state = *self._windows.arrays, roster.app, self._cap.values, self._allocated.values
        return (
            Rule(raised, lowered, settings.gamma, settings.stale_mean_guard, self._least, change, BLOCK),
            EscraBooks(*state, self._limit, self._used),
        )

    def _wanted(
        self, columns: Index, start: int, quota: Floats, unused: Floats, throttled: Flags, pool: Floats
    ) -> _Changes | None:
        """Return one block's wanted changes as if each container had the pool to itself, or None."""
        settings = self._settings
        if isinstance(columns, slice):
            self._windows.write(columns, unused, throttled)
        else:
            self._windows.write_some(columns, unused, throttled)
        ups = throttled.nonzero()[0]
        # A report that is sampled out of phase can show both; throttled then wins.
        idle = unused > settings.gamma
        downs = np.greater(idle, throttled, out=idle).nonzero()[0]
        if ups.size == 0 and downs.size == 0:
            return None
        rows = np.concatenate((ups, downs))
        slots = rows + start if isinstance(columns, slice) else columns.take(rows)
        target = quota.take(rows)
        target *= MICRO
        split = len(ups)
        target[:split] += self._raise(slots[:split], pool)
        target[split:] -= self._cut(slots[split:], unused.take(downs))
        np.minimum(target, self._cap.values.take(slots), out=target)
        np.maximum(target, self._least, out=target)
        np.floor(target, out=target)
        allocated = self._allocated.values.take(slots)
        target -= allocated
        np.maximum(target[:split], 0.0, out=target[:split])
        rows += start
        return _Changes(rows, slots, split, allocated, target)

    def _raise(self, slots: Slots, pool: Floats) -> Floats:
        """Return mean_n(th) · Υ/100 · pool, microcores."""
        amount = self._windows.throttled_share(slots)
        amount *= self._settings.upsilon / 100.0
        amount *= pool[0] if len(pool) == 1 else pool.take(self._roster.app.take(slots))
        return amount

    def _cut(self, slots: Slots, unused: Floats) -> Floats:
        """Return κ · mean_n(q − u), with the guard at most κ · (q − u), microcores."""
        amount = self._windows.mean_unused(slots)
        if self._settings.stale_mean_guard:
            np.minimum(amount, unused, out=amount)
        amount *= self._settings.kappa * MICRO
        return amount

    def _settle(
        self, blocks: list[_Changes], pool: Floats, asked: Floats, ids: NDArray[np.int64]
    ) -> CpuLimits:
        """Share the pool among all raises, drop changes too small to write, and book the rest.

        Rounding down to whole microcores keeps the sum of the shares within the pool: the quotient's own
        error (2^-53) is less than one microcore of the pool.
        """
        scarce = asked > pool
        short = scarce.any()
        if short:
            share = np.divide(pool, asked, out=np.ones(len(pool)), where=scarce)
        parts: list[tuple[Slots, Floats, Reasons]] = []
        for changes in blocks:
            delta = changes.delta
            if short:
                rising = (delta > 0.0).nonzero()[0]
                less = delta.take(rising)
                less *= (
                    share[0]
                    if len(share) == 1
                    else share.take(self._roster.app.take(changes.slots.take(rising)))
                )
                delta[rising] = np.floor(less, out=less)
            least = changes.allocated * self._settings.min_change
            np.maximum(least, 1.0, out=least)
            kept = (np.abs(delta) >= least).nonzero()[0]
            slots = changes.slots.take(kept)
            delta = delta.take(kept)
            quota = changes.allocated.take(kept)
            quota += delta
            self._allocated.values[slots] = quota
            self._used += self._per_app_of(slots, delta)
            quota /= MICRO
            reason = np.empty(len(kept), np.uint8)
            reason.fill(_UNUSED)
            reason[: kept.searchsorted(changes.raised)] = _THROTTLED
            parts.append((ids.take(changes.rows.take(kept)), quota, reason))
        if not parts:
            return NO_CPU
        if len(parts) == 1:
            return CpuLimits(*parts[0])
        all_ids, all_quotas, all_reasons = zip(*parts, strict=True)
        return CpuLimits(np.concatenate(all_ids), np.concatenate(all_quotas), np.concatenate(all_reasons))

    def _step_few(
        self, ids: NDArray[np.int64], slots: Slots, quota: Floats, unused: Floats, throttled: Flags
    ) -> CpuLimits:
        """Do the rest of `step` one container at a time.

        The operations and their order are the same as in `step`, so the result is the same to the bit,
        however many containers report together.
        """
        settings, windows, app_of = self._settings, self._windows, self._roster.app
        asked: dict[int, float] = {}
        ups: list[_Change] = []
        downs: list[_Change] = []
        for number, slot, cores, left, held in zip(
            ids.tolist(), slots.tolist(), quota.tolist(), unused.tolist(), throttled.tolist(), strict=True
        ):
            windows.write_one(slot, left, held)
            if not held and not left > settings.gamma:
                continue
            app, target = app_of.item(slot), cores * MICRO
            if held:
                target += windows.throttled_share_of(slot) * (settings.upsilon / 100.0) * self._pool_of(app)
            else:
                mean = windows.mean_unused_of(slot)
                cut = min(mean, left) if settings.stale_mean_guard else mean
                target -= cut * (settings.kappa * MICRO)
            target = max(min(target, self._cap.cells[slot]), self._least)
            if not isfinite(target):
                raise InvariantError(_NOT_A_NUMBER)
            allocated = self._allocated.cells[slot]
            delta = floor(target) - allocated
            if held:
                delta = max(delta, 0.0)
            if delta > 0.0:
                asked[app] = asked.get(app, 0.0) + delta
            (ups if held else downs).append((number, slot, app, allocated, delta))
        return self._settle_few(ups, downs, asked)

    def _settle_few(self, ups: list[_Change], downs: list[_Change], asked: dict[int, float]) -> CpuLimits:
        """Do the same as `_settle`, one container at a time. asked: amount of each application that asked,
        microcores."""
        pools = {app: self._pool_of(app) for app in asked}
        share = {app: pools[app] / amount for app, amount in asked.items() if amount > pools[app]}
        kept: list[tuple[int, float, int]] = []
        for changes, reason in ((ups, _THROTTLED), (downs, _UNUSED)):
            for number, slot, app, allocated, delta in changes:
                if delta > 0.0 and app in share:
                    delta = float(floor(delta * share[app]))
                if abs(delta) < max(allocated * self._settings.min_change, 1.0):
                    continue
                self._allocated.cells[slot] = allocated + delta
                self._used[app] += delta
                kept.append((number, (allocated + delta) / MICRO, reason))
        if not kept:
            return NO_CPU
        numbers, cores, codes = zip(*kept, strict=True)
        return CpuLimits(np.array(numbers, np.int64), np.array(cores, np.float64), np.array(codes, np.uint8))

    def _pool_of(self, app: int) -> float:
        return self._limit.item(app) - self._used.item(app)

    def _make_room(self, wanted: Floats, fair: Floats) -> Slots:
        """Lower members above the fair share until `wanted` (float64[apps]) is in the pool."""
        missing = wanted - (self._limit - self._used)
        if not (missing > 0.0).any():
            return np.empty(0, np.int64)
        app = self._roster.app
        allocated = self._allocated.values[: self._roster.size]
        slots = np.flatnonzero((allocated > fair[app]) & (missing > 0.0)[app])
        app = app[slots]
        above = allocated[slots] - fair[app]
        rate = np.maximum(missing, 0.0) / np.maximum(self._per_app(app, above), 1.0)
        cut = np.minimum(np.ceil(above * rate[app]), above)
        self._allocated.values[slots] -= cut
        self._used -= self._per_app(app, cut)
        return slots

    def _learn_period(self, period_s: float) -> CpuLimits:
        """Adopt a report's new period length, which changes the kernel's minimum of 1 ms per period.

        Applications with a member below a higher minimum are divided again into equal shares Ω/k, and the
        rule skips this period. Raises ScenarioError when the new minimum does not fit.
        """
        least = _least(period_s)
        self._check_members(self._roster.members, least)
        self._period_s, self._least = period_s, least
        size = self._roster.size
        np.maximum(self._cap.values[:size], least, out=self._cap.values[:size])
        alive, app, allocated = self._roster.alive, self._roster.app, self._allocated.values
        below = alive & (allocated[:size] < least)
        if not below.any():
            return NO_CPU
        concerned = np.zeros(len(self._limit), np.bool_)
        concerned[app[below]] = True
        slots = np.flatnonzero(alive & concerned[app])
        self.release(slots)
        allocated[slots] = np.minimum(self._fair()[app[slots]], self._cap.values[slots])
        self._used += self._per_app(app[slots], allocated[slots])
        reason = reasons(len(slots), Reason.INITIAL)
        return CpuLimits(self._roster.ids[slots], allocated[slots] / MICRO, reason)

    def _check_members(self, members: NDArray[np.int64], least: float) -> None:
        short = np.flatnonzero(members * least > self._limit)
        if short.size:
            application = self._roster.applications[int(short[0])]
            count = int(members[short[0]])
            raise ScenarioError(
                f"application {application.name!r}: {count} containers need at least "
                f"{count * least / MICRO:g} cores (1 ms per period each), its limit is "
                f"{application.cpu_limit_cores:g}"
            )

    def _fair(self) -> Floats:
        return np.floor(self._limit / np.maximum(self._roster.members, 1))

    def _per_app_of(self, slots: Slots, amounts: Floats) -> Floats:
        if len(self._limit) == 1:
            return np.array([amounts.sum()])
        return self._per_app(self._roster.app.take(slots), amounts)

    def _per_app(self, app: Slots, amounts: Floats) -> Floats:
        return np.bincount(app, amounts, len(self._limit)).astype(np.float64, copy=False)


def _least(period_s: float) -> float:
    """Return the kernel's minimum quota in whole microcores."""
    return float(np.ceil(KERNEL_MIN_QUOTA_S / period_s * MICRO - _ROUNDING))
