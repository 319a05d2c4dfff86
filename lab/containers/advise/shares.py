"""CPU requests of a fleet: their total, and the share of each row, by rehearsal.

For: `requests`. Not for: the decisions themselves (control.advice.budget, control.advice.cpu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from control.advice import budget, cpu, memory
from control.advice.cpu import Rehearse
from control.advice.model import Usage
from control.allocator.model import Floats
from lab.containers.advise.rehearsal import Rehearsal

REHEARSALS = cpu.LEVELS * len(cpu.WINDOWS)
"""Most rehearsals of one search."""


def requests(
    rehearsal: Rehearsal,
    known: Usage,
    risk: float,
    tell: Callable[[Rehearse], Rehearse],
    windows: Sequence[float] = cpu.WINDOWS,
) -> Floats:
    """Return the CPU request of each of the R rows, float64[R], cores.

    known: history from which the rivals and memory are sized, mostly the rehearsal's own.
    tell: wraps a rehearsal so that it shows its progress.
    windows: begins of the rehearsed windows, as shares of the history's length, each in [0, 1).
    """
    parts = [part for begin in windows if (part := rehearsal.window(begin, 1)) is not None]
    replicas = np.mean([part.running for part in parts], axis=0)
    rates = budget.Rates(*rehearsal.rates)
    most = budget.ceiling(known, risk, replicas, memory.sizes(known)[0], rates)
    rehearsals = [tell(part.late()) for part in parts]
    levels, late = cpu.late_work(rehearsal.usage, rehearsal.highest, rehearsals)
    return cpu.least_late(levels, late, replicas, most)
