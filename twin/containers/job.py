"""Containers that run a recorded job: work that is not done delays what follows, and a restart begins anew.

For: `physics.Physics` of a recording of commands, such as a training job. Not for: demand that arrives
whatever was done, such as that of servers (fluid.py). A container has a place in its recording. In each
period it wants the CPU that was used there, and it moves on by the share of this that it gets. Where it used
no CPU it waited, and it moves on with time. Its memory is that of its place. A container that starts again is
at the recording's start, with all the work of its start-up. Containers do not wait for each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from twin.containers import cfs
from twin.containers.fluid import Fluid
from twin.containers.members import Columns
from twin.containers.model import Floats, Machine, Workload


def replayed(workload: Workload, machine: Machine) -> tuple[Fluid, Machine]:
    """Return the containers of a trace, and the machine that they run on.

    A job's recording contains its start-up, so a start takes no further time.
    """
    if workload.is_job:
        return Job(workload, machine), replace(machine, restart_s=0.0, restart_cpu_s=0.0)
    return Fluid(workload, machine), machine


class Job(Fluid):
    """`physics.Physics` of a job's recording. Raises as Fluid."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        super().__init__(workload, machine)
        self._recorded_cores, self._recorded_bytes = self._demand, self._want
        self._demand, self._want = np.zeros_like(self._demand), np.zeros_like(self._want)
        # Periods of the recording that are done.
        self._place: Floats = np.zeros(len(workload.names))
        self._ask(self._everyone())

    def end_period(self, row: int, group: int, report: cfs.Report) -> Columns:
        """See `Physics`. Work that was not done has not arrived."""
        fleet, before_s = self.fleet, self.fleet.done_s.copy()
        over = super().end_period(row, group, report)
        fleet.arrived_s[:] -= fleet.backlog
        fleet.backlog[:] = 0.0
        asked_s = self._demand[row] * self.population.period_s
        share = np.asarray(fleet.status == cfs.UP, np.float64)
        np.divide(fleet.done_s - before_s, asked_s, out=share, where=asked_s > cfs.NANOSECOND)
        self._place = np.minimum(self._place + np.minimum(share, 1.0), self.periods - 1.0)
        self._ask(self._everyone())
        return over

    def take_down(self, columns: Columns) -> None:
        """See `Physics`. The recording begins anew."""
        super().take_down(columns)
        self._place[columns] = 0.0
        self._ask(columns)

    def release(self, columns: Columns) -> None:
        """See `Physics`. Nothing arrived while they were held or down."""
        super().release(columns)
        self.fleet.backlog[columns] = 0.0

    def _everyone(self) -> Columns:
        return np.arange(len(self._place))

    def _ask(self, columns: Columns) -> None:
        """Write what containers want in the present period, at their places."""
        row = self._row
        first = self._place[columns].astype(np.int64)
        beyond = self._place[columns] - first
        following = np.minimum(first + 1, self.periods - 1)
        cores = self._recorded_cores
        self._demand[row, columns] = (1.0 - beyond) * cores[first, columns] + beyond * cores[
            following, columns
        ]
        self._want[row, columns] = self._recorded_bytes[first, columns]
