"""The interface of every predictor. Not for: training one."""

from __future__ import annotations

from typing import Protocol

from control.jobs import Objective, Real
from control.predictor.examples import Examples
from control.predictor.features import Encoded, Encoder


class Predictor(Protocol):
    """Predicts the times, costs or probabilities of configurations."""

    @property
    def encoder(self) -> Encoder:
        """The encoder of its rows."""
        ...

    def predict(self, examples: Examples) -> Real:
        """Return seconds, dollars, or the probability that a row is one of its job's best, float64[n]."""
        ...

    def predict_encoded(self, encoded: Encoded) -> Real:
        """Return the same as `predict`, for encoded rows."""
        ...


class Tried(Predictor, Protocol):
    """A predictor of a value that knows its errors on rows that it was not trained on, and can be stored."""

    @property
    def by(self) -> Objective:
        """The quantity that it predicts."""
        ...

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of the applications that it knows."""
        ...

    @property
    def job_errors(self) -> Real:
        """Absolute log errors of rows whose job was left out, float64[k], ascending."""
        ...

    @property
    def row_errors(self) -> Real:
        """Absolute log errors of rows that were left out themselves, float64[k], ascending."""
        ...
