"""Why a predictor says what it says: which groups of features its accuracy hangs on, and what each adds.

For: any predictor. Not for: drawing. Permutation importance (Breiman 2001; Fisher et al. 2019) over groups of
columns, so that one-hots of a type move together; Shapley values of one row against a background by sampled
permutations (Štrumbelj & Kononenko 2014): they sum to the difference from the background's mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from control.predictor.examples import Examples
from control.predictor.features import Encoded
from control.predictor.ports import Predictor
from control.recommender.model import Objective, Real, Whole

SERIES = "local run's series"
_ROUNDS = 5
_PERMUTATIONS = 64


@dataclass(frozen=True, slots=True)
class Importance:
    """Of each group, the most important first: how much the median error (a factor, as a logarithm) grows
    when the group is shuffled among rows."""

    group: tuple[str, ...]
    loss: Real


def importance(
    predictor: Predictor, by: Objective, examples: Examples, rng: np.random.Generator, rounds: int = _ROUNDS
) -> Importance:
    """On rows with known outcomes, better ones that were not learned from."""
    encoded = predictor.encoder.encode(examples)
    truth = np.log(examples.objective(by))

    def error(rows: Encoded) -> float:
        return float(np.median(np.abs(np.log(predictor.predict_encoded(rows)) - truth)))

    base = error(encoded)
    lost = {}
    for name, columns in _groups(predictor).items():
        orders = [rng.permutation(len(truth)) for _ in range(rounds)]
        shuffled = [error(_mixed(encoded, encoded, name, columns, order)) for order in orders]
        lost[name] = float(np.mean(shuffled)) - base
    order = sorted(lost, key=lambda name: -lost[name])
    return Importance(tuple(order), np.array([lost[name] for name in order]))


@dataclass(frozen=True, slots=True)
class Contribution:
    """Of each group to one row's logarithm, the largest first, and the background's mean logarithm: their sum
    is the row's own."""

    group: tuple[str, ...]
    log_factor: Real
    base: float


def contributions(
    predictor: Predictor,
    row: Examples,
    background: Examples,
    rng: np.random.Generator,
    permutations: int = _PERMUTATIONS,
) -> Contribution:
    """Of the one row of `row`, against as many background rows as permutations, drawn anew."""
    own, others = predictor.encoder.encode(row), predictor.encoder.encode(background)
    groups = _groups(predictor)
    names = list(groups)
    drawn = rng.integers(len(others.job), size=permutations)
    order = np.array([rng.permutation(len(names)) for _ in range(permutations)])
    rows = _drawn(others, drawn, own)
    total = np.zeros(len(names))
    before = np.log(predictor.predict_encoded(rows))
    base = float(before.mean())
    for place in range(len(names)):
        for index in np.unique(order[:, place]):
            chosen = np.flatnonzero(order[:, place] == index)
            rows = _given(rows, own, names[index], groups[names[index]], chosen)
        after = np.log(predictor.predict_encoded(rows))
        np.add.at(total, order[:, place], (after - before) / permutations)
        before = after
    ranked = np.argsort(-np.abs(total), kind="stable")
    return Contribution(tuple(names[index] for index in ranked), total[ranked], base)


_PRIOR = "analytic model"


def _groups(predictor: Predictor) -> Mapping[str, Whole]:
    none = np.empty(0, dtype=np.int64)
    return {**predictor.encoder.groups_of(), SERIES: none, _PRIOR: none}


def _mixed(into: Encoded, source: Encoded, name: str, columns: Whole, order: Whole) -> Encoded:
    """`into` with one group of rows `order` of `source`."""
    if name == SERIES:
        return replace(into, job=source.job[order])
    if name == _PRIOR:
        return replace(into, prior=source.prior[order])
    static = into.static.copy()
    static[:, columns] = source.static[order][:, columns]
    price = source.log_price[order] if name == "price" else into.log_price
    return replace(into, static=static, log_price=price)


def _drawn(others: Encoded, rows: Whole, own: Encoded) -> Encoded:
    """Background rows, and the series of the row's own job after theirs."""
    return Encoded(
        others.static[rows],
        np.concatenate((others.series, own.series)),
        others.job[rows],
        others.prior[rows],
        others.log_price[rows],
        (*others.names, *own.names),
    )


def _given(rows: Encoded, own: Encoded, name: str, columns: Whole, chosen: Whole) -> Encoded:
    """`rows` with the own row's group at positions `chosen`."""
    if name == SERIES:
        job = rows.job.copy()
        job[chosen] = len(rows.series) - len(own.series) + own.job[0]
        return replace(rows, job=job)
    if name == _PRIOR:
        prior = rows.prior.copy()
        prior[chosen] = own.prior[0]
        return replace(rows, prior=prior)
    static, price = rows.static.copy(), rows.log_price.copy()
    static[np.ix_(chosen, columns)] = own.static[0, columns]
    if name == "price":
        price[chosen] = own.log_price[0]
    return replace(rows, static=static, log_price=price)
