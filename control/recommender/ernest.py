"""Ernest: a job's time on m machines from a few small runs, by non-negative least squares per instance type.

For: t = θ0 + θ1 · s/m + θ2 · log m + θ3 · m, with s the share of the data, fitted to the trials on each type
with each batch size. Not for: types without trials. Source: Ernest (Venkataraman et al., NSDI 2016) §3. The
share of the data is the candidates' parameter `data_share`; it is 1 if they have no such parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from control.jobs import Candidates, Names, Real, Whole
from control.recommender.ports import (
    Observations,
    Proposal,
    Recommendation,
    Request,
    Stop,
    affordable,
    all_tried,
    stop,
    untried,
)
from control.recommender.ranking import Prediction, best_first, beyond_runs, ranked
from twinbed import ScenarioError

TRIALS_PER_TYPE = 3
"""Clusters that a search tries of each type: the smallest, the middle and the largest."""
_LEAST_DEVIATION = 0.1
"""Least relative error of a fit. A fit can pass through all of its few points; the paper reports errors below
20 %."""
_LEAST_POINTS = 2
"""Least number of different trials of a type from which its other widths are predicted."""


def terms(machines: Real, share: Real) -> Real:
    """Return the model's columns 1, s/m, log m and m, float64[k, 4]."""
    return np.column_stack([np.ones_like(machines), share / machines, np.log(machines), machines])


def fit(machines: Real, share: Real, time_s: Real) -> Real:
    """Return the four coefficients ≥ 0 that minimise the squared relative error of the times."""
    weights = 1.0 / time_s
    theta: Real = nnls(terms(machines, share) * weights[:, None], time_s * weights)[0]
    return theta


class Ernest:
    """Uses only the trials of this job, separately for each type."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the candidates that have a fit; see `_predict`. Raises ScenarioError if there is none."""
        rows, predicted = _predict(request, request.observed)
        if not rows.size:
            raise ScenarioError(
                "Ernest needs small runs of this job on the clusters asked about, and none has ended; try 2 "
                "to 3 per type with --search, or ask about the clusters that were tried"
            )
        return ranked(request.among(rows), predicted)

    def searcher(self, request: Request, seed: int) -> ErnestSearch:
        """Return the search, which takes the cheapest type first; `seed` has no effect."""
        del seed
        return ErnestSearch(request)


@dataclass(frozen=True, slots=True)
class ErnestSearch:
    """The search of Ernest: a few clusters of each type, then the best that the fits predict."""

    request: Request

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the next cluster of the plan; after the plan, the candidate predicted to be the best."""
        left = untried(self.request, observed)
        if not left.any():
            return all_tried(self.request, observed)
        for row in _plan(self.request):
            if left[row]:
                name = _kinds(self.request.candidates)[row]
                return Proposal(int(row), f"one of {TRIALS_PER_TYPE} counts of {name} for its fit")
        rows, predicted = _predict(self.request, observed)
        if not rows.size:
            return stop(self.request, observed, "no trial of any type has ended")
        row = int(rows[best_first(self.request.seen(observed).among(rows), predicted)[0]])
        if not left[row]:
            return stop(self.request, observed, "the best that the fits predict was tried")
        return Proposal(row, f"best of {rows.size} predictions")


def _kinds(candidates: Candidates) -> Names:
    """Return type and batch size of each candidate; there is a fit for each pair."""
    batch = [f", batch {size:g}" if size > 0 else "" for size in candidates.batch.tolist()]
    return np.char.add(candidates.name, batch)


def _plan(request: Request) -> list[int]:
    """Return the smallest, middle and largest cluster of each type, the cheapest type first."""
    candidates, kinds = request.candidates, _kinds(request.candidates)
    unit_price = candidates.price_usd_h / candidates.count
    least = {name: float(unit_price[kinds == name].min()) for name in kinds.tolist()}
    planned: list[int] = []
    # Types of equal price are ordered by name, so that every process begins with the same one.
    for name in sorted(least, key=lambda name: (least[name], name)):
        rows = np.flatnonzero(kinds == name)
        rows = rows[np.argsort(candidates.count[rows], kind="stable")]
        picked = np.linspace(0, rows.size - 1, min(TRIALS_PER_TYPE, rows.size)).round().astype(int)
        planned += rows[picked].tolist()
    return planned


def _predict(request: Request, observed: Observations) -> tuple[Whole, Prediction]:
    """Return the affordable candidates that have a fit, int64[k], and their predictions. A type with enough
    trials has a fit for all its candidates; any other type only for the width that was tried."""
    candidates, kinds = request.candidates, _kinds(request.candidates)
    n = len(candidates)
    share = candidates.parameters.get("data_share", np.ones(n))
    machines = candidates.count.astype(np.float64)
    log_time, deviation = np.zeros(n), np.zeros(n)
    covered = np.zeros(n, dtype=np.bool_)
    reasons = np.full(n, "", dtype=object)
    ended, time_s = observed.candidate[observed.ok], observed.time_s[observed.ok]
    for name in sorted(set(kinds[ended].tolist())):
        of_type = kinds[ended] == name
        tried, measured = ended[of_type], time_s[of_type]
        theta = fit(machines[tried], share[tried], measured)
        rows = np.flatnonzero(kinds == name)
        if np.unique(np.column_stack((machines[tried], share[tried])), axis=0).shape[0] < _LEAST_POINTS:
            rows = rows[machines[rows] == machines[tried[0]]]
        predicted = terms(machines[rows], np.ones(rows.size)) @ theta
        fitted = terms(machines[tried], share[tried]) @ theta
        error = float(np.sqrt(np.mean(np.log(np.maximum(fitted, 1e-12) / measured) ** 2)))
        log_time[rows] = np.log(np.maximum(predicted, 1e-12))
        deviation[rows] = max(error, _LEAST_DEVIATION)
        covered[rows] = True
        reasons[rows] = f"fit of {tried.size} runs on {name}, {error:.0%} off on them"
    kept = np.flatnonzero(covered & affordable(request))
    beyond = beyond_runs(request.seen(observed))
    told = [beyond[row] for row in kept.tolist()]
    return kept, Prediction(log_time[kept], deviation[kept], reasons[kept].tolist(), told)
