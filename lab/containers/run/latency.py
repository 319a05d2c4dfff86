"""Latency over all requests, those that were never answered among them.

For: the mean and the quantiles of lab.containers.metrics. Not for: charts over time (lab.charts.services),
which apply the same rule in SQL. A request without an answer is later than every answer. All that is known
of it is that it waited until the run's end. So a quantile that falls among such requests is a lower bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.containers.metrics import LATENCY_QUANTILES
from twin.containers.model import Floats

MEAN = "latency_mean_s"


def latencies(
    latency_s: Floats, at_s: Floats, answered: NDArray[np.bool_], end_s: float
) -> tuple[dict[str, float], frozenset[str]]:
    """Return (metric key → value, keys whose value is a lower bound); values are NaN without requests.

    latency_s, at_s: float64[A], time to the answer and when each request was due, s. answered: bool[A].
    end_s: the run's end, s. A bound is the quantile of what is known: an answer's latency, or the time from
    when the request was due to the run's end.
    """
    known = np.where(answered, latency_s, np.maximum(end_s - at_s, 0.0))
    wanted = tuple(LATENCY_QUANTILES.values())
    exact = quantiles(np.where(answered, latency_s, np.inf), wanted)
    least = quantiles(known, wanted)
    values = {
        key: low if np.isinf(value) else value
        for key, value, low in zip(LATENCY_QUANTILES, exact, least, strict=True)
    }
    bounds = {key for key, value in zip(LATENCY_QUANTILES, exact, strict=True) if np.isinf(value)}
    values[MEAN] = float(known.mean()) if known.size else float("nan")
    return values, frozenset(bounds if answered.all() else bounds | {MEAN})


def quantiles(values: NDArray[np.floating[Any]], wanted: tuple[float, ...]) -> list[float]:
    """Return quantiles of float[n], linear between order statistics as numpy.quantile's, NaN if n = 0.

    Infinite values are allowed, unlike in numpy.quantile. np.partition keeps float32 and finds all order
    statistics in one pass, which is several times faster than numpy.quantile on millions of values.
    """
    if values.size == 0:
        return [float("nan")] * len(wanted)
    positions = [quantile * (values.size - 1) for quantile in wanted]
    below = [int(position) for position in positions]
    above = [min(low + 1, values.size - 1) for low in below]
    ordered = np.partition(values, sorted({*below, *above}))
    return [
        _between(float(ordered[low]), float(ordered[high]), position - low)
        for position, low, high in zip(positions, below, above, strict=True)
    ]


def _between(low: float, high: float, share: float) -> float:
    return low if share == 0.0 or low == high else low + share * (high - low)
