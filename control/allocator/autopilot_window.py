"""Autopilot's moving-window recommender: one statistic of a usage history whose samples lose weight with age,
plus a margin.

For: one resource of all containers. Not for: Autopilot's other recommender (autopilot_ml.py) nor limits in
force (autopilot.py).

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, §3.2.2. Weights are 2^(−age
/ half-life). There are three statistics: the largest usage of the recent windows, the weighted average, and
the j-th percentile. For CPU the percentile is that of the load-adjusted histogram, in which bucket k weighs
b_k · s_k: 95 % of the CPU *work* is then done at or below the limit, which weighs peaks more than 95 % of the
time would. Every statistic is a bucket's upper end, so that a limit moves only when usage leaves a bucket.
Then the margin is added and the largest recommendation of the last hour is taken.
"""

from __future__ import annotations

from math import floor
from typing import Protocol

import numpy as np

from control.allocator.histogram import Buckets, DecayingHistograms
from control.allocator.model import Floats, Slots
from control.allocator.roster import Roster

_SEGMENTS = 12
"""Segments of a sliding maximum. It covers between its span and 13/12 of it."""


class Statistic(Protocol):
    """A statistic of each container's usage history."""

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:
        """Take one sample (cores or bytes) per slot. Slots are distinct; at_s never decreases."""
        ...

    def value(self, slots: Slots) -> Floats:
        """Return a bucket's end per slot, float64[n]. NaN where there is no sample."""
        ...


class Percentile:
    """A percentile of the decaying histogram, or of the load-adjusted one if `of_load`."""

    def __init__(
        self, roster: Roster, buckets: Buckets, half_life_s: float, fraction: float, *, of_load: bool
    ) -> None:
        column = roster.column(0.0, np.float32, buckets.count)
        self._histograms = DecayingHistograms(buckets, half_life_s, column)
        self._fraction = fraction
        self._of_load = of_load

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:
        """See `Statistic`."""
        self._histograms.add(slots, values, 1.0, at_s)

    def value(self, slots: Slots) -> Floats:
        """See `Statistic`."""
        (limits,) = self._histograms.percentiles(slots, (self._fraction,), of_load=self._of_load)
        return np.asarray(limits, np.float64)


class Average:
    """The weighted average of the samples: 16 bytes per container."""

    def __init__(self, roster: Roster, buckets: Buckets, half_life_s: float) -> None:
        self._roster = roster
        self._buckets = buckets
        self._half_life_s = half_life_s
        self._sum = roster.column(0.0, np.float64)
        self._weight = roster.column(0.0, np.float64)
        self._at_s: float | None = None

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:
        """See `Statistic`."""
        kept = 1.0 if self._at_s is None else 2.0 ** ((self._at_s - at_s) / self._half_life_s)
        self._at_s = at_s
        self._sum.values[: self._roster.size] *= kept
        self._weight.values[: self._roster.size] *= kept
        self._sum.values[slots] += values
        self._weight.values[slots] += 1.0

    def value(self, slots: Slots) -> Floats:
        """See `Statistic`."""
        weight = self._weight.values[slots]
        mean = np.divide(self._sum.values[slots], weight, out=np.full(len(slots), np.nan), where=weight > 0)
        return np.where(weight > 0, self._buckets.at_or_above(mean), np.nan)


class SlidingMax:
    """The largest value of the last span_s seconds per slot: 104 bytes per container."""

    def __init__(self, roster: Roster, span_s: float) -> None:
        self._segment_s = span_s / _SEGMENTS
        self._rings = roster.column(np.nan, np.float64, _SEGMENTS + 1)
        self._start_s: float | None = None
        self._segment = 0

    def push(self, slots: Slots, values: Floats, at_s: float) -> None:
        """Add one value per slot. Slots are distinct; at_s never decreases."""
        if self._start_s is None:
            self._start_s = at_s
        segment = floor((at_s - self._start_s) / self._segment_s)
        passed = min(segment - self._segment, _SEGMENTS + 1)
        for expired in range(segment - passed + 1, segment + 1):
            self._rings.values[:, expired % (_SEGMENTS + 1)] = np.nan
        self._segment = segment
        place = segment % (_SEGMENTS + 1)
        self._rings.values[slots, place] = np.fmax(self._rings.values[slots, place], values)

    def value(self, slots: Slots) -> Floats:
        """Return the maxima, float64[n]. NaN where nothing was pushed within the span."""
        return np.asarray(np.fmax.reduce(self._rings.values[slots], axis=1), np.float64)


class Peak:
    """The largest sample of the last span_s seconds, as its bucket's end."""

    def __init__(self, roster: Roster, buckets: Buckets, span_s: float) -> None:
        self._buckets = buckets
        self._max = SlidingMax(roster, span_s)

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:
        """See `Statistic`."""
        self._max.push(slots, values, at_s)

    def value(self, slots: Slots) -> Floats:
        """See `Statistic`."""
        peak = self._max.value(slots)
        return np.where(np.isnan(peak), np.nan, self._buckets.ends[self._buckets.find(peak)])


class WindowRecommender:
    """A statistic plus a margin, held at its maximum over hold_s seconds (0: not held)."""

    def __init__(self, roster: Roster, statistic: Statistic, margin: float, hold_s: float) -> None:
        self._statistic = statistic
        self._margin = margin
        self._held = SlidingMax(roster, hold_s) if hold_s > 0 else None

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:
        """Take one usage sample (cores or bytes) per slot."""
        self._statistic.observe(slots, values, at_s)

    def observe_all(self, slots: Slots, values: Floats, at_s: Floats) -> None:
        """Take samples one after the other: float64[samples, n], cores or bytes. at_s: end of each sample,
        float64[samples], s."""
        for row, end_s in enumerate(at_s.tolist()):
            self.observe(slots, values[row], end_s)

    def recommend(self, slots: Slots, at_s: float) -> Floats:
        """Return limits (float64[n]) at the end of an update interval. NaN: no sample, so no opinion."""
        limits = self._statistic.value(slots) * (1.0 + self._margin)
        if self._held is None:
            return limits
        self._held.push(slots, limits, at_s)
        return self._held.value(slots)
