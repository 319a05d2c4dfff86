"""Contents of reports: of one period, or at an interval of their own, whatever the containers' periods.

For: the telemetry that an allocator receives, and report intervals other than the CFS period. Not for: the
time at which a period's report is sent (simulation.py). An interval's report holds what a reader of cpu.stat
and cpuacct sees: CPU used, and whether the container was throttled, since the last reading. The unused quota
is the quota less the use, or 0 if the container was throttled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from control.allocator.model import Ids, PeriodStats
from twin.containers.cfs import Report, new_report
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Population
from twin.containers.physics import Physics

Send = Callable[[Report, int, int, float], None]


def shown(report: Report, ids: Ids, columns: Columns | None, load: Population, at_s: float) -> PeriodStats:
    """Return the telemetry of a report. columns: columns of the containers `ids`; None: all, in order."""
    own = report if columns is None else Report._make(values.take(columns) for values in report)
    return PeriodStats(
        ids=ids,
        quota_cores=own.quota_cores,
        unused_cores=own.unused_cores,
        throttled=own.throttled,
        usage_cores=own.usage_cores,
        memory_bytes=own.memory_bytes,
        period_s=load.report_interval_s or load.period_s,
        at_s=at_s,
    )


class Counters:
    """Values of the counters of `physics` at each container's last report."""

    def __init__(self, physics: Physics, interval_s: float) -> None:
        self._physics, self._fleet, self._interval_s = physics, physics.fleet, interval_s
        count = len(physics.group)
        self._used_s: Floats = np.zeros(count)
        self._throttled = np.zeros(count, np.int64)

    def first_s(self, group: int) -> float:
        """Return the time of the group's first report, s. Intervals count from the begin of the period that
        is in progress at the start.
        """
        begun_s = float(self._physics.ends_s[group]) - self._physics.population.period_s
        return begun_s + self._interval_s * (1 + int(-begun_s // self._interval_s))

    def begin(self, env: simpy.Environment, members: Members, spare: list[Report], send: Send) -> None:
        """Let all groups report from now on. spare: reports that may be used again; send: function that takes
        a report, its row and group, and the time."""
        for group in range(len(self._physics.ends_s)):
            env.process(self._looks(env, members, spare, send, group))

    def _looks(
        self, env: simpy.Environment, members: Members, spare: list[Report], send: Send, group: int
    ) -> Generator[simpy.Event, Any, None]:
        period_s, last = self._physics.population.period_s, self._physics.periods - 1
        yield env.timeout(self.first_s(group))
        while True:
            report = spare.pop() if spare else new_report(len(self._used_s))
            self.read(members.by_group[group][0], report)
            send(report, min(int(env.now / period_s), last), group, env.now)
            yield env.timeout(self._interval_s)

    def read(self, columns: Columns, report: Report) -> None:
        """Fill the columns of `report` with their use since the last reading."""
        self._physics.account(columns)
        fleet = self._fleet
        used_s = fleet.done_s[columns] + fleet.used[columns]
        times = fleet.nr_throttled[columns] + fleet.throttled[columns]
        usage = (used_s - self._used_s[columns]) / self._interval_s
        throttled = times > self._throttled[columns]
        self._used_s[columns], self._throttled[columns] = used_s, times
        quota = fleet.quota[columns]
        report.quota_cores[columns] = quota
        report.usage_cores[columns] = usage
        report.throttled[columns] = throttled
        report.unused_cores[columns] = np.where(throttled, 0.0, np.maximum(quota - usage, 0.0))
        report.memory_bytes[columns] = np.minimum(fleet.wanted_bytes[columns], fleet.limit_bytes[columns])
