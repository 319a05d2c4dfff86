"""Rankings with intervals, bounds and prices, from predicted log times or from trials alone.

For: every recommender. Not for: predicting. Prices are certain and times are not, so a cost has the same
relative interval as its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from control.jobs import Objective, Real, Whole
from control.recommender.ports import Interval, Proposal, Recommendation, Request, affordable, failed
from twinbed import ScenarioError

COVERAGE = 0.9
"""Probability that an interval holds the value."""
SURE_ENOUGH = 0.5
"""Candidates that keep deadline and budget with at least this probability are ranked before all others."""

_OFTEN = 10.0
"""Multiple of a bound from which a median is called a multiple of it, not a percentage over it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A log-normal prediction for each of n candidates.

    log_time: mean of the natural logarithm of the seconds, float64[n].
    deviation: standard deviation of that logarithm, float64[n].
    reasons: a sentence per candidate.
    beyond: for each candidate, in words, what no run covers; "" for nothing; by default `beyond_runs`.
    """

    log_time: Real
    deviation: Real
    reasons: Sequence[str]
    beyond: Sequence[str] | None = None

    def told(self, row: int) -> str:
        """Return the reason of a candidate, with the part of it that no run covers."""
        beyond = self.beyond[row] if self.beyond else ""
        outside = f"outside what was measured: {beyond}" if beyond else ""
        return "; ".join(filter(None, (self.reasons[row], outside)))


def beyond_runs(request: Request) -> list[str]:
    """Return what no run covers of each candidate: its type or its number of workers; "" for nothing.

    The trial of this job with most workers counts; if none ended, the run of past jobs with most workers.
    """
    among, past = request.candidates, request.history
    ended = request.observed.candidate[request.observed.ok]
    names, counts = set(among.name[ended].tolist()), among.count[ended]
    if past is not None:
        names |= set(past.candidates.name.tolist())
        counts = counts if counts.size else past.candidates.count
    if not names:
        return [""] * len(among)
    most, beyond = int(counts.max()), []
    for name, count in zip(among.name.tolist(), among.count.tolist(), strict=True):
        parts = [f"no run on {name}"] * (name not in names) + [f"{count} workers from {most}"] * (
            count > most
        )
        beyond.append(", ".join(parts))
    return beyond


def keeps_bounds(request: Request, predicted: Prediction) -> Real:
    """Return the probability that each candidate keeps deadline and budget, float64[n]."""
    probability: Real = ndtr(-over_bounds(request, predicted) / np.maximum(predicted.deviation, 1e-12))
    return probability


def over_bounds(request: Request, predicted: Prediction) -> Real:
    """Return the log of each median over the tighter of deadline and budget, float64[n]."""
    with np.errstate(divide="ignore"):
        limit_s = np.minimum(
            request.deadline_s, request.budget_usd / np.maximum(request.candidates.price_usd_h, 1e-300) * 3600
        )
    return predicted.log_time - np.log(limit_s)


def closest(request: Request, predicted: Prediction, rows: Whole) -> Proposal:
    """Propose the candidate among `rows` with the median closest to its bound; none is likely to keep it."""
    row = int(rows[over_bounds(request, predicted)[rows].argmin()])
    return Proposal(row, "no cluster is expected to keep the bounds; this one comes closest")


def best_first(request: Request, predicted: Prediction) -> Whole:
    """Return the positions of the affordable candidates, best first, int64[k].

    Candidates that keep the bounds with a probability of at least SURE_ENOUGH come first, ordered by the
    objective, and at equal cost by time. The others follow, the one whose median is closest to its bound
    first. Candidates on which every trial failed are left out, unless there is no other. Raises ScenarioError
    if no candidate is affordable.
    """
    time_s = np.exp(predicted.log_time)
    value = time_s * request.candidates.price_usd_h if request.objective is Objective.COST else time_s
    late = keeps_bounds(request, predicted) < SURE_ENOUGH
    order = np.lexsort((time_s, value, np.where(late, over_bounds(request, predicted), 0.0), late))
    order = order[affordable(request)[order]]
    left = order[~failed(request, request.observed)[order]]
    return left if left.size else order


def ranked(request: Request, predicted: Prediction, most: int | None = None) -> list[Recommendation]:
    """Return the first `most` candidates of `best_first`; times and costs are medians.

    Raises ScenarioError if every trial failed on all of them.
    """
    if predicted.beyond is None:
        predicted = replace(predicted, beyond=beyond_runs(request))
    price = request.candidates.price_usd_h
    time_s = np.exp(predicted.log_time)
    probability, over = keeps_bounds(request, predicted), over_bounds(request, predicted)
    order = best_first(request, predicted)[:most]
    if failed(request, request.observed)[order].all():
        raise ScenarioError(
            f"job {request.job.name}: every trial failed, on all clusters that are allowed; allow others, or "
            "correct the job"
        )
    factor = np.exp(float(ndtri(0.5 + COVERAGE / 2)) * predicted.deviation)
    bounded = np.isfinite(request.deadline_s) or np.isfinite(request.budget_usd)
    columns = (
        values[order].tolist() for values in (time_s, time_s / 3600 * price, price, factor, probability, over)
    )
    ranking = []
    for row, seconds, dollars, hourly, wide, sure, far in zip(order.tolist(), *columns, strict=True):
        over_by = (
            f"{np.exp(far):,.0f} times the bound" if far > np.log(_OFTEN) else f"{np.expm1(far):.0%} over"
        )
        excess = f"; {over_by} in the median" if sure < SURE_ENOUGH else ""
        ranking.append(
            Recommendation(
                configuration=request.candidates.configuration(row),
                time_s=seconds,
                cost_usd=dollars,
                time_interval=Interval(seconds / wide, seconds * wide, COVERAGE),
                cost_interval=Interval(dollars / wide, dollars * wide, COVERAGE),
                price_usd_h=hourly,
                reason=predicted.told(row) + excess,
                in_bounds=sure if bounded else None,
                outside=bool(predicted.beyond and predicted.beyond[row]),
            )
        )
    return ranking


def measured_only(request: Request) -> list[Recommendation]:
    """Return the trials that ended within the bounds, best first, with intervals of width zero.

    Raises ScenarioError if there is none.
    """
    trials = request.observed
    kept = request.within_bounds(trials)
    if not kept.any():
        raise ScenarioError(
            "no trial of this job has ended within the bounds, and without any nothing is known; try some "
            "with --search"
        )
    order = np.flatnonzero(kept)[np.argsort(trials.objective(request.objective)[kept], kind="stable")]
    ranking = []
    for trial in order.tolist():
        row, time_s, cost = (
            int(trials.candidate[trial]),
            float(trials.time_s[trial]),
            float(trials.cost_usd[trial]),
        )
        ranking.append(
            Recommendation(
                configuration=request.candidates.configuration(row),
                time_s=time_s,
                cost_usd=cost,
                time_interval=Interval(time_s, time_s),
                cost_interval=Interval(cost, cost),
                price_usd_h=float(request.candidates.price_usd_h[row]),
                reason=f"measured in trial {trial + 1} of {len(trials)}",
            )
        )
    return ranking
