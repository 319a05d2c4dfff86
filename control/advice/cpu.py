"""CPU requests and limits found by rehearsal, with what the history teaches about the time after it.

For: `late_work` and `least_late`, by which requests are shared out, and `limits`. Not for: how much CPU there
is to share (budget.py), nor rehearsing, which whoever asks does and passes in as a function.

Requests: all rows' CPU is shared out so that the least work is late. A rehearsal says how much of a row's
work is late with a quota. Work that is late delays what comes after it, so that the curve is flat where a
container never catches up, steep where it begins to, and flat again. CPU goes where the next core saves most
work, on the curves' convex hulls, which is the best division of as much CPU.

Limits: the least quota that throttles at most so often on a first part of the history; by how much the next
part needs more is the margin.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from control.advice.model import LEAST_CORES, Usage
from control.allocator.model import Floats

Rehearse = Callable[[Floats], Floats]
"""Quotas (float64[R], cores) → what comes of them (float64[R]): late CPU work, s, for requests; shares of
periods in which they do not suffice for limits. More quota is never worse."""

LEVELS = 10
"""Quotas per row at which the rehearsal is asked."""

HALVINGS = 12
"""Steps of a search for a quota: its range shrinks to a 4096th."""

_COVERED = 0.9
"""Share of the rows whose need the margin of a limit covers at least."""

_MOST_MARGIN = 2.0
"""Largest factor of a limit's margin. What changes more than that is not foreseen by any."""


def percentile(usage: Usage, share: float) -> Floats:
    """Return the percentile of all samples of each row's members, float64[R] cores; at least LEAST_CORES."""
    first = np.searchsorted(usage.row, np.arange(usage.rows + 1))
    values = np.full(usage.rows, LEAST_CORES)
    for row in range(usage.rows):
        own = slice(first[row], first[row + 1])
        samples = usage.cores[own][usage.present[own]]
        if samples.size:
            values[row] = max(float(np.quantile(samples, share)), LEAST_CORES)
    return values


def late_work(usage: Usage, highest: Floats, late: Rehearse) -> tuple[Floats, Floats]:
    """Return (quotas, ascending; late work, s), float64[LEVELS, R] each, up to quotas that always suffice."""
    low = np.maximum(percentile(usage, 0.05), LEAST_CORES)
    high = np.maximum(highest, low * 1.01)
    levels = low * (high / low) ** np.linspace(0.0, 1.0, LEVELS)[:, None]
    return levels, np.minimum.accumulate(np.stack([late(quota) for quota in levels]), axis=0)


def least_late(levels: Floats, late_s: Floats, replicas: Floats, total: float) -> Floats:
    """Return the quotas, float64[R] cores, that leave the least work late among all that cost at most
    `total`.

    levels: float64[L, R], ascending. late_s: float64[L, R] ≥ 0, descending. replicas: float64[R]. total:
    cores; the lowest level is given even if it costs more. Each row climbs the corners of its curve's convex
    hull. The steps of all rows are taken in the order of the late work that a core saves. The first step that
    costs too much is taken in part (the continuous knapsack problem: Dantzig 1957).
    """
    cost = levels * replicas
    rows = np.arange(levels.shape[1])
    at = np.zeros(levels.shape[1], np.int64)
    above = np.arange(len(levels))[:, None]
    steps = []
    while True:
        price = np.maximum(cost - cost[at, rows], 1e-12)
        saved = np.where(above > at, (late_s[at, rows] - late_s) / price, 0.0)
        best = saved.argmax(axis=0)
        gain = saved[best, rows]
        climbs = gain > 0
        if not climbs.any():
            break
        steps.append(np.stack([gain, rows, at, best])[:, climbs])
        at = np.where(climbs, best, at)
    quota = levels[0].copy()
    if steps:
        gain, *whole = np.concatenate(steps, axis=1)
        order = np.argsort(-gain, kind="stable")
        row, begin, end = (values[order].astype(np.int64) for values in whole)
        price = cost[end, row] - cost[begin, row]
        left = total - float(cost[0].sum()) - (np.cumsum(price) - price)
        part = np.clip(left / np.maximum(price, 1e-12), 0.0, 1.0)
        np.add.at(quota, row, part * (levels[end, row] - levels[begin, row]))
    return np.asarray(np.maximum(quota, LEAST_CORES), np.float64)


def limits(highest: Floats, risk: float, first: Rehearse, following: Rehearse, whole: Rehearse) -> Floats:
    """Return CPU limits, float64[R] cores, that throttle in at most `risk` of the periods, with a margin.

    highest: float64[R], a quota that always suffices. first, following, whole: rehearsals of the history's
    earlier part, of the part after it, and of all of it. The margin is the factor by which the following part
    needs more than the earlier one: the row's own, and at least what covers most rows. It reserves nothing.
    """
    before, after, all_of_it = (_least(highest, risk, part) for part in (first, following, whole))
    needed = after / before
    margin = np.clip(np.maximum(needed, np.quantile(needed, _COVERED)), 1.0, _MOST_MARGIN)
    return np.asarray(np.maximum(all_of_it * margin, LEAST_CORES), np.float64)


def _least(highest: Floats, risk: float, rehearse: Rehearse) -> Floats:
    """Return the least quotas that are short in at most `risk` of the periods."""
    high = np.maximum(highest, LEAST_CORES)
    low = np.full_like(high, LEAST_CORES / 2)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = rehearse(middle) <= risk
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return high
