"""Random search: affordable candidates in an order drawn from a seed, until none is left.

For: what a search must beat. Not for: use. Source: Bergstra and Bengio, JMLR 13, 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.recommender.measured import measured_only
from control.recommender.model import Observations, Proposal, Recommendation, Stop, Whole
from control.recommender.ports import Request, stop, untried


class RandomSearch:
    """Knows what was tried and nothing else."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """The trials that ended within the bounds, best first; ScenarioError if there is none."""
        return measured_only(request)

    def searcher(self, request: Request, seed: int) -> InDrawnOrder:
        """The order is drawn once, from `seed`."""
        order = np.random.default_rng(seed).permutation(len(request.candidates)).astype(np.int64)
        return InDrawnOrder(request, order)


@dataclass(frozen=True, slots=True)
class InDrawnOrder:
    """The search of RandomSearch; order: positions of all candidates, int64[n]."""

    request: Request
    order: Whole

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The first of the order that has no trial yet."""
        left = self.order[untried(self.request, observed)[self.order]]
        if not left.size:
            return stop(self.request, observed, f"all {len(observed)} candidates were tried")
        return Proposal(int(left[0]), f"drawn from {left.size} candidates left")
