"""Prediction intervals from the errors on left-out data.

For: every model of step times. Not for: the models. Source: Vovk et al. 2005 (conformal prediction).
"""

from __future__ import annotations

import numpy as np

from control.jobs import Real

COVERAGE = 0.9
"""Share of true values that an interval is to contain."""


def conformal(errors: Real) -> float:
    """Return the half-width that contains a new error with probability COVERAGE.

    errors: absolute errors on left-out data, float64[n], at least one. With few errors, it is the largest.
    """
    rank = min(int(np.ceil((errors.size + 1) * COVERAGE)), errors.size)
    return float(np.sort(errors)[rank - 1])
