"""The control loop's observations in the form of a simulation's result.

For: `Outcome` and `RequestLog` of a run on real containers, so that metrics and tables are the twin's, and
the machine's CPU use in that time. Not for: running anything. Quantities that a kernel does not report
(demand, backlog, visits) are NaN, and so are all figures that need them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.containers.host.observed import Observed, ObservedSeries
from testbed.containers.load.plan import LoadResult
from testbed.containers.machine import cpu_times
from twin.containers.model import Events, Outcome, Series
from twin.containers.requests.model import RequestLog


def outcome(observed: Observed, periods: int, requests: RequestLog | None = None) -> Outcome:
    """Return the observed run's first `periods` periods. A run that ended earlier is filled up as not
    running."""
    unknown = np.full(len(observed.names), np.nan)
    return Outcome(
        series=_series(observed.series, periods),
        events=_events(observed, periods * observed.period_s),
        limit_changes=observed.limit_changes,
        arrived_s=unknown,
        done_s=observed.done_s,
        nr_periods=observed.nr_periods,
        nr_throttled=observed.nr_throttled,
        reports=observed.reports,
        decide_s=observed.decide_s,
        asked=observed.reports,
        requests=requests,
    )


def request_log(load: LoadResult, containers: int) -> RequestLog:
    """Return the log of what clients saw. The visits inside the containers are not known."""
    unknown = np.full(containers, np.nan)
    return RequestLog(
        at_s=load.at_s,
        kind=load.kind,
        end_s=load.end_s,
        status=load.status,
        visits=unknown,
        dropped=unknown,
        refused=unknown,
        hops=0,
        orphans=0,
        in_flight=0,
        lost_s=unknown,
        waiting_s=unknown,
    )


def _series(observed: ObservedSeries, periods: int) -> Series:
    count = observed.up.shape[1]
    unknown = np.full((periods, count), np.nan, np.float32)
    arrays: dict[str, Any] = {
        spec.name: _fitted(getattr(observed, spec.name), periods)
        for spec in fields(ObservedSeries)
        if spec.name != "reported"
    }
    if np.isnan(observed.request_cores).all():
        arrays["request_cores"] = None
    return Series(demand_cores=unknown, backlog_s=unknown, **arrays)


def _fitted(values: NDArray[Any], periods: int) -> NDArray[Any]:
    """Return [T, N] values with exactly `periods` rows: cut, or filled up with zeros."""
    if len(values) >= periods:
        return np.ascontiguousarray(values[:periods])
    missing = np.zeros((periods - len(values), values.shape[1]), values.dtype)
    return np.concatenate((values, missing))


def _events(observed: Observed, end_s: float) -> Events:
    """Return the events before end_s, s. Events while the run was being stopped are left out."""
    events = observed.events
    rows = [
        row
        for row in zip(events.at_s, events.container, events.kind, events.limit_bytes, strict=True)
        if row[0] < end_s
    ]
    return Events(*(list(column) for column in zip(*rows, strict=True))) if rows else Events([], [], [], [])


_EVERY_S = 1.0


class Busy:
    """CPU use of the whole machine between the first and the last `note`, which may be called often."""

    def __init__(self) -> None:
        self._first: tuple[float, float, float] | None = None
        self._last = (0.0, 0.0, 0.0)

    def note(self, elapsed_s: float) -> None:
        """Note the counters at a moment of the run; they are read once a second at most."""
        if self._first is None or elapsed_s >= self._last[0] + _EVERY_S:
            self._last = (elapsed_s, *_read())
            self._first = self._first or self._last

    def cores(self) -> tuple[float, float]:
        """Return (used, stolen by the hypervisor), mean cores; both 0 for less than a second."""
        if self._first is None or self._last[0] <= self._first[0]:
            return 0.0, 0.0
        wall_s = self._last[0] - self._first[0]
        return (self._last[1] - self._first[1]) / wall_s, (self._last[2] - self._first[2]) / wall_s


def _read() -> tuple[float, float]:
    """Return (seconds used, seconds stolen) since the machine started, summed over CPUs."""
    times = cpu_times()
    return times.used_s, times.stolen_s
