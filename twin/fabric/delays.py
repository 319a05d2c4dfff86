"""Measured delays as random numbers: lognormal through median and 95th percentile. Not for: their values."""

from __future__ import annotations

import numpy as np

from twin.fabric.model import Delay, Floats
from twinbed import ScenarioError

_NORMAL_P95 = 1.6448536269514722
"""The standard normal's 95th percentile."""


def draw(delay: Delay, count: int, random: np.random.Generator) -> Floats:
    """float64[count], seconds. Raises ScenarioError unless 0 ≤ median ≤ p95, and both are zero or neither."""
    median_s, p95_s = delay.median_s, delay.p95_s
    if not 0.0 <= median_s <= p95_s < np.inf or (median_s == 0.0) != (p95_s == 0.0):
        raise ScenarioError(
            f"delay: median_s {median_s}, p95_s {p95_s}: give 0 < median_s ≤ p95_s, or zero for both"
        )
    normal = random.standard_normal(count)
    if median_s == p95_s:
        return np.full(count, median_s)
    return np.asarray(median_s * np.exp(normal * (np.log(p95_s / median_s) / _NORMAL_P95)), np.float64)
