"""What happened where and why, as rows. For: a fault's timeline. Not for: its events (control_plane.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from twin.fabric.model import Floats, Whole

NO_CAUSE = -1


class Step(StrEnum):
    """What a row says: of the fault, of a session, of routing, of the kernel, of queue pairs, of a job's
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
    """Rows in the order of time. at_s: float64[n]; where: a host, switch or link; step; what: in words;
    cause: int64[n], the row that led to it (NO_CAUSE: the plan)."""

    at_s: Floats
    where: tuple[str, ...]
    step: tuple[Step, ...]
    what: tuple[str, ...]
    cause: Whole

    def first_s(self, step: Step, where: str) -> float:
        """When `step` first happened there; NaN if it did not."""
        for index, (here, each) in enumerate(zip(self.where, self.step, strict=True)):
            if here == where and each is step:
                return float(self.at_s[index])
        return np.nan


@dataclass(slots=True)
class Journal:
    """Collects rows as they happen."""

    _rows: list[tuple[float, str, Step, str, int]] = field(default_factory=list)

    def write(self, at_s: float, where: str, step: Step, what: str, cause: int = NO_CAUSE) -> int:
        """Adds a row and returns its index, for the rows that it causes."""
        self._rows.append((at_s, where, step, what, cause))
        return len(self._rows) - 1

    def timeline(self) -> Timeline:
        """All rows so far."""
        columns = zip(*self._rows, strict=True) if self._rows else ((), (), (), (), ())
        at_s, where, step, what, cause = columns
        return Timeline(np.array(at_s, np.float64), where, step, what, np.array(cause, np.int64))
