"""Transfer from past jobs: the recommender that begins with what other jobs have taught and asks little.

For: a job that resembles others in how it scales, or not; the mixture of population.py says how far to trust
each. Not for: jobs whose candidates have no past and no physics (cherrypick.py asks the job alone). The next
trial is the candidate that is expected to take most off the remaining regret, by joint draws from what is
believed; the search stops where too little is left to gain. Source: the knowledge-gradient view of expected
improvement (Frazier, 2018, §4.1–4.2), over the mixture of population.py and belief.py.
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
what past jobs make likely to be one. After them something was missed, and how far off one is counts."""
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
    goes on until nothing is left.
    """

    stop_below: float = STOP_BELOW

    def recommend(self, request: Request) -> list[Recommendation]:
        """Every affordable candidate, from past jobs and the trials that there are."""
        return rank(request, believe(_prior(request), request.observed))

    def searcher(self, request: Request, seed: int) -> Informed:
        """Learns from the history once; draws come from `seed` and the number of trials."""
        return Informed(request, _prior(request), seed, self.stop_below)


def _prior(request: Request) -> Population:
    return learn(request.history, request.candidates, level(request.job, request.candidates))


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
        limit_s = min(self.request.deadline_s, time_limit(self.request.history, observed))
        rows, draws = self._draws(belief, np.flatnonzero(left), generator, limit_s)
        gain = expected_gain(draws, value, FAR_AT_FIRST if len(observed) < FIRST_TRIALS else FAR)
        # Where all seems found, what might still be a little better is better than whatever comes first.
        little = expected_gain(draws, value, FAR, near=0.0)
        place = int((gain + _LITTLE * little).argmax())
        row = int(rows[place])
        if best is not None and gain[place] < self.stop_below:
            return stop(self.request, observed, f"no candidate is expected to gain {self.stop_below:.0%}")
        return Proposal(row, f"expected to take {gain[place]:.1%} off what is left to gain")

    def ranking(self, observed: Observations, most: int | None = None) -> list[Recommendation]:
        """What Transfer.recommend says after these trials, without learning again."""
        return rank(self.request.seen(observed), believe(self.prior, observed), most)

    def predicted(self, observed: Observations) -> tuple[Real, Real]:
        """Mean and deviation of the log seconds at every candidate after some trials, float64[n]."""
        return believe(self.prior, observed).summary()

    def chances(self, observed: Observations, count: int = TOP, factor: float = TOP_FACTOR) -> Real:
        """The probability of each candidate to be a top configuration after some trials, float64[n].

        That is: among the `count` best and within `factor` of the best. Candidates that cannot be tried or
        are not on the shortlist have 0; a failed trial, too.
        """
        n = len(self.request.candidates)
        left = np.flatnonzero(untried(self.request, observed))
        generator = np.random.default_rng([self.seed, len(observed)])
        limit_s = min(self.request.deadline_s, time_limit(self.request.history, observed))
        rows, draws = self._draws(believe(self.prior, observed), left, generator, limit_s)
        value = np.log(observed.objective(self.request.objective))
        known = np.where(observed.ok, value, np.inf)
        draws = np.column_stack([draws, np.broadcast_to(known, (len(draws), known.size))])
        last = np.sort(draws, axis=1)[:, : min(count, draws.shape[1])]
        within = np.minimum(last[:, -1], last[:, 0] + np.log(factor))
        good = (draws <= within[:, None]) & np.isfinite(draws)
        found = np.zeros(n)
        found[np.append(rows, observed.candidate)] = good.mean(axis=0)
        return found

    def _draws(
        self, belief: Belief, left: Whole, generator: np.random.Generator, limit_s: float
    ) -> tuple[Whole, Real]:
        """Joint draws of the log objective at a shortlist, [draws, rows]; infinite beyond the bounds."""
        dollars = np.log(self.prior.candidates.price_usd_h / 3600)
        price = dollars if self.request.objective is Objective.COST else np.zeros_like(dollars)
        if left.size > SHORTLIST:
            mean, deviation = belief.summary()
            promise = mean + price - HOPE * deviation
            left = np.sort(left[np.argsort(promise[left], kind="stable")[:SHORTLIST]])
        drawn = belief.draw(left, DRAWS, generator)
        most = np.minimum(np.log(limit_s), np.log(self.request.budget_usd) - dollars[left])
        return left, np.where(drawn <= most, drawn + price[left], np.inf)


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
