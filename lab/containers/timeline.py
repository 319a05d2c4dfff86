"""The events of a container run as tracks of a timeline: limits, use, throttling, events, requests.

For: `Kind.timeline`. Not for: writing a file (lab.runs.timeline).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lab.containers.metrics import UNLIMITED_BYTES
from lab.runs.store import Run
from lab.runs.timeline import Counter, Floats, Moments, Spans, Tracks

_MIB = 2.0**20
_COUNTERS = {
    "quota_cores": ("CPU limit", "cores", 1.0),
    "usage_cores": ("CPU used", "cores", 1.0),
    "throttled_s": ("throttled", "ms", 1e-3),
    "limit_bytes": ("memory limit", "MiB", _MIB),
    "memory_bytes": ("memory used", "MiB", _MIB),
}
"""Column of the table of periods → name, unit, and divisor of the column's value."""


def tracks(run: Run) -> Tracks:
    """Return five counters and the events of each container, and the requests by their kind."""
    return [*_counters(run), *_events(run), *_requests(run)]


def _counters(run: Run) -> Iterator[Counter]:
    """Yield the counters, which change at the start of a row of the series."""
    base = run.frame("periods", ["container", "period"])
    rows = {
        str(name): index
        for name, index in base.groupby("container", sort=False, observed=True).indices.items()
    }
    workload = run.manifest["workload"]
    period_s = float(workload["period_s"])
    row_s = workload.get("series_interval_s", period_s)
    begin_s = np.floor(base["period"].to_numpy() * period_s / row_s + 1e-6) * row_s
    for column, (name, unit, size) in _COUNTERS.items():
        value: Floats = run.frame("periods", [column])[column].to_numpy(np.float64)
        if column == "limit_bytes":
            value = np.where(value < UNLIMITED_BYTES, value, np.nan)
        for container, own in rows.items():
            yield Counter(container, name, unit, begin_s[own], value[own] / size)


def _events(run: Run) -> Iterator[Moments]:
    frame = run.frame("events", ["at_s", "container", "kind"])
    for container, own in frame.groupby("container", sort=False, observed=True):
        yield Moments(str(container), own["kind"].astype(str).tolist(), own["at_s"].to_numpy(np.float64))


def _requests(run: Run) -> Iterator[Spans]:
    """Yield the requests that were answered; the others have no end."""
    if "requests" not in run.tables:
        return
    frame = run.frame("requests", ["at_s", "kind", "latency_s", "status"])
    frame = frame[np.isfinite(frame["latency_s"])]
    for kind, own in frame.groupby("kind", sort=False, observed=True):
        begin_s = own["at_s"].to_numpy(np.float64)
        status = own["status"].astype(str).tolist()
        names = [str(kind)] * len(own)
        end_s = begin_s + own["latency_s"].to_numpy(np.float64)
        yield Spans("requests", str(kind), names, begin_s, end_s, {"status": status})
