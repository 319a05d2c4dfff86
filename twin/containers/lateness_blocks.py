"""The lateness of CPU work in runs that are simulated block by block.

For: the quantiles of lateness.py without keeping the whole series of arrived and done work. Not for: shorter
runs. The error of a lateness is at most 2^-9 of its value, or 2^-13 s, and sums are rounded (1e-12). If work
waits behind more than _MOST_WAITING periods, arrivals of neighbouring periods are merged. The error is then
at most the length of the merged periods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import inlined, released
from twin.containers.lateness import SAME_CORES
from twin.containers.model import Floats

_LEAST_EXPONENT, _OCTAVES, _PARTS = -12, 37, 512
"""Bins begin at 2^-13 s, 512 for each doubling, and end at 194 days."""

_EDGES: Floats = np.concatenate(
    [
        [0.0, 0.0],
        np.ldexp(
            np.tile(0.5 + np.arange(_PARTS) / (2.0 * _PARTS), _OCTAVES),
            np.repeat(np.arange(_OCTAVES) + _LEAST_EXPONENT, _PARTS),
        ),
        [2.0 ** (_LEAST_EXPONENT + _OCTAVES - 1)],
    ]
)
"""The lower end of the lateness of each place, s, and the upper end of the last place."""

_SHIFT = 52 - 9
_FIRST = (1023 + _LEAST_EXPONENT - 1) << 9
"""The upper bits of the first bin's lower end."""

_PLACES = len(_EDGES) - 1
"""Number of places. Place 0 is work that is not late; place 1 is lateness below the first bin."""

_NEVER_LATE: Floats = np.zeros((2, _PLACES))

_MOST_WAITING = 8192
_COLUMNS, _ROWS = 64, 64
"""Number of containers, and of periods of them, that are transposed at once. They stay in the cache."""


class LatenessInBlocks:
    """The lateness of the work of `count` containers, in periods of period_s."""

    def __init__(self, count: int, period_s: float) -> None:
        self._period_s = period_s
        # Work that is not late, and one histogram for each container that was ever late: counts and density,
        # float64[2, places]. The kernel allocates no page of a histogram that is never written to.
        self._on_time, self._late = np.zeros(count), [_NEVER_LATE] * count
        self._behind, self._left = np.zeros(count), np.zeros(count)
        # Waiting arrivals: their sizes, s, and when each began. The last number is the end of the last
        # arrival.
        self._sizes = [np.empty(0)] * count
        self._starts = [np.zeros(1)] * count

    def add(self, demand_cores: NDArray[np.floating], done_cores: NDArray[np.floating]) -> None:
        """Add the work that arrived and the work that was done in the next periods, float[t, N]."""
        length, count = demand_cores.shape
        sums, apart = np.zeros(count), self._behind > 0.0
        _look(demand_cores, done_cores, self._period_s, sums, apart)
        self._on_time[~apart] += sums[~apart]
        columns, times = np.flatnonzero(apart), np.arange(length + 1.0)
        arrived, done = np.empty((2, min(_COLUMNS, len(columns)), length))
        for number, column in enumerate(columns.tolist()):
            place = number % _COLUMNS
            if place == 0:
                some = columns[number : number + _COLUMNS]
                _turn(demand_cores, done_cores, some, self._period_s, arrived, done)
            if self._late[column] is _NEVER_LATE:
                self._late[column] = np.zeros((2, _PLACES))
            sizes = np.concatenate([self._sizes[column], arrived[place]])
            starts = np.concatenate([self._starts[column][:-1], times])
            first, self._behind[column], self._left[column] = _serve(
                sizes, starts, done[place], self._behind[column], self._left[column],
                self._period_s, self._late[column],
            )  # fmt: skip
            sizes, starts = sizes[first:], starts[first:] - length
            while len(sizes) > _MOST_WAITING:
                # The first arrival may be half served, so it is not merged.
                sizes = np.append(sizes[0], np.add.reduceat(sizes[1:], np.arange(0, len(sizes) - 1, 2)))
                starts = np.append(np.append(starts[0], starts[1:-1:2]), starts[-1])
            self._sizes[column], self._starts[column] = sizes.copy(), starts

    def quantiles(self, wanted: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the quantiles of `work_lateness`: of each container, float64[N, q], and of all containers
        together, float64[q]. Call it once, at the end."""
        for column, sizes in enumerate(self._sizes):
            if len(sizes):
                _rest(
                    sizes, self._starts[column], self._left[column], self._period_s,
                    self._late[column],
                )  # fmt: skip
        own, pooled, width = [], np.zeros(_PLACES), np.diff(_EDGES)
        for on_time, (counts, density) in zip(self._on_time.tolist(), self._late, strict=True):
            weight = np.cumsum(density) * width
            weight += counts
            weight[0] += on_time
            np.maximum(weight, 0.0, out=weight)
            pooled += weight
            own.append(_of(weight, wanted))
        return np.array(own).reshape(-1, len(wanted)), _of(pooled, wanted)


def _of(weight: Floats, wanted: Sequence[float]) -> Floats:
    below, late_s = np.cumsum(weight), np.full(len(wanted), np.nan)
    for index, share in enumerate(wanted if below[-1] > 0.0 else ()):
        target = min(max(share, 1e-12), 1.0 - 1e-12) * below[-1]
        late_s[index] = 0.0
        if target > weight[0]:
            place = min(max(int(np.searchsorted(below, target)), 1), _PLACES - 1)
            part = (target - below[place - 1]) / weight[place] if weight[place] > 0.0 else 1.0
            low, high = _EDGES[place], _EDGES[place + 1]
            late_s[index] = low + min(max(part, 0.0), 1.0) * (high - low)
    return late_s


@inlined
def _place(late_s: float) -> int:
    """Return the place of a lateness ≥ 0, s."""
    # The upper bits of a float64 ≥ 0 are its exponent and then its first binary digits.
    number = int(np.float64(late_s).view(np.int64) >> _SHIFT) - _FIRST
    return max(min(2 + number, _PLACES - 1), 1)


@inlined
def _add(began_s: float, ended_s: float, weight: float, late: Floats) -> None:
    """Spread `weight` evenly over lateness from began_s to ended_s."""
    near, far = max(min(began_s, ended_s), 0.0), max(began_s, ended_s, 0.0)
    if far <= 0.0:
        late[0, 0] += weight
        return
    low, high = _place(near), _place(far)
    if low == high:
        late[0, high] += weight
        return
    share = weight / (far - near)
    late[0, low] += share * (_EDGES[low + 1] - near)
    late[0, high] += share * (far - _EDGES[high])
    late[1, low + 1] += share
    late[1, high] -= share


@released
def _look(
    demand_cores: NDArray[np.floating],
    done_cores: NDArray[np.floating],
    period_s: float,
    sums: Floats,
    apart: NDArray[np.bool_],
) -> None:
    """Add the work that arrived, float[t, N], to sums, s, float64[N], and set `apart`, bool[N], for
    containers that were ever late."""
    for row in range(len(demand_cores)):
        for i in range(len(sums)):
            arriving = np.float64(demand_cores[row, i]) * period_s
            sums[i] += arriving
        for i in range(len(sums)):
            arriving = np.float64(demand_cores[row, i]) * period_s
            doing = np.float64(done_cores[row, i]) * period_s
            apart[i] |= abs(arriving - doing) > SAME_CORES * period_s


@released
def _turn(
    demand_cores: NDArray[np.floating],
    done_cores: NDArray[np.floating],
    columns: NDArray[np.int64],
    period_s: float,
    arrived: Floats,
    done: Floats,
) -> None:
    """Transpose the arrived and the done work, float[t, N], of some containers into seconds, float64[k,
    t]."""
    rows = len(demand_cores)
    for first in range(0, rows, _ROWS):
        for k in range(len(columns)):
            for row in range(first, min(first + _ROWS, rows)):
                arrived[k, row] = np.float64(demand_cores[row, columns[k]]) * period_s
                done[k, row] = np.float64(done_cores[row, columns[k]]) * period_s


@released
def _serve(
    sizes: Floats,
    starts: Floats,
    done: Floats,
    behind: float,
    left: float,
    period_s: float,
    late: Floats,
) -> tuple[int, float, float]:
    """Serve one container's work, first in, first out, as `lateness._walk` does.

    sizes, starts: arrivals that wait, then those of the periods of `done` (s, float64[t]); starts in periods
    of the block, one more than sizes. behind: work that waits, s; left: rest of the first arrival, s. Returns
    (arrivals that are served, behind, left).
    """
    before, first = len(sizes) - len(done), 0
    if before == 0:
        left = sizes[0]
    row, length, same_s = 0, len(done), SAME_CORES * period_s
    while row < length:
        if behind <= 0.0:
            on_time = late[0, 0]
            while row < length and sizes[before + row] - done[row] <= same_s:
                on_time += sizes[before + row]
                row += 1
            late[0, 0] = on_time
            first = before + row
            left = sizes[first] if first < len(sizes) else 0.0
            if row == length:
                break
        doing = done[row]
        behind += sizes[before + row]
        if abs(behind - doing) <= same_s:
            doing = behind
        doing = remaining = min(doing, behind)
        while remaining > 0.0 and first <= before + row:
            size, part = sizes[first], min(left, remaining)
            if part > 0.0:
                lasted = starts[first + 1] - starts[first]
                began = row + (doing - remaining) / doing - starts[first] - lasted * (size - left) / size
                ended = began + part / doing - lasted * part / size
                _add(began * period_s, ended * period_s, part, late)
                left -= part
                remaining -= part
            if left <= 0.0:
                first += 1
                left = sizes[first] if first < len(sizes) else 0.0
        behind -= doing
        row += 1
    if behind <= 0.0:
        first = len(sizes)
        left = 0.0
    return first, behind, left


@released
def _rest(
    sizes: Floats,
    starts: Floats,
    left: float,
    period_s: float,
    late: Floats,
) -> None:
    """Count work that is never done as late until the run's end, which is time 0 of `starts`."""
    for number in range(len(sizes)):
        if number > 0:
            left = sizes[number]
        if left > 0.0:
            ended = -starts[number + 1]
            began = ended + (starts[number + 1] - starts[number]) * left / sizes[number]
            _add(began * period_s, ended * period_s, left, late)
