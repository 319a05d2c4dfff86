"""How sure a prediction is: conformal intervals from errors on rows that were left out, and a flag for rows
unlike any that were learned from.

For: any predictor's values. Not for: making the errors (physical.py, evaluation.py). Split conformal
prediction (Vovk et al.; Lei et al. 2018) on the absolute error of the logarithm: an interval is a factor up
and down. A job that was not seen gets the errors of jobs that were left out, and a row out of the domain the
largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.predictor.features import Encoded
from control.recommender.model import Flags, Real
from twinbed import ScenarioError

COVERAGE = 0.9
_NEIGHBOURS = 3
_FAR = 0.99


def factor(errors: Real, coverage: float = COVERAGE) -> float:
    """The factor that holds `coverage` of new errors if they are like these: float64[k], absolute, of logs.

    ⌈(k + 1) · coverage⌉-th smallest; infinite where k is too small for it. Raises ScenarioError for a
    coverage outside 0 … 1.
    """
    if not 0 < coverage < 1:
        raise ScenarioError(f"coverage {coverage:g}: expected between 0 and 1")
    place = int(np.ceil((len(errors) + 1) * coverage))
    return float(np.exp(np.sort(errors)[place - 1])) if place <= len(errors) else float("inf")


@dataclass(frozen=True, slots=True)
class Domain:
    """Where the rows that were learned from lie. static: float64[n, f]; far: distance beyond which fewer than
    1 in 100 of them are from their nearest others."""

    static: Real
    far: float

    @staticmethod
    def of(encoded: Encoded) -> Domain:
        """Of the training's rows."""
        distance = _to_nearest(encoded.static, encoded.static, itself=True)
        return Domain(encoded.static, float(np.quantile(distance, _FAR)) if len(distance) else 0.0)

    def outside(self, encoded: Encoded) -> Flags:
        """bool[n]: further from everything than the training's rows are from each other."""
        return _to_nearest(encoded.static, self.static, itself=False) > self.far + 1e-9


def _to_nearest(rows: Real, others: Real, *, itself: bool) -> Real:
    """Mean distance to the nearest few, float64[n]; per column, so that more columns are no more distance."""
    from scipy.spatial import KDTree

    columns = max(rows.shape[1], 1)
    skipped = 1 if itself else 0
    count = min(_NEIGHBOURS, len(others) - skipped)
    if count < 1:
        return np.zeros(len(rows))
    distance, _ = KDTree(others).query(rows, k=list(range(1 + skipped, count + skipped + 1)))
    nearest: Real = distance.mean(axis=1) / np.sqrt(columns)
    return nearest
