"""The lateness of CPU work: the horizontal distance between arrival and service, weighted by work.

For: quantiles over all work of all containers, from what was demanded and done per period. Not for: the
latency of requests. A container's work is served first in, first out. Inside a period both curves are drawn
as straight lines, for which the result is exact. The twin's real course inside a period (work at the
beginning, throttled at the end) is within one period of that line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twin.containers.compiled import kernel
from twin.containers.model import Floats
from twinbed import InvariantError

_BINS = 1 << 15
"""Number of bins of a histogram.

The bin that holds a quantile is divided again. So a quantile is known to the run's length / 2^30 (3 µs in an
hour), and is interpolated inside that.
"""

SAME_CORES = 1e-6
"""Cores. Demand and usage recorded as float32 differ by rounding; a smaller difference is no backlog."""


def work_lateness(
    demand_cores: NDArray[np.floating],
    done_cores: NDArray[np.floating],
    period_s: float,
    quantiles: ArrayLike,
) -> Floats:
    """Return the seconds by which work is late, at each of `quantiles` (in [0, 1]) of the work.

    demand_cores, done_cores: float[T, N], work that arrived and that was done in each period, divided by
    period_s. Returns float64[q], NaN if no work arrived. Work that is never done is late until the run's end,
    including work that a leaving container dropped: a column that comes back serves it first. Raises
    InvariantError for arrays of different shapes.
    """
    if demand_cores.shape != done_cores.shape or demand_cores.ndim != 2:
        raise InvariantError(f"lateness of {demand_cores.shape} demand with {done_cores.shape} done")
    wanted = np.atleast_1d(np.asarray(quantiles, np.float64))
    length_s = len(demand_cores) * period_s
    by_container = np.ascontiguousarray(demand_cores.T), np.ascontiguousarray(done_cores.T)
    whole = np.zeros(_BINS + 2)
    _spread(*by_container, period_s, 0.0, length_s, whole)
    below = np.cumsum(whole)
    late_s = np.full(len(wanted), np.nan)
    for index, share in enumerate(wanted if below[-1] > 0.0 else ()):
        # The targets are just inside [0, 1]. The least target then lies in existing work, and rounding cannot
        # lose the greatest.
        target = min(max(share, 1e-12), 1.0 - 1e-12) * below[-1]
        late_s[index] = 0.0
        if target > whole[0]:
            width = length_s / _BINS
            low = (_bin(below, target) - 1) * width
            finer = np.zeros(_BINS + 2)
            _spread(*by_container, period_s, low, low + width, finer)
            within = np.cumsum(finer)
            place = _bin(within, target)
            part = (target - within[place - 1]) / finer[place] if finer[place] > 0.0 else 1.0
            late_s[index] = low + (place - 1 + min(max(part, 0.0), 1.0)) * width / _BINS
    return late_s


def _bin(below: Floats, target: float) -> int:
    """Return the bin (1 … n) in which the cumulative histogram reaches `target`."""
    return min(max(int(np.searchsorted(below, target)), 1), len(below) - 2)


@kernel
def _spread(
    demand: NDArray[np.floating],
    done: NDArray[np.floating],
    period_s: float,
    low: float,
    high: float,
    histogram: Floats,
) -> None:
    """Add all work to `histogram` by lateness: [0] up to `low`, [1 … n] bins of (low, high], [n + 1] above.

    demand, done: float[N, T]. Two pointers per container walk along the arrival and the service curve.
    Between two corners of either curve, the lateness is linear in the work, so the work is spread evenly over
    the bins between its ends.
    """
    # Density per bin as a difference array, so that a wide spread costs no more than a narrow one.
    slope = np.zeros(len(histogram) + 1)
    for column in range(len(demand)):
        _walk(demand[column], done[column], period_s, low, high, histogram, slope)
    running = 0.0
    for index in range(1, len(histogram) - 1):
        running += slope[index]
        histogram[index] += running


@kernel
def _walk(
    demand: NDArray[np.floating],
    done: NDArray[np.floating],
    period_s: float,
    low: float,
    high: float,
    histogram: Floats,
    slope: Floats,
) -> None:
    """Pass every stretch of one container's work (float[T]) between two corners to `_add`."""
    periods = len(demand)
    tolerance = SAME_CORES * period_s
    behind = 0.0  # arrived and not done at the end of the period that serves
    first = 0  # the period whose work is served next
    left = demand[0] * period_s if periods else 0.0  # the part of it that is still to be served
    for row in range(periods):
        arriving = demand[row] * period_s
        doing = done[row] * period_s
        waiting = behind > 0.0
        behind += arriving
        if abs(behind - doing) <= tolerance:
            doing = behind
        doing = min(doing, behind)
        if not waiting and doing == behind:
            histogram[0] += arriving  # all of it is done as it arrives
        else:
            remaining = doing
            while remaining > 0.0 and first <= row:
                size = demand[first] * period_s
                part = min(left, remaining)
                if part > 0.0:
                    began = row + (doing - remaining) / doing - first - (size - left) / size
                    ended = began + part / doing - part / size
                    _add(began * period_s, ended * period_s, part, low, high, histogram, slope)
                    left -= part
                    remaining -= part
                if left <= 0.0:
                    first += 1
                    left = demand[first] * period_s if first < periods else 0.0
        behind -= doing
        if behind <= 0.0:
            first = row + 1
            left = demand[first] * period_s if first < periods else 0.0
    for row in range(first, periods):
        if row > first:
            left = demand[row] * period_s
        if left > 0.0:
            ended = periods - row - 1.0
            began = ended + left / (demand[row] * period_s)
            _add(began * period_s, ended * period_s, left, low, high, histogram, slope)


@kernel
def _add(
    began: float, ended: float, weight: float, low: float, high: float, histogram: Floats, slope: Floats
) -> None:
    """Spread `weight` evenly over lateness from `began` to `ended`."""
    bins = len(histogram) - 2
    near, far = max(min(began, ended), 0.0), max(began, ended, 0.0)
    if far <= low:
        histogram[0] += weight
        return
    if near >= high:
        histogram[bins + 1] += weight
        return
    width = (high - low) / bins
    if far - near <= width * 1e-9:
        histogram[min(max(int(np.ceil((far - low) / width)), 1), bins)] += weight
        return
    density = weight / (far - near)
    if near < low:
        histogram[0] += density * (low - near)
        near = low
    if far > high:
        histogram[bins + 1] += density * (far - high)
        far = high
    first = min(int((near - low) / width), bins - 1)
    last = min(int((far - low) / width), bins - 1)
    if first == last:
        histogram[first + 1] += density * (far - near)
        return
    histogram[first + 1] += density * (low + (first + 1) * width - near)
    histogram[last + 1] += density * (far - low - last * width)
    slope[first + 2] += density * width
    slope[last + 1] -= density * width
