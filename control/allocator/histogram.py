"""Histograms of usage over exponential buckets, one per container, whose samples lose weight with age.

For: the recommenders (VPA, Autopilot). Not for: sampling usage (usage.py) nor turning a statistic into a
limit. The code is vectorised over containers: one row of weights per slot.

Source: the bucketing and the decay are the Kubernetes Vertical Pod Autoscaler's (vertical-pod-autoscaler,
pkg/recommender/util: histogram_options.go, histogram.go, decaying_histogram.go). Bucket k ≥ 0 covers
[start(k), start(k+1)) with start(k) = first · (ratio^k − 1) / (ratio − 1). A sample of age a weighs 2^(−a /
half-life) of a fresh one. A bucket that a subtraction leaves with less than epsilon is empty. Small weights
that were added count, unlike the VPA's: they move no percentile that is used here. Merges and checkpoints are
left out, because each container keeps its own histogram for the whole run. Memory: 4 bytes per container and
bucket (float32), which is 704 bytes per container at the VPA's 176 buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Floats, Slots
from control.allocator.roster import Column

_CHUNK_ROWS = 128
"""Containers per pass. The temporaries (float64, about 200 buckets) then stay within a core's cache."""

_LEAST_MASS = np.nextafter(0.0, 1.0)
"""The least weight of a bucket that is not empty."""

_MAX_EXPONENT = 40.0
"""Exponent at which weights are scaled back. It is well inside float32.

Weights grow as 2^(age of the oldest / half-life).
"""


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Exponential buckets, made by `exponential`.

    `ends`: float64[K], upper ends. The last bucket takes all larger values and has no end. Its start
    represents it, as in the VPA.
    """

    ends: Floats

    @property
    def count(self) -> int:
        """Number of buckets, K."""
        return len(self.ends)

    def find(self, values: Floats) -> NDArray[np.int64]:
        """Return the bucket of each value (float64[n], ≥ 0), int64[n].

        A value on an end is in the bucket above.
        """
        return np.minimum(np.searchsorted(self.ends, values, side="right"), self.count - 1)

    def at_or_above(self, values: Floats) -> Floats:
        """Return the lowest bucket end that is not below each value, float64[n]; at most the last end."""
        return self.ends[np.minimum(np.searchsorted(self.ends, values, side="left"), self.count - 1)]


def exponential(first: float, ratio: float, largest: float) -> Buckets:
    """Return buckets of widths first, first·ratio, first·ratio², … (first > 0, ratio > 1).

    The last bucket is the first one that starts at or above `largest`, counted as the VPA does (first 0.01,
    ratio 1.05, largest 1000 → 176 buckets).
    """
    count = ceil(log(largest * (ratio - 1) / first + 1) / log(ratio)) + 1
    starts = first * (ratio ** np.arange(0.0, count) - 1) / (ratio - 1)
    return from_starts(np.asarray(starts, np.float64))


def from_starts(starts: Floats) -> Buckets:
    """Return the buckets that begin at `starts` (float64[K], ascending from 0)."""
    return Buckets(np.append(starts[1:], starts[-1]))


def percentiles(weights: NDArray[np.floating], buckets: Buckets, fractions: tuple[float, ...]) -> Floats:
    """Return percentiles of n histograms, float64[len(fractions), n], as bucket ends. NaN: no sample.

    weights: weight of each bucket, [n, K]. The answer is the end of the first bucket with a sample at which
    the cumulated weight reaches the fraction of the total. Fractions outside [0, 1] count as the nearest of
    these.
    """
    mass = np.cumsum(weights, axis=1, dtype=np.float64)
    total, answer = mass[:, -1], np.empty((len(fractions), len(mass)))
    for i, fraction in enumerate(fractions):
        enough = np.maximum(min(fraction, 1.0) * total, _LEAST_MASS)[:, None]
        reached = np.argmax(mass >= enough, axis=1)
        answer[i] = np.where(total > 0, buckets.ends[reached], np.nan)
    return answer


class DecayingHistograms:
    """One decaying histogram per slot.

    column: float32 (capacity, K), zero for a container that joins (`Roster.column`). half_life_s > 0.
    epsilon: weight below which a subtraction empties a bucket. All slots share one reference time for the
    weights. So adding a sample changes one number per container, and ageing changes none.
    """

    def __init__(self, buckets: Buckets, half_life_s: float, column: Column, epsilon: float = 0.0) -> None:
        self.buckets = buckets
        self._epsilon = epsilon
        self._half_life_s = half_life_s
        self._column = column
        self._reference_s: float | None = None

    def add(self, slots: Slots, values: Floats, weights: Floats | float, at_s: Floats | float) -> None:
        """Add one sample per slot (distinct slots int64[n]): value ≥ 0, weight ≥ 0, time in seconds."""
        aged = self._aged(weights, at_s)  # it may scale the column back, which is read only then
        self._column.values[slots, self.buckets.find(values)] += aged

    def subtract(self, slots: Slots, values: Floats, weights: Floats | float, at_s: Floats | float) -> None:
        """Remove a sample that was added with the same value, weight and time."""
        buckets, aged = self.buckets.find(values), self._aged(weights, at_s)
        left = self._column.values[slots, buckets] - aged
        self._column.values[slots, buckets] = np.where(left < self._epsilon, 0.0, left)

    def percentiles(self, slots: Slots, fractions: tuple[float, ...], *, of_load: bool = False) -> Floats:
        """Return percentiles, float64[len(fractions), n]; see the function `percentiles`.

        of_load: each bucket's weight is multiplied by its usage, so that the fraction of the *load* (not of
        the time) happened at or below the answer. This is Autopilot's load-adjusted histogram.
        """
        answer = np.empty((len(fractions), len(slots)))
        for start in range(0, len(slots), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            weights = self._column.values[slots[rows]]
            if of_load:
                weights = weights * self.buckets.ends
            answer[:, rows] = percentiles(weights, self.buckets, fractions)
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
