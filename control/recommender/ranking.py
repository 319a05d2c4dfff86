"""From predicted logarithms of time to a ranking with intervals, bounds and prices.

For: every recommender that predicts. Not for: predicting. The price is certain and the time is not, so the
cost has the time's relative interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from control.recommender.model import Interval, Objective, Real, Recommendation
from control.recommender.ports import Request, affordable

COVERAGE = 0.9
"""Of every interval."""
SURE_ENOUGH = 0.5
"""A candidate that keeps deadline and budget with at least this probability is ranked before all others."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of every candidate: mean and deviation of the natural logarithm of its seconds, and a reason each.

    log_time, deviation: float64[n].
    """

    log_time: Real
    deviation: Real
    reasons: Sequence[str]


def keeps_bounds(request: Request, predicted: Prediction) -> Real:
    """The probability that each candidate keeps deadline and budget, float64[n]."""
    with np.errstate(divide="ignore"):
        most_s = np.minimum(
            request.deadline_s, request.budget_usd / np.maximum(request.candidates.price_usd_h, 1e-300) * 3600
        )
    likely: Real = ndtr((np.log(most_s) - predicted.log_time) / np.maximum(predicted.deviation, 1e-12))
    return likely


def ranked(request: Request, predicted: Prediction, most: int | None = None) -> list[Recommendation]:
    """The affordable candidates (the first `most` of them), best first.

    Those that keep the bounds with a probability of at least SURE_ENOUGH come first, by the objective; then
    the others, the likeliest first. Time and cost are medians.
    """
    price = request.candidates.price_usd_h
    time_s = np.exp(predicted.log_time)
    value = time_s * price if request.objective is Objective.COST else time_s
    likely = keeps_bounds(request, predicted)
    late = likely < SURE_ENOUGH
    order = np.lexsort((value, np.where(late, -likely, 0.0), late))
    order = order[affordable(request)[order]][:most]
    factor = np.exp(float(ndtri(0.5 + COVERAGE / 2)) * predicted.deviation)
    bounded = np.isfinite(request.deadline_s) or np.isfinite(request.budget_usd)
    columns = (each[order].tolist() for each in (time_s, time_s / 3600 * price, price, factor, likely))
    found = []
    for row, seconds, dollars, hourly, wide, sure in zip(order.tolist(), *columns, strict=True):
        reason = predicted.reasons[row]
        if bounded:
            reason += f"; keeps deadline and budget with {sure:.0%}"
        found.append(
            Recommendation(
                configuration=request.candidates.configuration(row),
                time_s=seconds,
                cost_usd=dollars,
                time_interval=_around(seconds, wide),
                cost_interval=_around(dollars, wide),
                price_usd_h=hourly,
                reason=reason,
            )
        )
    return found


def _around(middle: float, factor: float) -> Interval:
    return Interval(middle / factor, middle * factor, COVERAGE)
