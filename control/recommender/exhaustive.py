"""Exhaustive search: every affordable candidate is tried, cheapest cluster first.

For: the answer that no search can beat, and what it costs to know it. Not for: use where a trial costs money.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.recommender.measured import measured_only
from control.recommender.model import Observations, Proposal, Recommendation, Stop
from control.recommender.ports import Request, stop, untried


class Exhaustive:
    """Knows what was tried and nothing else."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """The trials that ended within the bounds, best first; ScenarioError if there is none."""
        return measured_only(request)

    def searcher(self, request: Request, seed: int) -> EachInTurn:
        """By price per hour; `seed` changes nothing."""
        del seed
        return EachInTurn(request)


@dataclass(frozen=True, slots=True)
class EachInTurn:
    """The search of Exhaustive."""

    request: Request

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The cheapest cluster that has no trial yet."""
        left = untried(self.request, observed)
        if not left.any():
            return stop(self.request, observed, f"all {len(observed)} candidates were tried")
        price = np.where(left, self.request.candidates.price_usd_h, np.inf)
        row = int(price.argmin())
        return Proposal(row, f"cheapest of {int(left.sum())} clusters left, {price[row]:.4g} $/h")
