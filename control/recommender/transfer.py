"""Transfer: a search that learns from past jobs, so that it needs few trials.

For: a job that may scale like past ones; the mixture of prior.py weighs the past jobs. Not for: jobs
whose candidates have no past runs and no known sizes (cherrypick.py learns from the job's trials alone). The
next trial is the candidate that is expected to reduce the remaining regret most. This is computed from joint
draws of the posterior under the more probable of two hypotheses: that the job follows the history, or that it
    does not. The search stops when too little can be gained. Source: the knowledge-gradient view of expected
    improvement (Frazier, 2018, §4.1–4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from control.jobs import TOP, TOP_FACTOR, History, Objective, Real, Whole
from control.recommender import physics
from control.recommender.analytic import level
from control.recommender.ports import (
    Observations,
    Proposal,
    Recommendation,
    Request,
    Stop,
    all_tried,
    stop,
    untried,
)
from control.recommender.posterior import Posterior, condition
from control.recommender.prior import Prior, fit_prior
from control.recommender.ranking import Prediction, closest, ranked
from control.recommender.trust import belief

DRAWS = 800
"""Number of joint draws of the job's times. A probability is then known to within 2 %."""
SHORTLIST = 400
"""Largest number of candidates in a joint draw, whose cost grows with its cube."""
HOPE = 1.5
"""The shortlist is ordered by the mean minus this many standard deviations."""
NEAR = float(np.log(1.1))
"""Regret (log of the ratio to the best) up to which a candidate counts as good enough."""
FAR_AT_FIRST, FAR = float(np.log(1.5)), 1.2
"""Regret above which all candidates count as equally bad, for the first trials and for later ones. The first
trials go to candidates that are likely to be top configurations (within a factor of 1.5). Later trials are
scored by their distance from the best."""
FIRST_TRIALS = 2
_LITTLE = 1e-2
"""Weight of gains below NEAR. They only decide between candidates that are otherwise equally promising."""
STOP_BELOW = 0.03
UNLIKELY = 0.05
"""A search in which no trial kept the bounds stops if any other candidate keeps them with less probability;
our choice, the usual level of significance."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Uses past jobs, laws of scaling and this job's trials.

    stop_below: a search stops if the expected gain is below this share of the best value; with 0 it continues
        until every candidate was tried.
    far: regret above which candidates count as equally bad, for the first trials and for later ones.
    """

    stop_below: float = STOP_BELOW
    far: tuple[float, float] = (FAR_AT_FIRST, FAR)

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return every affordable candidate, ranked by past jobs and the trials so far."""
        return rank(request, condition(_prior(request), request.observed))

    def searcher(self, request: Request, seed: int) -> TransferSearch:
        """Return a search that learns from the history once. Its draws depend on `seed` and the trials."""
        return TransferSearch(request, _prior(request), seed, self.stop_below, self.far)


def _prior(request: Request) -> Prior:
    known_level = level(request)
    past = belief(request.history)
    prior = fit_prior(request.history, request.candidates, known_level, past.trust, request.job.name)
    return replace(prior, width=past.width)


def rank(request: Request, posterior: Posterior, most: int | None = None) -> list[Recommendation]:
    """Return the first `most` rows of the ranking by a posterior."""
    mean, deviation = posterior.summary()
    trials, jobs = len(request.observed), len(posterior.prior.past_jobs)
    taught = f"{jobs} past job{'s' * (jobs != 1)}" if jobs else "laws of scaling"
    basis = f"{taught} and {trials} trial{'s' * (trials != 1)}" if trials else taught
    reasons = [f"predicted from {basis}"] * len(request.candidates)
    for trial, row in enumerate(request.observed.candidate):
        if request.observed.ok[trial]:
            reasons[row] = f"measured in trial {trial + 1}: {request.observed.time_s[trial] / 3600:.3g} h"
    predicted = physics.bounded(Prediction(mean, deviation, reasons), request.candidates, request.observed)
    return ranked(request, predicted, most)


@dataclass(frozen=True, slots=True)
class TransferSearch:
    """The search of Transfer. Its fields are the request, the prior and the arguments of Transfer."""

    request: Request
    prior: Prior
    seed: int
    stop_below: float
    far: tuple[float, float]

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the candidate that is expected to reduce regret most, or the end of the search if the gain
        is too small.
        """
        left = untried(self.request, observed)
        if not left.any():
            return all_tried(self.request, observed)
        posterior = condition(self.prior, observed)
        kept = self.request.within_bounds(observed)
        value = float(np.log(observed.objective(self.request.objective)[kept].min(initial=np.inf)))
        generator = np.random.default_rng([self.seed, len(observed)])
        rows = self._shortlist(posterior, np.flatnonzero(left))
        hypotheses = posterior.hypotheses()
        draws = [self._draws(given, rows, observed, generator) for _, given in hypotheses]
        far = self.far[len(observed) >= FIRST_TRIALS]
        gains = np.array([expected_gain(drawn, value, far) for drawn in draws])
        probability = np.array([share for share, _ in hypotheses])
        if kept.any() and (probability @ gains).max() < self.stop_below:
            return stop(self.request, observed, f"no candidate is expected to gain {self.stop_below:.0%}")
        possible = np.array([np.isfinite(drawn).any(axis=1).mean() for drawn in draws])
        if self.request.ended(observed).any() and not kept.any() and probability @ possible < UNLIKELY:
            why = f"another candidate keeps the bounds with less than {UNLIKELY:.0%}"
            return stop(self.request, observed, why)
        # The likelier hypothesis decides alone. If it is wrong, its trial soon makes it the less likely one.
        likelier = int(probability.argmax())
        if not (kept.any() or possible[likelier]):
            bounded = replace(self.request, deadline_s=self._limit_s(observed))
            return closest(bounded, Prediction(*posterior.summary(), ()), rows)
        little = expected_gain(draws[likelier], value, max(self.far), near=0.0)
        place = int((gains[likelier] + _LITTLE * little).argmax())
        reason = f"expected to take {gains[likelier][place]:.1%} off what is left to gain"
        if self.prior.past_jobs:
            follows = hypotheses[likelier][1].follows_history > 0.5
            said = "follows past jobs" if follows else "is like no past job"
            reason += f", if the job {said} ({probability[likelier]:.0%})"
        return Proposal(int(rows[place]), reason)

    def ranking(self, observed: Observations, most: int | None = None) -> list[Recommendation]:
        """Return what Transfer.recommend returns after these trials, without learning again."""
        return rank(self.request.seen(observed), condition(self.prior, observed), most)

    def predicted(self, observed: Observations) -> tuple[Real, Real]:
        """Return mean and standard deviation of the log seconds after some trials, float64[n] each."""
        return condition(self.prior, observed).summary()

    def chances(self, observed: Observations) -> Real:
        """Return the probability of each candidate to be a top configuration after some trials, float64[n].

        A top configuration is among the TOP best and within TOP_FACTOR of the best. Candidates that no draw
        showed as one are ordered by their mean, below a candidate of one draw. Candidates that cannot be
        tried and failed trials have probability 0.
        """
        n = len(self.request.candidates)
        left = np.flatnonzero(untried(self.request, observed))
        generator = np.random.default_rng([self.seed, len(observed)])
        posterior = condition(self.prior, observed)
        rows = self._shortlist(posterior, left)
        draws = self._draws(posterior, rows, observed, generator)
        value = np.log(observed.objective(self.request.objective))
        known = np.where(observed.ok, value, np.inf)
        draws = np.column_stack([draws, np.broadcast_to(known, (len(draws), known.size))])
        best = np.sort(draws, axis=1)[:, : min(TOP, draws.shape[1])]
        limit = np.minimum(best[:, -1], best[:, 0] + np.log(TOP_FACTOR))
        is_top = (draws <= limit[:, None]) & np.isfinite(draws)
        count = np.zeros(n)
        count[np.append(rows, observed.candidate)] = is_top.sum(axis=0)
        promise = posterior.summary()[0][left] + self._log_price_s()[left]
        count[left[np.argsort(-promise, kind="stable")]] += np.arange(left.size) / left.size
        return count / (len(draws) + 1)

    def _log_price_s(self) -> Real:
        """Return the logarithm of what turns seconds into the objective, float64[n]."""
        log_price = np.log(self.prior.candidates.price_usd_h / 3600)
        return log_price if self.request.objective is Objective.COST else np.zeros_like(log_price)

    def _limit_s(self, observed: Observations) -> float:
        """Return the deadline, or the time-out that runs seem to have had if that is shorter, s."""
        return min(self.request.deadline_s, time_limit(self.request.history, observed))

    def _shortlist(self, posterior: Posterior, left: Whole) -> Whole:
        """Return the candidates among `left` that may be the best, in their order."""
        if left.size <= SHORTLIST:
            return left
        mean, deviation = posterior.summary()
        promise = (mean + self._log_price_s() - HOPE * deviation)[left]
        return np.sort(left[np.argsort(promise, kind="stable")[:SHORTLIST]])

    def _draws(
        self, posterior: Posterior, rows: Whole, observed: Observations, generator: np.random.Generator
    ) -> Real:
        """Return joint draws of the log objective, float64[DRAWS, n'], inf beyond the bounds."""
        limit_s = self._limit_s(observed)
        log_price = np.log(self.prior.candidates.price_usd_h[rows] / 3600)
        least = physics.least_log_time(self.prior.candidates, observed, self.request.history)[rows]
        drawn = np.maximum(posterior.draw(rows, DRAWS, generator), least)
        most = np.minimum(np.log(limit_s), np.log(self.request.budget_usd) - log_price)
        return np.where(drawn <= most, drawn + self._log_price_s()[rows], np.inf)


def time_limit(history: History | None, observed: Observations) -> float:
    """Return the time-out that runs seem to have had, s: the shortest failed run that outlasted all
    successful runs.

    A failed run that is shorter than a successful run crashed, and shows no time-out. The result is infinite
    without such a run.
    """
    time_s, ok = observed.time_s, observed.ok
    if history is not None:
        ran = np.isfinite(history.time_s)
        time_s, ok = np.append(time_s, history.time_s[ran]), np.append(ok, history.ok[ran])
    longest = time_s[ok].max() if ok.any() else 0.0
    late = time_s[~ok & (time_s > longest)]
    return float(late.min()) if late.size and ok.any() else np.inf


def expected_gain(draws: Real, best: float, far: float, near: float = NEAR) -> Real:
    """Return the mean reduction of regret by trying each candidate, float64[n].

    draws: joint draws of the log objective, float64[draws, n], infinite beyond the bounds. best: log
    objective of the best trial, infinite if there is none. far, near: regret counts from `near` and up to
    `far`.

    Regret is the log of the ratio of the best value tried to the best value. Draws in which no candidate
    keeps the bounds are left out.
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
