"""Transfer from past jobs: the recommender that begins with what other jobs have taught and asks little.

For: a job that resembles others in how it scales, or not; the mixture of population.py says how far to trust
each. Not for: jobs whose candidates have no past and no physics (cherrypick.py asks the job alone). The next
trial is the candidate that is expected to take most off the remaining regret, by joint draws from what is
believed if the job follows past ones, or if it does not, whichever is likelier; the search stops where too
little is left to gain. Source: the knowledge-gradient view of expected improvement (Frazier, 2018,
§4.1–4.2), over the mixture of population.py and belief.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.recommender.belief import Belief, believe
from control.recommender.local_level import level
from control.recommender.model import (
    History,
    Objective,
    Observations,
    Proposal,
    Real,
    Recommendation,
    Stop,
    Whole,
)
from control.recommender.population import Population, learn
from control.recommender.ports import Request, best_tried, stop, untried
from control.recommender.ranking import Prediction, ranked
from control.recommender.trust import trust

DRAWS = 800
"""Joint draws of the job's times; the chance of a candidate to be good enough is known to within 2 %."""
SHORTLIST = 400
"""Joint draws are made of so many candidates, those that may be best; a draw's cost grows with its cube."""
HOPE = 1.5
"""The shortlist goes by mean less so many deviations."""
NEAR = float(np.log(1.1))
"""Losses are logarithms of the factor to the best; within 10 % of it none is felt."""
FAR_AT_FIRST, FAR = float(np.log(1.5)), 1.2
"""Beyond this all losses are alike. For the first trials that is where top configurations end: they go to
what is likely to be one. After them something was missed, and how far off one is counts."""
FIRST_TRIALS = 2
_LITTLE = 1e-2
"""Weight of gains that are too small to be felt."""
STOP_BELOW = 0.03
TOP, TOP_FACTOR = 5, 1.5
"""A top configuration is among so many best, and within this factor of the best (thesis, ch. 4)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Knows past jobs, laws of scaling and this job's trials.

    stop_below: a search ends where less than this share of the best value is expected to be gained; 0: it
    goes on until nothing is left; far: beyond which losses are alike, at first and later.
    """

    stop_below: float = STOP_BELOW
    far: tuple[float, float] = (FAR_AT_FIRST, FAR)

    def recommend(self, request: Request) -> list[Recommendation]:
        """Every affordable candidate, from past jobs and the trials that there are."""
        return rank(request, believe(_prior(request), request.observed))

    def searcher(self, request: Request, seed: int) -> Informed:
        """Learns from the history once; draws come from `seed` and the number of trials."""
        return Informed(request, _prior(request), seed, self.stop_below, self.far)


def _prior(request: Request) -> Population:
    local = level(request.job, request.candidates)
    return learn(request.history, request.candidates, local, trust(request.history), request.job.name)


def rank(request: Request, belief: Belief, most: int | None = None) -> list[Recommendation]:
    """The ranking that follows from a belief (learning is the slow part, and may be shared)."""
    mean, deviation = belief.summary()
    trials, jobs = len(request.observed), len(belief.prior.past_jobs)
    basis = f"{jobs} past job{'s' * (jobs != 1)} and {trials} trial{'s' * (trials != 1)}"
    reasons = [f"predicted from {basis}"] * len(request.candidates)
    for place, row in enumerate(request.observed.candidate):
        if request.observed.ok[place]:
            reasons[row] = f"measured in trial {place + 1}: {request.observed.time_s[place]:.4g} s"
        else:
            reasons[row] = f"failed in trial {place + 1}; predicted from {basis}"
    return ranked(request, Prediction(mean, deviation, reasons), most)


@dataclass(frozen=True, slots=True)
class Informed:
    """The search of Transfer."""

    request: Request
    prior: Population
    seed: int
    stop_below: float
    far: tuple[float, float]

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The candidate expected to take most off the regret, or the end where little is left of it."""
        left = untried(self.request, observed)
        if not left.any():
            return stop(self.request, observed, f"all {len(observed)} candidates were tried")
        belief = believe(self.prior, observed)
        best = best_tried(self.request, observed)
        value = np.inf
        if best is not None:
            value = float(np.log(observed.objective(self.request.objective)[observed.candidate == best][0]))
        generator = np.random.default_rng([self.seed, len(observed)])
        rows = self._shortlist(belief, np.flatnonzero(left))
        views = belief.views()
        draws = [self._draws(view, rows, observed, generator) for _, view in views]
        far = self.far[len(observed) >= FIRST_TRIALS]
        gains = np.array([expected_gain(each, value, far) for each in draws])
        shares = np.array([share for share, _ in views])
        if best is not None and (shares @ gains).max() < self.stop_below:
            return stop(self.request, observed, f"no candidate is expected to gain {self.stop_below:.0%}")
        # A view that is wrong loses its share within a few trials, and the turn with it.
        turn = int(shares.argmax())
        # Where all seems found, what might still be a little better is better than whatever comes first.
        little = expected_gain(draws[turn], value, max(self.far), near=0.0)
        place = int((gains[turn] + _LITTLE * little).argmax())
        reason = f"expected to take {gains[turn][place]:.1%} off what is left to gain"
        if self.prior.past_jobs:
            said = "follows past jobs" if views[turn][1].past_share > 0.5 else "is like no past job"
            reason += f", if the job {said} ({shares[turn]:.0%})"
        return Proposal(int(rows[place]), reason)

    def ranking(self, observed: Observations, most: int | None = None) -> list[Recommendation]:
        """What Transfer.recommend says after these trials, without learning again."""
        return rank(self.request.seen(observed), believe(self.prior, observed), most)

    def predicted(self, observed: Observations) -> tuple[Real, Real]:
        """Mean and deviation of the log seconds at every candidate after some trials, float64[n]."""
        return believe(self.prior, observed).summary()

    def chances(self, observed: Observations, count: int = TOP, factor: float = TOP_FACTOR) -> Real:
        """The probability of each candidate to be a top configuration after some trials, float64[n].

        That is: among the `count` best and within `factor` of the best. What no draw showed is ordered by its
        mean, below what one draw counts. Candidates that cannot be tried have 0; a failed trial, too.
        """
        n = len(self.request.candidates)
        left = np.flatnonzero(untried(self.request, observed))
        generator = np.random.default_rng([self.seed, len(observed)])
        belief = believe(self.prior, observed)
        rows = self._shortlist(belief, left)
        draws = self._draws(belief, rows, observed, generator)
        value = np.log(observed.objective(self.request.objective))
        known = np.where(observed.ok, value, np.inf)
        draws = np.column_stack([draws, np.broadcast_to(known, (len(draws), known.size))])
        last = np.sort(draws, axis=1)[:, : min(count, draws.shape[1])]
        within = np.minimum(last[:, -1], last[:, 0] + np.log(factor))
        good = (draws <= within[:, None]) & np.isfinite(draws)
        found = np.zeros(n)
        found[np.append(rows, observed.candidate)] = good.sum(axis=0)
        promise = belief.summary()[0][left] + self._price()[left]
        found[left[np.argsort(-promise, kind="stable")]] += np.arange(left.size) / left.size
        return found / (len(draws) + 1)

    def _price(self) -> Real:
        """What turns the logarithm of seconds into that of the objective, float64[n]."""
        dollars = np.log(self.prior.candidates.price_usd_h / 3600)
        return dollars if self.request.objective is Objective.COST else np.zeros_like(dollars)

    def _shortlist(self, belief: Belief, left: Whole) -> Whole:
        """Those of the candidates left that may be best, in their order."""
        if left.size <= SHORTLIST:
            return left
        mean, deviation = belief.summary()
        promise = (mean + self._price() - HOPE * deviation)[left]
        return np.sort(left[np.argsort(promise, kind="stable")[:SHORTLIST]])

    def _draws(
        self, belief: Belief, rows: Whole, observed: Observations, generator: np.random.Generator
    ) -> Real:
        """Joint draws of the log objective at some candidates, [draws, rows]; infinite beyond the bounds."""
        limit_s = min(self.request.deadline_s, time_limit(self.request.history, observed))
        dollars = np.log(self.prior.candidates.price_usd_h[rows] / 3600)
        drawn = belief.draw(rows, DRAWS, generator)
        most = np.minimum(np.log(limit_s), np.log(self.request.budget_usd) - dollars)
        return np.where(drawn <= most, drawn + self._price()[rows], np.inf)


def time_limit(history: History | None, observed: Observations) -> float:
    """The time-out that runs seem to have been under, s: the least failed time above all that ended.

    Infinite where no run failed so late. A crash is earlier than some run that ended, and sets no limit.
    """
    time_s, ok = observed.time_s, observed.ok
    if history is not None:
        ran = np.isfinite(history.time_s)
        time_s, ok = np.append(time_s, history.time_s[ran]), np.append(ok, history.ok[ran])
    longest = time_s[ok].max() if ok.any() else 0.0
    late = time_s[~ok & (time_s > longest)]
    return float(late.min()) if late.size and ok.any() else np.inf


def expected_gain(draws: Real, best: float, far: float, near: float = NEAR) -> Real:
    """How much less is lost if a candidate is tried, too, a mean over joint draws, float64[n].

    draws: log objective, float64[draws, n], infinite beyond the bounds; best: the best trial's, infinite for
    none. What is lost is the logarithm of the best tried over the best there is, beyond near and up to far;
    draws in which nothing keeps the bounds say nothing.
    """
    least = np.minimum(draws.min(axis=1), best)
    possible = np.isfinite(least)
    if not possible.any():
        return np.zeros(draws.shape[1])
    least = least[possible][:, None]
    before = np.clip(best - least, near, far)
    after = np.clip(np.minimum(draws[possible], best) - least, near, far)
    gain: Real = (before - after).mean(axis=0)
    return gain
