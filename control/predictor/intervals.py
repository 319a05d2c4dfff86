"""Uncertainty of predictions: conformal intervals, and a flag for rows unlike all training rows.

For: any predictor's values. Not for: computing the errors on left-out rows (physical.py, evaluation.py).
Method: split conformal prediction (Vovk et al.; Lei et al. 2018) on the absolute log error, so that an
interval is a factor up and down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import Flags, Real
from control.predictor.features import Encoded
from twinbed import ScenarioError

COVERAGE = 0.9
_NEIGHBOURS = 3
"""Nearest rows over which a distance is averaged."""
_FAR = 0.99
"""Quantile of the training rows' distances beyond which a row is outside."""


def factor(errors: Real, coverage: float = COVERAGE) -> float:
    """Return the factor that covers a share `coverage` of new errors, provided that they are like these.

    errors: absolute log errors, float64[k]. The factor is their ⌈(k + 1) · coverage⌉-th smallest, infinite if
    k is too small. Raises ScenarioError for a coverage outside 0 … 1.
    """
    if not 0 < coverage < 1:
        raise ScenarioError(f"coverage {coverage:g}: expected between 0 and 1")
    place = int(np.ceil((len(errors) + 1) * coverage))
    return float(np.exp(np.sort(errors)[place - 1])) if place <= len(errors) else float("inf")


@dataclass(frozen=True, slots=True)
class Domain:
    """The region of the training rows.

    static: their static columns, float64[n, f]. far: distance to the nearest other rows that 1 % of the rows
    exceed.
    """

    static: Real
    far: float

    @staticmethod
    def of(encoded: Encoded) -> Domain:
        """Return the domain that the training rows span."""
        distance = _to_nearest(encoded.static, encoded.static, itself=True)
        return Domain(encoded.static, float(np.quantile(distance, _FAR)))

    def outside(self, encoded: Encoded) -> Flags:
        """Return the rows that are farther from the training rows than these are from each other, bool[n]."""
        return _to_nearest(encoded.static, self.static, itself=False) > self.far + 1e-9


def _to_nearest(rows: Real, others: Real, *, itself: bool) -> Real:
    """Return the mean distance to the nearest rows, divided by √f, float64[n]."""
    from scipy.spatial import KDTree

    skipped = 1 if itself else 0
    count = min(_NEIGHBOURS, len(others) - skipped)
    if count < 1:
        return np.zeros(len(rows))
    distance, _ = KDTree(others).query(rows, k=list(range(1 + skipped, count + skipped + 1)))
    nearest: Real = distance.mean(axis=1) / np.sqrt(rows.shape[1])
    return nearest
