"""Histograms of usage over exponential buckets, one per container, whose samples lose weight with age.

For: the recommenders (VPA, Autopilot). Not for: sampling usage (usage.py) nor for turning a
statistic into a limit. Everything is vectorised over containers: one row of weights per slot.

The bucketing and the decay are the Kubernetes Vertical Pod Autoscaler's (vertical-pod-autoscaler,
pkg/recommender/util: histogram_options.go, histogram.go, decaying_histogram.go): bucket k ≥ 0 covers
[start(k), start(k+1)) with start(k) = first · (ratio^k − 1) / (ratio − 1); a sample of age a weighs
2^(−a / half-life) of a fresh one. Left out: its epsilon, which treats buckets of negligible weight as
empty; it moves no percentile that is used here.

Memory: 4 bytes per container and bucket (float32): 704 bytes per container at the VPA's 176 buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Floats
from control.allocator.roster import Column

Slots = NDArray[np.int64]

_CHUNK_ROWS = 1024
"""Containers per pass: the temporaries (float64, ~200 buckets) then stay within a core's cache."""

_MAX_EXPONENT = 40.0
"""Weights grow as 2^(age of the oldest / half-life); they are scaled back at this, well inside float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Exponential buckets: `ends` float64[K] are their upper ends; the last one takes all that is above.

    Made by `exponential`.
    """

    ends: Floats

    @property
    def count(self) -> int:
        """K, the number of buckets."""
        return len(self.ends)

    def find(self, values: Floats) -> NDArray[np.int64]:
        """int64[n]: the bucket of each value (float64[n], ≥ 0). A value on an end is in the bucket above."""
        return np.minimum(np.searchsorted(self.ends, values, side="right"), self.count - 1)

    def at_or_above(self, values: Floats) -> Floats:
        """float64[n]: the lowest bucket end that is not below each value; the last end at most."""
        return self.ends[np.minimum(np.searchsorted(self.ends, values, side="left"), self.count - 1)]


def exponential(first: float, ratio: float, largest: float) -> Buckets:
    """Buckets of widths first, first·ratio, first·ratio², … (first > 0, ratio > 1).

    As many as are needed for a bucket to start at or above `largest`, as the VPA counts them
    (first 0.01, ratio 1.05, largest 1000 → 176).
    """
    count = ceil(log(largest * (ratio - 1) / first + 1) / log(ratio)) + 1
    ends = first * (ratio ** np.arange(1.0, count + 1) - 1) / (ratio - 1)
    return Buckets(np.asarray(ends, np.float64))


class DecayingHistograms:
    """One decaying histogram per slot.

    column: float32 (capacity, K), zero for a container that joins (`Roster.column`). half_life_s > 0.
    The weights are kept relative to a reference time that is common to all slots, so that adding a
    sample touches one number per container and ageing touches none.
    """

    def __init__(self, buckets: Buckets, half_life_s: float, column: Column) -> None:
        self.buckets = buckets
        self._half_life_s = half_life_s
        self._column = column
        self._reference_s: float | None = None

    def add(self, slots: Slots, values: Floats, weights: Floats | float, at_s: Floats | float) -> None:
        """One sample per slot (distinct slots int64[n]): value ≥ 0, weight ≥ 0, time in seconds."""
        self._column.values[slots, self.buckets.find(values)] += self._aged(weights, at_s)

    def subtract(self, slots: Slots, values: Floats, weights: Floats | float, at_s: Floats | float) -> None:
        """Takes back a sample that was added with the same value, weight and time."""
        found = self.buckets.find(values)
        left = self._column.values[slots, found] - self._aged(weights, at_s)
        self._column.values[slots, found] = np.maximum(left, 0.0)

    def percentiles(self, slots: Slots, fractions: tuple[float, ...], *, of_load: bool = False) -> Floats:
        """float64[len(fractions), n]: end of the first bucket at which the cumulated weight reaches the
        fraction (0 < fraction ≤ 1) of the total; NaN where there is no sample.

        of_load: every bucket's weight counts times its usage, so that p of the *load* (not of the
        time) happened at or below the answer: Autopilot's load-adjusted histogram.
        """
        answer = np.empty((len(fractions), len(slots)))
        factor = self.buckets.ends if of_load else None
        for start in range(0, len(slots), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            weights = self._column.values[slots[rows]]
            mass = np.cumsum(weights if factor is None else weights * factor, axis=1, dtype=np.float64)
            total = mass[:, -1]
            for i, fraction in enumerate(fractions):
                reached = np.argmax(mass >= (fraction * total)[:, None], axis=1)
                answer[i, rows] = np.where(total > 0, self.buckets.ends[reached], np.nan)
        return answer

    def _aged(self, weights: Floats | float, at_s: Floats | float) -> Floats:
        if np.size(at_s) == 0:
            return np.empty(0)
        latest = float(np.max(at_s))
        if self._reference_s is None:
            self._reference_s = latest
        exponent = (latest - self._reference_s) / self._half_life_s
        if exponent > _MAX_EXPONENT:
            self._column.values *= np.float32(2.0 ** max(-exponent, -1000.0))
            self._reference_s = latest
        age = (np.asarray(at_s, np.float64) - self._reference_s) / self._half_life_s
        return np.asarray(weights * np.exp2(age), np.float64)
