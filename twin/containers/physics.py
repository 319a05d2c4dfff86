"""What moves containers through time, as the control loop (simulation.py) sees it.

For: the port between the loop, which owns the clock, telemetry, decisions, kills and restarts, and the
model of what happens inside the containers: `fluid.Fluid` (a trace's demand) or
`requests.physics.Requests` (requests through a service graph). Not for: either of them.

Times are seconds of virtual time since the start. The loop calls `run_until` before it does anything
else at an instant, so whatever it asks is asked about that instant.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, CpuLimits
from twin.containers.cfs import Fleet, Report, Rows
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Population
from twin.containers.requests.model import RequestLog


class ServiceLevel(NamedTuple):
    """What clients saw of each application (arrays over applications) since it was last asked.

    rate_rps: float64[apps], requests that arrived per second; latency_p99_s: float64[apps] of those
    answered (NaN if none was).
    """

    rate_rps: Floats
    latency_p99_s: Floats


class Physics(Protocol):
    """The containers of one population, and what they do."""

    @property
    def population(self) -> Population:
        """Who they are."""

    @property
    def fleet(self) -> Fleet:
        """Their state; the loop and memory.py write limit_bytes and memory_order of it and nothing else."""

    @property
    def periods(self) -> int:
        """CFS periods to simulate."""

    @property
    def group(self) -> NDArray[np.int64]:
        """int64[N], 0 … K − 1: containers of one group end their periods together."""

    @property
    def ends_s(self) -> Floats:
        """float64[K], ascending in (0, period_s], the end of each group's first period: group g's row t ends
        at t·period_s + ends_s[g]."""

    @property
    def signalled(self) -> bool:
        """Whether `run_until` stopped early because something needs the loop."""

    def first(self) -> Columns:
        """Columns that are there at the start."""

    def run_until(self, at_s: float) -> float:
        """Moves everything to `at_s` or, when a container exceeds its memory limit or a watched request
        ends before that, to that instant (then `signalled` is True). Returns the instant reached."""

    def take_over(self) -> Columns:
        """Running containers that exceeded their memory limit since last asked (after a signal)."""

    def end_period(self, row: int, group: int, report: Report) -> Columns:
        """Ends period `row` of the group's containers: fills their columns of `report`, refills their
        pools. Returns those of them that exceed their memory limit. InvariantError naming the container
        when the model broke a law of its own."""

    def record(self, rows: Rows, row: int, group: int, report: Report) -> None:
        """Writes the group's containers' row of the series; forgets the reasons it recorded."""

    def write_quotas(self, members: Members, limits: CpuLimits, order: int) -> int:
        """Quota writes now: pool ← min(left + q·P, q·P + burst), unthrottled, also when unchanged. Skips ids
        that left and containers to which a later decision than `order` was applied. Returns how many
        values changed; −1 if a quota is not above zero."""

    def changes(self, row: int) -> tuple[Columns, Columns] | None:
        """(left, joined) between period row − 1 and `row`, or None when nobody did."""

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """Newcomers begin now, UP, with these limits."""

    def dismiss(self, columns: Columns) -> None:
        """Containers leave now (ABSENT); what they were doing is dropped, their limits are 0."""

    def hold(self, columns: Columns) -> None:
        """Containers are stopped at their memory limit (HELD): no progress until released."""

    def take_down(self, columns: Columns) -> None:
        """Containers are killed or restarted (DOWN): they hold no memory until released."""

    def burn(self, columns: Columns, cpu_s: Floats) -> None:
        """Containers that are DOWN used that much of their pools in this period, to start up."""

    def release(self, columns: Columns) -> None:
        """Held containers go on, containers that were down begin anew (UP)."""

    def service_level(self) -> ServiceLevel | None:
        """What clients saw since last asked; None where there are no requests."""

    def finish(self) -> RequestLog | None:
        """After the last period: what became of the requests, None where there are none."""
