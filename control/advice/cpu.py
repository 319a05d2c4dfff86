"""CPU requests and limits, found by rehearsing the history.

For: `late_work` and `least_late`, which share CPU out as requests, and `limits`. Not for: how much CPU there
is to share (budget.py), nor the rehearsal, which the caller passes as a function.

Requests: the CPU is shared out so that the least work is late. A rehearsal returns how much of a row's work
is late under a quota. Late work delays the work after it. The curve is therefore flat where a container never
catches up, steep where it begins to catch up, and flat again. CPU goes where the next core saves most work,
on the curves' convex hulls, which is the optimal division. What ran lately tells most of what comes, and the
whole history tells what is rare. So a curve is the mean of the curves of windows that end with the history.

Limits: the least quota that throttles within the risk on the first part of the history, times a margin. The
margin is the factor by which the next part needs more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from control.advice.model import LEAST_CORES, Usage
from control.allocator.model import Floats

Rehearse = Callable[[Floats], Floats]
"""Rehearsal: quotas (float64[R], cores) → a result (float64[R]). For requests, the result is late CPU work
per time, cores. For limits, it is the share of periods in which the quota does not suffice. A larger quota
never gives a worse result."""

LEVELS = 24
"""Number of quotas per row that are rehearsed."""

WINDOWS = (0.0, 0.5, 0.75)
"""Begins of the windows that count alike, as shares of the history's length."""

_LOWEST = 0.5
"""Share of the mean use at which the levels begin, above the first one: below it, nearly all work is late."""

LEFT = 0.25
"""First level: this share of the use that 95 % of the samples exceed. It is what is left to a container that
the fleet cannot serve in time. Less serves the others better only as long as the future is like the past."""

HALVINGS = 12
"""Bisection steps of the search for a quota: its range shrinks to 1/4096."""

_COVERED = 0.9
"""Share of the rows whose need the limits' margin must cover."""

_MOST_MARGIN = 2.0
"""Largest margin of a limit, a factor. No margin can foresee a larger change."""


def percentile(usage: Usage, share: float) -> Floats:
    """Return a percentile of the samples of each row's members, float64[R] cores; at least LEAST_CORES."""
    first = np.searchsorted(usage.row, np.arange(usage.rows + 1))
    values = np.full(usage.rows, LEAST_CORES)
    for row in range(usage.rows):
        own = slice(first[row], first[row + 1])
        samples = usage.cores[own][usage.present[own]]
        if samples.size:
            values[row] = max(float(np.quantile(samples, share)), LEAST_CORES)
    return values


def late_work(
    usage: Usage, highest: Floats, windows: Sequence[Rehearse], left: float = LEFT
) -> tuple[Floats, Floats]:
    """Return (quotas in ascending order, late work), float64[LEVELS, R] each.

    highest: float64[R], quotas that always suffice, which are the last ones. windows: rehearsals, whose mean
    counts. left: as LEFT.
    """
    least = np.maximum(left * percentile(usage, 0.05), LEAST_CORES)
    mean = usage.by_row(usage.cores.sum(axis=1)) / np.maximum(usage.samples(), 1)
    low = np.maximum(_LOWEST * mean, least * 1.01)
    high = np.maximum(highest, low * 1.01)
    levels = low * (high / low) ** np.linspace(0.0, 1.0, LEVELS - 1)[:, None]
    levels = np.vstack([least, levels])
    late = np.stack([np.mean([window(quota) for window in windows], axis=0) for quota in levels])
    return levels, np.minimum.accumulate(late, axis=0)


def least_late(levels: Floats, late: Floats, replicas: Floats, total: float) -> Floats:
    """Return the quotas, float64[R] cores, that leave the least work late among all that sum to at most
    `total`.

    levels: float64[L, R], ascending. late: float64[L, R] ≥ 0, descending. replicas: float64[R]. total:
    cores; the lowest level is given even if it costs more. Each row climbs the corners of its curve's convex
    hull. The steps of all rows are taken in the order of the late work saved per core. The first step that
    costs too much is taken in part (the continuous knapsack problem: Dantzig 1957).
    """
    cost = levels * replicas
    rows = np.arange(levels.shape[1])
    at = np.zeros(levels.shape[1], np.int64)
    above = np.arange(len(levels))[:, None]
    steps = []
    while True:
        price = np.maximum(cost - cost[at, rows], 1e-12)
        saved = np.where(above > at, (late[at, rows] - late) / price, 0.0)
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

    highest: float64[R], a quota that always suffices. first, following, whole: rehearsals of the first part
    of the history, of the part after it, and of the whole history. The margin is the factor by which the
    following part needs more than the first: the row's own factor, and at least the factor that covers most
    rows. A limit reserves nothing.
    """
    before, after, all_of_it = (_least(highest, risk, part) for part in (first, following, whole))
    needed = after / before
    margin = np.clip(np.maximum(needed, np.quantile(needed, _COVERED)), 1.0, _MOST_MARGIN)
    return np.asarray(np.maximum(all_of_it * margin, LEAST_CORES), np.float64)


def _least(highest: Floats, risk: float, rehearse: Rehearse) -> Floats:
    """Return the least quotas that are too small in at most `risk` of the periods."""
    high = np.maximum(highest, LEAST_CORES)
    low = np.full_like(high, LEAST_CORES / 2)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = rehearse(middle) <= risk
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return high
