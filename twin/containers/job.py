"""Containers that run a recorded job. Unfinished work delays later work, and a restart begins at the start of
the recording.

For: `physics.Physics` of a recording of commands, such as a training job. Not for: demand that does not wait
for earlier work, such as that of servers (fluid.py). A container has a position in its recording. In each
period it wants the recorded CPU, and its position advances by the share of it that it gets. Where the
recording used no CPU, the job waited, and the position advances with time. Its memory is that of its
position. A container that restarts returns to the recording's start, and repeats all the work of its
start-up. Containers do not wait for each other.
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

    A job's recording includes its start-up, so a start takes no additional time.
    """
    if workload.is_job:
        return Job(workload, machine), replace(machine, restart_s=0.0, restart_cpu_s=0.0)
    return Fluid(workload, machine), machine


class Job(Fluid):
    """`physics.Physics` of a job's recording. Raises the errors of `Fluid`."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        super().__init__(workload, machine)
        self._recorded_cores, self._recorded_bytes = self._demand, self._want
        self._demand, self._want = np.zeros_like(self._demand), np.zeros_like(self._want)
        # Number of periods of the recording that are done.
        self._place: Floats = np.zeros(len(workload.names))
        self._ask(self._everyone())

    def end_period(self, row: int, group: int, report: cfs.Report) -> Columns:
        """See `Physics`. Work that was not done counts as not arrived."""
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
        """See `Physics`. The recording restarts."""
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
        """Write the demand of containers in the present period, at their positions."""
        row = self._row
        first = self._place[columns].astype(np.int64)
        beyond = self._place[columns] - first
        following = np.minimum(first + 1, self.periods - 1)
        cores = self._recorded_cores
        self._demand[row, columns] = (1.0 - beyond) * cores[first, columns] + beyond * cores[
            following, columns
        ]
        self._want[row, columns] = self._recorded_bytes[first, columns]
