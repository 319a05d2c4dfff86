"""CherryPick: Bayesian optimisation of one job's cost over configurations, with a rule to stop.

For: a job about which nothing is known but its own trials. Not for: past runs of other jobs (transfer.py).
A Gaussian process (Matérn 5/2) of the logarithm of the objective, so that noise is a share of it; the next
trial has the largest expected improvement, times the probability that it keeps the deadline. Source:
CherryPick (Alipourfard et al., NSDI 2017) §3.3–3.5: a few quasi-random first trials, then stop when the
expected improvement is below 10 % of the best and at least 6 were tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import qmc

from control.recommender.gaussian import Features, Kernel, condition, expected_improvement, features, fit
from control.recommender.model import Objective, Observations, Proposal, Real, Recommendation, Stop, Whole
from control.recommender.ports import Request, best_tried, stop, untried
from control.recommender.ranking import Prediction, ranked
from twinbed import ScenarioError

FIRST_TRIALS = 3
LEAST_TRIALS = 6
"""The search does not stop before (§3.5)."""

_START = Kernel(variance=1.0, noise=1e-3, lengths=np.ones(1))
"""Prior medians, of standardised values over standardised features: one unit; noise 3 % of a deviation."""
_LEVEL_VARIANCE = 1.0
_FAILED = 2.0
"""A trial that failed counts as so many times the worst that was seen, so that the search keeps away."""


@dataclass(frozen=True, slots=True)
class CherryPick:
    """Knows this job's trials only.

    stop_below: the search stops where less than this share of the best value is expected to be gained (§3.5);
    0 means that it goes on until nothing is left.
    """

    stop_below: float = 0.1

    def recommend(self, request: Request) -> list[Recommendation]:
        """Every affordable candidate by the process's mean; ScenarioError if nothing was tried yet."""
        if not len(request.observed):
            raise ScenarioError(
                "CherryPick knows a job by its own trials, and there is none; try a few or use past jobs"
            )
        mean, deviation = _posterior(request, request.observed)
        hours = np.log(request.candidates.price_usd_h / 3600)
        log_time = mean - hours if request.objective is Objective.COST else mean
        reason = f"Gaussian process of {len(request.observed)} trials of this job"
        return ranked(request, Prediction(log_time, deviation, [reason] * len(request.candidates)))

    def searcher(self, request: Request, seed: int) -> Improvement:
        """First trials from a scrambled Sobol' sequence drawn from `seed`."""
        return Improvement(request, _spread(request, seed), self.stop_below)


@dataclass(frozen=True, slots=True)
class Improvement:
    """The search of CherryPick; first: positions of the candidates that it begins with, int64[k]."""

    request: Request
    first: Whole
    stop_below: float

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The first trials, then the largest expected improvement until too little is expected."""
        left = untried(self.request, observed)
        if not left.any():
            return stop(self.request, observed, f"all {len(observed)} candidates were tried")
        begin = self.first[left[self.first]]
        if len(observed) < self.first.size and begin.size:
            return Proposal(
                int(begin[0]), f"first trial {len(observed) + 1} of {self.first.size}, spread out"
            )
        mean, deviation = _posterior(self.request, observed)
        value = _values(self.request, observed)
        best = float(value[observed.ok].min()) if observed.ok.any() else float(value.min())
        gain = np.where(
            left, expected_improvement(best, mean, deviation) * self._kept(mean, deviation), -np.inf
        )
        row = int(gain.argmax())
        found = best_tried(self.request, observed) is not None
        if found and len(observed) >= LEAST_TRIALS and gain[row] < self.stop_below:
            return stop(self.request, observed, f"no candidate is expected to gain {self.stop_below:.0%}")
        return Proposal(row, f"largest expected improvement, {gain[row]:.1%} of the best so far")

    def _kept(self, mean: Real, deviation: Real) -> Real:
        """The probability that each candidate keeps the deadline."""
        if not np.isfinite(self.request.deadline_s):
            return np.ones_like(mean)
        log_time = mean
        if self.request.objective is Objective.COST:
            log_time = mean - np.log(self.request.candidates.price_usd_h / 3600)
        kept: Real = ndtr((np.log(self.request.deadline_s) - log_time) / np.maximum(deviation, 1e-12))
        return kept


def _values(request: Request, observed: Observations) -> Real:
    """The logarithm of the objective of each trial; of a failed one, a multiple of the worst."""
    value = np.log(observed.objective(request.objective))
    return np.where(observed.ok, value, value.max() + np.log(_FAILED))


def _posterior(request: Request, observed: Observations) -> tuple[Real, Real]:
    """Mean and deviation of the logarithm of the objective at every candidate."""
    x = features(request.candidates)
    x = Features(x.values / np.maximum(x.values.std(axis=0), 1e-12), x.kind)
    value = _values(request, observed)
    middle, spread = float(value.mean()), max(float(value.std()), 0.05)
    scaled = (value - middle) / spread
    start = Kernel(_START.variance, _START.noise, np.ones(x.values.shape[1]))
    kernel = fit(x, [(observed.candidate, scaled)], start, level_variance=_LEVEL_VARIANCE)
    mean, variance = condition(kernel, x, observed.candidate, scaled, level_variance=_LEVEL_VARIANCE)
    return middle + spread * mean, spread * np.sqrt(variance)


def _spread(request: Request, seed: int) -> Whole:
    """Candidates nearest to the first points of a scrambled Sobol' sequence over their features."""
    x = features(request.candidates).values
    low, width = x.min(axis=0), np.maximum(np.ptp(x, axis=0), 1e-12)
    unit = (x - low) / width
    points = qmc.Sobol(x.shape[1], rng=np.random.default_rng(seed)).random(4)
    chosen: list[int] = []
    left = untried(request, request.observed)
    for point in points[:FIRST_TRIALS]:
        if not left.any():
            break
        row = int(np.where(left, ((unit - point) ** 2).sum(axis=1), np.inf).argmin())
        chosen.append(row)
        left[row] = False
    return np.array(chosen, dtype=np.int64)
