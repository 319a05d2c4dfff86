"""The recommender of the Vertical Pod Autoscaler: recommended requests and their bounds.

For: the histograms of CPU use and of memory peaks, and the estimators. Not for: putting a recommendation in
force (vpa.py), nor the buckets (histogram.py).

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender (logic/recommender.go,
logic/estimator.go, model/container.go, model/aggregate_container_state.go, model/aggregations_config.go).

Every CPU sample weighs the same, as in the source since release 1.4.0. (Its older code weighed samples by a
request that no release since 0.3.0 filled in.) A memory peak counts once per aggregation window. An OOM kill
counts as a peak of what the container would have needed.

Memory: 1.5 kB per container (two histograms of 176 float32 buckets and 56 bytes of state).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.allocator.histogram import DecayingHistograms, exponential
from control.allocator.model import Flags, Floats, Slots
from control.allocator.roster import Column, Roster
from control.allocator.vpa_settings import VpaSettings

_MINUTE_S = 60.0

CPU_BUCKETS, MEMORY_BUCKETS = exponential(0.01, 1.05, 1000.0), exponential(1e7, 1.05, 1e12)
"""Buckets of the histograms, cores and bytes."""
SAMPLE_WEIGHT = 0.1
"""Weight of a CPU sample (minSampleWeight). Only ratios of weights count."""
_EPSILON = 0.001 * SAMPLE_WEIGHT
"""Weight below which a bucket from which a peak was taken is empty (epsilon)."""
UPPER_CONFIDENCE = (1.0, 1.0)
"""(multiplier, exponent): ×3 after 12 h, ×2 after a day. With a short history, no container restarts to free
CPU."""
LOWER_CONFIDENCE = (0.001, -2.0)
"""(multiplier, exponent): ×0.6 after 5 min, ×0.95 after an hour. A restart to add CPU needs little history.
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Recommended requests, float64[2, n] each: cores in the first row, bytes in the second."""

    target: Floats
    lower: Floats
    upper: Floats


def with_margin(values: Floats, fraction: float) -> Floats:
    """Return each estimate plus a fraction of itself."""
    return values * (1.0 + fraction)


def history_length(first_s: Floats, last_s: Floats, samples: Floats, interval_s: float) -> Floats:
    """Return the history's length in intervals of interval_s, float64[n]: by time, or by samples of a minute
    each if that is less.

    first_s, last_s: times of the first and the last CPU sample, s. samples: their number.
    """
    return np.asarray(np.minimum(last_s - first_s, samples * _MINUTE_S) / interval_s, np.float64)


def with_confidence(values: Floats, confidence: Floats, scaling: tuple[float, float]) -> Floats:
    """Return values · (1 + multiplier / confidence)^exponent; confidence: `history_length` (float64[n], ≥ 0).

    Without history the upper bound is infinite and the lower bound zero, so that nothing forces a restart.
    """
    multiplier, exponent = scaling
    with np.errstate(divide="ignore"):
        return np.asarray(values * (1.0 + multiplier / confidence) ** exponent, np.float64)


def estimate(percentiles: Floats, confidence: Floats, margin: float, least: Floats) -> Estimate:
    """Apply margin, confidence and minimum to percentiles.

    percentiles: float64[3, 2, n], of target, lower and upper bound; NaN: no sample, so the minimum holds.
    confidence: `history_length`, float64[n]. least: float64[2], cores and bytes.
    """
    target, lower, upper = with_margin(percentiles, margin)
    floor = least[:, None]
    return Estimate(
        target=np.fmax(target, floor),
        lower=np.fmax(with_confidence(lower, confidence, LOWER_CONFIDENCE), floor),
        upper=np.fmax(with_confidence(upper, confidence, UPPER_CONFIDENCE), floor),
    )


class Recommender:
    """Histories and recommendations of all containers of a roster, as arrays by slot."""

    def __init__(self, roster: Roster, settings: VpaSettings) -> None:
        self._settings = s = settings
        weights = [roster.column(0.0, np.float32, kind.count) for kind in (CPU_BUCKETS, MEMORY_BUCKETS)]
        self.cpu = DecayingHistograms(CPU_BUCKETS, s.cpu_half_life_s, weights[0], _EPSILON)
        self.memory = DecayingHistograms(MEMORY_BUCKETS, s.memory_half_life_s, weights[1], _EPSILON)
        self._first_s = roster.column(np.nan, np.float64)
        self._last_s = roster.column(np.nan, np.float64)
        self._last_memory_s = roster.column(np.nan, np.float64)
        self._samples = roster.column(0.0, np.float64)
        self._window_end_s = roster.column(-np.inf, np.float64)
        self._used_peak = roster.column(0.0, np.float64)
        self._oom_peak = roster.column(0.0, np.float64)
        state = (
            self._first_s,
            self._last_s,
            self._last_memory_s,
            self._samples,
            self._window_end_s,
            self._used_peak,
            self._oom_peak,
        )
        self._columns = (*weights, *state)

    def inherit(self, heirs: Slots, from_: Slots) -> None:
        """Give newcomers `heirs` (int64[k]) the histories of replicas of their workloads, `from_`
        (int64[k]).
        """
        for column in self._columns:
            column.values[heirs] = column.values[from_]

    def samples(self, slots: Slots) -> Floats:
        """Return the number of CPU samples in each container's history, float64[n]."""
        return np.asarray(self._samples.values[slots], np.float64)

    def observe_cpu(self, slots: Slots, cores: Floats, at_s: float) -> None:
        """Take one sample of each container's mean CPU use (distinct slots int64[n], cores float64[n]).

        A negative sample, or one that is not later than the last, is discarded.
        """
        valid = (cores >= 0) & ~(self._last_s.values[slots] >= at_s)
        slots, cores = slots[valid], cores[valid]
        self.cpu.add(slots, cores, SAMPLE_WEIGHT, at_s)
        self._first_s.values[slots] = np.fmin(self._first_s.values[slots], at_s)
        self._last_s.values[slots] = at_s
        self._samples.values[slots] += 1

    def observe_memory(self, slots: Slots, used: Floats, at_s: float) -> None:
        """Take one sample of each container's memory (distinct slots int64[n], bytes float64[n]).

        A negative sample, or one that is earlier than the last, is discarded.
        """
        valid = (used >= 0) & ~(self._last_memory_s.values[slots] > at_s)
        self._record_peaks(slots[valid], used[valid], at_s, self._used_peak)

    def observe_oom(self, slots: Slots, request: Floats, at_s: float) -> None:
        """Record OOM kills under these requests (bytes, float64[n]) as peaks that would have been needed.

        The bump starts from the request, or from the window's peak of usage if that is larger. Earlier kills
        do not count, so repeated kills do not raise the recommendation each time. Kills before the present
        window are ignored.
        """
        s = self._settings
        recent = at_s >= self._window_end_s.values[slots] - s.memory_aggregation_interval_s
        slots, request = slots[recent], request[recent]
        used = np.maximum(request, self._used_peak.values[slots])
        needed = np.maximum(used * s.oom_bump_ratio, used + s.oom_min_bump_bytes)
        self._record_peaks(slots, needed, at_s, self._oom_peak)

    def known(self, slots: Slots) -> Flags:
        """Return the containers that have a recommendation, bool[n]: those with at least one CPU sample."""
        return np.asarray(self._samples.values[slots] > 0, np.bool_)

    def recommend(self, slots: Slots) -> Estimate:
        """Return the recommended requests of containers that are `known` (int64[n])."""
        s = self._settings
        fractions = (s.target_percentile, s.lower_percentile, s.upper_percentile)
        percentiles = [kind.percentiles(slots, fractions) for kind in (self.cpu, self.memory)]
        confidence = history_length(
            self._first_s.values[slots],
            self._last_s.values[slots],
            self._samples.values[slots],
            s.confidence_interval_s,
        )
        least = np.array([s.min_cores, s.min_bytes])
        return estimate(np.stack(percentiles, axis=1), confidence, s.margin, least)

    def _record_peaks(self, slots: Slots, values: Floats, at_s: float, kind: Column) -> None:
        """Record one peak per container and aggregation window. A larger peak replaces it.

        kind: the column of peaks to which the values belong: peaks of usage, or of OOM kills.
        """
        self._last_memory_s.values[slots] = at_s
        interval = self._settings.memory_aggregation_interval_s
        end = self._window_end_s.values[slots]
        present = np.maximum(self._used_peak.values[slots], self._oom_peak.values[slots])
        end = np.where(np.isneginf(end), at_s, end)
        over = at_s >= end
        # As in the source, a window whose first peak was zero takes no other peak.
        grown = ~over & (present > 0) & (values > present)
        self.memory.subtract(slots[grown], present[grown], 1.0, end[grown])
        end = np.where(over, end + (np.floor((at_s - end) / interval) + 1) * interval, end)
        for column in (self._used_peak, self._oom_peak):
            column.values[slots[over]] = 0.0
        added = over | grown
        self.memory.add(slots[added], values[added], 1.0, end[added])
        self._window_end_s.values[slots] = end
        kind.values[slots[added]] = values[added]
