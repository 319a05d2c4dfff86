"""Counts the changes of limits that are taken back soon after.

For: what a policy's limits did, in one series or block by block. Not for: why. A raise is taken back when the
limit is at or below what it was before within so many periods, a cut likewise. Periods in which a container
is not up are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import kernel, released
from twin.containers.model import Floats

_COLUMNS = 16
"""Containers whose limits are collected at once: a line of the cache holds as many float32."""

_LOOK = 64
"""Periods after which it is looked whether any container's limits still stay the same."""


class Reversals:
    """The limits of `count` containers. within: periods after a change that count, ≥ 1."""

    def __init__(self, count: int, within: int) -> None:
        self._within = within
        # The last values, of which a change may still be taken back.
        self._last, self._kept = np.empty((count, within + 1)), np.zeros(count, np.int64)
        self._counts = np.zeros(count)

    def add(self, limits: NDArray[np.generic], up: NDArray[np.bool_]) -> None:
        """Go on by the next periods' limits and whether the containers were up, [t, N]."""
        _go_on(limits, up, self._within, self._last, self._kept, self._counts)

    def counts(self) -> Floats:
        """Return how many changes were taken back, float64[N]. Call it once, at the end."""
        for column, kept in enumerate(self._kept.tolist()):
            self._counts[column] += _taken_back(self._last[column, :kept], self._within, kept)
        return self._counts


@released
def _go_on(
    limits: NDArray[np.generic],
    up: NDArray[np.bool_],
    within: int,
    last: Floats,
    kept: NDArray[np.int64],
    counts: Floats,
) -> None:
    """Count changes in `counts` of which all is known, and keep the others for later."""
    rows, columns = limits.shape
    steady, ups = np.empty(columns, np.bool_), np.zeros(columns, np.int64)
    _stay(limits, last, kept, steady)
    for row in range(rows):
        for column in range(columns):
            ups[column] += up[row, column]
    values, lengths = np.empty((_COLUMNS, within + 1 + rows)), np.empty(_COLUMNS, np.int64)
    for first in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - first)
        if steady[first : first + count].all():
            for column in range(first, first + count):
                before, kept[column] = kept[column], min(kept[column] + ups[column], within + 1)
                last[column, before : kept[column]] = last[column, 0]
            continue
        for k in range(count):
            lengths[k] = kept[first + k]
            values[k, : lengths[k]] = last[first + k, : lengths[k]]
        for row in range(rows):
            for k in range(count):
                if up[row, first + k]:
                    values[k, lengths[k]] = limits[row, first + k]
                    lengths[k] += 1
        for k in range(count):
            column, length = first + k, lengths[k]
            counts[column] += _taken_back(values[k, :length], within, length - within)
            kept[column] = min(length, within + 1)
            last[column, : kept[column]] = values[k, length - kept[column] : length]


@released
def _stay(
    limits: NDArray[np.generic], last: Floats, kept: NDArray[np.int64], steady: NDArray[np.bool_]
) -> None:
    """Write which containers' limits are all the same, the last values that are kept included: most are."""
    for column in range(len(kept)):
        steady[column] = kept[column] > 0
        for k in range(kept[column]):
            steady[column] &= last[column, k] == last[column, 0]
    same = last[:, 0].copy()
    for row in range(len(limits)):
        if row % _LOOK == 0 and not steady.any():
            return
        for column in range(len(kept)):
            steady[column] &= limits[row, column] == same[column]


@kernel
def _taken_back(limits: Floats, within: int, end: int) -> int:
    """Return how many changes at places before `end` are taken back.

    A change at place p is taken back at the first later value that is not beyond the one at p − 1. Two stacks
    hold the values that wait for one not above, and not below, them.
    """
    found = 0
    highs, lows = np.empty(len(limits), np.int64), np.empty(len(limits), np.int64)
    high_count, low_count = 0, 0
    for place in range(len(limits)):
        value = limits[place]
        if place > 0 and value == limits[place - 1]:
            # It waits in the place of the one before, which is on top of both stacks.
            highs[high_count - 1] = lows[low_count - 1] = place
            continue
        while high_count and limits[highs[high_count - 1]] >= value:
            high_count -= 1
            p = highs[high_count] + 1
            found += p < end and p < place <= p + within
        while low_count and limits[lows[low_count - 1]] <= value:
            low_count -= 1
            p = lows[low_count] + 1
            found += p < end and p < place <= p + within
        highs[high_count] = lows[low_count] = place
        high_count += 1
        low_count += 1
    return found
