"""Defines a time series of Prometheus, and merges the series of the same quantity.

For: samples from a server or a file. Not for: the meaning of a metric for a trace (history.py).

Two kinds of series describe the same quantity. Replicas: two Prometheus servers scrape the same container,
and their series differ in a replica label only. The one with more samples counts, and the other fills its
holes. Successors: a container that restarts has a new cgroup, so its series has a new `id` and its counter
begins at zero, even where it is ahead of the old one when it is first seen. A series counts until its
successor begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traces.prometheus import names
from traces.schema import LARGEST, LATEST_S, Floats
from twinbed import TraceError
from twinbed.text import printable

NAME = "__name__"
"""The label that holds a series' metric name."""

REPLICA_LABELS = ("prometheus_replica", "replica", "__replica__")
"""Labels by which the replicas of one Prometheus differ: the operator's, Thanos' and Cortex' usual names."""

_NO_HOLE = 0.99
"""Part of a step. A sample of another replica this far from all others fills a hole."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series.

    metric: its name.
    labels: its labels other than the name.
    times_s: times of the samples, s since 1970, increasing.
    values: one per time.
    dropped: number of samples that were left out because they are no number.
    """

    metric: str
    labels: Mapping[str, str]
    times_s: Floats
    values: Floats
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The intervals of a trace.

    start_s: begin of the first interval, s since 1970. step_s: length of an interval, s. intervals: their
    number.
    """

    start_s: float
    step_s: float
    intervals: int

    @property
    def edges(self) -> Floats:
        """Begins of all intervals and the end of the last, s, float64[intervals + 1]."""
        return np.asarray(self.start_s + self.step_s * np.arange(self.intervals + 1), np.float64)


@dataclass(frozen=True, slots=True)
class Samples:
    """The merged samples of one quantity. Arrays are [K].

    times_s: time for which a sample counts, s since 1970, increasing
    values: one per time
    replica: number of the replica that the sample comes from
    life: number of the sample's cgroup, from 0; the counter of each cgroup begins at zero
    read_s: when the sample was really read, s; at most times_s, increasing
    """

    times_s: Floats
    values: Floats
    replica: Floats
    life: Floats
    read_s: Floats


def series_of(
    source: str, labels: Mapping[str, str], times_s: Floats, values: Floats, metric: str = ""
) -> Series:
    """Return a checked series without its samples that are NaN (Prometheus' own sign of "no value"), counted.

    metric: its name; "": the one in its labels. Raises TraceError, which begins with `source`, for a series
    without a name, a negative or infinite value of a metric that is read, and times that do not increase.
    """
    metric = metric or labels.get(NAME, "")
    if not metric:
        raise TraceError(
            f"{source}: series {shown(labels)} has no metric name, so its unit is unknown; "
            "save the bare metric, e.g. container_cpu_usage_seconds_total{…}, and no expression"
        )
    kept = ~np.isnan(values)
    if not kept.all():
        times_s, values = times_s[kept], values[kept]
    if metric in names.READ and values.size and not (values.min() >= 0 and values.max() <= LARGEST):
        raise TraceError(
            f"{source}: {printable(metric[:80])}{shown(labels)} has a value that is negative or infinite; "
            "save the bare metric, and no expression"
        )
    if times_s.size and not np.abs(times_s).max() <= LATEST_S:
        raise TraceError(
            f"{source}: {printable(metric[:80])}{shown(labels)}: a time of {times_s[0]:.10g} s; divide "
            "milliseconds by 1000"
        )
    if times_s.size and not (np.diff(times_s) > 0).all():
        raise TraceError(
            f"{source}: {printable(metric[:80])}{shown(labels)} has times that do not increase; "
            "save the series once more, in order of time"
        )
    others = {key: text for key, text in labels.items() if key != NAME}
    return Series(metric, others, times_s, values, int((~kept).sum()))


def merged(
    series: Iterable[Series], step_s: float, replica_labels: Collection[str] = REPLICA_LABELS
) -> Samples:
    """Return the merged samples of series of the same quantity, by the rules of this module."""
    replicas = defaultdict[frozenset[tuple[str, str]], list[Series]](list)
    for entry in series:
        if entry.times_s.size:
            replicas[_identity(entry.labels, replica_labels)].append(entry)
    # Where the begin of the window cuts two lives, the one that ends first came first.
    groups = sorted(
        replicas.values(),
        key=lambda group: (min(each.times_s[0] for each in group), max(each.times_s[-1] for each in group)),
    )
    filled = [_filled(group, step_s) for group in groups]
    cgroups = [group[0].labels.get("id", "") for group in groups]
    parts, life = [], 0
    for number, (times_s, values, replica) in enumerate(filled):
        if number and cgroups[number] and cgroups[number - 1] not in ("", cgroups[number]):
            life += 1
        last = filled[number + 1][0][0] if number + 1 < len(filled) else np.inf
        own = times_s < last
        parts.append((times_s[own], values[own], replica[own], np.full(int(own.sum()), float(life))))
    if not parts:
        return Samples(*np.zeros((5, 0)))
    times_s, values, replica, lives = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Samples(times_s, values, replica, lives, times_s)


def _filled(group: Sequence[Series], step_s: float) -> tuple[Floats, Floats, Floats]:
    """Return (times, values, number of the replica) of replicas of one series."""
    group = sorted(group, key=lambda entry: -entry.times_s.size)
    times_s, values = group[0].times_s, group[0].values
    replica = np.zeros(times_s.size)
    for number, other in enumerate(group[1:], start=1):
        after = np.searchsorted(times_s, other.times_s).clip(1, max(1, times_s.size - 1))
        near = np.minimum(
            np.abs(other.times_s - times_s[after - 1]),
            np.abs(other.times_s - times_s[np.minimum(after, times_s.size - 1)]),
        )
        hole = near >= _NO_HOLE * step_s
        times_s, values = np.append(times_s, other.times_s[hole]), np.append(values, other.values[hole])
        replica = np.append(replica, np.full(int(hole.sum()), float(number)))
        order = np.argsort(times_s, kind="stable")
        times_s, values, replica = times_s[order], values[order], replica[order]
    return times_s, values, replica


def _identity(labels: Mapping[str, str], replica_labels: Collection[str]) -> frozenset[tuple[str, str]]:
    return frozenset((key, text) for key, text in labels.items() if key not in replica_labels)


def shown(labels: Mapping[str, str]) -> str:
    """Return labels as Prometheus writes them, printable and not long."""
    text = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if key != NAME)
    return "{" + printable(text if len(text) <= 160 else f"{text[:159]}…") + "}"
