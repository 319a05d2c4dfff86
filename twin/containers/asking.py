"""The facts about newcomers that the control loop gives an allocator, and the CPU requests that it gets back.

For: the `Join` of columns, and requests in force. Not for: the time of events (simulation.py), nor how hosts
share CPUs (sharing.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import CpuRequests, History, Join
from control.allocator.shares import DEFAULT_WEIGHT, SHARES_PER_CORE, shares
from twin.containers.members import Columns, Members
from twin.containers.model import Floats
from twin.containers.physics import Physics
from twin.containers.recording import Recorder


class Newcomers:
    """Facts about the columns. profile: their use in the profile, if the policy receives it. workload_of:
    int64[N], the workload of each replica; None: each column is a workload of its own."""

    def __init__(self, physics: Physics, profile: History | None, workload_of: Columns | None) -> None:
        self._physics, self._profile, self._workload_of = physics, profile, workload_of

    def join(self, columns: Columns) -> Join:
        """Return the `Join` of columns that join."""
        load, profile = self._physics.population, self._profile
        if profile is not None and not np.array_equal(columns, np.arange(len(load.names))):
            usage, used = profile.usage_cores[:, columns], profile.memory_bytes[:, columns]
            profile = History(usage, used, profile.period_s)
        return Join(
            load.app[columns],
            load.host_cores[columns],
            load.peak_cores[columns],
            load.peak_bytes[columns],
            profile,
            self._physics.host[columns],
            None if self._workload_of is None else self._workload_of[columns],
        )


class Requests:
    """CPU requests in force. A container that leaves keeps its weight until its next request.

    held: float64[N], cores that each container reserves without a quota: its request, or its host's cores.
    """

    def __init__(self, physics: Physics, recorder: Recorder | None) -> None:
        count = len(physics.group)
        self._physics, self._recorder = physics, recorder
        self._cores: Floats = np.full(count, np.nan)
        self._order: NDArray[np.int64] = np.zeros(count, np.int64)
        self._host_cores = physics.population.host_cores
        self.held: Floats = self._host_cores.astype(np.float64)

    def of(self, columns: Columns) -> Floats:
        """Return requests, cores, float64[k].

        A container without a decided request has its quota as request, and NaN if it has no quota either.
        """
        quota = self._physics.fleet.quota[columns]
        limits = np.where(np.isfinite(quota), quota, np.nan)
        asked = self._cores[columns]
        return np.asarray(np.where(np.isnan(asked), limits, asked), np.float64)

    def write(self, members: Members, requests: CpuRequests, order: int) -> None:
        """Write requests now, except those that a decision later than `order` has set."""
        rows, columns = members.find(requests.ids)
        newer = self._order[columns] <= order
        rows, columns = rows[newer], columns[newer]
        cores = requests.cores[rows]
        self._order[columns] = order
        self._cores[columns] = cores
        asked = cores.astype(np.float32)
        self.held[columns] = np.where(np.isnan(asked), self._host_cores[columns], asked)
        if self._recorder is not None and self._recorder.series.request_cores is None:
            series = self._recorder.series
            series.request_cores = np.full(series.up.shape, np.nan, np.float32)
        weights = shares(cores).astype(np.float64) * (DEFAULT_WEIGHT / SHARES_PER_CORE)
        self._physics.weigh(columns, weights)

    def forget(self, columns: Columns) -> None:
        """Forget the requests of columns that left."""
        self._cores[columns] = np.nan
        self.held[columns] = self._host_cores[columns]

    def fill(self, first: int, last: int, columns: Columns) -> None:
        """Write the requests of `columns` into the series' rows from `first` up to, but without, `last`.

        There are none before the first request is decided.
        """
        if self._recorder is not None and self._recorder.series.request_cores is not None:
            begin = self._recorder.first
            self._recorder.series.request_cores[first - begin : last - begin, columns] = self._cores[columns]
