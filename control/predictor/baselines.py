"""Baselines for comparison with the networks: linear, Poisson and logistic regression, forests, boosted
trees.

For: fitting a baseline on examples, behind the same port as all predictors. Not for: choosing among them.
They see the static features and the summaries of the local run, but not its series. All settings are the
libraries' defaults, except the iteration limits and the weak regularisation of the Poisson regression.
Source: chapter 4 (cloud) of the doctoral thesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from control.jobs import Objective, Real
from control.predictor.examples import Examples, best
from control.predictor.features import Encoded, Encoder
from twinbed import ScenarioError

THREADS = 1
"""Threads that XGBoost may use. With one, figures are the same on every machine."""


class Baseline(StrEnum):
    """The baselines by name."""

    LINEAR = "linear"
    POISSON = "poisson"
    FOREST = "forest"
    XGBOOST = "xgboost"
    LOGISTIC = "logistic"
    FOREST_CLASSIFIER = "forest-classifier"

    @property
    def classifies(self) -> bool:
        """Whether the baseline predicts the probability that a configuration is one of the best."""
        return self in (Baseline.LOGISTIC, Baseline.FOREST_CLASSIFIER)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted baseline. model: the library's own object."""

    name: Baseline
    encoder: Encoder
    model: Any

    def predict(self, examples: Examples) -> Real:
        """See Predictor."""
        return self.predict_encoded(self.encoder.encode(examples))

    def predict_encoded(self, encoded: Encoded) -> Real:
        """See Predictor."""
        if self.name.classifies:
            probability: Real = self.model.predict_proba(encoded.static)[:, 1]
            return probability
        values: Real = self.model.predict(encoded.static).astype(np.float64)
        return values


def fit(name: Baseline, by: Objective, examples: Examples, seed: int) -> Fitted:
    """Return a baseline fitted to all rows. Raise ScenarioError for rows without outcomes or with a single
    class.
    """
    examples.check_known(by)
    encoder = Encoder.fit(examples)
    value = examples.objective(by)
    target = best(value, examples.job) if name.classifies else value
    if name.classifies and target.all():
        raise ScenarioError(f"{name}: all rows are among the best")
    return Fitted(name, encoder, _new(name, seed).fit(encoder.encode(examples).static, target))


def _new(name: Baseline, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
    from xgboost import XGBRegressor

    match name:
        case Baseline.LINEAR:
            return LinearRegression()
        case Baseline.POISSON:
            return PoissonRegressor(alpha=1e-3, max_iter=2000)
        case Baseline.FOREST:
            return RandomForestRegressor(random_state=seed)
        case Baseline.XGBOOST:
            return XGBRegressor(n_jobs=THREADS)
        case Baseline.LOGISTIC:
            return LogisticRegression(max_iter=2000)
        case Baseline.FOREST_CLASSIFIER:
            return RandomForestClassifier(random_state=seed)
