"""Intervals from errors on what was left out.

For: every model of step times. Not for: the models. Source: Vovk et al. 2005 (conformal prediction).
"""

from __future__ import annotations

import numpy as np

from control.jobs import Real

COVERAGE = 0.9
"""Share of answers that an interval holds."""


def conformal(errors: Real, coverage: float = COVERAGE) -> float:
    """Return the width that holds a new error with this probability.

    errors: absolute errors of what was left out, float64[n], at least one. Few errors give their largest.
    """
    rank = min(int(np.ceil((errors.size + 1) * coverage)), errors.size)
    return float(np.sort(errors)[rank - 1])
