"""The interface of every predictor. Not for: training one."""

from __future__ import annotations

from typing import Protocol

from control.jobs import Real
from control.predictor.examples import Examples
from control.predictor.features import Encoded, Encoder


class Predictor(Protocol):
    """Predicts seconds, dollars or probabilities of configurations."""

    @property
    def encoder(self) -> Encoder:
        """The encoder of its rows."""
        ...

    def predict(self, examples: Examples) -> Real:
        """Return seconds, dollars, or the probability that a row is one of its job's best, float64[n]."""
        ...

    def predict_encoded(self, encoded: Encoded) -> Real:
        """Return the same for rows that are encoded already."""
        ...
