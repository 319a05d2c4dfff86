"""Quantiles of many numbers of each container, without keeping the numbers.

For: figures of runs whose series does not fit into memory. Not for: shorter runs, whose quantiles are exact.

Each container has a histogram whose bins are 2^-10 of their value wide: the upper bits of a float32 are the
number of its bin. So a quantile is off by at most a thousandth of itself, or by 2^-19 near zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import released
from twin.containers.model import Floats
from twin.containers.sparse import sparse_zeros

_SHIFT = 23 - 10
_LEAST_EXPONENT, _MOST_EXPONENT = -20, 24
"""Numbers below 2^-20 share one bin. Numbers from 2^24 on count as just below 2^24."""

_LOW = (127 + _LEAST_EXPONENT) << 10
_BINS = (_MOST_EXPONENT - _LEAST_EXPONENT) << 10
_COLUMNS = 16
"""Number of containers whose numbers are counted and read at once: a cache line of numbers."""


def _edges() -> Floats:
    """Return the lower ends of all bins and the upper end of the last: negative ones, around 0, positive."""
    words = (np.arange(_BINS + 1, dtype=np.uint32) + np.uint32(_LOW)) << np.uint32(_SHIFT)
    positive = words.view(np.float32).astype(np.float64)
    return np.concatenate([-positive[::-1], positive])


_EDGES = _edges()


class Sketch:
    """Histograms of the values of `count` containers, from which quantiles are read."""

    def __init__(self, count: int) -> None:
        # A container uses few pages of its bins.
        self._counts = sparse_zeros((count, 2 * _BINS + 1), np.uint32)

    def add(self, values: NDArray[np.float32], counted: NDArray[np.bool_]) -> None:
        """Add the values ([t, N], finite) that are counted."""
        _count(self._counts, np.ascontiguousarray(values, np.float32).view(np.uint32), counted)

    def quantiles(self, wanted: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the quantiles of each container's numbers, float64[N, q], and of all numbers, float64[q];
        NaN without numbers."""
        pooled, own = np.zeros(2 * _BINS + 1, np.int64), []
        for first in range(0, len(self._counts), _COLUMNS):
            part = self._counts[first : first + _COLUMNS]
            here = part.sum(axis=0, dtype=np.int64)
            pooled += here
            bins = np.flatnonzero(here)
            own += [_of(bins, below, wanted) for below in np.cumsum(part[:, bins], axis=1, dtype=np.int64)]
        bins = np.flatnonzero(pooled)
        return np.array(own).reshape(-1, len(wanted)), _of(bins, np.cumsum(pooled[bins]), wanted)


def _of(bins: NDArray[np.int64], below: NDArray[np.int64], wanted: Sequence[float]) -> Floats:
    """Return the quantiles of a cumulated histogram of some bins, linear between order statistics as
    numpy.quantile's."""
    total = int(below[-1]) if len(bins) else 0
    if total == 0:
        return np.full(len(wanted), np.nan)
    position = np.asarray(wanted) * (total - 1)
    low = np.floor(position)
    least, most = (_value(bins, below, np.minimum(rank, total - 1)) for rank in (low, low + 1))
    return np.asarray(least + (position - low) * (most - least), np.float64)


def _value(bins: NDArray[np.int64], below: NDArray[np.int64], rank: Floats) -> Floats:
    """Return order statistics (from 0), as if the numbers of a bin were spread evenly over it."""
    place = np.searchsorted(below, rank, side="right")
    before = np.where(place > 0, below[place - 1], 0)
    share = (rank - before + 0.5) / (below[place] - before)
    low, high = _EDGES[bins[place]], _EDGES[bins[place] + 1]
    return np.asarray(low + share * (high - low), np.float64)


@released
def _count(counts: NDArray[np.uint32], words: NDArray[np.uint32], counted: NDArray[np.bool_]) -> None:
    """Add values, given as the bits of a float32 (words: uint32[t, N]), to `counts`."""
    rows, columns = words.shape
    for first in range(0, columns, _COLUMNS):
        for i in range(first, min(first + _COLUMNS, columns)):
            for row in range(rows):
                if counted[row, i]:
                    word = np.int64(words[row, i])
                    # −1 is the bin around 0.
                    place = min(max(int((word & 0x7FFFFFFF) >> _SHIFT) - _LOW, -1), _BINS - 1)
                    counts[i, _BINS - 1 - place if word >> 31 else _BINS + 1 + place] += np.uint32(1)
