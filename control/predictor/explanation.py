"""Explanations of predictors: how much the accuracy depends on groups of features, and what each group adds.

For: any predictor. Not for: drawing. Methods: permutation importance (Breiman 2001; Fisher et al. 2019) over
groups of columns, so that the one-hots of an instance type move together; Shapley values of one row against a
background by sampled permutations (Štrumbelj & Kononenko 2014), which sum to the difference from the
background's mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from control.jobs import Objective, Real, Whole
from control.predictor.examples import Examples
from control.predictor.features import SERIES, Encoded
from control.predictor.ports import Predictor

_PRIOR, _KNOWN = "analytic model", "known application"
"""Groups without columns: the prior, and whether the predictor knows the application."""
_LEAST = 1e-9
"""Least prediction, s or US$, of which a logarithm is taken."""
_ROUNDS = 5
"""Number of shuffles per group."""
_PERMUTATIONS = 64
"""Number of permutations of the groups, each against one background row."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Importance of groups of features, the most important first.

    group: names of the groups.
    loss: growth of the median absolute log error if the group is shuffled among rows, float64[groups].
    """

    group: tuple[str, ...]
    loss: Real


def importance(
    predictor: Predictor, by: Objective, examples: Examples, rng: np.random.Generator
) -> Importance:
    """Return the importance on rows with known outcomes, preferably rows that were not learned from."""
    encoded = _with_own_series(predictor.encoder.encode(examples))
    truth = np.log(examples.objective(by))

    def error(rows: Encoded) -> float:
        return float(np.median(np.abs(_log(predictor, rows) - truth)))

    base, everything = error(encoded), np.arange(len(truth))
    lost = {}
    for name, columns in _groups(predictor).items():
        orders = [rng.permutation(len(truth)) for _ in range(_ROUNDS)]
        shuffled = [error(_swapped(encoded, everything, encoded, order, name, columns)) for order in orders]
        lost[name] = float(np.mean(shuffled)) - base
    order = sorted(lost, key=lambda name: -lost[name])
    return Importance(tuple(order), np.array([lost[name] for name in order]))


@dataclass(frozen=True, slots=True)
class Contribution:
    """Shares of groups of features in the logarithm of one row's prediction, the largest first.

    group: names of the groups.
    log_factor: what each group adds, float64[groups].
    base: mean log prediction of the background; base and log_factor sum to the row's log prediction.
    """

    group: tuple[str, ...]
    log_factor: Real
    base: float


def contributions(
    predictor: Predictor, row: Examples, background: Examples, rng: np.random.Generator
) -> Contribution:
    """Return contributions to the prediction of the one row of `row`, against random background rows."""
    own, others = predictor.encoder.encode(row), predictor.encoder.encode(background)
    groups = _groups(predictor)
    names = list(groups)
    drawn = rng.integers(len(others.job), size=_PERMUTATIONS)
    order = np.array([rng.permutation(len(names)) for _ in range(_PERMUTATIONS)])
    rows = _with_own_series(_taken(others, drawn))
    own = _with_own_series(own)
    total = np.zeros(len(names))
    before = _log(predictor, rows)
    base = float(before.mean())
    for place in range(len(names)):
        for index in np.unique(order[:, place]):
            chosen = np.flatnonzero(order[:, place] == index)
            rows = _swapped(rows, chosen, own, np.zeros_like(chosen), names[index], groups[names[index]])
        after = _log(predictor, rows)
        np.add.at(total, order[:, place], (after - before) / _PERMUTATIONS)
        before = after
    ranked = np.argsort(-np.abs(total), kind="stable")
    return Contribution(tuple(names[index] for index in ranked), total[ranked], base)


def _log(predictor: Predictor, rows: Encoded) -> Real:
    """Return the logarithms of predictions. One below _LEAST, as of a linear regression, counts as _LEAST."""
    return np.log(np.maximum(predictor.predict_encoded(rows), _LEAST))


def _groups(predictor: Predictor) -> Mapping[str, Whole]:
    series = {name: np.array(columns) for name, columns in SERIES.items()}
    none = np.empty(0, dtype=np.int64)
    return {**predictor.encoder.groups_of(), **series, _PRIOR: none, _KNOWN: none}


def _with_own_series(rows: Encoded) -> Encoded:
    """Return the same rows, each with a copy of its job's series."""
    places = np.arange(len(rows.job))
    names = tuple(rows.names[job] for job in rows.job)
    return replace(rows, series=rows.series[rows.job], job=places, names=names)


def _swapped(into: Encoded, at: Whole, source: Encoded, rows: Whole, name: str, columns: Whole) -> Encoded:
    """Return `into` with one group of its rows `at` taken from rows `rows` of `source`.

    Every row has series of its own.
    """

    def assigned(values: Any, others: Any) -> Any:
        copy = values.copy()
        copy[at] = others[rows]
        return copy

    if name in SERIES:
        series = into.series.copy()
        series[np.ix_(at, np.arange(series.shape[1]), columns)] = source.series[rows][:, :, columns]
        return replace(into, series=series)
    if name == _KNOWN:
        return replace(into, names=tuple(assigned(np.array(into.names), np.array(source.names)).tolist()))
    if name == _PRIOR:
        return replace(into, prior=assigned(into.prior, source.prior))
    static = into.static.copy()
    static[np.ix_(at, columns)] = source.static[np.ix_(rows, columns)]
    price = assigned(into.log_price, source.log_price) if name == "price" else into.log_price
    return replace(into, static=static, log_price=price)


def _taken(encoded: Encoded, rows: Whole) -> Encoded:
    """Return the encoded rows at `rows`."""
    columns = {name: getattr(encoded, name)[rows] for name in ("static", "job", "prior", "log_price", "row")}
    return replace(encoded, **columns)
