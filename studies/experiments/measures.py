"""Figures of one seed's runs: means, extremes, and changes between paired runs.

For: the `measure` of a Figure. Not for: the definitions of experiments, nor means over seeds (evaluate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from studies.experiments.model import Bounded, Case, Measure, high_end


@dataclass(frozen=True, slots=True)
class Pick:
    """Selects the cases that have these settings and this policy (empty: any policy)."""

    policy: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)

    def of(self, cases: Sequence[Case]) -> list[Case]:
        """Return the selected cases; there may be none if only a part of the scenario was run."""
        return [
            case
            for case in cases
            if self.policy in ("", case.policy)
            and all(case.settings.get(key) == value for key, value in self.where.items())
        ]


def mean(metric: str, pick: Pick) -> Measure:
    """Return the mean of a metric over the picked runs in which it is defined."""
    return lambda cases: _over(np.mean, [case.metric(metric) for case in pick.of(cases)])


def percent(metric: str, pick: Pick) -> Measure:
    """Return the mean of a share over the picked runs, percent."""
    return scaled(100, mean(metric, pick))


def total(metric: str, pick: Pick) -> Measure:
    """Return the sum of a metric over the picked runs."""

    def measure(cases: Sequence[Case]) -> float:
        picked = pick.of(cases)
        return float(sum(case.metric(metric) for case in picked)) if picked else float("nan")

    return measure


def most(metric: str, pick: Pick) -> Measure:
    """Return the largest value of a metric in one run."""
    return lambda cases: max((case.metric(metric) for case in pick.of(cases)), default=float("nan"))


def change(metric: str, of: Pick, against: Pick) -> Measure:
    """Return the mean over pairs of a metric's change from `against` to `of`, percent.

    Each run is compared with the run that differs only in policy and settings of the picks. Pairs without a
    change (no value, or zero to compare with) are left out.
    """
    return lambda cases: _over(np.mean, _changes(metric, of, against, cases))


def median_change(metric: str, of: Pick, against: Pick) -> Measure:
    """Return the median over pairs instead of the mean, because one extreme pair cannot move it."""
    return lambda cases: _over(np.median, _changes(metric, of, against, cases))


def least_change(metric: str, of: Pick, against: Sequence[Pick]) -> Measure:
    """Return the least change of a pair over all picks to compare with, percent."""

    def measure(cases: Sequence[Case]) -> float:
        changes = [change for base in against for change in _changes(metric, of, base, cases)]
        known = [change for change in changes if not np.isnan(change)]
        if not known:
            return float("nan")
        return _interval(float(min(known)), min(high_end(change) for change in known))

    return measure


def largest(
    metric: str, of: Pick, against: Sequence[Pick], factor: Callable[[float, float], float]
) -> Measure:
    """Return the largest `factor(ours, theirs)` of a pair, over all picks to compare with.

    A pair in which either side is a bound has no factor.
    """

    def measure(cases: Sequence[Case]) -> float:
        pairs = [pair for base in against for pair in _pairs(metric, of, base, cases)]
        exact = [pair for pair in pairs if all(np.isfinite(high_end(value)) for value in pair)]
        return max((factor(*pair) for pair in exact if all(value > 0 for value in pair)), default=np.nan)

    return measure


def difference(metric: str, of: Pick, against: Pick) -> Measure:
    """Return the mean of `of` minus `against` over the same pairs as in `change`."""
    return lambda cases: _over(
        np.mean,
        [
            Bounded(ours - high_end(theirs), high_end(ours) - theirs)
            for ours, theirs in _pairs(metric, of, against, cases)
        ],
    )


def scaled(factor: float, measure: Measure) -> Measure:
    """Return a measure in another unit."""

    def scale(cases: Sequence[Case]) -> float:
        value = measure(cases)
        return _interval(factor * value, factor * high_end(value))

    return scale


def _changes(metric: str, of: Pick, against: Pick, cases: Sequence[Case]) -> list[float]:
    """Return the change of each pair, percent; it is an interval if either side is a bound."""
    return [
        Bounded(100 * (ours / high_end(theirs) - 1), 100 * (high_end(ours) / theirs - 1))
        for ours, theirs in _pairs(metric, of, against, cases)
    ]


def _pairs(metric: str, of: Pick, against: Pick, cases: Sequence[Case]) -> list[tuple[float, float]]:
    """Return the metric of each run and of its counterpart; NaN if there is none or it is zero."""
    named = {*of.where, *against.where}
    base = {_rest(case, named): case.metric(metric) for case in against.of(cases)}
    return [(case.metric(metric), base.get(_rest(case, named), np.nan) or np.nan) for case in of.of(cases)]


def _rest(case: Case, named: set[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, repr(value)) for key, value in case.settings.items() if key not in named)


def _over(middle: Callable[[list[float]], Any], values: Sequence[float]) -> float:
    """Apply mean or median to the values that are numbers; NaN if there are none.

    Both grow with every value, so the ends of the values' intervals give the ends of the result's.
    """
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return float("nan")
    return _interval(float(middle(known)), float(middle([high_end(value) for value in known])))


def _interval(low: float, high: float) -> float:
    return low if low == high or np.isnan(low) else Bounded(low, high)
