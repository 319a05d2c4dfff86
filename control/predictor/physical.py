"""The predictor that we believe in: an analytic model of the job, and what past jobs teach about its errors.

For: times and costs of jobs that were never seen. Not for: the analytic model (twin.cloud; it comes in with
the examples as prior_time_s). It learns the logarithm of outcome ÷ prior, which for an unseen job is small
where the physics is right, by one of four correctors: NONE (the prior, times what it was off by on average),
SCALING (linear in what says how any job scales), RIDGE (in all features) or TREES (boosted, shallow). Which
one, and how much it is held back, is chosen twice: for applications that it does not know by leaving one
application of the training out at a time, for those that it knows by leaving out rows. The errors seen there,
of what the other parts would have chosen, make the intervals. Without a prior the same is learned of the
outcome itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from control.predictor.baselines import THREADS
from control.predictor.examples import Examples, folds_of_jobs, folds_of_rows
from control.predictor.features import SCALING, Encoded, Encoder
from control.predictor.trees import Trees, of_xgboost
from control.recommender.model import Flags, Objective, Real, Whole
from twinbed import ScenarioError

_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_TREES: Mapping[str, Any] = {
    "n_estimators": 200,
    "max_depth": 3,
    "learning_rate": 0.05,
    "subsample": 0.8,
    "min_child_weight": 3,
    "reg_lambda": 3.0,
}
"""Shallow and slow: it corrects a model that is nearly right already."""
_FOLDS = 10
"""Of rows that are left out: what is learned from the others is nearly what all would teach."""
FEWEST_ROWS = 10


class Corrector(StrEnum):
    """What is added to the logarithm of the prior."""

    NONE = "none"
    SCALING = "scaling"
    RIDGE = "ridge"
    TREES = "trees"


@dataclass(frozen=True, slots=True)
class Correction:
    """One that has learned. offset: what the prior is off by on average (log); weights: float64[f], of
    SCALING and RIDGE, held back by penalty; trees: of TREES, else None."""

    corrector: Corrector
    offset: float
    weights: Real
    penalty: float = 0.0
    trees: Trees | None = None

    def of(self, static: Real) -> Real:
        """float64[n], to be added to the logarithm of the prior."""
        if self.corrector in (Corrector.SCALING, Corrector.RIDGE):
            return self.offset + static @ self.weights
        if self.trees is not None:
            return self.offset + self.trees.of(static)
        return np.full(len(static), self.offset)


@dataclass(frozen=True, slots=True)
class Physical:
    """Trained.

    correction: of applications that it does not know, known: of those that it does; level: mean logarithm of
    the training's outcomes where there was no prior (else 0). job_errors,
    row_errors: float64[k], absolute errors (log) of rows whose whole application, or which alone, was left
    out; jobs: names of the applications that it knows.
    """

    by: Objective
    encoder: Encoder
    correction: Correction
    known: Correction
    level: float
    job_errors: Real
    row_errors: Real
    jobs: tuple[str, ...]

    def predict(self, examples: Examples) -> Real:
        """See Predictor."""
        return self.predict_encoded(self.encoder.encode(examples))

    def predict_encoded(self, encoded: Encoded) -> Real:
        """See Predictor."""
        expected = _log_prior(encoded, self.by)
        prior = np.where(np.isnan(expected), self.level, expected)
        known = np.array([name in self.jobs for name in encoded.names], dtype=np.bool_)[encoded.job]
        static = encoded.static
        found: Real = np.exp(prior + np.where(known, self.known.of(static), self.correction.of(static)))
        return found


def train_physical(by: Objective, examples: Examples, seed: int) -> Physical:
    """Learns from all rows, of one application or several; with one, rows are left out in its place.

    Raises ScenarioError for fewer than FEWEST_ROWS rows, rows without an outcome, or a prior for some only.
    """
    if len(examples) < FEWEST_ROWS:
        raise ScenarioError(
            f"{len(examples)} rows to learn from; at least {FEWEST_ROWS} are needed: add past runs"
        )
    examples.check_known(by)
    encoder = Encoder.fit(examples)
    encoded = encoder.encode(examples)
    prior = _log_prior(encoded, by)
    if np.isnan(prior).any() and not np.isnan(prior).all():
        raise ScenarioError("some rows have an analytic prediction and some have none; give it for all")
    value = np.log(examples.objective(by))
    level = float(value.mean()) if np.isnan(prior).any() else 0.0
    error = value - np.where(np.isnan(prior), level, prior)
    rng = np.random.default_rng(seed)
    rows = folds_of_rows(len(examples), min(_FOLDS, len(examples)), rng)
    jobs = folds_of_jobs(examples.job) if len(np.unique(examples.job)) > 1 else rows
    learner = _Learner(encoded.static, error, np.isin(encoder.columns, SCALING), seed)
    chosen, job_errors = learner.choose(jobs)
    near, row_errors = learner.choose(rows)
    present = tuple(examples.jobs[index].name for index in np.unique(examples.job).tolist())
    return Physical(
        by,
        encoder,
        learner.fit(chosen),
        learner.fit(near),
        level,
        np.sort(job_errors),
        np.sort(row_errors),
        present,
    )


def _log_prior(encoded: Encoded, by: Objective) -> Real:
    return encoded.prior + encoded.log_price - np.log(3600) if by is Objective.COST else encoded.prior


@dataclass(frozen=True, slots=True)
class _Learner:
    """Rows to learn from. static: float64[n, f]; error: float64[n], of the prior's logarithm; scaling:
    bool[f], the columns of SCALING."""

    static: Real
    error: Real
    scaling: Flags
    seed: int

    def choose(self, folds: list[Whole]) -> tuple[Correction, Real]:
        """The one with the smallest median error on folds left out, each counting alike; and the errors of
        each fold by the one that the other folds would have chosen, which knows as little of it."""
        kinds = list(self._untrained())
        errors = [self._left_out(each, folds) for each in kinds]
        medians = np.array([[np.median(part) for part in parts] for parts in errors])
        elsewhere = medians.sum(axis=1, keepdims=True) - medians
        nested = [errors[kind][fold] for fold, kind in enumerate(elsewhere.argmin(axis=0))]
        return kinds[int(medians.mean(axis=1).argmin())], np.concatenate(nested)

    def fit(self, kind: Correction) -> Correction:
        """One that has learned from all rows."""
        return self._fit(kind, np.ones(len(self.error), dtype=np.bool_))

    def _untrained(self) -> Iterator[Correction]:
        none = Correction(Corrector.NONE, 0.0, np.zeros(self.static.shape[1]))
        yield none
        for corrector in (Corrector.SCALING, Corrector.RIDGE):
            for penalty in _RIDGES:
                yield replace(none, corrector=corrector, penalty=penalty)
        yield replace(none, corrector=Corrector.TREES)

    def _left_out(self, kind: Correction, folds: list[Whole]) -> list[Real]:
        """Absolute errors of each fold's rows by what the others teach."""
        errors = []
        for rows in folds:
            others = np.ones(len(self.error), dtype=np.bool_)
            others[rows] = False
            errors.append(np.abs(self.error[rows] - self._fit(kind, others).of(self.static[rows])))
        return errors

    def _fit(self, kind: Correction, rows: Flags) -> Correction:
        static, error = self.static[rows], self.error[rows]
        offset = float(error.mean())
        rest = error - offset
        if kind.corrector in (Corrector.SCALING, Corrector.RIDGE):
            used = self.scaling if kind.corrector is Corrector.SCALING else np.ones_like(self.scaling)
            centre = static.mean(axis=0)
            near = (static - centre) * used
            gram = near.T @ near + kind.penalty * np.eye(static.shape[1])
            weights = np.linalg.solve(gram, near.T @ rest)
            return replace(kind, offset=offset - float(centre @ weights), weights=weights)
        if kind.corrector is Corrector.TREES:
            from xgboost import XGBRegressor

            model = XGBRegressor(random_state=self.seed, n_jobs=THREADS, base_score=0.0, **_TREES)
            return replace(kind, offset=offset, trees=of_xgboost(model.fit(static, rest)))
        return replace(kind, offset=offset)
