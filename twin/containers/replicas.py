"""Workloads whose number of replicas the Horizontal Pod Autoscaler changes while they run.

For: `physics.Physics` of workloads that share their demand among their replicas, and the autoscaler's process
next to the control loop. Not for: deciding the number of replicas (control/allocator/hpa.py).

Every workload has as many columns as it may have replicas. Its demand is shared evenly among those that are
up, as by a load balancer; each holds the memory of the trace. A new replica starts up for the machine's
restart_s. The youngest replicas leave first, and their waiting work is lost. A workload that begins during
the trace begins with the first number of replicas. One that ends takes its replicas with it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from control.allocator.hpa import Hpa
from control.allocator.model import Bytes
from twin.containers import cfs
from twin.containers.fluid import Fluid
from twin.containers.members import Columns
from twin.containers.model import Floats, Machine, Replication, Workload
from twin.containers.simulation import ControlLoop


class Replicas(Fluid):
    """`physics.Physics` of replicated workloads. replication: the workload of each replica."""

    def __init__(self, workload: Workload, machine: Machine, replication: Replication) -> None:
        super().__init__(workload, machine)
        self.replication = replication
        self._demand = np.zeros_like(self._demand)
        # Work that arrived in the present period under earlier shares, s, and the time since which the
        # present shares hold.
        self._arrived_s, self._since_s = np.zeros(self._demand.shape[1]), 0.0
        # Row in which each workload began, or began again; −1: the trace does not have it now.
        self.begun = np.full(replication.demand_cores.shape[1], -1)
        self.begun[replication.of[super().first()]] = 0

    def first(self) -> Columns:
        """Return the first replicas of the workloads that are present in the first period."""
        return self._beginning(super().first())

    def changes(self, row: int) -> tuple[Columns, Columns] | None:
        """See `Physics`. All replicas of a workload leave with it, and its first ones join with it."""
        changes = super().changes(row)
        if changes is None:
            return None
        left, joined = changes
        self.begun[self.replication.of[left]] = -1
        self.begun[self.replication.of[joined]] = row
        return left[self.fleet.status[left] != cfs.ABSENT], self._beginning(joined)

    def _beginning(self, columns: Columns) -> Columns:
        return columns[self.replication.number[columns] < self.replication.at_first]

    def end_period(self, row: int, group: int, report: cfs.Report) -> Columns:
        """See `Physics`. The period's demand is replaced by the work that arrived in it, whatever the shares
        at its end."""
        period_s, fleet = self.population.period_s, self.fleet
        self._arrive(period_s)
        over = super().end_period(row, group, report)
        there = fleet.status != cfs.ABSENT
        fleet.arrived_s[there] += (self._arrived_s - self._demand[row] * period_s)[there]
        self._demand[row] = self._arrived_s / period_s
        self._arrived_s[:], self._since_s = 0.0, 0.0
        if row + 1 < self.periods:
            self._share()
        return over

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """See `Physics`."""
        super().admit(columns, quota_cores, limit_bytes)
        self._share()

    def dismiss(self, columns: Columns) -> None:
        """See `Physics`."""
        super().dismiss(columns)
        self._share()

    def _set(self, columns: Columns, status: int) -> None:
        super()._set(columns, status)
        self._share()

    def _share(self) -> None:
        """Divide the period's demand among the replicas that are up, or among all if none is."""
        of, status = self.replication.of, self.fleet.status
        up = np.flatnonzero(status == cfs.UP)
        self.account(up)
        self._arrive(self._offset())
        workloads = self.replication.demand_cores.shape[1]
        without = np.bincount(of[up], minlength=workloads) == 0
        takers = np.flatnonzero((status == cfs.UP) | ((status != cfs.ABSENT) & without[of]))
        count = np.bincount(of[takers], minlength=workloads)
        self._demand[self._row] = 0.0
        share = self.replication.demand_cores[self._row, of[takers]] / count[of[takers]]
        self._demand[self._row, takers] = share

    def _arrive(self, offset_s: float) -> None:
        """Count what arrived by the present shares up to `offset_s` into the period."""
        self._arrived_s += self._demand[self._row] * (offset_s - self._since_s)
        self._since_s = offset_s


class Scaler:
    """The autoscaler of all workloads, which runs next to one control loop."""

    def __init__(self, loop: ControlLoop, physics: Replicas, machine: Machine) -> None:
        self._loop, self._physics, self._replication = loop, physics, physics.replication
        self._start_s = machine.restart_s
        count, of = self._replication.demand_cores.shape[1], self._replication.of
        self._columns = np.split(np.arange(len(of)), np.searchsorted(of, np.arange(1, count)))
        self._hpas = [Hpa(self._replication.settings) for _ in range(count)]
        self._begun = physics.begun.copy()
        self._asked = np.full(count, self._replication.at_first)
        self._since_s, self._done_s = np.full(len(of), -np.inf), np.zeros(len(of))

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Sync at intervals, without end."""
        env, settings = self._loop.env, self._replication.settings
        while True:
            yield env.timeout(settings.sync_interval_s)
            done_s = self._physics.fleet.done_s.copy()
            usage = (done_s - self._done_s) / settings.sync_interval_s
            self._done_s = done_s
            for workload in np.flatnonzero(self._physics.begun != self._begun):
                self._begin(int(workload))
            for workload in np.flatnonzero(self._begun >= 0):
                self._sync(int(workload), self._hpas[workload], usage)

    def _begin(self, workload: int) -> None:
        """Take up a workload that began or ended since the last sync."""
        self._begun[workload] = row = self._physics.begun[workload]
        self._hpas[workload] = Hpa(self._replication.settings)
        self._asked[workload] = self._replication.at_first
        self._since_s[self._columns[workload]] = row * self._physics.population.period_s

    def _sync(self, workload: int, hpa: Hpa, usage: Floats) -> None:
        now_s, interval_s = self._loop.env.now, self._replication.settings.sync_interval_s
        columns = self._columns[workload][: self._asked[workload]]
        status, age_s = self._physics.fleet.status[columns], now_s - self._since_s[columns]
        # The metrics server has no sample of a replica that was not present for a whole interval.
        seen = np.where((status == cfs.ABSENT) | (age_s < interval_s), np.nan, usage[columns])
        ready = (status <= cfs.HELD) & (age_s >= self._replication.settings.readiness_s)
        requests = self._loop.requests.of(columns[status != cfs.ABSENT])
        # A replica that is still starting will request as much as its siblings.
        asked = np.full(len(columns), np.nan if np.isnan(requests).any() else requests.mean())
        asked[status != cfs.ABSENT] = requests
        wanted = hpa.sync(now_s, len(columns), seen, asked, ready)
        self._scale(workload, wanted)

    def _scale(self, workload: int, wanted: int) -> None:
        before, self._asked[workload] = int(self._asked[workload]), wanted
        columns = self._columns[workload]
        if wanted > before:
            begun = int(self._begun[workload])
            self._loop.env.process(self._start(workload, columns[before:wanted], begun))
        gone = columns[wanted:before]
        gone = gone[self._physics.fleet.status[gone] != cfs.ABSENT]
        if gone.size:
            self._loop.leave(gone)

    def _start(
        self, workload: int, columns: NDArray[np.int64], begun: int
    ) -> Generator[simpy.Event, Any, None]:
        yield self._loop.env.timeout(self._start_s)
        if self._physics.begun[workload] != begun:
            return  # the workload that wanted these replicas has ended
        # Some replicas may no longer be wanted, and others may exist by now.
        wanted = self._replication.number[columns] < self._asked[workload]
        columns = columns[wanted & (self._physics.fleet.status[columns] == cfs.ABSENT)]
        if columns.size:
            self._since_s[columns] = self._loop.env.now
            self._loop.join(columns)
