"""Reads a container's settings (requests, limits) and events (restarts, OOMs, throttling) from series.

For: one container. Not for: usage (history.py).

Settings hold from the interval in which they were first seen until their next entry: cpu_request_cores,
cpu_limit_cores, memory_request_bytes, memory_limit_bytes; 0 means that there is none. They come from
kube-state-metrics, else from cAdvisor's quota / period, shares / 1024 and memory limit. A setting that
neither source lists for a container is 0, if kube-state-metrics knows this container and lists the setting
for another one. Counts, in the interval in which the event happened: restarts, oom_events. OOM events are
those of container_oom_events_total, or the restarts after which the last terminated reason is OOMKilled,
whichever are more: a container that dies of its kill takes its counter along. Of several restarts between two
samples only the last one's reason is known, so they count as one kill. Shares: throttled_share, the throttled
periods / all periods of an interval; intervals without an entry had no throttled period. unseen: 1 for an
interval without samples in which the container ran, because its counter grew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.prometheus import names
from traces.prometheus.counters import growth
from traces.prometheus.series import Samples, Series, Window, merged
from traces.schema import Floats

LISTED = {
    "cpu_request_cores": (names.REQUESTS, "cpu"),
    "cpu_limit_cores": (names.LIMITS, "cpu"),
    "memory_request_bytes": (names.REQUESTS, "memory"),
    "memory_limit_bytes": (names.LIMITS, "memory"),
}
"""Setting → the metric of kube-state-metrics that lists it, and the value of its label `resource`."""

SETTINGS = tuple(LISTED)
COUNTS = ("restarts", "oom_events")
THROTTLED = "throttled_share"
UNSEEN = "unseen"
FACTS = (*SETTINGS, *COUNTS, THROTTLED, UNSEEN)
"""The names of all facts."""

_PERIOD_US = 100_000.0
"""Kubernetes' CFS period, µs, used if cAdvisor does not report it."""

_SHARES_OF_A_CORE = 1024.0
"""CPU shares that Kubernetes gives for a request of one core."""

_FEWEST_SHARES = 2.0
"""CPU shares of a container that requests nothing."""

_OOM_KILLED = "OOMKilled"


@dataclass(frozen=True, slots=True)
class Entries:
    """Values at some intervals of some containers, in parallel arrays: int32[K], int32[K], float64[K]."""

    interval: NDArray[np.int32]
    container: NDArray[np.int32]
    value: Floats

    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """Return the three arrays."""
        return self.interval, self.container, self.value


NOTHING = Entries(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
"""No entries."""

Get = Callable[[str], Samples]
"""Return the merged samples of a metric; none if the container has no such series."""


def settings(
    samples: Get, own: Mapping[str, list[Series]], window: Window, replica_labels: Collection[str]
) -> dict[str, Entries]:
    """Return the changes of a container's settings."""

    def state(fact: str) -> Samples:
        metric, resource = LISTED[fact]
        series = (entry for entry in own.get(metric, ()) if entry.labels.get("resource") == resource)
        return merged(series, window.step_s, replica_labels)

    shares_of = samples(names.SHARES)
    request = np.where(shares_of.values > _FEWEST_SHARES, shares_of.values / _SHARES_OF_A_CORE, 0.0)
    told = {
        "cpu_request_cores": (shares_of.times_s, request),
        "cpu_limit_cores": _quota(samples),
        "memory_request_bytes": (np.zeros(0), np.zeros(0)),
        "memory_limit_bytes": _points(samples(names.MEMORY_LIMIT)),
    }
    changes = {}
    for name, otherwise in told.items():
        first = state(name)
        changes[name] = _changes(_points(first) if first.times_s.size else otherwise, window)
    return {name: entries for name, entries in changes.items() if entries.interval.size}


def events(
    samples: Get,
    own: Mapping[str, list[Series]],
    window: Window,
    began: bool,
    replica_labels: Collection[str],
) -> dict[str, Entries]:
    """Return restarts and OOM events. began: whether the container's life begins inside the window."""
    restarts = _increases(samples(names.RESTARTS), began)
    killed = (entry for entry in own.get(names.LAST_REASON, ()) if entry.labels.get("reason") == _OOM_KILLED)
    at_s, value = _points(merged(killed, window.step_s, replica_labels))
    restarted = _told_of(restarts, at_s[value > 0], window.step_s / 2)
    counted = _increases(samples(names.OOM_EVENTS), began)
    kills = max(counted, restarted, key=lambda each: each[1].sum())
    counts = {
        name: _in_intervals(*told, window) for name, told in zip(COUNTS, (restarts, kills), strict=True)
    }
    return {name: entries for name, entries in counts.items() if entries.interval.size}


def shares(samples: Get, window: Window, present: NDArray[np.bool_], hold_s: float) -> dict[str, Entries]:
    """Return the share of throttled periods where it is not zero."""
    periods, _ = growth(window.edges, samples(names.PERIODS), hold_s)
    throttled, _ = growth(window.edges, samples(names.THROTTLED_PERIODS), hold_s)
    at = np.flatnonzero((throttled > 0) & (periods > 0) & present)
    if not at.size:
        return {}
    share = np.minimum(throttled[at] / periods[at], 1.0)
    return {THROTTLED: Entries(at.astype(np.int32), np.zeros(at.size, np.int32), share)}


def _points(samples: Samples) -> tuple[Floats, Floats]:
    return samples.times_s, samples.values


def _quota(samples: Get) -> tuple[Floats, Floats]:
    """Return (times, CPU limits) from cAdvisor's quota and period. A period without a quota is no limit."""
    quota, period = samples(names.QUOTA), samples(names.PERIOD)
    if not quota.times_s.size:
        return period.times_s, np.zeros(period.times_s.size)
    period_us = np.full(quota.times_s.size, _PERIOD_US)
    if period.times_s.size:
        last = np.searchsorted(period.times_s, quota.times_s, side="right") - 1
        period_us = period.values[last.clip(0)]
    return quota.times_s, np.divide(
        quota.values, period_us, out=np.zeros_like(period_us), where=period_us > 0
    )


def _changes(told: tuple[Floats, Floats], window: Window) -> Entries:
    """Return the values that differ from the value before. A value holds from the next interval's begin
    on."""
    times_s, values = told
    interval = np.ceil((times_s - window.start_s) / window.step_s - 1e-6).clip(0, window.intervals)
    inside = interval < window.intervals
    interval, values = interval[inside].astype(np.int32), values[inside]
    # The last of several values before the same interval counts.
    last = np.flatnonzero(np.diff(interval, append=window.intervals) > 0)
    interval, values = interval[last], values[last]
    changed = np.flatnonzero(np.diff(values, prepend=-1.0) != 0)
    return Entries(interval[changed], np.zeros(changed.size, np.int32), values[changed])


def _increases(samples: Samples, began: bool) -> tuple[Floats, Floats]:
    """Return (times, by how much) a counter of events grew. The first value counts for a new container."""
    added = np.diff(samples.values, prepend=0.0 if began else samples.values[:1])
    same = np.diff(samples.replica, prepend=samples.replica[:1]) == 0
    anew = np.diff(samples.life, prepend=samples.life[:1]) != 0
    added = np.where(((added < 0) & same) | anew, samples.values, added)
    at = np.flatnonzero(added > 0)
    return samples.times_s[at], added[at]


def _told_of(events: tuple[Floats, Floats], times_s: Floats, tolerance_s: float) -> tuple[Floats, Floats]:
    """Return (times, ones): the events at whose time the other series has a sample, within tolerance_s."""
    if not times_s.size:
        return np.zeros(0), np.zeros(0)
    after = np.searchsorted(times_s, events[0] - tolerance_s).clip(0, times_s.size - 1)
    at = np.flatnonzero(np.abs(times_s[after] - events[0]) <= tolerance_s)
    return events[0][at], np.ones(at.size)


def _in_intervals(times_s: Floats, values: Floats, window: Window) -> Entries:
    """Return events as entries at the intervals in which they were read. Events outside the window are left
    out."""
    interval = np.ceil((times_s - window.start_s) / window.step_s - 1e-6) - 1
    inside = np.flatnonzero((interval >= 0) & (interval < window.intervals))
    return Entries(interval[inside].astype(np.int32), np.zeros(inside.size, np.int32), values[inside])
