"""From measurements to calibrated values: distributions, overruns, and what one more request adds.

For: pure arithmetic of `twinbed calibrate`. Not for: measuring (limits.py, loop.py, program.py), nor for what
the service program costs (fit.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.ask.calibration import Value
from twinbed import BackendError

Floats = NDArray[np.float64]

_Z95 = 1.645
"""95th percentile of the standard normal distribution."""


def distribution(values: Sequence[float] | Floats, unit: str, source: str) -> Value:
    """The values' median as the value, with their number and percentiles; BackendError for none."""
    found = np.asarray(values, np.float64)
    if found.size == 0:
        raise BackendError(f"{source}: nothing was measured; calibrate on a quieter machine")
    p50, p95, p99 = (float(each) for each in np.percentile(found, [50, 95, 99]))
    return Value(p50, unit, source, int(found.size), p50, p95, p99)


def jitter(values: Sequence[float] | Floats, source: str) -> Value:
    """Standard deviation of a normal delay with these values' median and 95th percentile, seconds: the few
    outliers of a busy machine are no jitter."""
    spread = distribution(values, "s", source)
    assert spread.p50 is not None
    assert spread.p95 is not None
    return Value(max(spread.p95 - spread.p50, 0.0) / _Z95, "s", source, spread.n)


def per_request(amounts: Sequence[float] | Floats, requests: Sequence[int]) -> float:
    """What one more request adds, from runs of different numbers of them, by least squares; so what is spent
    without requests does not count."""
    more = np.asarray(requests, np.float64) - np.mean(requests)
    return float(more @ np.asarray(amounts, np.float64) / (more @ more))
