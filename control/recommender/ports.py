"""What every recommender is asked and answers: a ranking at once, or a search one paid trial at a time.

For: the one interface behind which FC²'s rules, CherryPick, Ernest, random and exhaustive search and transfer
from past jobs stand. Not for: carrying trials out (lab.cloud.trials replays measured tables; a cloud would do
the same). A recommender keeps no state: what it knows comes in with the request, its past trials included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from control.recommender.model import (
    Candidates,
    Flags,
    History,
    Job,
    Objective,
    Observations,
    Proposal,
    Recommendation,
    Stop,
    no_observations,
)
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a recommender.

    budget_usd and deadline_s bound the whole job, budget_usd_h what the cluster may cost per hour (infinite:
    no bound). history: past runs of other jobs (None: none). observed: trials of this job, positions among
    `candidates`. Raises ScenarioError for a bound that is not positive.
    """

    job: Job
    candidates: Candidates
    objective: Objective = Objective.COST
    budget_usd: float = np.inf
    budget_usd_h: float = np.inf
    deadline_s: float = np.inf
    history: History | None = None
    observed: Observations = field(default_factory=no_observations)

    def __post_init__(self) -> None:
        for name in ("budget_usd", "budget_usd_h", "deadline_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ScenarioError(f"{name} is {value}; it must be above 0")

    def seen(self, observed: Observations) -> Request:
        """The same question after further trials."""
        return replace(self, observed=observed)


class Searcher(Protocol):
    """Looks for the best candidate one trial at a time; the same observations give the same proposal."""

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The next trial worth paying for, or the end of the search."""
        ...


class Recommender(Protocol):
    """Ranks candidates from what is known, and knows what to try next."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Best first; those that are unlikely to keep the bounds come last or not at all.

        Raises ScenarioError where the recommender lacks what it needs, naming it and the cure.
        """
        ...

    def searcher(self, request: Request, seed: int) -> Searcher:
        """A search that begins with request.observed; whatever it draws comes from `seed`."""
        ...


def affordable(request: Request) -> Flags:
    """Which candidates cost at most budget_usd_h an hour, bool[n].

    Raises ScenarioError if there is none, naming the cheapest.
    """
    price = request.candidates.price_usd_h
    allowed: Flags = price <= request.budget_usd_h
    if not allowed.any():
        cheapest = int(np.nanargmin(price))
        raise ScenarioError(
            f"a budget of {request.budget_usd_h:g} $/h is below the cheapest cluster, "
            f"{request.candidates.configuration(cheapest)} at {price[cheapest]:.4g} $/h; raise it"
        )
    return allowed


def untried(request: Request, observed: Observations) -> Flags:
    """Which affordable candidates have no trial yet, bool[n]."""
    left = affordable(request).copy()
    left[observed.candidate] = False
    return left


def best_tried(request: Request, observed: Observations) -> int | None:
    """The trial that did best by the objective of those that ended and kept the bounds; None if none did."""
    kept = observed.ok & (observed.time_s <= request.deadline_s) & (observed.cost_usd <= request.budget_usd)
    if not kept.any():
        return None
    value = np.where(kept, observed.objective(request.objective), np.inf)
    return int(observed.candidate[int(value.argmin())])


def stop(request: Request, observed: Observations, reason: str) -> Stop:
    """The end of a search that takes its best trial, or the cheapest candidate where every trial failed."""
    best = best_tried(request, observed)
    if best is None:
        allowed = np.where(affordable(request), request.candidates.price_usd_h, np.inf)
        return Stop(int(allowed.argmin()), f"{reason}; no trial ended within the bounds")
    return Stop(best, reason)
