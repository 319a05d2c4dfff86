"""Counts the changes of limits that are taken back soon after.

For: counting over one series, or block by block. Not for: the reasons of changes. A raise counts as taken
back if the limit returns to its value before the raise, or below, within a given number of periods. A cut
counts likewise. Periods in which a container is not up are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import kernel, released
from twin.containers.model import Floats
from twin.containers.sparse import sparse_zeros

_ROWS = 64
"""Number of periods that are handled at once. The periods of many containers then stay in the cache."""


class Reversals:
    """The limits of `count` containers. within: periods after a change that count, ≥ 1.

    Equal limits in a row are kept as one value and the place of the first, because most stay for long.
    """

    def __init__(self, count: int, within: int) -> None:
        self._within = within
        # The last runs of equal limits, whose changes may still be taken back: values and places, a row per
        # container.
        self._values, self._places = np.empty((count, 0)), np.empty((count, 0), np.int64)
        self._kept, self._runs = np.zeros((2, count), np.int64)
        self._counts = np.zeros(count)

    def add(self, limits: NDArray[np.generic], up: NDArray[np.bool_]) -> None:
        """Add the next periods' limits, and whether the containers were up, [t, N]."""
        most, longest = self._within + 1 + len(limits), int(self._runs.max(initial=0))
        if most > self._values.shape[1]:
            before, size = (self._values, self._places), (len(self._counts), most)
            self._values, self._places = sparse_zeros(size, np.float64), sparse_zeros(size, np.int64)
            for room, runs in zip((self._values, self._places), before, strict=True):
                room[:, :longest] = runs[:, :longest]
        _go_on(
            limits, up, self._within, self._values, self._places, self._kept, self._runs, self._counts
        )  # fmt: skip

    def counts(self) -> Floats:
        """Return the number of changes that were taken back, float64[N]. Call it once, at the end."""
        for column, (kept, runs) in enumerate(zip(self._kept.tolist(), self._runs.tolist(), strict=True)):
            values, places = self._values[column, :runs], self._places[column, :runs]
            self._counts[column] += _taken_back(values, places, self._within, kept)
        return self._counts


@released
def _go_on(
    limits: NDArray[np.generic],
    up: NDArray[np.bool_],
    within: int,
    values: Floats,
    places: NDArray[np.int64],
    kept: NDArray[np.int64],
    runs: NDArray[np.int64],
    counts: Floats,
) -> None:
    """Count the changes whose fate is known in `counts`, and keep the others for later."""
    rows, columns = limits.shape
    current = np.full(columns, np.nan)
    for column in range(columns):
        if runs[column] > 0:
            current[column] = values[column, runs[column] - 1]
    changed, ups = np.empty(columns, np.bool_), np.empty(columns, np.int64)
    for begin in range(0, rows, _ROWS):
        end = min(begin + _ROWS, rows)
        changed[:], ups[:] = False, 0
        for row in range(begin, end):
            for column in range(columns):
                changed[column] |= np.float64(limits[row, column]) != current[column]
            for column in range(columns):
                ups[column] += up[row, column]
        for column in range(columns):
            if not changed[column]:
                kept[column] += ups[column]
                continue
            for row in range(begin, end):
                if not up[row, column]:
                    continue
                limit = np.float64(limits[row, column])
                if limit != current[column]:
                    values[column, runs[column]], places[column, runs[column]] = limit, kept[column]
                    runs[column] += 1
                    current[column] = limit
                kept[column] += 1
    for column in range(columns):
        length, number = kept[column], runs[column]
        own, starts = values[column], places[column]
        counts[column] += _taken_back(own[:number], starts[:number], within, length - within)
        kept[column] = min(length, within + 1)
        begin, old = length - kept[column], 0
        while old + 1 < number and starts[old + 1] <= begin:
            old += 1
        runs[column] = number - old
        for run in range(old, number):
            own[run - old], starts[run - old] = own[run], max(starts[run] - begin, 0)


@kernel
def _taken_back(values: Floats, places: NDArray[np.int64], within: int, end: int) -> int:
    """Return the number of changes at places before `end` that are taken back. values, places: of runs of
    equal limits.

    A change at place p is taken back at the first later value that is not beyond the value at p − 1. Two
    stacks hold the runs that wait for a value not above theirs, and for one not below it.
    """
    found = 0
    highs, lows = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    high_count, low_count = 0, 0
    for run in range(len(values)):
        value, place = values[run], places[run]
        while high_count and values[highs[high_count - 1]] >= value:
            high_count -= 1
            p = places[highs[high_count] + 1]
            found += p < end and p < place <= p + within
        while low_count and values[lows[low_count - 1]] <= value:
            low_count -= 1
            p = places[lows[low_count] + 1]
            found += p < end and p < place <= p + within
        highs[high_count] = lows[low_count] = run
        high_count += 1
        low_count += 1
    return found
