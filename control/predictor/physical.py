"""The recommended predictor: an analytic model's times, with a correction learned from past jobs.

For: times and costs, also of jobs that were never seen. Not for: the analytic model, whose times come with
the examples as prior_time_s. It learns the logarithm of outcome ÷ prior by one of four correctors: NONE (a
constant factor), SCALING (linear in the columns that show how any job scales), RIDGE (linear in all columns)
or TREES (shallow boosted trees). The corrector and its penalty are chosen twice: for unknown applications by
leaving out one application of the training rows at a time, for known ones by leaving out rows. The errors on
the left-out rows, each by the corrector that the other folds would have chosen, make the intervals. Without a
prior the outcome itself is learned in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from control.jobs import Flags, Objective, Real, Whole
from control.predictor.baselines import THREADS
from control.predictor.examples import FEWEST_ROWS, Examples, called, folds_of_jobs, folds_of_rows
from control.predictor.features import SCALING, Encoded, Encoder
from control.predictor.trees import Trees, of_xgboost
from twinbed import ScenarioError

_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridge penalties that are tried."""
_TREES: Mapping[str, Any] = {
    "n_estimators": 200,
    "max_depth": 3,
    "learning_rate": 0.05,
    "subsample": 0.8,
    "min_child_weight": 3,
    "reg_lambda": 3.0,
}
"""Parameters of shallow trees that learn slowly, because the prior is already close."""
_FOLDS = 10
"""Number of folds. Nine tenths of the rows are nearly as good for learning as all rows."""


class Corrector(StrEnum):
    """How the correction of the log prior is computed."""

    NONE = "none"
    SCALING = "scaling"
    RIDGE = "ridge"
    TREES = "trees"


@dataclass(frozen=True, slots=True)
class Correction:
    """A corrector, fitted or to be fitted.

    corrector: how the correction is computed.
    offset: its constant, a logarithm.
    weights: coefficients of SCALING and RIDGE, float64[f].
    penalty: ridge penalty on the weights.
    trees: trees of TREES, else None.
    """

    corrector: Corrector
    offset: float
    weights: Real
    penalty: float = 0.0
    trees: Trees | None = None

    def of(self, static: Real) -> Real:
        """Return the correction to add to the log prior, float64[n]."""
        if self.corrector in (Corrector.SCALING, Corrector.RIDGE):
            return self.offset + static @ self.weights
        if self.trees is not None:
            return self.offset + self.trees.of(static)
        return np.full(len(static), self.offset)


@dataclass(frozen=True, slots=True)
class Physical:
    """A trained predictor.

    by: the quantity that it predicts.
    encoder: how rows are encoded.
    correction: correction for applications that it does not know.
    known: correction for applications that it knows.
    level: mean log outcome of training rows without a prior, used in place of the prior; 0 if all had one.
    job_errors: absolute log errors of rows whose whole application was left out, float64[k], ascending.
    row_errors: absolute log errors of rows that were left out themselves, float64[k], ascending.
    jobs: names of the applications that it knows.
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
        """See Predictor. Raises ScenarioError for a row without a prior, if the training rows had one."""
        prior = np.full(len(encoded.prior), self.level) if self.level else _log_prior(encoded, self.by)
        _check_all_known(prior, encoded)
        known = np.array([name in self.jobs for name in encoded.names], dtype=np.bool_)[encoded.job]
        static = encoded.static
        predicted: Real = np.exp(prior + np.where(known, self.known.of(static), self.correction.of(static)))
        return predicted


def train_physical(by: Objective, examples: Examples, seed: int) -> Physical:
    """Return a predictor trained on all rows. With a single application, rows are left out instead of
    applications.

    Raises ScenarioError for fewer than FEWEST_ROWS rows, rows without an outcome, or a prior for some rows
    only.
    """
    examples.check_known(by, FEWEST_ROWS)
    encoder = Encoder.fit(examples)
    encoded = encoder.encode(examples)
    prior = _log_prior(encoded, by)
    if np.isnan(prior).any() and not np.isnan(prior).all():
        _check_all_known(prior, encoded)
    value = np.log(examples.objective(by))
    level = float(value.mean()) if np.isnan(prior).any() else 0.0
    error = value - np.where(np.isnan(prior), level, prior)
    rng = np.random.default_rng(seed)
    rows = folds_of_rows(len(examples), _FOLDS, rng)
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
    """Return the logarithm of what the analytic model expects, s or US$, float64[n]."""
    if by is Objective.TIME:
        return encoded.prior
    with np.errstate(divide="ignore", invalid="ignore"):
        billed_s = np.log(np.exp(encoded.prior) - encoded.unbilled_s)
    usd: Real = billed_s + encoded.log_price - np.log(3600)
    return usd


def _check_all_known(prior: Real, encoded: Encoded) -> None:
    """Raise ScenarioError, which names the first row without a prior, if there is one."""
    missing = np.flatnonzero(np.isnan(prior))
    if missing.size:
        first = missing[0]
        where = called(encoded.row[first], encoded.names[encoded.job[first]])
        raise ScenarioError(
            f"{where}: the analytic model, which this predictor corrects, knows no time of it; it needs a "
            "local run (made by twinbed profile), samples, and a type without GPUs and with a network rate"
        )


@dataclass(frozen=True, slots=True)
class _Learner:
    """Rows to learn from.

    static: their columns, float64[n, f].
    error: log outcome − log prior, float64[n].
    scaling: which columns SCALING uses, bool[f].
    seed: seed of the trees.
    """

    static: Real
    error: Real
    scaling: Flags
    seed: int

    def choose(self, folds: list[Whole]) -> tuple[Correction, Real]:
        """Return the corrector of smallest median error on left-out folds, and the folds' absolute errors.

        Folds count alike. Each fold's errors are those of the corrector that the other folds would have
        chosen.
        """
        kinds = list(self._untrained())
        errors = [self._left_out(kind, folds) for kind in kinds]
        medians = np.array([[np.median(part) for part in parts] for parts in errors])
        elsewhere = medians.sum(axis=1, keepdims=True) - medians
        nested = [errors[kind][fold] for fold, kind in enumerate(elsewhere.argmin(axis=0))]
        return kinds[int(medians.mean(axis=1).argmin())], np.concatenate(nested)

    def fit(self, kind: Correction) -> Correction:
        """Return the corrector fitted to all rows."""
        return self._fit(kind, np.ones(len(self.error), dtype=np.bool_))

    def _untrained(self) -> Iterator[Correction]:
        none = Correction(Corrector.NONE, 0.0, np.zeros(self.static.shape[1]))
        yield none
        for corrector in (Corrector.SCALING, Corrector.RIDGE):
            for penalty in _RIDGES:
                yield replace(none, corrector=corrector, penalty=penalty)
        yield replace(none, corrector=Corrector.TREES)

    def _left_out(self, kind: Correction, folds: list[Whole]) -> list[Real]:
        """Return the absolute errors on each fold's rows of the corrector fitted to the others."""
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
