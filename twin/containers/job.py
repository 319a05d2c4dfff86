"""Containers that run a recorded job. Unfinished work delays later work, and a restart begins at the start of
the recording.

For: `physics.Physics` of a recording of commands, such as a training job. Not for: demand that does not wait
for earlier work, such as that of servers (fluid.py). A container has a position in its recording. In each
period it wants the recorded CPU, and its position advances by the share of it that it gets. Where the
recording used no CPU, the job waited, and the position advances with time. Its memory is that of its
position. A container that restarts returns to the recording's start, and repeats all the work of its
start-up.

The ranks of a distributed job wait for each other. Each waits at the period of the recording in which it was
first connected to another, until all have reached theirs. From then on, no rank is more than a period ahead
of the slowest, because each step needs all of them. If one goes down, the others fail too, because their
connection to it breaks. They start again after their back-off, as crashed containers do. Source:
torch.distributed over gloo, whose collective calls raise an error when a peer is gone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.allocator.model import Bytes
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


_ROUNDING = 1e-9
"""Largest error of a position from rounding, periods."""


class Job(Fluid):
    """`physics.Physics` of a job's recording. Raises the errors of `Fluid`."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        super().__init__(workload, machine)
        self._recorded_cores, self._recorded_bytes = self._demand, self._want
        self._demand, self._want = np.zeros_like(self._demand), np.zeros_like(self._want)
        self._ranks = workload.ranks
        # Number of periods of the recording that are done, and how many may be done in the present period.
        self._place: Floats = np.zeros(len(workload.names))
        self._step: Floats = np.ones(len(workload.names))

    def end_period(self, row: int, group: int, report: cfs.Report) -> Columns:
        """See `Physics`. Work that was not done counts as not arrived."""
        fleet, before_s = self.fleet, self.fleet.done_s.copy()
        over = super().end_period(row, group, report)
        fleet.arrived_s[:] -= fleet.backlog
        fleet.backlog[:] = 0.0
        asked_s = self._demand[row] * self.population.period_s
        share = np.asarray(fleet.status == cfs.UP, np.float64)
        np.divide(fleet.done_s - before_s, asked_s, out=share, where=asked_s > cfs.NANOSECOND)
        self._place = np.minimum(self._place + self._step * np.minimum(share, 1.0), self.periods - 1.0)
        self._ask(self._everyone())
        return over

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """See `Physics`. Each begins at the recording's start."""
        super().admit(columns, quota_cores, limit_bytes)
        self._ask(columns)

    def take_down(self, columns: Columns) -> None:
        """See `Physics`. The recording restarts."""
        super().take_down(columns)
        self._place[columns] = 0.0
        self._ask(columns)

    def dependents(self, columns: Columns) -> Columns:
        """See `Physics`. These are the other ranks of a group whose ranks are all connected."""
        if self._ranks is None:
            return columns[:0]
        of = self._ranks.of
        connected = of[columns[(of[columns] >= 0) & (self._least_done()[of[columns]] >= -_ROUNDING)]]
        running = self.fleet.status <= cfs.HELD
        return np.setdiff1d(np.flatnonzero(np.isin(of, connected) & running), columns)

    def release(self, columns: Columns) -> None:
        """See `Physics`. Nothing arrived while they were held or down."""
        super().release(columns)
        self.fleet.backlog[columns] = 0.0

    def _everyone(self) -> Columns:
        return np.arange(len(self._place))

    def _least_done(self) -> Floats:
        """Return the fewest periods that a rank has done since it met the others, for each group of ranks.

        It is below zero until all have met, and −inf while one is down. Ranks that left do not count.
        """
        assert self._ranks is not None
        of, status = self._ranks.of, self.fleet.status
        done = np.where(status == cfs.DOWN, -np.inf, self._place - self._ranks.meets)
        least = np.full(int(of.max(initial=-1)) + 1, np.inf)
        counted = (of >= 0) & (status != cfs.ABSENT)
        np.minimum.at(least, of[counted], done[counted])
        return least

    def _steps(self) -> Floats:
        """Return how much of a period of the recording each container may do in the present period, ≤ 1."""
        if self._ranks is None:
            return np.ones(len(self._place))
        of = self._ranks.of
        least = np.append(self._least_done(), np.inf)[of]
        last = self._ranks.meets + np.where(least >= -_ROUNDING, least + 1.0, 0.0)
        return np.clip(last - self._place, 0.0, 1.0)

    def _ask(self, columns: Columns) -> None:
        """Write the demand of containers in the present period, at their positions."""
        row = self._row
        self._step[columns] = self._steps()[columns]
        first = self._place[columns].astype(np.int64)
        beyond = self._place[columns] - first
        following = np.minimum(first + 1, self.periods - 1)
        cores = self._recorded_cores
        self._demand[row, columns] = self._step[columns] * (
            (1.0 - beyond) * cores[first, columns] + beyond * cores[following, columns]
        )
        self._want[row, columns] = self._recorded_bytes[first, columns]
