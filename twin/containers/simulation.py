"""The control loop around the fleet in virtual time: SimPy owns the clock, the arrays own the containers.

For: when periods end, telemetry arrives, decisions take force, containers are held, killed, restarted,
join and leave. Not for: what a period does to a container (cfs.py), nor for memory's rules (memory.py).

One process ticks the periods; everything else is a timeout with a callback. At a period's end, in
this order: everyone is integrated and reported, leaves, joins, containers above their memory limit.
Telemetry and decisions keep their order (a report never overtakes an earlier one; a write that was
superseded before it took force is dropped). Rules where the kernel leaves a choice:
- held, killed and restarting containers make no progress; work that arrives joins the backlog;
- a killed container is down for restart_s and tries its trace's memory again at the next period's end,
  so it is killed at most once per start;
- what `on_join` decides takes force at once, before the newcomers run; their first memory charge is at
  their first period's end; a container that leaves drops its backlog.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from control.allocator.model import (
    NOTHING,
    Decision,
    Ids,
    Join,
    MemoryLimits,
    OomEvents,
    PeriodStats,
    Shrunk,
)
from control.allocator.ports import Allocator
from twin.containers import cfs, memory
from twin.containers.members import Columns, Members
from twin.containers.model import Events, Machine, Outcome, Workload
from twin.containers.validation import check
from twinbed import InvariantError

Progress = Callable[[float], None]

_PROGRESS_INTERVAL_S = 0.05


def simulate(
    workload: Workload,
    allocator: Allocator,
    machine: Machine,
    *,
    seed: np.random.SeedSequence,
    record: bool = True,
    progress: Progress | None = None,
) -> Outcome:
    """Runs `workload` under `allocator` on `machine`, one period after the other.

    record: keep the series (58 bytes per container-period). progress: called with the finished fraction
    (0…1] at most 20 times per second of real time; what it raises ends the simulation and passes through.
    Same arguments and seed, same outcome to the bit. Raises InvariantError naming container and period for
    a workload that is not finite or negative, and for an allocator that breaks its port's promises;
    ScenarioError from the allocator when the containers do not fit.
    """
    simulation = _Run(workload, allocator, machine, seed, record)
    try:
        return simulation.run(progress)
    finally:
        # Clock and callbacks refer to each other through it: without this the series, hundreds of MB for
        # a large workload, would live until the collector runs.
        vars(simulation).clear()


class _Run:
    """One simulation; `run` is to be called once."""

    def __init__(
        self,
        workload: Workload,
        allocator: Allocator,
        machine: Machine,
        seed: np.random.SeedSequence,
        record: bool,
    ) -> None:
        check(workload)
        periods, count = workload.present.shape
        self._workload, self._allocator, self._machine = workload, allocator, machine
        self._demand = np.ascontiguousarray(workload.demand_cores, np.float64)
        self._want = np.ascontiguousarray(workload.memory_bytes, np.int64)
        self._env = simpy.Environment()
        self._fleet = cfs.new_fleet(workload)
        self._members = Members(count)
        self._series = cfs.new_series(periods, count) if record else None
        self._rows = None
        if self._series is not None:
            self._rows = cfs.Rows(*(getattr(self._series, name) for name in cfs.Rows._fields))
        self._events = Events([], [], [], [])
        self._limit_changes = 0
        self._row = 0
        self._start_s = 0.0
        self._order = 0
        self._starts = np.zeros(count, np.int64)  # ends of life so far: a late restart timer is told by it
        self._over = np.empty(count, np.int64)
        self._spare: list[cfs.Report] = []
        self._in_flight: deque[tuple[cfs.Report, Ids, Columns | None, float]] = deque()
        delay = machine.telemetry_delay_s
        jitter = machine.telemetry_jitter_s * np.random.default_rng(seed).standard_normal(periods)
        self._delays = np.maximum(delay + jitter, 0.0).tolist()
        self._last_arrival_s = 0.0

    def run(self, progress: Progress | None) -> Outcome:
        """Deploys, runs all periods, and returns what happened."""
        self._deploy()
        ticks = self._env.process(self._periods(progress))
        if self._allocator.reclaim is not None:
            self._at(self._allocator.reclaim.interval_s, self._sweep)
        self._env.run(until=ticks)
        fleet = self._fleet
        return Outcome(
            series=self._series,
            events=self._events,
            limit_changes=self._limit_changes,
            arrived_s=fleet.arrived_s,
            done_s=fleet.done_s,
            nr_periods=fleet.nr_periods,
            nr_throttled=fleet.nr_throttled,
        )

    # --- periods ---------------------------------------------------------------------------------

    def _periods(self, progress: Progress | None) -> Generator[simpy.Event, Any, None]:
        env, period_s, periods = self._env, self._workload.period_s, len(self._demand)
        changed = cfs.changed_rows(self._workload.present)
        reported = time.monotonic()
        for row in range(periods):
            yield env.timeout(max((row + 1) * period_s - env.now, 0.0))
            over = self._end_period(row)
            if row + 1 < periods and changed[row + 1]:
                self._change_members(row + 1)
            if over.size:
                self._overshoot(over)
            if progress is not None:
                now = time.monotonic()
                if now - reported >= _PROGRESS_INTERVAL_S or row + 1 == periods:
                    reported = now
                    progress((row + 1) / periods)

    def _end_period(self, row: int) -> Columns:
        """Integrates, records and reports period `row`; returns the columns above their memory limit."""
        period_s = self._workload.period_s
        report = self._spare.pop() if self._spare else cfs.new_report(len(self._over))
        found = cfs.end_period(
            self._fleet,
            self._demand,
            self._want,
            row,
            period_s,
            self._machine.burst_s,
            report,
            self._over,
        )
        if found < 0:
            self._blame(-1 - found, row)
        if self._rows is not None:
            cfs.record(self._rows, row, self._fleet, report, self._demand)
        self._start_s = (row + 1) * period_s
        self._row = min(row + 1, len(self._demand) - 1)
        arrival_s = max(self._start_s + self._delays[row], self._last_arrival_s)
        self._last_arrival_s = arrival_s
        members = self._members
        columns = None if members.in_order else members.columns
        self._in_flight.append((report, members.ids, columns, self._start_s))
        self._at(arrival_s - self._env.now, self._telemetry)
        return self._over[:found].copy() if found else self._over[:0]

    def _telemetry(self) -> None:
        """The oldest report in flight arrives. (Two that are due at once may differ by rounding.)"""
        report, ids, columns, at_s = self._in_flight.popleft()
        shown = report
        if columns is not None:
            shown = cfs.Report._make(values.take(columns) for values in report)
        stats = PeriodStats(
            ids=ids,
            quota_cores=shown.quota_cores,
            unused_cores=shown.unused_cores,
            throttled=shown.throttled,
            usage_cores=shown.usage_cores,
            memory_bytes=shown.memory_bytes,
            period_s=self._workload.period_s,
            at_s=at_s,
        )
        decision = self._allocator.on_period(stats)
        self._spare.append(report)
        self._carry_out(decision)

    # --- decisions -------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        """Limits, kills and restarts after the write's or the grant's delay; reclaims after theirs."""
        if decision is NOTHING:
            return
        if decision.reclaim.size:
            self._at(self._machine.reclaim_delay_s, self._reclaim, decision.reclaim)
        if decision.cpu.ids.size or decision.memory.ids.size or decision.restart.size or decision.kill.size:
            machine = self._machine
            delay_s = machine.oom_grant_delay_s if answer else machine.quota_write_delay_s
            self._order += 1
            self._at(delay_s, self._apply, decision, self._order, answer)

    def _apply(self, decision: Decision, order: int, answer: bool) -> None:
        """All parts at one instant, so decreases come with increases. Containers go down before their
        new memory limit is written: what they held is no longer held against it."""
        if decision.restart.size:
            self._take_down(self._members.find(decision.restart)[1], "restart")
        if decision.kill.size:
            self._take_down(self._members.find(decision.kill)[1], "kill")
        if decision.memory.ids.size:
            self._write_memory(decision.memory, order, answer)
        cpu = decision.cpu
        if cpu.ids.size:
            changed = cfs.write_quotas(
                self._fleet,
                self._members.issued,
                self._members.column_of,
                cpu.ids,
                cpu.quota_cores,
                cpu.reason,
                order,
                self._offset(),
                self._demand,
                self._row,
                self._workload.period_s,
                self._machine.burst_s,
            )
            if changed < 0:
                raise InvariantError(f"{self._allocator.name} decided a quota that is not above zero")
            self._limit_changes += changed

    def _write_memory(self, limits: MemoryLimits, order: int, answer: bool) -> None:
        rows, columns = self._members.find(limits.ids)
        written = memory.write_limits(self._fleet, columns, limits.limit_bytes[rows], order, answer=answer)
        self._limit_changes += written.changed
        if answer:
            self._note("grant", written.held)
        if written.fitting.size:
            self._release(written.fitting)
        if written.short.size:
            self._overshoot(written.short)

    # --- memory, kills and restarts --------------------------------------------------------------

    def _overshoot(self, columns: Columns) -> None:
        """Running (or again held) containers that want more than their limit: trap or kill, then ask."""
        fleet = self._fleet
        columns = columns[fleet.status[columns] <= cfs.HELD]
        if columns.size == 0:
            return
        event = OomEvents(self._members.issued[columns], memory.excess(fleet, columns), self._env.now)
        self._note("oom", columns)
        if self._allocator.traps_oom:
            self._advance(columns)
            memory.stop(fleet, columns, cfs.HELD)
        else:
            self._take_down(columns, "kill")
        self._carry_out(self._allocator.on_oom(event), answer=self._allocator.traps_oom)

    def _take_down(self, columns: Columns, why: str) -> None:
        """Kills or restarts those that are not down already; they come back after restart_s."""
        columns = columns[self._fleet.status[columns] <= cfs.HELD]
        if columns.size == 0:
            return
        self._advance(columns)
        memory.stop(self._fleet, columns, cfs.DOWN)
        self._starts[columns] += 1
        if why == "kill":
            self._note("kill", columns)
        self._note("restart", columns)
        self._at(self._machine.restart_s, self._come_up, columns, self._starts[columns])

    def _come_up(self, columns: Columns, starts: NDArray[np.int64]) -> None:
        same = (self._starts[columns] == starts) & (self._fleet.status[columns] == cfs.DOWN)
        self._release(columns[same])

    def _release(self, columns: Columns) -> None:
        self._advance(columns)
        self._fleet.status[columns] = cfs.UP

    def _sweep(self) -> None:
        rule = self._allocator.reclaim
        if rule is not None:
            self._at(rule.interval_s, self._sweep)
            apps = np.arange(len(self._workload.applications))
            self._at(self._machine.reclaim_delay_s, self._reclaim, apps)

    def _reclaim(self, apps: NDArray[np.int64]) -> None:
        """The agents shrink the applications' containers and report it, in one instant."""
        rule = self._allocator.reclaim
        if rule is None:
            raise InvariantError(f"{self._allocator.name} asked for a reclaim and has no rule for it")
        columns = self._members.columns
        if len(apps) < len(self._workload.applications):
            columns = columns[np.isin(self._workload.app[columns], apps)]
        self._order += 1
        columns, ids, limits = memory.shrink_running(
            self._fleet, self._members, columns, rule.margin_bytes, self._order
        )
        self._note("reclaim", columns)
        shrunk = Shrunk(apps, ids, limits, self._env.now)
        self._carry_out(self._allocator.on_reclaimed(shrunk), answer=True)

    # --- members ---------------------------------------------------------------------------------

    def _deploy(self) -> None:
        columns = np.flatnonzero(self._workload.present[:1].any(axis=0))
        decision = self._allocator.start(self._workload.applications, self._join(columns))
        self._admit(columns, decision)

    def _change_members(self, row: int) -> None:
        before, after = self._workload.present[row - 1], self._workload.present[row]
        left = np.flatnonzero(before & ~after)
        if left.size:
            self._carry_out(self._allocator.on_leave(self._dismiss(left)))
        joined = np.flatnonzero(after & ~before)
        if joined.size:
            self._admit(joined, self._allocator.on_join(self._join(joined)))

    def _join(self, columns: Columns) -> Join:
        load = self._workload
        return Join(
            load.app[columns], load.host_cores[columns], load.peak_cores[columns], load.peak_bytes[columns]
        )

    def _admit(self, columns: Columns, decision: Decision) -> None:
        """Newcomers start with the last limits of the decision, whose other parts take force now too."""
        fleet, count = self._fleet, len(columns)
        if count:
            cpu, limits = decision.cpu, decision.memory
            ids: Ids = cpu.ids[len(cpu.ids) - count :]
            if len(cpu.ids) < count or not np.array_equal(ids, limits.ids[len(limits.ids) - count :]):
                raise InvariantError(f"{self._allocator.name}: newcomers without a CPU and a memory limit")
            self._members.add(columns, ids)
            fleet.status[columns] = cfs.UP
            fleet.quota[columns] = cpu.quota_cores[len(cpu.ids) - count :]
            fleet.limit_bytes[columns] = limits.limit_bytes[len(limits.ids) - count :]
            self._note("join", columns)
        self._order += 1
        self._apply(decision, self._order, False)
        if decision.reclaim.size:
            self._at(self._machine.reclaim_delay_s, self._reclaim, decision.reclaim)

    def _dismiss(self, columns: Columns) -> Ids:
        fleet = self._fleet
        fleet.status[columns] = cfs.ABSENT
        for values in (fleet.quota, fleet.pool, fleet.backlog):
            values[columns] = 0.0
        fleet.limit_bytes[columns] = 0
        fleet.wanted_bytes[columns] = 0
        self._starts[columns] += 1
        self._note("leave", columns)
        return self._members.remove(columns)

    # --- small parts -----------------------------------------------------------------------------

    def _at(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action(*arguments)` after delay_s of virtual time."""
        event = self._env.timeout(max(delay_s, 0.0))
        event.callbacks.append(lambda _: action(*arguments))

    def _offset(self) -> float:
        return min(max(self._env.now - self._start_s, 0.0), self._workload.period_s)

    def _advance(self, columns: Columns) -> None:
        cfs.advance(self._fleet, columns, self._offset(), self._demand, self._row)

    def _note(self, kind: str, columns: Columns) -> None:
        if columns.size == 0:
            return
        events = self._events
        events.at_s.extend([self._env.now] * len(columns))
        events.container.extend(columns.tolist())
        events.kind.extend([kind] * len(columns))
        events.limit_bytes.extend(self._fleet.limit_bytes[columns].tolist())

    def _blame(self, column: int, row: int) -> None:
        demand, want = self._demand[row, column], self._want[row, column]
        name = self._workload.names[column]
        if not (0.0 <= demand < np.inf) or want < 0:
            raise InvariantError(f"container {name!r}, period {row}: demand {demand} cores, {want} bytes")
        raise InvariantError(f"container {name!r}, period {row}: more done than its CPUs can do")
