"""The Kubernetes Vertical Pod Autoscaler: percentiles of decaying histograms, put in force by restarts.

For: recommender and updater as one allocator. Not for: the histograms (histogram.py) nor the application's
global limits, which Kubernetes does not have (cap.py).

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender (logic/recommender.go,
logic/estimator.go, model/container.go, model/aggregations_config.go) and pkg/updater/priority.

Ours differs from Kubernetes in this:

- We set the *limit* to the target. Kubernetes sets the request and scales the limit by the pod's own
  request-to-limit ratio, which a trace does not tell. A ratio of 1 is its "guaranteed" class.
- Every container is a pod of its own: it has a history of its own and the pod minimum is not divided.
- The recommendation is cut to what the application's global limits leave, and to the host's cores. A cut
  target is worth a restart only if it still moves the limits by `update_threshold`.

`in_place` is the VPA's updateMode InPlaceOrRecreate (AEP-4016) on in-place pod resize, stable in Kubernetes
1.35 (KEP-1287). It changes limits under the same conditions as a restart would, and a change starts the
twelve hours anew as well (AEP-4016), but nothing restarts. The kubelet does not lower memory below the usage,
because the kernel would refuse it (cgroup v1) or kill (v2). The limit then stays, and the next update asks
again. Ours differs in this:

- "Usage" is what the telemetry last said, up to a period and its delay old. The kubelet reads it at the node.
- CPU changes take effect even where the memory decrease waits, because they are separate files. The kubelet
  does them in turn and may hold the second back.
- We never fall back to a restart. Kubernetes does so when a resize stays pending (5 min deferred, 1 h in
  progress). Here no node is too small for a resize, and a decrease that waits costs only memory.
- An OOM-killed container starts again because it was killed, with the raised limit.

Memory: 1.5 kB per container (two histograms of 176 float32 buckets and about 130 bytes of state).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.histogram import DecayingHistograms, exponential
from control.allocator.model import (
    NO_IDS,
    Decision,
    Floats,
    Ids,
    OomEvents,
    Reason,
    slot,
)
from control.allocator.roster import Roster
from control.allocator.sampled import SampledPolicy
from control.settings import check, parameter

Slots = NDArray[np.int64]

_DAY_S = 86_400.0
_SAMPLES_PER_DAY = 1440.0
_MIB = 1 << 20

UPPER_CONFIDENCE = (1.0, 1.0)
"""(multiplier, exponent): ×3 after 12 h, ×2 after a day. A short history causes no restart to reclaim."""
LOWER_CONFIDENCE = (0.001, -2.0)
"""(multiplier, exponent): ×0.6 after 5 min, ×0.95 after an hour. A restart to give more needs little history.
"""


@dataclass(frozen=True)
class VpaSettings:
    """Parameters of the VPA. The defaults are those of Kubernetes; its names are given if they differ."""

    sample_interval_s: float = parameter(
        60.0, unit="s", low=0.1, why="the resolution at which the VPA reads the metrics server"
    )
    update_interval_s: float = parameter(
        60.0, unit="s", low=0.1, why="the updater's loop (updater-interval) and the recommender's"
    )
    min_restart_interval_s: float = parameter(
        60.0, unit="s", low=0.0, why="our choice: at most one restart or resize of a container a minute"
    )
    cpu_half_life_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="cpu-histogram-decay-half-life: one day-night cycle"
    )
    memory_half_life_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="memory-histogram-decay-half-life: one day-night cycle"
    )
    memory_aggregation_interval_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="one memory peak per day, because peaks cause OOM kills, not averages"
    )
    target_percentile: float = parameter(
        0.90, unit="fraction", low=0.01, high=1.0, why="target-cpu-percentile and its memory twin"
    )
    lower_percentile: float = parameter(
        0.50, unit="fraction", low=0.01, high=1.0, why="recommendation-lower-bound-cpu-percentile"
    )
    upper_percentile: float = parameter(
        0.95, unit="fraction", low=0.01, high=1.0, why="recommendation-upper-bound-cpu-percentile"
    )
    margin: float = parameter(
        0.15, unit="fraction", low=0.0, why="recommendation-margin-fraction, on target and both bounds"
    )
    min_cores: float = parameter(
        0.025,
        unit="core",
        low=0.0,
        why="pod-recommendation-min-cpu-millicores; it is part of the policy that is compared, though above"
        " the kernel's 0.01: idle containers do not wake up at the kernel's minimum",
    )
    min_bytes: float = parameter(
        250 * _MIB,
        unit="byte",
        low=0.0,
        why="pod-recommendation-min-memory-mb (in MiB); it is part of the policy that is compared, though "
        "it dominates the limits of small containers",
    )
    min_sample_weight_cores: float = parameter(
        0.1,
        unit="core",
        low=0.001,
        why="minSampleWeight: a sample weighs as much as the limit it was taken under",
    )
    update_threshold: float = parameter(
        0.10, unit="fraction", low=0.0, why="pod-update-threshold: smaller changes are not worth a restart"
    )
    min_age_s: float = parameter(
        43_200.0, unit="s", low=0.0, why="in-recommendation-bounds-eviction-lifetime-threshold: 12 h"
    )
    oom_bump_ratio: float = parameter(1.2, unit="factor", low=1.0, why="oom-bump-up-ratio")
    oom_min_bump_bytes: float = parameter(
        100 * _MIB,
        unit="byte",
        low=0.0,
        why="oom-min-bump-up-bytes: without it small containers would be killed again and again",
    )
    in_place: bool = parameter(
        False,
        unit="on/off",
        why="off: updateMode Recreate, which Escra's paper compares with; on: InPlaceOrRecreate, a resize "
        "without a restart",
    )
    initial_factor: float = parameter(
        1.0, unit="factor", low=0.01, why="a profiled container starts at its peak, as its owner would ask"
    )

    def __post_init__(self) -> None:
        check("vpa", self)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One resource's recommendation, float64[n] each."""

    target: Floats
    lower: Floats
    upper: Floats


def with_margin(values: Floats, fraction: float) -> Floats:
    """Return each estimate plus a fraction of itself."""
    return values * (1.0 + fraction)


def with_confidence(values: Floats, confidence: Floats, scaling: tuple[float, float]) -> Floats:
    """Return values · (1 + multiplier / confidence)^exponent; confidence: days of history (float64[n], ≥ 0).

    Without history the upper bound is infinite and the lower bound zero, so that nothing forces a restart.
    """
    multiplier, exponent = scaling
    with np.errstate(divide="ignore"):
        return np.asarray(values * (1.0 + multiplier / confidence) ** exponent, np.float64)


def estimate(percentiles: Floats, confidence: Floats, margin: float, least: float) -> Estimate:
    """Apply margin, confidence and minimum to percentiles (float64[3, n]: of target, lower, upper)."""
    target, lower, upper = with_margin(percentiles, margin)
    return Estimate(
        target=np.maximum(target, least),
        lower=np.maximum(with_confidence(lower, confidence, LOWER_CONFIDENCE), least),
        upper=np.maximum(with_confidence(upper, confidence, UPPER_CONFIDENCE), least),
    )


class Vpa(SampledPolicy):
    """The VPA as an allocator: it samples, and restarts or resizes what is outside its bounds."""

    name = "vpa"

    def __init__(self, settings: VpaSettings) -> None:
        self.settings = settings
        super().__init__(settings.initial_factor, settings.sample_interval_s, settings.update_interval_s)

    def on_oom(self, event: OomEvents) -> Decision:
        """Record a sample of what killed containers would have needed and restart them with the new target.

        A container whose last restart is too recent restarts at a later update.
        """
        s = self.settings
        slots = np.unique(slot(event.ids[self._fleet.roster.member(event.ids)]))
        used = self._fleet.memory.values[slots]
        needed = np.maximum(used * s.oom_bump_ratio, used + s.oom_min_bump_bytes)
        self._record_peaks(slots, needed, event.at_s)
        target = self.memory.percentiles(slots, (s.target_percentile,))[0]
        self._bump_bytes.values[slots] = np.maximum(with_margin(target, s.margin), needed)
        return self._bump(slots[self._may_restart(slots, event.at_s, 0.0)], event.at_s)

    def _set_up(self, roster: Roster) -> None:
        s = self.settings
        cpu, memory = exponential(0.01, 1.05, 1000.0), exponential(1e7, 1.05, 1e12)
        self._cpu = DecayingHistograms(cpu, s.cpu_half_life_s, roster.column(0.0, np.float32, cpu.count))
        self.memory = DecayingHistograms(
            memory, s.memory_half_life_s, roster.column(0.0, np.float32, memory.count)
        )
        self._window_end_s = roster.column(-np.inf, np.float64)
        self._window_peak = roster.column(0.0, np.float64)
        self._first_sample_s = roster.column(np.nan, np.float64)
        self._last_sample_s = roster.column(np.nan, np.float64)
        self._samples = roster.column(0.0, np.float64)
        self._started_s = roster.column(np.nan, np.float64)
        self._restarted_s = roster.column(-np.inf, np.float64)
        self._bump_bytes = roster.column(0.0, np.float64)

    def _sample(self, at_s: float) -> None:
        slots, cores, peak = self._usage.take()
        weights = np.maximum(self._fleet.cpu.values[slots], self.settings.min_sample_weight_cores)
        self._cpu.add(slots, cores, weights, at_s)
        first = self._first_sample_s.values
        fresh = slots[np.isnan(first[slots])]
        first[fresh] = at_s
        self._started_s.values[fresh] = at_s - self.settings.sample_interval_s
        self._last_sample_s.values[slots] = at_s
        self._samples.values[slots] += 1
        self._record_peaks(slots, peak, at_s)

    def _record_peaks(self, slots: Slots, peak: Floats, at_s: float) -> None:
        """Record one peak per container and aggregation window. It is replaced as it grows."""
        interval = self.settings.memory_aggregation_interval_s
        end, present = self._window_end_s.values[slots], self._window_peak.values[slots]
        end = np.where(np.isneginf(end), at_s, end)
        over = at_s >= end
        grown = ~over & (peak > present)
        self.memory.subtract(slots[grown], present[grown], 1.0, end[grown])
        end = np.where(over, end + (np.floor((at_s - end) / interval) + 1) * interval, end)
        added = over | grown
        self.memory.add(slots[added], peak[added], 1.0, end[added])
        self._window_end_s.values[slots] = end
        self._window_peak.values[slots[added]] = peak[added]

    def _may_restart(self, slots: Slots, at_s: float, tolerance_s: float) -> NDArray[np.bool_]:
        since = at_s - self._restarted_s.values[slots]
        return np.asarray(since + tolerance_s >= self.settings.min_restart_interval_s, np.bool_)

    def _update(self, at_s: float, period_s: float) -> Decision:
        roster = self._fleet.roster
        ready = roster.alive & (self._samples.values[: roster.size] > 0)
        slots = np.flatnonzero(ready)
        slots = slots[self._may_restart(slots, at_s, period_s / 2)]
        bumped = slots[self._bump_bytes.values[slots] > 0]
        cpu, memory = self._estimates(slots)
        slots, cores, size = self._worth_restarting(slots, cpu, memory, at_s)
        bump = self._bump_bytes.values[slots]
        size = np.maximum(size, bump)
        waiting = self._waiting(slots, size)
        size = np.where(waiting, self._fleet.memory.values[slots], size)
        reason = np.where(bump > 0, Reason.OOM_BUMP, Reason.RECOMMENDED).astype(np.uint8)
        cpu_changed = self._fleet.cpu.change(slots, cores)
        memory_changed = self._fleet.memory.change(slots, size)
        self._bump_bytes.values[bumped] = 0.0
        changed = cpu_changed | memory_changed
        self._note_change(slots[changed], slots[changed & ~waiting], at_s)
        return Decision(
            cpu=self._fleet.cpu_limits(slots[cpu_changed], Reason.RECOMMENDED),
            memory=self._fleet.memory_limits(slots[memory_changed], reason[memory_changed]),
            restart=self._restarting(slots[changed]),
        )

    def _estimates(self, slots: Slots) -> tuple[Estimate, Estimate]:
        s = self.settings
        lifespan = (self._last_sample_s.values[slots] - self._first_sample_s.values[slots]) / _DAY_S
        confidence = np.minimum(lifespan, self._samples.values[slots] / _SAMPLES_PER_DAY)
        fractions = (s.target_percentile, s.lower_percentile, s.upper_percentile)
        cpu = self._cpu.percentiles(slots, fractions)
        memory = self.memory.percentiles(slots, fractions)
        return (
            estimate(cpu, confidence, s.margin, s.min_cores),
            estimate(memory, confidence, s.margin, s.min_bytes),
        )

    def _worth_restarting(
        self, slots: Slots, cpu: Estimate, memory: Estimate, at_s: float
    ) -> tuple[Slots, Floats, Floats]:
        """Return the updater's choice: (slots, target cores, target bytes) of the containers to restart."""
        fleet, s = self._fleet, self.settings
        quota, limit = fleet.cpu.values[slots], fleet.memory.values[slots]
        target = np.minimum(cpu.target, fleet.roster.host_cores[slots])
        outside = (quota < cpu.lower) | (quota > cpu.upper) | (limit < memory.lower) | (limit > memory.upper)
        outside |= self._bump_bytes.values[slots] > 0
        old = at_s - self._started_s.values[slots] > s.min_age_s
        drift = abs(target - quota) / quota + abs(memory.target - limit) / limit
        asks = np.flatnonzero(outside | (old & (drift > s.update_threshold)))
        slots, target, size = slots[asks], target[asks], memory.target[asks]
        wanted = np.maximum(size, self._bump_bytes.values[slots])
        cores_got, bytes_got = fleet.cpu.attainable(slots, target), fleet.memory.attainable(slots, wanted)
        uncut = (cores_got == cpu.target[asks]) & (bytes_got >= wanted)
        moved = abs(cores_got - quota[asks]) / quota[asks] + abs(bytes_got - limit[asks]) / limit[asks]
        acts = uncut | (moved > s.update_threshold)
        return slots[acts], target[acts], size[acts]

    def _waiting(self, slots: Slots, size: Floats) -> NDArray[np.bool_]:
        """Return which memory limits are not lowered to `size` (bytes) now: in place, they stay above the
        usage.
        """
        usage = self._usage.memory_bytes[slots]
        lowered = size < np.minimum(self._fleet.memory.values[slots], usage)
        return lowered & self.settings.in_place

    def _restarting(self, slots: Slots) -> Ids:
        """Return the containers that restart to get their new limits."""
        return NO_IDS if self.settings.in_place else self._fleet.roster.ids[slots]

    def _bump(self, slots: Slots, at_s: float) -> Decision:
        changed = slots[self._fleet.memory.change(slots, self._bump_bytes.values[slots])]
        self._bump_bytes.values[slots] = 0.0
        self._note_change(changed, changed, at_s)
        return Decision(
            memory=self._fleet.memory_limits(changed, Reason.OOM_BUMP),
            restart=self._restarting(changed),
        )

    def _note_change(self, slots: Slots, complete: Slots, at_s: float) -> None:
        """Note new limits now. A resize of which a part waits has not ended the time without change."""
        self._restarted_s.values[slots] = at_s
        self._started_s.values[complete] = at_s
