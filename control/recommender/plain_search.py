"""Searches that learn nothing from the times of their trials: random, exhaustive, and of a first choice.

For: baselines, and recommenders that choose before any trial. Exhaustive search gives the answer that no
search can beat, and random search is what a search must beat. Not for: use where a trial costs money. Source:
Bergstra and Bengio, JMLR 13, 2012 (random search).
"""

from __future__ import annotations

from collections.abc import Callable
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


class _Plain:
    """Tries affordable candidates in an order that no trial changes, until none is left."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the trials that ended within the bounds; ScenarioError if there is none."""
        return measured_only(request)


class Exhaustive(_Plain):
    """Tries every affordable candidate, the cheapest cluster first."""

    def searcher(self, request: Request, seed: int) -> InOrder:
        """Return the search by price per hour; `seed` has no effect."""
        del seed
        return InOrder(request, np.argsort(request.candidates.price_usd_h, kind="stable"), "cheapest of")


class RandomSearch(_Plain):
    """Tries affordable candidates in a random order."""

    def searcher(self, request: Request, seed: int) -> InOrder:
        """Return the search in an order that is drawn once from `seed`."""
        order = np.random.default_rng(seed).permutation(len(request.candidates)).astype(np.int64)
        return InOrder(request, order, "drawn from")


@dataclass(frozen=True, slots=True)
class InOrder:
    """A search in a fixed order. order: positions of all candidates, int64[n]. how: prefix of its reasons."""

    request: Request
    order: Whole
    how: str

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the first candidate of the order that has no trial yet."""
        left = self.order[untried(self.request, observed)[self.order]]
        if not left.size:
            return all_tried(self.request, observed)
        row = int(left[0])
        price = self.request.candidates.price_usd_h[row]
        return Proposal(row, f"{self.how} {left.size} clusters left, {price:.4g} $/h")


@dataclass(frozen=True, slots=True)
class FirstChoice:
    """A search that tries the first choice until a trial has ended there.

    chosen: returns the position of the first choice after some trials, and the reason.
    """

    chosen: Callable[[Observations], tuple[int, str]]

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the first choice: as a proposal, or as the end of the search if it was tried."""
        row, reason = self.chosen(observed)
        return (Stop if row in observed.candidate else Proposal)(row, reason)
