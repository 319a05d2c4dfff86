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
    found = []
    for row in order:
        dollars = time_s[row] / 3600 * price[row]
        reason = predicted.reasons[row]
        if bounded:
            reason += f"; keeps deadline and budget with {likely[row]:.0%}"
        found.append(
            Recommendation(
                configuration=request.candidates.configuration(int(row)),
                time_s=float(time_s[row]),
                cost_usd=float(dollars),
                time_interval=_around(float(time_s[row]), float(factor[row])),
                cost_interval=_around(float(dollars), float(factor[row])),
                price_usd_h=float(price[row]),
                reason=reason,
            )
        )
    return found


def _around(middle: float, factor: float) -> Interval:
    return Interval(middle / factor, middle * factor, COVERAGE)
