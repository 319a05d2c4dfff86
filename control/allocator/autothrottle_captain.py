"""Autothrottle's Captain: it sets one container's quota so that it is throttled about as often as its target.

For: the rule that turns throttled flags and usage of every container into quotas. Not for: choosing targets
(autothrottle_tower.py), nor the application's limit Ω, which the source does not know (cap.py).

Source: Wang et al., "Autothrottle: A Practical Bi-Level Approach to Resource Management for SLO-Targeted
Microservices", NSDI 2024. What the paper leaves open is taken from the authors' published code
(microsoft/autothrottle, worker-daemon.py). The source decides every N = 10 periods, on the ratio r of
throttled periods against the target g:

    m ← max(0, m + r − g)                                                      margin, in standard deviations
    q ← q · (1 + r − α·g)                                                      where r > α·g
    p = max(usage) + m · stdev(usage)     over the last M = 50 periods         otherwise
    q ← max(β_min·q, p)                                                        where p ≤ β_max·q

It rolls back in the N periods after a lowering from q_0 to q. At the first period in which the throttled
periods since then exceed α·g·N, the quota becomes 2·q_0 − q and m ← m + r − g, once. A window that ends with
a roll-back is decided after it, from the raised quota and with r = 0. The first margin of 3, and a usage
history that begins with M zeros, are those of the code. The zeros widen the deviation of a container that has
just started. As in the code, the margin has no upper bound. Under a lasting overload the margin grows, and
the quota falls late.

The rule gives the code's limits, tick by tick (tests/oracles/test_captain.py). Our readings concern what
surrounds it:

- N periods are N *reports* of that container. Late or lost telemetry makes a decision late, not wrong.
- q in 2·q_0 − q is the quota in force. If a minimum cut a lowering short, the roll-back undoes only the part
  that was carried out.
- The source's Captain runs on the container's own node. Ours gets the same telemetry as every allocator, with
  the same delay.

Memory per container: 4·M + 28 bytes (228 at M = 50).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Reason, Reasons, Slots, reasons
from control.allocator.roster import Index, Roster


@dataclass(frozen=True, slots=True)
class CaptainRule:
    """The rule's constants.

    alpha: α, factor on the target. lowest, highest: β_min and β_max, shares of the quota. window, history: N
    and M, periods. margin: first margin, standard deviations.
    """

    alpha: float
    lowest: float
    highest: float
    window: int
    history: int
    margin: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """New quotas that containers should have.

    slots: int64[m]. cores: float64[m], before any limit is applied. reason: uint8[m], a `Reason` for each.
    """

    slots: Slots
    cores: Floats
    reason: Reasons


class CaptainState(NamedTuple):
    """A Captain's arrays, by slot.

    usage: the newest M usages, cores, float32[slots, M]. reported: number of reports, int64[slots]. periods,
    throttled: number of periods, and of throttled ones, in the window, int16[slots]. margin: standard
    deviations. lowered_from: quota before the last decision if it lowered the quota, else 0. Both are
    float64[slots].
    """

    usage: NDArray[np.float32]
    reported: NDArray[np.int64]
    periods: NDArray[np.int16]
    throttled: NDArray[np.int16]
    margin: Floats
    lowered_from: Floats


class Captain:
    """The Captains of all containers of a roster, as arrays indexed by slot."""

    def __init__(self, roster: Roster, rule: CaptainRule) -> None:
        self._rule = rule
        self._usage = roster.column(0.0, np.float32, rule.history)
        self._reported = roster.column(0, np.int64)
        self._periods = roster.column(0, np.int16)
        self._throttled = roster.column(0, np.int16)
        self.margin = roster.column(rule.margin, np.float64)
        self._lowered_from = roster.column(0.0, np.float64)
        """Quota before the last decision if it lowered the quota, else 0."""

    @property
    def state(self) -> CaptainState:
        """The arrays, for a rule that changes them in place."""
        columns = (
            self._usage, self._reported, self._periods, self._throttled, self.margin, self._lowered_from,
        )  # fmt: skip
        return CaptainState(*(column.values for column in columns))

    def observe(self, slots: Index, throttled: Flags, usage_cores: Floats) -> None:
        """Take one period of distinct slots. throttled: bool[n]. usage_cores: CPU used, float64[n]."""
        reported = self._reported.values[slots]
        rows = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        self._usage.values[rows, reported % self._rule.history] = usage_cores
        self._reported.values[slots] = reported + 1
        self._periods.values[slots] += 1
        self._throttled.values[slots] += throttled

    def deciding(self, slots: Slots) -> Slots:
        """Return those of the slots (int64[n], just observed) that have a decision to make.

        These are containers whose window is over, and containers that were throttled since their quota was
        lowered.
        """
        over = self._periods.values[slots] >= self._rule.window
        lowered = (self._lowered_from.values[slots] > 0) & (self._throttled.values[slots] > 0)
        return slots[over | lowered]

    def decide(self, slots: Slots, quota_cores: Floats, target: Floats) -> Wanted:
        """Apply the rule to slots that are `deciding` (distinct, int64[n]).

        quota_cores: float64[n], in force. target: float64[n], throttle ratio to hold, 0…1.
        """
        rule = self._rule
        ratio = self._throttled.values[slots] / rule.window
        quota = quota_cores.copy()
        reason = reasons(len(slots), Reason.NONE)
        lowered_from = self._lowered_from.values[slots]
        back = (ratio > rule.alpha * target) & (lowered_from > 0)
        self.margin.values[slots[back]] += (ratio - target)[back]
        self._lowered_from.values[slots[back]] = 0.0
        quota[back] = (2.0 * lowered_from - quota)[back]
        reason[back] = Reason.ROLLED_BACK
        ratio[back] = 0.0
        due = self._periods.values[slots] >= rule.window
        at = np.flatnonzero(due)
        quota[at], decided = self._end_window(slots[at], quota[at], ratio[at], target[at])
        reason[at] = np.where(decided == Reason.NONE, reason[at], decided)
        self._periods.values[slots[due]] = 0
        self._throttled.values[slots[due | back]] = 0
        moved = reason != Reason.NONE
        return Wanted(slots[moved], quota[moved], reason[moved])

    def _end_window(
        self, slots: Slots, quota: Floats, ratio: Floats, target: Floats
    ) -> tuple[Floats, Reasons]:
        """Return the quotas at a window's end, float64[n], and the reasons, which are `Reason.NONE` where the
        quota stays.
        """
        rule = self._rule
        margin = np.maximum(self.margin.values[slots] + (ratio - target), 0.0)
        self.margin.values[slots] = margin
        excess = ratio - rule.alpha * target
        up = excess > 0
        wanted = quota * (1.0 + excess)
        # The margin is added to the maximum, so the deviation is needed only where the maximum alone is low
        # enough.
        most = self._usage.values[slots].max(axis=1)
        low = np.flatnonzero(~up & (most <= rule.highest * quota))
        deviation = _deviation(self._usage.values[slots[low]])
        wanted[low] = most[low] + margin[low] * deviation
        down = np.zeros(len(slots), np.bool_)
        down[low] = wanted[low] <= rule.highest * quota[low]
        wanted = np.where(up, wanted, np.where(down, np.maximum(wanted, rule.lowest * quota), quota))
        self._lowered_from.values[slots] = np.where(down, quota, 0.0)
        reason = np.where(down, Reason.BELOW_TARGET, np.where(up, Reason.ABOVE_TARGET, Reason.NONE))
        return wanted, reason.astype(np.uint8)


def _deviation(usage: NDArray[np.float32]) -> Floats:
    """Return each row's standard deviation, float64[n]. Sums go from left to right, as in
    autothrottle_settle.py."""
    length = usage.shape[1]
    exact = usage.astype(np.float64)
    apart = exact - exact.cumsum(axis=1)[:, -1:] / length
    square: Floats = (apart * apart).cumsum(axis=1)[:, -1] / (length - 1)
    return np.sqrt(square)
