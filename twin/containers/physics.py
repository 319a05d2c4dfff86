"""The model that advances containers in time, as the control loop (simulation.py) sees it.

For: the port between the loop and the model of the containers' inside. The loop owns the clock, telemetry,
decisions, kills and restarts. The models are `fluid.Fluid` (a trace's demand) and `requests.physics.Requests`
(requests through a service graph). Not for: either of them.

Times are seconds of virtual time since the start. The loop calls `run_until` before it does anything else at
an instant, so every other call is about that instant.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, CpuLimits, ServiceStats
from twin.containers.cfs import Fleet, Report, Rows
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Population
from twin.containers.requests.model import RequestLog


class Physics(Protocol):
    """Simulates CPU, memory and life of the N containers of a population, as the control loop calls it."""

    @property
    def population(self) -> Population:
        """The containers' names, applications and sizes."""

    @property
    def fleet(self) -> Fleet:
        """The containers' state.

        The loop and memory.py write its limit_bytes and memory_order and nothing else.
        """

    @property
    def periods(self) -> int:
        """Number of CFS periods to simulate."""

    @property
    def group(self) -> NDArray[np.int64]:
        """Group of each container, int64[N], 0 … K − 1. Containers of a group end their periods together."""

    @property
    def host(self) -> NDArray[np.int64]:
        """Index of each container's host, int64[N]."""

    @property
    def ends_s(self) -> Floats:
        """End of each group's first period, float64[K], ascending in (0, period_s].

        Group g's row t ends at t·period_s + ends_s[g].
        """

    @property
    def signalled(self) -> bool:
        """Whether `run_until` stopped early because of an event that the loop must handle."""

    def first(self) -> Columns:
        """Return the columns that are present at the start."""

    def run_until(self, at_s: float) -> float:
        """Advance everything to `at_s`, or to an earlier instant that needs the loop.

        Returns the instant reached, s. The loop is needed when a container exceeds its memory limit or a
        watched request ends. `signalled` is then True.
        """

    def take_over(self) -> Columns:
        """Return the running containers that exceeded their memory limit since the last call."""

    def end_period(self, row: int, group: int, report: Report) -> Columns:
        """End period `row` of the group's containers: fill their columns of `report` and refill their pools.

        Returns the columns of the group that exceed their memory limit. Raises InvariantError naming the
        container if the model breaks one of its own laws.
        """

    def account(self, columns: Columns) -> None:
        """Update the state of containers, and their use in the present period, to the present instant."""

    def record(self, rows: Rows, row: int, group: int, report: Report) -> None:
        """Write the row of the group's containers into the series, and forget the recorded reasons."""

    def write_quotas(self, members: Members, limits: CpuLimits, order: int) -> int:
        """Write quotas now: pool ← min(left + q·P, q·P + burst), unthrottled, even if the quota is unchanged.

        Ids that left are skipped, and so are containers to which a later decision than `order` was applied.
        Returns the number of changed values, or −1 if a quota is not above zero.
        """

    def weigh(self, columns: Columns, weights: Floats) -> None:
        """Set cpu.weight (float64[k] > 0) of containers now. It matters on hosts that are short of CPUs."""

    def changes(self, row: int) -> tuple[Columns, Columns] | None:
        """Return (left, joined) between period row − 1 and `row`, or None if there is no change."""

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """Start newcomers now (UP) with these limits."""

    def dismiss(self, columns: Columns) -> None:
        """Remove containers now (ABSENT). Their work is dropped and their limits are 0."""

    def hold(self, columns: Columns) -> None:
        """Stop containers at their memory limit (HELD). They make no progress until released."""

    def take_down(self, columns: Columns) -> None:
        """Kill or restart containers (DOWN). They hold no memory until released."""

    def dependents(self, columns: Columns) -> Columns:
        """Return the other running containers that fail if `columns` go down now."""

    def burn(self, columns: Columns, cpu_s: Floats) -> None:
        """Use cpu_s of the pools of containers that are DOWN in this period, to start them up."""

    def release(self, columns: Columns) -> None:
        """Let held containers continue, and containers that were down start again (UP)."""

    def service_level(self, now_s: float) -> ServiceStats | None:
        """Return the service level since the last call, at `now_s`; None if there are no requests."""

    def finish(self) -> RequestLog | None:
        """Return the log of the requests after the last period, or None if there are none."""
