"""Autothrottle's Captain: it holds one container's quota where it is throttled about as often as its target.

For: the rule that turns throttled flags and usage of every container into quotas. Not for: where targets come
from (autothrottle_tower.py), nor the application's limit Ω, which the source does not know (cap.py).

Source: Wang et al., "Autothrottle: A Practical Bi-Level Approach to Resource Management for SLO-Targeted
Microservices", NSDI 2024. What the paper leaves open is taken from the authors' published code
(microsoft/autothrottle, worker-daemon.py). The source decides every N = 10 periods, on the ratio r of
throttled periods against the target g:

    m ← max(0, m + r − g)                                                      margin, in standard deviations
    q ← q · (1 + r − α·g)                                                      where r > α·g
    p = max(usage) + m · stdev(usage)     over the last M = 50 periods         otherwise
    q ← max(β_min·q, p)                                                        where p ≤ β_max·q

It rolls back in the N periods after a lowering from q_0 to q. At the first period in which the throttled
periods since then exceed α·g·N, the quota becomes q_0 + (q_0 − q) and m ← m + r − g, once. The first margin
of 3 is that of the code. As there, nothing bounds the margin from above: under a lasting overload it grows,
and the quota comes down late.

Our readings:

- N periods are N *reports* of that container. Late or lost telemetry makes a decision late, not wrong.
- A window that ends with a roll-back has had its decision. The code applies the rule above, with r = 0.
- Until M periods have been reported, the maximum and the deviation are over the reported ones. The code fills
  up with zeros, which widens the deviation of a container that has just started.
- The source's Captain runs on the container's own node. Ours sees what every allocator sees, as late.

Memory per container: 4·M + 34 bytes (234 at M = 50).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Reason, Reasons, reasons
from control.allocator.roster import Index, Roster

Slots = NDArray[np.int64]


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

    slots: int64[m]. cores: float64[m], not yet cut to any limit. reason: the `Reason` of each.
    """

    slots: Slots
    cores: Floats
    reason: Reasons


class Captain:
    """The Captains of all containers of a roster, as columns."""

    def __init__(self, roster: Roster, rule: CaptainRule) -> None:
        self._rule = rule
        self._usage = roster.column(0.0, np.float32, rule.history)
        self._reported = roster.column(0, np.int64)
        self._periods = roster.column(0, np.int16)
        self._throttled = roster.column(0, np.int16)
        self.margin = roster.column(rule.margin, np.float64)
        self._back_to = roster.column(0.0, np.float64)
        """Quota that a roll-back would set; 0 where the last decision was not a lowering."""

    def observe(self, slots: Index, throttled: Flags, usage_cores: Floats) -> None:
        """Take one period of distinct slots: throttled or not (bool[n]) and CPU used (cores, float64[n])."""
        reported = self._reported.values[slots]
        rows = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        self._usage.values[rows, reported % self._rule.history] = usage_cores
        self._reported.values[slots] = reported + 1
        self._periods.values[slots] += 1
        self._throttled.values[slots] += throttled

    def deciding(self, slots: Slots) -> Slots:
        """Return the slots (of int64[n], just observed) that have a decision to make.

        These are the containers whose window is over, and those throttled since they were lowered.
        """
        over = self._periods.values[slots] >= self._rule.window
        lowered = (self._back_to.values[slots] > 0) & (self._throttled.values[slots] > 0)
        return slots[over | lowered]

    def decide(self, slots: Slots, quota_cores: Floats, target: Floats) -> Wanted:
        """Apply the rule to slots that are `deciding` (distinct, int64[n]).

        quota_cores: float64[n], in force. target: float64[n], throttle ratio to hold, 0…1.
        """
        rule = self._rule
        ratio = self._throttled.values[slots] / rule.window
        too_much = ratio > rule.alpha * target
        back = too_much & (self._back_to.values[slots] > 0)
        due = self._periods.values[slots] >= rule.window
        at = np.flatnonzero(due & ~back)
        parts = (
            self._roll_back(slots[back], (ratio - target)[back]),
            self._end_window(slots[at], quota_cores[at], ratio[at], target[at]),
        )
        self._periods.values[slots[due]] = 0
        self._throttled.values[slots[due | back]] = 0
        return Wanted(
            np.concatenate([part.slots for part in parts]),
            np.concatenate([part.cores for part in parts]),
            np.concatenate([part.reason for part in parts]),
        )

    def _roll_back(self, slots: Slots, above: Floats) -> Wanted:
        """Undo a lowering and go as far again above. above: r − g (float64[m])."""
        cores = self._back_to.values[slots]
        self.margin.values[slots] += above
        self._back_to.values[slots] = 0.0
        return Wanted(slots, cores, reasons(len(slots), Reason.ROLLED_BACK))

    def _end_window(self, slots: Slots, quota: Floats, ratio: Floats, target: Floats) -> Wanted:
        rule = self._rule
        margin = np.maximum(self.margin.values[slots] + (ratio - target), 0.0)
        self.margin.values[slots] = margin
        self._back_to.values[slots] = 0.0
        excess = ratio - rule.alpha * target
        up = excess > 0
        wanted = quota * (1.0 + excess)
        # The margin adds to the maximum. The deviation is needed only where the maximum alone is low enough.
        most = self._usage.values[slots].max(axis=1)
        low = np.flatnonzero(~up & (most <= rule.highest * quota))
        wanted[low] = most[low] + margin[low] * self._deviation(slots[low])
        down = np.zeros(len(slots), np.bool_)
        down[low] = wanted[low] <= rule.highest * quota[low]
        wanted[down] = np.maximum(wanted[down], rule.lowest * quota[down])
        self._back_to.values[slots[down]] = (2.0 * quota - wanted)[down]
        moved = np.flatnonzero(up | down)
        reason = np.where(up, Reason.ABOVE_TARGET, Reason.BELOW_TARGET).astype(np.uint8)
        return Wanted(slots[moved], wanted[moved], reason[moved])

    def _deviation(self, slots: Slots) -> Floats:
        """Return the sample standard deviation of the usage in the last M periods (cores, float64[n])."""
        usage = self._usage.values[slots].astype(np.float64)
        count = np.minimum(self._reported.values[slots], self._rule.history)
        there = np.arange(self._rule.history) < count[:, None]
        mean = usage.sum(axis=1) / count  # periods not yet reported hold 0
        squares = np.where(there, (usage - mean[:, None]) ** 2, 0.0).sum(axis=1)
        return np.asarray(np.sqrt(squares / np.maximum(count - 1, 1)), np.float64)
