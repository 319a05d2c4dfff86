"""How good predictors are on rows that they have not seen: cross-validation and the figures of the source.

For: predictions of every row by a model that was made without its fold, and what they are worth. Not for:
choosing a model (that is part of making one), nor files. Source: SPEC §3.1: RMSE and R² of cost and time; for
the best configurations of an unseen job AUC, how many of the five best are found, and false positives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from control.predictor.examples import Examples, best
from control.predictor.ports import Predictor
from control.recommender.model import Flags, Real, Whole
from twinbed import ScenarioError

PICKED = 6
"""Most configurations that are taken for the best: with four of five found, two are wrong."""
LIKELY = 0.5
"""From this likelihood on, a classifier takes a configuration for one of the best."""

Maker = Callable[[Examples], Predictor]


def cross_validated(
    make: Maker,
    examples: Examples,
    folds: Sequence[Whole],
    on_fold: Callable[[int, int], None] | None = None,
) -> Real:
    """float64[n], each row predicted by what `make` makes of the rows outside its fold. on_fold: told of
    folds done, of all."""
    found = np.full(len(examples), np.nan)
    for index, rows in enumerate(folds):
        others = np.ones(len(examples), dtype=np.bool_)
        others[rows] = False
        found[rows] = make(examples.take(others)).predict(examples.take(rows))
        if on_fold is not None:
            on_fold(index + 1, len(folds))
    return found


@dataclass(frozen=True, slots=True)
class Accuracy:
    """rmse: in the unit of the values; r2; median_error: of |predicted ÷ true − 1|."""

    rmse: float
    r2: float
    median_error: float


def accuracy(predicted: Real, true: Real) -> Accuracy:
    """Of float64[n] each. Raises ScenarioError for fewer than two rows."""
    if len(true) < 2:
        raise ScenarioError(f"{len(true)} rows to judge by; at least two are needed")
    error = predicted - true
    spread = float(np.sum((true - true.mean()) ** 2))
    r2 = 1 - float(np.sum(error**2)) / spread if spread > 0 else float("nan")
    return Accuracy(float(np.sqrt(np.mean(error**2))), r2, float(np.median(np.abs(predicted / true - 1))))


@dataclass(frozen=True, slots=True)
class Selection:
    """Of one job. auc: how well a score tells its best from the others; of `best` that there are, `found` are
    among those that were picked; false_positives: picked that are not."""

    auc: float
    best: int
    found: int
    false_positives: int

    @property
    def good(self) -> bool:
        """Whether all but one at most are found, and no more than two are picked wrongly."""
        return self.found >= self.best - 1 and self.false_positives <= 2


def picks(said: Real, *, likelihoods: bool) -> Flags:
    """What a predictor takes for one job's best, bool[n], PICKED at most (and ties): what it says will take
    or cost no more than `examples.WITHIN` times the least; or, of likelihoods, what is LIKELY."""
    nobody = np.zeros(len(said), dtype=np.int64)
    if not likelihoods:
        return best(said, nobody, count=PICKED)
    likeliest = said >= np.sort(said)[::-1][min(PICKED, len(said)) - 1]
    found: Flags = likeliest & (said >= LIKELY)
    return found


def selection(said: Real, true: Real, *, likelihoods: bool = False) -> Selection:
    """Of one job's rows, the lowest `true` being the best. said: the predicted values or likelihoods.

    AUC is NaN where all rows are the best, or none.
    """
    good = best(true, np.zeros(len(true), dtype=np.int64))
    taken = picks(said, likelihoods=likelihoods)
    score = said if likelihoods else -said
    return Selection(auc(score, good), int(good.sum()), int((taken & good).sum()), int((taken & ~good).sum()))


def auc(score: Real, good: np.ndarray) -> float:
    """Probability that a good row has a higher score than another (Mann–Whitney U; ties count half)."""
    from scipy.stats import rankdata

    positives = int(good.sum())
    negatives = len(good) - positives
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[good].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def coverage(low: Real, high: Real, true: Real) -> float:
    """Share of the rows that lie within their interval."""
    return float(np.mean((low <= true) & (true <= high)))
