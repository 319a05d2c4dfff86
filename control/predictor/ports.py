"""What every predictor can be asked, whatever it is made of. Not for: making one."""

from __future__ import annotations

from typing import Protocol

from control.predictor.examples import Examples
from control.predictor.features import Encoded, Encoder
from control.recommender.model import Real


class Predictor(Protocol):
    """Seconds, dollars or likelihoods of configurations."""

    @property
    def encoder(self) -> Encoder:
        """What its rows go through."""
        ...

    def predict(self, examples: Examples) -> Real:
        """float64[n]: seconds, dollars, or how likely each row is one of its job's best (0 … 1)."""
        ...

    def predict_encoded(self, encoded: Encoded) -> Real:
        """The same, of rows that have been through the encoder."""
        ...
