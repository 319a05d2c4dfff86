"""CPU requests and limits, found by rehearsing the history.

For: `late_work` and `least_late`, which share CPU out as requests, and `limits`. Not for: how much CPU there
is to share (budget.py), nor the rehearsal, which the caller passes as a function.

Requests: the CPU is shared out so that the least work is late. A rehearsal returns how much of a row's work
is late under a quota. Late work delays the work after it. The curve is therefore flat where a container never
catches up, steep where it begins to catch up, and flat again. CPU goes where the next core saves most work,
on the curves' convex hulls. A remainder at the end may be too small for the next steep step, and half of a
step saves nothing. So the rows near the end are shared out again, by trying the combinations of their levels.
Recent use predicts best what comes next, and the whole history shows what is rare. So a curve is the mean
over several windows that end with the history.

Limits: the least quota that throttles within the risk on the first part of the history, times a margin. The
margin is the factor by which the next part needs more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from control.advice.model import LEAST_CORES, MILLICORE, Usage
from control.allocator.model import Floats

Rehearse = Callable[[Floats], Floats]
"""Rehearsal: quotas (float64[R], cores) → a result (float64[R]). For requests, the result is late CPU work
per time, cores. For limits, it is the share of periods in which the quota does not suffice. A larger quota
never gives a worse result."""

LEVELS = 24
"""Number of quotas per row that are rehearsed."""

WINDOWS = (0.0, 0.5, 0.75)
"""Where the windows begin, as shares of the history's length. All windows have the same weight."""

CORE = 100
"""Most rows that are shared out by trying combinations: the rows whose steps were decided last."""

GRID = 20_000
"""Number of parts into which the CPU of these rows is divided for the combinations."""

_LOWEST = 0.5
"""Share of the mean use at which the levels begin, above the first one: below it, nearly all work is late."""

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


def late_work(usage: Usage, highest: Floats, windows: Sequence[Rehearse]) -> tuple[Floats, Floats]:
    """Return (quotas in ascending order, whole millicores, and late work), float64[LEVELS, R] each.

    highest: float64[R], quotas that always suffice; they are the last row of the result. The first row is
    LEAST_CORES. windows: rehearsals; late work is their mean.
    """
    mean = usage.by_row(usage.cores.sum(axis=1)) / np.maximum(usage.samples(), 1)
    low = np.maximum(_LOWEST * mean, LEAST_CORES * 1.01)
    high = np.maximum(highest, low * 1.01)
    levels = low * (high / low) ** np.linspace(0.0, 1.0, LEVELS - 1)[:, None]
    levels = np.vstack([np.full_like(low, LEAST_CORES), np.ceil(levels / MILLICORE) * MILLICORE])
    late = np.stack([np.mean([window(quota) for window in windows], axis=0) for quota in levels])
    return levels, np.minimum.accumulate(late, axis=0)


def least_late(levels: Floats, late: Floats, replicas: Floats, total: float) -> Floats:
    """Return the quotas, float64[R] cores, that leave the least work late among all that sum to at most
    `total`.

    levels: float64[L, R], ascending. late: float64[L, R] ≥ 0, descending. replicas: float64[R]. total:
    cores; the lowest level is given even if it costs more. The choice of levels is optimal for at most CORE
    rows, to a part of the GRID for each row, and nearly optimal for more (multiple-choice knapsack: Kellerer,
    Pferschy, Pisinger 2004, chapter 11). Remaining CPU goes, in whole millicores, to the rows whose work is
    late at their lowest level, or to all rows if there are none.
    """
    cost = levels * replicas
    at, near = _by_hulls(cost, late, total)
    rows = np.arange(levels.shape[1])
    room = total - float(cost[at, rows].sum() - cost[at, rows][near].sum())
    if len(near):
        at[near] = _by_combinations(cost[:, near], late[:, near], room)
    quota = levels[at, rows]
    left = total - float(cost[at, rows].sum())
    needy = (at == 0) & (late[0] > 0) & (replicas > 0)
    weight = np.where(needy, levels[1], 0.0) if needy.any() else quota
    asked = float((weight * replicas).sum())
    if left > 0 and asked > 0:
        more = quota + weight * (left / asked)
        quota = np.maximum(np.floor(more / MILLICORE + 1e-6) * MILLICORE, quota)
    return np.asarray(np.maximum(quota, LEAST_CORES), np.float64)


def _by_hulls(cost: Floats, late: Floats, total: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's level, int64[R], and the rows whose steps were decided last.

    Each row climbs the corners of its curve's convex hull. The steps of all rows are taken in the order of
    the late work saved per core, until one costs too much (Dantzig 1957).
    """
    rows = np.arange(cost.shape[1])
    at = np.zeros(cost.shape[1], np.int64)
    above = np.arange(len(cost))[:, None]
    steps = [np.zeros((4, 0))]
    while True:
        price = np.maximum(cost - cost[at, rows], 1e-12)
        saved = np.where(above > at, (late[at, rows] - late) / price, 0.0)
        best = saved.argmax(axis=0)
        gain = saved[best, rows]
        climbs = gain > 0
        if not climbs.any():
            break
        steps.append(np.stack([gain, rows, best, price[best, rows]])[:, climbs])
        at = np.where(climbs, best, at)
    gain, row, end, price = np.concatenate(steps, axis=1)
    order = np.argsort(-gain, kind="stable")
    row, end = row[order].astype(np.int64), end[order].astype(np.int64)
    taken = int(np.searchsorted(np.cumsum(price[order]), total - float(cost[0].sum()), side="right"))
    at = np.zeros(cost.shape[1], np.int64)
    np.maximum.at(at, row[:taken], end[:taken])
    nearest = row[np.argsort(np.abs(np.arange(len(row)) - taken), kind="stable")]
    return at, np.sort(np.array(list(dict.fromkeys(nearest.tolist()))[:CORE], np.int64))


def _by_combinations(cost: Floats, late: Floats, room: float) -> NDArray[np.int64]:
    """Return the levels, int64[R], with the least late work among all that cost at most `room` together.

    Dynamic programming over rows and parts of the room; each row's cost is rounded up to a whole part.
    """
    spare = room - float(cost[0].sum())
    if not spare > 0:
        return np.zeros(cost.shape[1], np.int64)
    # The quotient may exceed the largest integer if the unit is tiny.
    parts = np.minimum(np.ceil((cost - cost[0]) * (GRID / spare) - 1e-6), GRID + 1).astype(np.int64)
    least = np.zeros(GRID + 1)
    picked = np.zeros((cost.shape[1], GRID + 1), np.int64)
    for row in range(cost.shape[1]):
        before, least = least, least + late[0, row]
        for level in range(1, len(cost)):
            need = int(parts[level, row])
            if need > GRID:
                break
            other = before[: GRID + 1 - need] + late[level, row]
            better = other < least[need:]
            least[need:][better] = other[better]
            picked[row, need:][better] = level
    at, left = np.zeros(cost.shape[1], np.int64), GRID
    for row in reversed(range(cost.shape[1])):
        at[row] = picked[row, left]
        left -= int(parts[at[row], row])
    return at


def limits(highest: Floats, risk: float, first: Rehearse, following: Rehearse, whole: Rehearse) -> Floats:
    """Return CPU limits, float64[R] cores, that throttle in at most `risk` of the periods, with a margin.

    highest: float64[R], a quota that always suffices. first, following, whole: rehearsals of the first part
    of the history, of the part after it, and of the whole history. The margin is the factor by which the
    following part needs more than the first: the row's own factor, and at least the factor that covers most
    rows. A limit reserves no CPU, so a generous margin is free.
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
