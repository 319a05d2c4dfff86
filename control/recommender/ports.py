"""Input and output of every recommender: a ranking at once, or a search with one paid trial at a time.

For: the interface that all recommenders implement, its data and the rules that every search shares. Not for:
running trials (the caller does). A recommender keeps no state: the request contains all information. Source:
FC² (Ta, Cluster Computing 22, 2019) §5 for the budgets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from control.jobs import Candidates, Configuration, Flags, History, Job, Objective, Real, Whole
from twinbed import InvariantError, ScenarioError


@dataclass(frozen=True, slots=True)
class Observations:
    """The k trials that a search has paid for, in their order.

    candidate: position of each trial among the candidates, int64[k].
    time_s: duration, s, float64[k]; a lower bound where the trial failed.
    cost_usd: cost, US$, float64[k].
    ok: whether the trial succeeded, bool[k].
    noise: noise scale of its gradients, samples, NaN if not measured, float64[k]; by default NaN.
    """

    candidate: Whole
    time_s: Real
    cost_usd: Real
    ok: Flags
    noise: Real = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.noise.size < self.candidate.size:
            object.__setattr__(self, "noise", np.full(self.candidate.size, np.nan))

    def __len__(self) -> int:
        return int(self.candidate.size)

    def objective(self, by: Objective) -> Real:
        """Return cost_usd or time_s, float64[k]."""
        return self.cost_usd if by is Objective.COST else self.time_s

    def stretched(self, factor: Real) -> Observations:
        """Return these trials with scaled times and costs. factor: applied to both, float64[k]."""
        return replace(self, time_s=self.time_s * factor, cost_usd=self.cost_usd * factor)

    def with_trial(
        self, candidate: int, time_s: float, cost_usd: float, ok: bool, noise: float = np.nan
    ) -> Observations:
        """Return these trials and one more."""
        return Observations(
            np.append(self.candidate, np.int64(candidate)),
            np.append(self.time_s, time_s),
            np.append(self.cost_usd, cost_usd),
            np.append(self.ok, ok),
            np.append(self.noise, noise),
        )


def no_observations() -> Observations:
    """Return empty observations, for a search before its first trial."""
    return Observations(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a recommender.

    job: the job to place.
    candidates: the n configurations.
    objective: quantity to minimise.
    budget_usd, deadline_s: bounds on the whole job, US$ and s; infinite means no bound.
    budget_usd_h: bound on the price of the cluster, US$/h.
    history: past runs of other jobs; None if there are none.
    observed: trials of this job; their positions are positions in `candidates`.
    expected_s: times of the job by an analytic model, s, float64[n], NaN where the model does not apply; None
        if there is no model.
    startup_s: time before a worker works, s; part of the times of trials.
    asked: candidates that may be chosen, bool[n]; the others only show how trials on them went. None: all.

    Raises ScenarioError for a bound that is not positive, InvariantError for expected times of another
    number.
    """

    job: Job
    candidates: Candidates
    objective: Objective = Objective.COST
    budget_usd: float = np.inf
    budget_usd_h: float = np.inf
    deadline_s: float = np.inf
    history: History | None = None
    observed: Observations = field(default_factory=no_observations)
    expected_s: Real | None = None
    startup_s: float = 0.0
    asked: Flags | None = None

    def __post_init__(self) -> None:
        for name in ("budget_usd", "budget_usd_h", "deadline_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ScenarioError(f"{name} is {value}; it must be above 0")
        if self.expected_s is not None and self.expected_s.shape != (len(self.candidates),):
            raise InvariantError(
                f"{self.expected_s.size} expected times of {len(self.candidates)} candidates"
            )

    def seen(self, observed: Observations) -> Request:
        """Return the same request with other trials."""
        return replace(self, observed=observed)

    def among(self, rows: Whole) -> Request:
        """Return the same request about some of the candidates and their trials, without expected times."""
        place = np.full(len(self.candidates), -1)
        place[rows] = np.arange(rows.size)
        trials = self.observed
        kept = place[trials.candidate] >= 0
        observed = Observations(
            place[trials.candidate][kept],
            trials.time_s[kept],
            trials.cost_usd[kept],
            trials.ok[kept],
            trials.noise[kept],
        )
        asked = None if self.asked is None else self.asked[rows]
        few = self.candidates.take(rows)
        return replace(self, candidates=few, observed=observed, expected_s=None, asked=asked)

    def ended(self, observed: Observations) -> Flags:
        """Return the trials that succeeded on candidates that may be chosen, bool[k]."""
        return observed.ok if self.asked is None else observed.ok & self.asked[observed.candidate]

    def within_bounds(self, observed: Observations) -> Flags:
        """Return the trials of `ended` within deadline and budget, bool[k]."""
        return (
            self.ended(observed)
            & (observed.time_s <= self.deadline_s)
            & (observed.cost_usd <= self.budget_usd)
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """The trial to run next.

    candidate: position of its configuration among the candidates.
    reason: why, in one sentence with figures.
    """

    candidate: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a search: no further trial is worth its price.

    best: position of the candidate to take, which may be untried. reason: why, in one sentence with figures.
    """

    best: int
    reason: str


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval from `low` to `high` that holds the value with probability `coverage`."""

    low: float
    high: float
    coverage: float = 0.9


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One row of a ranking.

    configuration: the cluster.
    time_s, cost_usd: predicted medians for the whole job, s and US$.
    time_interval, cost_interval: intervals around them.
    price_usd_h: price of the whole cluster from which the cost follows, US$/h.
    reason: why, in one sentence with figures.
    in_bounds: probability that it keeps deadline and budget; None without bounds.
    outside: whether time and cost lie outside what was measured; the reason then says how.
    """

    configuration: Configuration
    time_s: float
    cost_usd: float
    time_interval: Interval
    cost_interval: Interval
    price_usd_h: float
    reason: str
    in_bounds: float | None = None
    outside: bool = False

    @property
    def why(self) -> str:
        """The reason, with the probability that the bounds are kept if there are any."""
        if self.in_bounds is None:
            return self.reason
        return f"{self.reason}; keeps deadline and budget with {self.in_bounds:.0%}"


class Searcher(Protocol):
    """Looks for the best candidate one trial at a time; the same trials lead to the same proposal."""

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the next trial worth paying for, or the end of the search."""
        ...


class Recommender(Protocol):
    """Ranks candidates from what is known, and proposes what to try next."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the ranking, best first; candidates unlikely to keep the bounds come last or not at all.

        Raises ScenarioError that names the missing input and the cure.
        """
        ...

    def searcher(self, request: Request, seed: int) -> Searcher:
        """Return a search that begins with request.observed; all its random draws come from `seed`."""
        ...


def affordable(request: Request) -> Flags:
    """Return the candidates that may be chosen and cost at most budget_usd_h an hour, bool[n].

    Raises ScenarioError naming the cheapest candidate if there is none.
    """
    price = request.candidates.price_usd_h
    if request.asked is not None:
        price = np.where(request.asked, price, np.nan)
    allowed: Flags = price <= request.budget_usd_h
    if not allowed.any():
        cheapest = int(np.nanargmin(price))
        raise ScenarioError(
            f"a budget of {request.budget_usd_h:g} $/h is below the cheapest cluster, "
            f"{request.candidates.configuration(cheapest)} at {price[cheapest]:.4g} $/h; raise it"
        )
    return allowed


def failed(request: Request, observed: Observations) -> Flags:
    """Return the candidates that were tried and on which no trial has ended, bool[n]."""
    rows = np.zeros(len(request.candidates), dtype=np.bool_)
    rows[observed.candidate] = True
    rows[observed.candidate[observed.ok]] = False
    return rows


def untried(request: Request, observed: Observations) -> Flags:
    """Return the affordable candidates without a trial, bool[n]."""
    left = affordable(request).copy()
    left[observed.candidate] = False
    return left


def stop(request: Request, observed: Observations, reason: str) -> Stop:
    """Return the end of a search. It takes the best trial within the bounds, else the one that came closest,
    else, if all failed, the cheapest candidate, an untried one if there is one."""
    kept = request.within_bounds(observed)
    if kept.any():
        value = np.where(kept, observed.objective(request.objective), np.inf)
        return Stop(int(observed.candidate[value.argmin()]), reason)
    ended = request.ended(observed)
    if ended.any():
        over = np.maximum(observed.time_s / request.deadline_s, observed.cost_usd / request.budget_usd)
        closest = int(observed.candidate[int(np.where(ended, over, np.inf).argmin())])
        return Stop(closest, f"{reason}; no trial ended within the bounds, and this one came closest")
    order = np.lexsort((request.candidates.price_usd_h, failed(request, observed), ~affordable(request)))
    return Stop(int(order[0]), f"{reason}; no trial has ended")


def all_tried(request: Request, observed: Observations) -> Stop:
    """Return the end of a search that has tried every affordable candidate."""
    count = np.unique(observed.candidate[affordable(request)[observed.candidate]]).size
    return stop(request, observed, f"all {count} candidates were tried")
