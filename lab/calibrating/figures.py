"""From measurements to calibrated values: distributions, overruns, and what a visit costs.

For: pure arithmetic of `twinbed calibrate`. Not for: measuring (limits.py, loop.py, program.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.calibration import Value
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


@dataclass(frozen=True, slots=True)
class Costs:
    """What visits cost, from two services that call nobody and one that calls them.

    dilation: CPU used per CPU second declared; visit_s: CPU of a visit beyond that; call_s: of each call.
    """

    dilation: float
    visit_s: float
    call_s: float


def costs(used_s: Mapping[str, float], declared_s: Mapping[str, float], calls: Mapping[str, float]) -> Costs:
    """used_s: measured CPU per visit; declared_s: CPU demand of a visit; calls: that a visit makes.

    Needs two services without calls and different demands, and one with calls. Negative overheads, which
    noise may give, become 0.
    """
    short, long = sorted((name for name in used_s if not calls[name]), key=lambda name: declared_s[name])
    slope = (used_s[long] - used_s[short]) / (declared_s[long] - declared_s[short])
    visit_s = max(used_s[short] - slope * declared_s[short], 0.0)
    over = [
        (used_s[name] - slope * declared_s[name] - visit_s) / calls[name] for name in used_s if calls[name]
    ]
    return Costs(slope, visit_s, max(float(np.mean(over)), 0.0))


def per_request(amounts: tuple[float, float], requests: tuple[int, int]) -> float:
    """What one more request adds, from two runs; so what is spent without requests does not count."""
    return (amounts[1] - amounts[0]) / (requests[1] - requests[0])
