"""CherryPick: Bayesian optimisation of one job's cost over configurations, with a stopping rule.

For: a job about which only its own trials are known. Not for: past runs of other jobs (transfer.py). A
Gaussian process (Matérn 5/2) models the logarithm of the objective, so that noise is relative. The next trial
has the largest expected improvement over the best trial within the bounds, times the probability that it
keeps deadline and budget. Source: CherryPick (Alipourfard et al., NSDI 2017) §3.3–3.5: a few quasi-random
first trials, then stop when the expected improvement is below 10 % of the best and at least 6 configurations
were tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from control.jobs import Objective, Real, Whole
from control.recommender import physics
from control.recommender.gaussian import Features, Kernel, condition, expected_improvement, features, fit
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
from control.recommender.ranking import Prediction, closest, keeps_bounds, ranked
from twinbed import ScenarioError

FIRST_TRIALS = 3
LEAST_TRIALS = 6
"""Trials before which the search does not stop (§3.5)."""
_NO_GAIN = 5e-4
"""Improvement that is printed as 0.0 %."""

_START = Kernel(variance=1.0, noise=1e-3, lengths=np.ones(1))
"""Prior medians of the kernel for standardised values and features: one unit, and noise of 3 % of a
deviation."""
_LEVEL_VARIANCE = 1.0
"""Prior variance of the process's constant mean, in standardised values."""
_USUAL_SPREAD = float(np.log(2.0))
"""Usual standard deviation of the log objective between candidates, for rankings after few trials: a factor
of two. A reading: the source ranks by trials alone."""
_FAILED = 2.0
"""A failed trial counts as this many times the worst value seen, so that the search keeps away from it."""


@dataclass(frozen=True, slots=True)
class CherryPick:
    """Uses only the trials of this job.

    stop_below: the search stops if the expected improvement is below this share of the best value (§3.5);
        with 0 it continues until every candidate was tried.
    """

    stop_below: float = 0.1

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return every affordable candidate by its posterior mean; ScenarioError if there is no trial yet."""
        if not len(request.observed):
            raise ScenarioError(
                "CherryPick knows a job by its own trials, and there is none on the clusters asked about; "
                "try some with --search"
            )
        trials = request.observed
        mean, deviation = _posterior(request, trials, _USUAL_SPREAD)
        log_time = mean - _log_price_s(request)
        reasons = [f"Gaussian process of {len(trials)} trials of this job"] * len(request.candidates)
        predicted = physics.bounded(Prediction(log_time, deviation, reasons), request.candidates, trials)
        # Past jobs tell it nothing.
        return ranked(replace(request, history=None), predicted)

    def searcher(self, request: Request, seed: int) -> CherryPickSearch:
        """Return a search whose first trials come from a Sobol' sequence that `seed` scrambles."""
        return CherryPickSearch(request, _spread(request, seed), self.stop_below)


@dataclass(frozen=True, slots=True)
class CherryPickSearch:
    """The search of CherryPick. first: positions of the candidates to begin with, int64[k]."""

    request: Request
    first: Whole
    stop_below: float

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the first trials, then the largest expected improvement until it is too small."""
        left = untried(self.request, observed)
        if not left.any():
            return all_tried(self.request, observed)
        begin = self.first[left[self.first]]
        if len(observed) < self.first.size and begin.size:
            return Proposal(
                int(begin[0]), f"first trial {len(observed) + 1} of {self.first.size}, spread out"
            )
        mean, deviation = _posterior(self.request, observed)
        value = _values(self.request, observed)
        kept = self.request.within_bounds(observed)
        ended = kept if kept.any() else observed.ok
        best = float(value[ended].min() if ended.any() else value.min())
        predicted = Prediction(mean - _log_price_s(self.request), deviation, ())
        gain = expected_improvement(best, mean, deviation) * keeps_bounds(self.request, predicted)
        row = int(np.where(left, gain, -np.inf).argmax())
        if not kept.any() and gain[row] < _NO_GAIN:
            return closest(self.request, predicted, np.flatnonzero(left))
        if kept.any() and len(observed) >= LEAST_TRIALS and gain[row] < self.stop_below:
            return stop(self.request, observed, f"no candidate is expected to gain {self.stop_below:.0%}")
        return Proposal(row, f"largest expected improvement, {gain[row]:.1%} of the best so far")


def _log_price_s(request: Request) -> Real | float:
    """Return the logarithm of what turns seconds into the objective: the price per second, or 1."""
    return np.log(request.candidates.price_usd_h / 3600) if request.objective is Objective.COST else 0.0


def _values(request: Request, observed: Observations) -> Real:
    """Return the log objective of each trial, and for a failed trial a multiple of the worst one."""
    value = np.log(observed.objective(request.objective))
    return np.where(observed.ok, value, value.max() + np.log(_FAILED))


def _posterior(request: Request, observed: Observations, usual: float = 0.0) -> tuple[Real, Real]:
    """Return mean and standard deviation of the log objective at every candidate, float64[n].

    usual: standard deviation of candidates' log objectives before any trial, worth one trial; 0: none.
    """
    x = features(request.candidates)
    x = Features(x.values / np.maximum(x.values.std(axis=0), 1e-12), x.kind)
    value = _values(request, observed)
    middle, own = float(value.mean()), value.size * float(value.var())
    spread = max(float(np.sqrt((own + usual**2) / (value.size + (usual > 0)))), 0.05)
    scaled = (value - middle) / spread
    start = Kernel(_START.variance, _START.noise, np.ones(x.values.shape[1]))
    kernel = fit(x, [(observed.candidate, scaled)], start, level_variance=_LEVEL_VARIANCE)
    mean, variance = condition(kernel, x, observed.candidate, scaled, level_variance=_LEVEL_VARIANCE)
    return middle + spread * mean, spread * np.sqrt(variance)


def _spread(request: Request, seed: int) -> Whole:
    """Return the candidates nearest to the first points of a scrambled Sobol' sequence."""
    x = features(request.candidates).values
    unit = (x - x.min(axis=0)) / np.maximum(np.ptp(x, axis=0), 1e-12)
    points = scipy.stats.qmc.Sobol(x.shape[1], rng=np.random.default_rng(seed)).random(4)
    chosen: list[int] = []
    left = untried(request, request.observed)
    for point in points[:FIRST_TRIALS]:
        if not left.any():
            break
        row = int(np.where(left, ((unit - point) ** 2).sum(axis=1), np.inf).argmin())
        chosen.append(row)
        left[row] = False
    return np.array(chosen, dtype=np.int64)
