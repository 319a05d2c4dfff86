"""Put a recorded training curve on a time axis: the same accuracy after each epoch, at the time of its end.

For: accuracy against time under faults. Not for: the curve itself, which a real training recorded, nor the
effect of faults on the job (jobs.series, checkpoints.progress). Faults only move epochs in time, because
synchronous training that continues, or returns to its last save, computes the same.
"""

from __future__ import annotations

import numpy as np

from twin.fabric.model import Floats
from twinbed import ScenarioError


def epoch_ends_s(epochs: int, epoch_s: float, at_s: Floats, done_s: Floats) -> Floats:
    """Return float64[epochs]: time at which each epoch was first done, s; inf if it never was.

    epoch_s: work of an epoch, s. at_s, done_s: float64[k], corners of the work done over time, linear between
    them; it may fall back (checkpoints.progress). Raises ScenarioError for times that run backwards.
    """
    if np.any(np.diff(at_s) < 0):
        raise ScenarioError("at_s: expected times in order")
    # Work that misses an epoch's end by rounding has reached it.
    wanted_s = (np.arange(epochs) + 1) * epoch_s * (1 - 1e-12)
    reach_s = np.maximum.accumulate(done_s)
    corner = np.searchsorted(reach_s, wanted_s)
    there = corner < len(done_s)
    corner = np.where(there, np.maximum(corner, 1), 1)
    risen_s = done_s[corner] - done_s[corner - 1]
    share = (wanted_s - done_s[corner - 1]) / np.where(risen_s > 0, risen_s, 1.0)
    passed_s = at_s[corner - 1] + np.clip(share, 0.0, 1.0) * (at_s[corner] - at_s[corner - 1])
    return np.where(there, passed_s, np.inf)


def accuracy_at(accuracy: Floats, ends_s: Floats, when_s: Floats) -> Floats:
    """Return the best model's accuracy at each time of when_s.

    accuracy: float64[epochs + 1], before the first epoch and after each. ends_s: float64[epochs], from
    epoch_ends_s. Raises ScenarioError if their lengths do not fit.
    """
    if len(accuracy) != len(ends_s) + 1:
        raise ScenarioError(
            f"accuracy has {len(accuracy)} values, expected one more than {len(ends_s)} epochs"
        )
    return np.asarray(np.maximum.accumulate(accuracy)[np.searchsorted(ends_s, when_s, side="right")])


def flat_s(ends_s: Floats) -> float:
    """Return the longest time without a finished epoch, s; inf if the last epoch was never done."""
    return float(np.diff(ends_s, prepend=0.0).max()) if np.isfinite(ends_s).all() else np.inf
