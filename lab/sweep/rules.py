"""Rules about a metric: when a point has enough seeds, the limits of a tuning, and the Pareto front.

For: `--until` and `--subject-to`, and finding a metric by a short name. Not for: choosing the next run.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.ask.kind import Kind
from lab.runs.compare import mean_ci95
from lab.runs.metric import Metric
from twinbed import ScenarioError

LEAST_SEEDS = 5
"""Least number of seeds of a cell: the intervals of fewer values are too uncertain for a decision."""

_UNTIL = re.compile(r"\s*ci\(\s*([\w.]+)\s*\)\s*<=?\s*([0-9.]+(?:e-?[0-9]+)?)\s*(%?)\s*")
_LIMIT = re.compile(r"\s*([\w.]+)\s*(<=|>=|<|>)\s*(-?[0-9.]+(?:e[+-]?[0-9]+)?)\s*")


def metric_named(kind: Kind, text: str, where: str) -> Metric:
    """Return the metric with this key, or the only one whose key contains the text. A quantile without a
    name (`p99`, `p99_s`) is one of latency if the kind has latencies. Raises ScenarioError."""
    metrics = {metric.key: metric for metric in kind.metrics()}
    fits = [key for key in (text, f"latency_{text}", f"latency_{text}_s") if key in metrics][:1]
    fits = fits or [key for key in metrics if text and text in key]
    if len(fits) != 1:
        near = fits or difflib.get_close_matches(text, metrics, 3, 0.4) or list(metrics)[:5]
        problem = "several metrics fit" if fits else "there is no such metric"
        raise ScenarioError(f"{where}: {problem}; give one of {', '.join(near)}")
    return metrics[fits[0]]


@dataclass(frozen=True, slots=True)
class Until:
    """A stop rule. metric: its key. share: largest half-width of the mean's 95 % interval, over the mean."""

    metric: str
    share: float

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Until:
        """Return the rule of a text such as `ci(latency_p99_s) < 5%`. Raises ScenarioError."""
        match = _UNTIL.fullmatch(text)
        if match is None:
            raise ScenarioError(f"--until {text}: expected ci(METRIC) < SHARE%, e.g. ci(latency_p99_s) < 5%")
        share = _number(match[2], f"--until {text}") / (100 if match[3] else 1)
        return cls(metric_named(kind, match[1], f"--until {text}").key, share)

    def met(self, values: Sequence[float]) -> bool:
        """Return whether these values of the metric, one per seed, are enough."""
        if len(values) < LEAST_SEEDS:
            return False
        mean, half = mean_ci95(np.asarray(values, np.float64))
        return half <= self.share * abs(mean)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a metric. sign: 1 if the metric may be at most `bound`, -1 if it must be at least that."""

    metric: str
    sign: int
    bound: float

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Limit:
        """Return the limit of a text such as `latency_p99_s <= 0.2`. Raises ScenarioError."""
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ScenarioError(f"--subject-to {text}: expected METRIC <= NUMBER or METRIC >= NUMBER")
        metric = metric_named(kind, match[1], f"--subject-to {text}")
        sign = 1 if match[2].startswith("<") else -1
        return cls(metric.key, sign, _number(match[3], f"--subject-to {text}"))

    @property
    def text(self) -> str:
        """The limit in words."""
        return f"{self.metric} {'<=' if self.sign > 0 else '>='} {self.bound:g}"

    def excess(self, value: float) -> float:
        """Return the amount by which a value is beyond the limit: 0 or less if the limit is kept, infinite
        for NaN."""
        return math.inf if math.isnan(value) else self.sign * (value - self.bound)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f"{where}: {text} is not a number") from None


def unbeaten(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the rows that no other row beats. A row beats another if it is at most as large in every figure
    and smaller in one.

    costs: candidates × figures, smaller is better. A row with NaN is beaten.
    """
    best: list[int] = []
    # In this order, a row is beaten by an earlier one or by none, so the unbeaten rows so far are enough.
    for number in np.lexsort(costs.T[::-1]).tolist():
        own, front = costs[number], costs[best]
        beaten = (front <= own).all(axis=1) & (front < own).any(axis=1)
        if np.isfinite(own).all() and not beaten.any():
            best.append(number)
    kept: NDArray[np.bool_] = np.zeros(len(costs), np.bool_)
    kept[best] = True
    return kept
