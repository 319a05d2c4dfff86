"""A journal: rows that say what happened where and why.

For: a fault's timeline. Not for: producing the events (control_plane.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from twin.fabric.model import Floats, Whole

NO_CAUSE = -1


class Step(StrEnum):
    """The event of a row. It concerns the fault, a session, routing, the kernel, a queue pair or a job's
    library."""

    BROKEN = "broken"
    DETECTED = "detected"
    SELECTED = "selected"
    WITHDRAWN = "withdrawn"
    TOLD = "told"
    INSTALLED = "installed"
    RECONCILED = "reconciled"
    RETRANSMITTED = "retransmitted"
    RESUMED = "resumed"
    FAILED = "failed"
    REPAIRED = "repaired"
    SESSION_UP = "session up"
    USED_AGAIN = "used again"


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows in the order of time.

    at_s: float64[n], time, s. where: host, switch or link. step: the event. what: the event in words. cause:
    int64[n], index of the row that led to it (NO_CAUSE: the plan).
    """

    at_s: Floats
    where: tuple[str, ...]
    step: tuple[Step, ...]
    what: tuple[str, ...]
    cause: Whole

    def first_s(self, step: Step, where: str) -> float:
        """Return when `step` first happened at `where`, s; NaN if it did not."""
        happened = zip(self.at_s.tolist(), self.where, self.step, strict=True)
        return next((at_s for at_s, *row in happened if row == [where, step]), np.nan)


@dataclass(slots=True)
class Journal:
    """Collects the rows of a timeline while a fault is simulated."""

    _rows: list[tuple[float, str, Step, str, int]] = field(default_factory=list)

    def write(self, at_s: float, where: str, step: Step, what: str, cause: int = NO_CAUSE) -> int:
        """Add a row and return its index. Rows that it causes name this index."""
        self._rows.append((at_s, where, step, what, cause))
        return len(self._rows) - 1

    def timeline(self) -> Timeline:
        """Return the rows written so far, in the order of writing."""
        columns = zip(*self._rows, strict=True) if self._rows else ((), (), (), (), ())
        at_s, where, step, what, cause = columns
        return Timeline(np.array(at_s, np.float64), where, step, what, np.array(cause, np.int64))
