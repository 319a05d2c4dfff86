"""How good predictors are on rows that they have not seen: cross-validation and the thesis's figures.

For: predicting every row by a model that was fitted without its fold, and judging these predictions. Not for:
choosing a model (that is part of fitting one), nor files. Source: chapter 4 (cloud) of the doctoral thesis:
RMSE and R² of cost and time; for the best configurations of an unseen job AUC, hits among the five best,
false positives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from control.jobs import Flags, Real, Whole
from control.predictor.examples import Examples, best
from control.predictor.ports import Predictor
from twinbed import ScenarioError

PICKED = 6
"""Most configurations that are picked as the best. With four hits among five, two picks are wrong."""
LIKELY = 0.5
"""Probability from which a classifier's configuration is picked as one of the best."""

Maker = Callable[[Examples], Predictor]


def cross_validated(
    make: Maker, examples: Examples, folds: Sequence[Whole], on_fold: Callable[[int, int], None] | None = None
) -> Real:
    """Return each row's prediction by a model that `make` fits to the rows outside its fold, float64[n].

    folds: positions of each fold's rows; on_fold: called with the number of folds done and of all.
    """
    predicted = np.full(len(examples), np.nan)
    for index, rows in enumerate(folds):
        others = np.ones(len(examples), dtype=np.bool_)
        others[rows] = False
        predicted[rows] = make(examples.take(others)).predict(examples.take(rows))
        if on_fold is not None:
            on_fold(index + 1, len(folds))
    return predicted


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of predicted values.

    rmse: root mean square error, in the unit of the values.
    r2: coefficient of determination.
    median_error: median of |predicted ÷ true − 1|.
    """

    rmse: float
    r2: float
    median_error: float


def accuracy(predicted: Real, true: Real) -> Accuracy:
    """Return the accuracy of predictions, float64[n]. Raises ScenarioError for fewer than two rows."""
    if len(true) < 2:
        raise ScenarioError(f"{len(true)} rows to judge by; at least two are needed")
    error = predicted - true
    spread = float(np.sum((true - true.mean()) ** 2))
    r2 = 1 - float(np.sum(error**2)) / spread if spread > 0 else float("nan")
    return Accuracy(float(np.sqrt(np.mean(error**2))), r2, float(np.median(np.abs(predicted / true - 1))))


@dataclass(frozen=True, slots=True)
class Selection:
    """How well a predictor picks the best configurations of one job.

    auc: area under the ROC curve of telling the best from the others.
    best: number of best configurations.
    hits: how many of them were picked.
    false_positives: number of other configurations that were picked.
    """

    auc: float
    best: int
    hits: int
    false_positives: int

    @property
    def good(self) -> bool:
        """Whether at most one of the best is missed and at most two others are picked."""
        return self.hits >= self.best - 1 and self.false_positives <= 2


def picks(said: Real, *, likelihoods: bool) -> Flags:
    """Return the rows of one job that a predictor picks as the best, bool[n]: at most PICKED, and ties.

    It picks predicted values within TOP_FACTOR of the least one, and probabilities of at least LIKELY.
    """
    if not likelihoods:
        return best(said, np.zeros(len(said), dtype=np.int64), count=PICKED)
    picked: Flags = (said >= np.sort(said)[::-1][min(PICKED, len(said)) - 1]) & (said >= LIKELY)
    return picked


def selection(said: Real, true: Real, *, likelihoods: bool = False) -> Selection:
    """Return how well predicted values or probabilities `said` pick the rows with the lowest `true` of one
    job.

    AUC is NaN if all rows or none are among the best.
    """
    good = best(true, np.zeros(len(true), dtype=np.int64))
    taken = picks(said, likelihoods=likelihoods)
    score = said if likelihoods else -said
    return Selection(auc(score, good), int(good.sum()), int((taken & good).sum()), int((taken & ~good).sum()))


def auc(score: Real, good: np.ndarray) -> float:
    """Return the probability that a good row scores above another (Mann–Whitney U; ties count half)."""
    from scipy.stats import rankdata

    positives = int(good.sum())
    negatives = len(good) - positives
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[good].sum() - positives * (positives + 1) / 2) / (positives * negatives))
