"""Predictions of left-out workloads beside the measurements, and the figures of their errors.

For: performance.py and steptimes.py. Not for: predicting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.judge import aim
from twin.cloud.intervals import conformal

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """Predictions of n points.

    error: predicted / measured − 1, float64[n].
    inside: whether the 90 % interval holds the measured value, bool[n].
    """

    error: Real
    inside: NDArray[np.bool_]


Errors = Mapping[str, Judged]
"""The predictions by workload."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Aims of this project; None: no aim.

    median, p90: largest |error| at these quantiles.
    signed: largest |mean signed error|.
    held: least and largest share that intervals hold.
    """

    median: float | None = None
    p90: float | None = None
    signed: float | None = None
    held: tuple[float, float] = (0.85, 0.95)

    def __str__(self) -> str:
        parts = {"median": self.median, "p90": self.p90, "mean": self.signed}
        return ", ".join(f"{name} ≤ {value:.2f}" for name, value in parts.items() if value is not None)


_ENOUGH = 10
"""Least number of points for which the page states the share in intervals."""
COLUMNS = ("workloads", "points", "median", "p90", "mean", "goal", "verdict", "in 90 % interval", "85–95 %")


def judged(log_off: Real, width: float | Real) -> Judged:
    """Return the predictions from log (predicted / measured) and the half-width of their interval."""
    return Judged(np.expm1(log_off), np.abs(log_off) <= width)


def held(log_off: Mapping[str, Real]) -> dict[str, Judged]:
    """Return each workload's predictions, with an interval from the errors on the other workloads."""
    result = {}
    for name, own in log_off.items():
        others = [part for other, part in log_off.items() if other != name]
        width = conformal(np.abs(np.concatenate(others))) if others else np.inf
        result[name] = judged(own, width)
    return result


def pooled(by_workload: Errors) -> Judged:
    """Return all predictions together."""
    parts = list(by_workload.values())
    return Judged(
        np.concatenate([np.empty(0), *(part.error for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.inside for part in parts)]),
    )


def cells(by_workload: Errors, goal: Goal) -> Sequence[object]:
    """Return a row's cells under COLUMNS. Without points every figure is a dash."""
    all_points = pooled(by_workload)
    if not all_points.error.size:
        return [0, 0, *["–"] * (len(COLUMNS) - 2)]
    size = np.abs(all_points.error)
    figures = (float(np.median(size)), float(np.quantile(size, 0.9)), float(all_points.error.mean()))
    share = float(all_points.inside.mean())
    wanted = [
        (value, limit)
        for value, limit in zip(
            (*figures[:2], abs(figures[2])), (goal.median, goal.p90, goal.signed), strict=True
        )
        if limit is not None
    ]
    verdict = aim(all(value <= limit for value, limit in wanted) if wanted else None)
    enough = all_points.error.size >= _ENOUGH
    within = aim(goal.held[0] <= share <= goal.held[1]) if wanted and enough else aim(None)
    shown = [f"{figures[0]:.3f}", f"{figures[1]:.3f}", f"{figures[2]:+.3f}", str(goal), verdict]
    return [len(by_workload), all_points.error.size, *shown, f"{share:.0%}" if enough else "–", within]
