"""CPU requests of a fleet: how much they get in all, and how it is shared out, by rehearsal.

For: `requests`. Not for: the decisions themselves (control.advice.budget, control.advice.cpu).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from control.advice import budget, cpu, memory
from control.advice.cpu import Rehearse
from control.allocator.model import Floats
from lab.containers.advise.rehearsal import Rehearsal

REHEARSALS = cpu.LEVELS * (1 + len(budget.SPLITS)) + (budget.HALVINGS + 3) * len(budget.SPLITS)
"""Most rehearsals of one search."""


def requests(rehearsal: Rehearsal, risk: float, tell: Callable[[Rehearse], Rehearse]) -> Floats:
    """Return CPU requests, float64[R] cores. tell: shows progress of a rehearsal."""
    parts = [_needed(rehearsal, split, risk, tell) for split in budget.SPLITS]
    divide, most = _division(rehearsal, risk, tell)
    return divide(most * max(parts))


def _division(
    rehearsal: Rehearsal, risk: float, tell: Callable[[Rehearse], Rehearse]
) -> tuple[Callable[[float], Floats], float]:
    """Return how CPU is shared out, a function of the cores in all, and the most cores."""
    usage, replicas = rehearsal.usage, rehearsal.running
    levels, late_s = cpu.late_work(usage, rehearsal.highest, tell(rehearsal.late()))
    rates = budget.Rates(*rehearsal.rates)
    most = budget.ceiling(usage, risk, replicas, memory.sizes(usage)[0], rates)
    return lambda total: cpu.least_late(levels, late_s, replicas, total), most


def _needed(rehearsal: Rehearsal, split: float, risk: float, tell: Callable[[Rehearse], Rehearse]) -> float:
    """Return the share of the most cores that was needed after a split of the history; 1 if it gives no
    information.

    Only rows that run before and after the split count.
    """
    before, after = rehearsal.window(0, split), rehearsal.window(split, 1)
    if before is None or after is None:
        return 1.0
    both = (before.usage.samples() > 0) & (after.usage.samples() > 0)
    rehearse = tell(after.late())

    def late(quota: Floats) -> float:
        return float(rehearse(np.where(both, quota, np.inf))[both].sum())

    aim = min(late(rival.cores) for rival in budget.rivals(before.usage, risk))
    divide, most = _division(before, risk, tell)
    return budget.needed(divide, late, most, aim)
