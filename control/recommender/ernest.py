"""Ernest: a job's time on m machines from a few small runs, by non-negative least squares, per instance type.

For: t = θ0 + θ1 · s/m + θ2 · log m + θ3 · m with s the share of the data, fitted to each type's own trials.
Not for: types without trials. Source: Ernest (Venkataraman et al., NSDI 2016) §3. The share of the data is
the candidates' parameter `data_share`, 1 where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from control.recommender.model import Candidates, Flags, Observations, Proposal, Real, Recommendation, Stop
from control.recommender.ports import Request, stop, untried
from control.recommender.ranking import Prediction, ranked
from twinbed import ScenarioError

TRIALS_PER_TYPE = 3
"""Counts that a search tries of each type: the smallest, the middle and the largest."""
_LEAST_DEVIATION = 0.1
"""Relative error of a fit that passes through all of its few points; the source reports errors below 20 %."""


def terms(machines: Real, share: Real) -> Real:
    """The model's columns: 1, s/m, log m, m; float64[k, 4]."""
    return np.column_stack([np.ones_like(machines), share / machines, np.log(machines), machines])


def fit(machines: Real, share: Real, time_s: Real) -> Real:
    """The four coefficients, none negative, that minimise the relative squared error of the times."""
    weights = 1.0 / time_s
    found: Real = nnls(terms(machines, share) * weights[:, None], time_s * weights)[0]
    return found


class Ernest:
    """Knows this job's trials only, type by type."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Candidates of the types that were tried; ScenarioError if no trial of any type ended."""
        covered, predicted = _predict(request, request.observed)
        if not covered.any():
            raise ScenarioError(
                "Ernest needs small runs of this job, and none has ended; try 2 to 3 per type"
            )
        rows = np.flatnonzero(covered)
        part = Request(
            request.job,
            request.candidates.take(rows),
            request.objective,
            request.budget_usd,
            request.budget_usd_h,
            request.deadline_s,
        )
        reasons = [predicted.reasons[int(row)] for row in rows]
        return ranked(part, Prediction(predicted.log_time[rows], predicted.deviation[rows], reasons))

    def searcher(self, request: Request, seed: int) -> PerType:
        """Type by type, the cheapest first; `seed` changes nothing."""
        del seed
        return PerType(request)


@dataclass(frozen=True, slots=True)
class PerType:
    """The search of Ernest: a few counts of each type, then the best of the fits, until it is met."""

    request: Request

    def propose(self, observed: Observations) -> Proposal | Stop:
        """The next count of the next type; after the last, the untried candidate predicted to be the best."""
        left = untried(self.request, observed)
        if not left.any():
            return stop(self.request, observed, f"all {len(observed)} candidates were tried")
        for row in _plan(self.request):
            if left[row]:
                name = self.request.candidates.name[row]
                return Proposal(int(row), f"one of {TRIALS_PER_TYPE} counts of {name} for its fit")
        covered, predicted = _predict(self.request, observed)
        if not covered.any():
            return stop(self.request, observed, "no trial of any type has ended")
        price = self.request.candidates.price_usd_h if self.request.objective == "cost" else 1.0
        value = np.where(covered, np.exp(predicted.log_time) * price, np.inf)
        row = int(value.argmin())
        if not left[row]:
            return stop(self.request, observed, "the best that the fits predict was tried")
        return Proposal(row, f"best of {int(covered.sum())} predictions")


def _plan(request: Request) -> list[int]:
    """Positions of the smallest, middle and largest cluster of each type, the types by price per hour."""
    candidates = request.candidates
    each_usd_h = candidates.price_usd_h / candidates.count
    least = {name: float(each_usd_h[candidates.name == name].min()) for name in candidates.name.tolist()}
    # By name where prices are equal: a set's order changes from process to process.
    names = sorted(least, key=lambda name: (least[name], name))
    planned = []
    for name in names:
        rows = np.flatnonzero(candidates.name == name)
        rows = rows[np.argsort(candidates.count[rows], kind="stable")]
        picked = np.linspace(0, rows.size - 1, min(TRIALS_PER_TYPE, rows.size)).round().astype(int)
        planned += [int(rows[each]) for each in picked]
    return planned


def _predict(request: Request, observed: Observations) -> tuple[Flags, Prediction]:
    candidates = request.candidates
    n = len(candidates)
    share = _share(candidates)
    log_time, deviation = np.zeros(n), np.zeros(n)
    covered = np.zeros(n, dtype=np.bool_)
    reasons = [""] * n
    ended = observed.candidate[observed.ok]
    time_s = observed.time_s[observed.ok]
    for name in sorted(set(candidates.name[ended].tolist())):
        mine = candidates.name[ended] == name
        rows = ended[mine]
        theta = fit(candidates.count[rows].astype(np.float64), share[rows], time_s[mine])
        of_type = np.flatnonzero(candidates.name == name)
        predicted = terms(candidates.count[of_type].astype(np.float64), np.ones(of_type.size)) @ theta
        here = terms(candidates.count[rows].astype(np.float64), share[rows]) @ theta
        with np.errstate(divide="ignore"):
            error = np.sqrt(np.mean(np.log(np.maximum(here, 1e-12) / time_s[mine]) ** 2))
        log_time[of_type] = np.log(np.maximum(predicted, 1e-12))
        deviation[of_type] = max(float(error), _LEAST_DEVIATION)
        covered[of_type] = True
        for row in of_type:
            reasons[row] = f"fit of {rows.size} runs on {name}, {float(error):.0%} off on them"
    return covered, Prediction(log_time, deviation, reasons)


def _share(candidates: Candidates) -> Real:
    given = candidates.parameters.get("data_share")
    return np.ones(len(candidates)) if given is None else given
