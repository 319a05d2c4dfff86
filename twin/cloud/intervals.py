"""Prediction intervals from the errors on left-out data.

For: every model of step times. Not for: the models. Source: Vovk et al. 2005 (conformal prediction);
Dunn, Wasserman and Ramdas 2023 (arXiv 1809.07441) §3 for groups.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def conformal_by_group(errors: Sequence[Real]) -> float:
    """Return the half-width that contains a share COVERAGE of a new group's errors, for 9 of 10 new groups.

    errors: the absolute errors of each group, such as a job, each at least one; at least one group. A new
    group's errors are not drawn from the pool of all errors, because some groups are harder. So each group
    gives its own half-width, and these half-widths are ranked as `conformal` ranks errors. With fewer than
    nine groups the result is the largest half-width, which k groups out of k + 1 do not exceed.
    """
    return conformal(np.array([conformal(group) for group in errors]))
