"""Means over seeds with their intervals. For: every comparison and experiment. Not for: single runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def mean_ci95(values: NDArray[np.float64]) -> tuple[float, float]:
    """(mean, half-width of its 95 % confidence interval by Student's t); NaN where values are too few."""
    if values.size == 0:
        return math.nan, math.nan
    mean = float(values.mean())
    if values.size == 1:
        return mean, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return mean, float(stats.t.ppf(0.975, values.size - 1)) * error
