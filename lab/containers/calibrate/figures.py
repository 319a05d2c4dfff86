"""Turns measurements into calibrated values: jitter, and the cost of one more request.

For: the arithmetic of `twinbed calibrate`. Not for: measuring (limits.py, loop.py, program.py), nor for the
costs of the service program (fit.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.ask.calibration import Value, distribution

Floats = NDArray[np.float64]

_Z95 = 1.645
"""95th percentile of the standard normal distribution."""


def jitter(values: Sequence[float] | Floats, source: str) -> Value:
    """Return the standard deviation of a normal delay with these values' median and 95th percentile,
    seconds. The few outliers of a busy machine do not count as jitter."""
    spread = distribution(values, "s", source)
    assert spread.p50 is not None
    assert spread.p95 is not None
    return Value(max(spread.p95 - spread.p50, 0.0) / _Z95, "s", source, spread.n)


def per_request(amounts: Sequence[float] | Floats, requests: Sequence[int]) -> float:
    """Return the cost of one more request, by least squares over runs with different numbers of requests.
    Costs that do not depend on requests are left out."""
    more = np.asarray(requests, np.float64) - np.mean(requests)
    return float(more @ np.asarray(amounts, np.float64) / (more @ more))
