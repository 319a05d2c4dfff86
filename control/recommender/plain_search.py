"""Random and exhaustive search: recommenders that know their own trials and predict nothing.

For: baselines. Exhaustive search gives the answer that no search can beat, and random search is what a search
must beat. Not for: use where a trial costs money. Source: Bergstra and Bengio, JMLR 13, 2012 (random search).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import Whole
from control.recommender.ports import (
    Observations,
    Proposal,
    Recommendation,
    Request,
    Stop,
    all_tried,
    untried,
)
from control.recommender.ranking import measured_only


class Exhaustive:
    """Tries every affordable candidate, the cheapest cluster first."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the trials that ended within the bounds; ScenarioError if there is none."""
        return measured_only(request)

    def searcher(self, request: Request, seed: int) -> CheapestFirst:
        """Return the search by price per hour; `seed` has no effect."""
        del seed
        return CheapestFirst(request)


@dataclass(frozen=True, slots=True)
class CheapestFirst:
    """The search of Exhaustive."""

    request: Request

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the cheapest cluster that has no trial yet."""
        left = untried(self.request, observed)
        if not left.any():
            return all_tried(self.request, observed)
        price = np.where(left, self.request.candidates.price_usd_h, np.inf)
        row = int(price.argmin())
        return Proposal(row, f"cheapest of {int(left.sum())} clusters left, {price[row]:.4g} $/h")


class RandomSearch:
    """Tries affordable candidates in a random order until none is left."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the trials that ended within the bounds; ScenarioError if there is none."""
        return measured_only(request)

    def searcher(self, request: Request, seed: int) -> RandomOrder:
        """Return the search in an order that is drawn once from `seed`."""
        order = np.random.default_rng(seed).permutation(len(request.candidates)).astype(np.int64)
        return RandomOrder(request, order)


@dataclass(frozen=True, slots=True)
class RandomOrder:
    """The search of RandomSearch. order: positions of all candidates, int64[n]."""

    request: Request
    order: Whole

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the first candidate of the order that has no trial yet."""
        left = self.order[untried(self.request, observed)[self.order]]
        if not left.size:
            return all_tried(self.request, observed)
        return Proposal(int(left[0]), f"drawn from {left.size} candidates left")
