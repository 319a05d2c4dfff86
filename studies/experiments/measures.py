"""Figures of one seed's runs: means, extremes, and changes paired over what else was varied.

For: building the `measure` of a Figure. Not for: what an experiment measures (its own module), nor means
over seeds (evaluate.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from studies.experiments.model import Case, Measure


@dataclass(frozen=True, slots=True)
class Pick:
    """Cases of one policy ("" = of any) with these settings."""

    policy: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)

    def of(self, cases: Sequence[Case]) -> list[Case]:
        """The cases meant; none where a part of the scenario was run that has none."""
        return [
            case
            for case in cases
            if self.policy in ("", case.policy)
            and all(case.settings.get(key) == value for key, value in self.where.items())
        ]


def mean(metric: str, pick: Pick) -> Measure:
    """Mean of a metric over the picked runs in which it has a meaning."""
    return lambda cases: _mean(_values(metric, pick, cases))


def total(metric: str, pick: Pick) -> Measure:
    """Sum of a metric over the picked runs."""
    return lambda cases: float(sum(values)) if (values := _values(metric, pick, cases)) else float("nan")


def most(metric: str, pick: Pick) -> Measure:
    """Largest value of a metric in one run."""
    return lambda cases: max(_values(metric, pick, cases), default=float("nan"))


def change(metric: str, of: Pick, against: Pick) -> Measure:
    """Percent by which a metric with `of` differs from that with `against`, mean over what else was varied.

    Each run is compared with the one run that differs in nothing but what the picks name. Pairs without a
    change (no value, none or zero to compare with) are left out.
    """
    return lambda cases: _mean(_changes(metric, of, against, cases))


def median_change(metric: str, of: Pick, against: Pick) -> Measure:
    """The same, median instead of mean: what one extreme pair cannot move."""

    def measure(cases: Sequence[Case]) -> float:
        known = [value for value in _changes(metric, of, against, cases) if not np.isnan(value)]
        return float(np.median(known)) if known else float("nan")

    return measure


def difference(metric: str, of: Pick, against: Pick) -> Measure:
    """`of` minus `against`, mean over the same pairs as `change`."""

    def measure(cases: Sequence[Case]) -> float:
        return _mean([ours - theirs for ours, theirs in _pairs(metric, of, against, cases)])

    return measure


def scaled(factor: float, measure: Measure) -> Measure:
    """A measure in another unit."""
    return lambda cases: factor * measure(cases)


def _values(metric: str, pick: Pick, cases: Sequence[Case]) -> list[float]:
    return [case.metric(metric) for case in pick.of(cases)]


def _changes(metric: str, of: Pick, against: Pick, cases: Sequence[Case]) -> list[float]:
    return [100 * (ours / theirs - 1) for ours, theirs in _pairs(metric, of, against, cases)]


def _pairs(metric: str, of: Pick, against: Pick, cases: Sequence[Case]) -> list[tuple[float, float]]:
    named = {*of.where, *against.where}
    base = {_rest(case, named): case.metric(metric) for case in against.of(cases)}
    return [(case.metric(metric), base.get(_rest(case, named), np.nan) or np.nan) for case in of.of(cases)]


def _rest(case: Case, named: set[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, repr(value)) for key, value in case.settings.items() if key not in named)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
