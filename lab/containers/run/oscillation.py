"""How many limit changes were taken back soon after.

For: the metric `taken_back_per_s` of recorded limits, whatever backend recorded them. Not for: its definition
(lab.containers.metrics).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from twin.containers.model import Floats, Series


def taken_back(series: Series, within: int) -> Floats:
    """Return how many changes of each container's CPU and memory limit were taken back, float64[N].

    within: periods after the change that count, ≥ 1. Periods in which a container is not up are left out.
    """
    up = np.ascontiguousarray(series.up.T)
    counts = np.zeros(len(up))
    for limits in (series.quota_cores, series.limit_bytes):
        for column, there in enumerate(up):
            counts[column] += _taken_back(limits[there, column].astype(np.float64), within)
    return counts


def _taken_back(limits: Floats, within: int) -> int:
    """Return how many changes of one limit (float64[n]) are taken back."""
    changed = np.flatnonzero(limits[1:] != limits[:-1]) + 1
    if changed.size < 2:
        return 0
    before, after = limits[changed - 1], limits[changed]
    least, most = (_ahead(of, limits, within)[changed] for of in (minimum_filter1d, maximum_filter1d))
    back: NDArray[np.bool_] = np.where(after > before, least <= before, most >= before)
    return int(np.count_nonzero(back))


def _ahead(extreme: object, limits: Floats, within: int) -> Floats:
    """Return the extreme of each value and the `within` values after it."""
    size = within + 1
    assert callable(extreme)
    return np.asarray(extreme(limits, size, mode="nearest", origin=-(size // 2)), np.float64)
