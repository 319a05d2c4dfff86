"""The control loop around the fleet in virtual time: SimPy owns the clock, the arrays own the containers.

For: the times at which periods end, telemetry arrives and decisions take effect, and at which containers are
held, killed, restarted, join and leave. Not for: the inside of containers (physics.py), nor the rules of
memory (memory.py).

One process ticks the periods; everything else is a timeout with a callback. Between two instants of the clock
the physics advances by itself. It may stop early when a container exceeds its memory limit. The order at a
period's end is: everyone is integrated and reported, leaves, joins, containers above their memory limit,
hosts whose memory is full. Telemetry and decisions keep their order: a report never overtakes an earlier one,
and a write that was superseded before it took effect is dropped. These rules hold where the kernel leaves a
choice:

- Held, killed and restarting containers make no progress.
- A killed container is down until its next start (lives.py), so it is killed at most once per start.
- The decision of `on_join` takes effect at once, before the newcomers run.
- Agents sweep by themselves. Only their report crosses the network.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    Decision,
    History,
    Ids,
    MemoryLimits,
    OomEvents,
    Shrunk,
)
from control.allocator.ports import Allocator, ServiceAware
from twin.containers import cfs, memory
from twin.containers.asking import Newcomers, Requests
from twin.containers.leap import Leapt, Moment, new_leaps
from twin.containers.lives import Lives
from twin.containers.members import Columns, Members
from twin.containers.model import Events, Machine, Outcome
from twin.containers.physics import Physics
from twin.containers.recording import Recorder
from twin.containers.reporting import Counters, shown
from twin.containers.telling import Progress, Told
from twin.containers.timers import Timers, delays_until
from twinbed import InvariantError


class ControlLoop:
    """One simulation. Call `run` once.

    env: the clock, for processes that join and dismiss containers during the run (serverless pods).
    on_signal: called when the physics stopped early, after memory has been handled. profile: use of the
    columns in their profile, if the policy receives it. workload_of: int64[N], workload of each column.
    recorder: recorder of the series; None: the series is not kept. requests: CPU requests in force.
    """

    def __init__(
        self,
        physics: Physics,
        allocator: Allocator,
        machine: Machine,
        seed: np.random.SeedSequence,
        recorder: Recorder | None,
        profile: History | None = None,
        workload_of: Columns | None = None,
    ) -> None:
        self._newcomers = Newcomers(physics, profile, workload_of)
        self._physics, self._allocator, self._machine = physics, allocator, machine
        self._population, self._fleet = physics.population, physics.fleet
        periods, count, groups = physics.periods, len(physics.group), len(physics.ends_s)
        self._timers = Timers()
        self.env = self._timers.env
        self.on_signal: Callable[[], None] = lambda: None
        self._members = Members(physics.group, groups)
        self._recorder = recorder
        self._events = Events([], [], [], [])
        self._limit_changes = 0
        self._order = 0
        self.requests = Requests(physics, self._recorder)
        self._lives = Lives(physics, machine, self._timers, self._note)
        interval_s = self._population.report_interval_s
        self._counters = Counters(physics, interval_s) if interval_s > 0.0 else None
        self._spare: list[cfs.Report] = []
        self._in_flight: deque[tuple[cfs.Report, Ids, Columns | None, float]] = deque()
        self._random = np.random.default_rng(seed)
        jitter = machine.telemetry_jitter_s * self._random.standard_normal(periods * groups)
        delay = machine.telemetry_delay_s
        self._delays = np.maximum(delay + jitter, 0.0).reshape(periods, groups) + machine.network_delay_s
        self._leaps = new_leaps(physics, allocator, machine, self._delays, self._recorder)
        rule = allocator.reclaim
        # Where passes handle sweeps, the next one is a timer only in the period in which it is due.
        self._sweeps_late = (
            self._leaps is not None and rule is not None and rule.interval_s > self._population.period_s
        )
        self._sweep_s = np.inf
        self._reserved = np.zeros(count)
        self._last_arrival_s = 0.0
        self._reports = self._asked = 0
        self._decide_s = 0.0

    def run(self, progress: Progress | None) -> Outcome:
        """Deploy, run all periods, and return the outcome."""
        try:
            return self._run(progress)
        finally:
            # Clock and callbacks refer to each other through this object. Without clearing it, the series
            # (hundreds of MB for a large workload) would live until the garbage collector runs.
            vars(self).clear()

    def join(self, columns: Columns) -> None:
        """Let containers (int64[k]) join now."""
        self._admit(columns, self._allocator.on_join(self._newcomers.join(columns)))

    def leave(self, columns: Columns) -> None:
        """Remove containers (int64[k]) now."""
        self._carry_out(self._allocator.on_leave(self._dismiss(columns)))

    def _run(self, progress: Progress | None) -> Outcome:
        env, physics = self.env, self._physics
        self._deploy()
        ticks = env.process(self._periods(progress))
        if self._counters is not None:
            self._counters.begin(env, self._members, self._spare, self._send)
        if self._allocator.reclaim is not None:
            self._plan_sweep(self._allocator.reclaim.interval_s)
        if isinstance(self._allocator, ServiceAware):
            self._timers.after(self._allocator.service_interval_s, self._service, self._allocator)
        while ticks.is_alive:
            reached_s = physics.run_until(env.peek())
            if physics.signalled:
                self._timers.after(reached_s - env.now, self._signalled)
            env.step()
        if not ticks.ok:
            raise cast(BaseException, ticks.value)
        fleet = self._fleet
        return Outcome(
            series=None if self._recorder is None else self._recorder.finish(),
            events=self._events,
            limit_changes=self._limit_changes,
            arrived_s=fleet.arrived_s,
            done_s=fleet.done_s,
            nr_periods=fleet.nr_periods,
            nr_throttled=fleet.nr_throttled,
            reports=self._reports,
            decide_s=self._decide_s,
            asked=self._asked,
            reserved_cores=None if self._recorder is not None else self._reserved,
            requests=physics.finish(),
        )

    # --- periods ---------------------------------------------------------------------------------

    def _periods(self, progress: Progress | None) -> Generator[simpy.Event, Any, None]:
        env, physics, period_s = self.env, self._physics, self._population.period_s
        ends = physics.ends_s.tolist()
        told, row = Told(progress, physics.periods), 0
        while row < physics.periods:
            for group, end in enumerate(ends):
                # The last group's end is to the bit the start of the next row.
                end_s = (row + 1) * period_s if end == period_s else row * period_s + end
                self._set_sweep(env.now + max(end_s - env.now, 0.0))
                yield env.timeout(max(end_s - env.now, 0.0))
                report, over = self._end_period(row, group, end_s)
                while (leapt := self._leap(row, report, over)) is not None:
                    row, over, end_s = leapt.at.row, leapt.over, (leapt.at.row + 1) * period_s
                    for delay_s in delays_until(leapt.at.now_s, env.now):
                        yield env.timeout(delay_s)
                    if leapt.reclaim_s < np.inf:
                        self._timers.exactly(leapt.reclaim_s, self._reclaim, self._all_apps())
                    told.tell(row + 1)
                if self._counters is None:
                    self._send(report, row, group, end_s)
                else:
                    self._spare.append(report)
                if group == len(ends) - 1 and row + 1 < physics.periods:
                    self._change_members(row + 1)
                if over.size:
                    self._overshoot(over)
                if self._population.host_memory_bytes < np.inf:
                    self._relieve_hosts()
            row += 1
            told.tell(row)

    def _end_period(self, row: int, group: int, end_s: float) -> tuple[cfs.Report, Columns]:
        """End and record the group's period. Returns its report, and its columns above their memory limit."""
        physics = self._physics
        report = self._spare.pop() if self._spare else cfs.new_report(len(physics.group))
        columns = self._members.by_group[group][0]
        self._lives.burn(columns, end_s)
        over = physics.end_period(row, group, report)
        if self._recorder is not None:
            physics.record(self._recorder.reach(row), row, group, report)
        else:
            cfs.reserve(self._reserved, self.requests.held, self._fleet, columns)
        self.requests.fill(row, row + 1, columns)
        self._lives.go_on(columns, end_s)
        return report, over

    def _leap(self, row: int, report: cfs.Report, over: Columns) -> Leapt | None:
        """Run periods up to the clock's next event, None if too few. `report` becomes the last one's."""
        if self._leaps is None or self._in_flight:
            return None
        at = Moment(self.env.now, row, self._order, self._last_arrival_s, self.env.peek(), self._sweep_s)
        leapt = self._leaps.run(at, over, report, self._members, self.requests, self._reserved)
        if leapt is not None:
            self._order, self._last_arrival_s = leapt.at.order, leapt.at.last_arrival_s
            self._reports += leapt.reports
            self._limit_changes += leapt.changed
            self._sweep_s = leapt.at.sweep_s
            self._events.add(*leapt.notes)
        return leapt

    def _send(self, report: cfs.Report, row: int, group: int, at_s: float) -> None:
        members = self._members
        columns, ids = members.by_group[group]
        arrival_s = max(at_s + self._delays[row, group], self._last_arrival_s)
        self._last_arrival_s = arrival_s
        everyone = members.in_order and len(members.by_group) == 1
        self._in_flight.append((report, ids, None if everyone else columns, at_s))
        self._timers.after(arrival_s - self.env.now, self._telemetry)

    def _telemetry(self) -> None:
        """Deliver the oldest report in flight. (Two that are due at once may differ by rounding.)"""
        report, ids, columns, at_s = self._in_flight.popleft()
        if self._machine.telemetry_loss > 0.0:
            columns = np.arange(len(ids)) if columns is None else columns
            arrived = self._random.random(len(ids)) >= self._machine.telemetry_loss
            ids, columns = ids[arrived], columns[arrived]
        self._reports += len(ids)
        self._asked += len(ids)
        if ids.size == 0:
            self._spare.append(report)
            return
        stats = shown(report, ids, columns, self._population, at_s)
        began = time.perf_counter()
        decision = self._allocator.on_period(stats)
        self._decide_s += time.perf_counter() - began
        self._spare.append(report)
        self._carry_out(decision)

    def _service(self, allocator: ServiceAware) -> None:
        """Pass the service level to a ServiceAware allocator at every interval; never without clients."""
        stats = self._physics.service_level(self.env.now)
        if stats is None:
            return
        self._timers.after(allocator.service_interval_s, self._service, allocator)
        self._carry_out(allocator.on_service(self._members.named(stats)))

    # --- decisions -------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        """Apply limits, kills and restarts after the write or grant delay, and reclaims after the reclaim
        delay."""
        if decision is NOTHING:
            return
        machine = self._machine
        if decision.reclaim.size:
            delay_s = machine.reclaim_delay_s + machine.network_delay_s
            self._timers.after(delay_s, self._reclaim, decision.reclaim)
        limits = (decision.cpu, decision.memory, decision.requests)
        if any(part.ids.size for part in limits) or decision.restart.size or decision.kill.size:
            delay_s = machine.oom_grant_delay_s if answer else machine.quota_write_delay_s
            self._order += 1
            self._timers.after(delay_s + machine.network_delay_s, self._apply, decision, self._order, answer)

    def _apply(self, decision: Decision, order: int, answer: bool) -> None:
        """Apply all parts at one instant, so that decreases take effect with increases.

        Containers go down before their new memory limit is written, because the memory they held no longer
        counts against it.
        """
        if decision.restart.size:
            self._lives.take_down(self._members.find(decision.restart)[1], "restart")
        if decision.kill.size:
            self._lives.take_down(self._members.find(decision.kill)[1], "kill")
        if decision.requests.ids.size:
            self.requests.write(self._members, decision.requests, order)
        if decision.memory.ids.size:
            self._write_memory(decision.memory, order, answer)
        if decision.cpu.ids.size:
            changed = self._physics.write_quotas(self._members, decision.cpu, order)
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
            self._physics.release(written.fitting)
        if written.short.size:
            self._overshoot(written.short)

    # --- memory ----------------------------------------------------------------------------------

    def _signalled(self) -> None:
        """Handle an early stop of the physics: a memory limit is exceeded, or a watched request has ended."""
        over = self._physics.take_over()
        if over.size:
            # A container that was already stopped by a period's end at this instant is not handled twice.
            self._overshoot(over[self._fleet.status[over] == cfs.UP])
        self.on_signal()

    def _overshoot(self, columns: Columns) -> None:
        """Trap or kill running or held containers above their limit, then call the allocator."""
        fleet = self._fleet
        columns = columns[fleet.status[columns] <= cfs.HELD]
        if columns.size == 0:
            return
        # The kernel kills at the first page above the limit, and does not report what was to follow.
        traps = self._allocator.traps_oom
        needed = memory.excess(fleet, columns) if traps else np.full(len(columns), PAGE_BYTES)
        event = OomEvents(self._members.issued[columns], needed, self.env.now)
        self._note("oom", columns)
        if traps:
            self._physics.hold(columns)
        else:
            self._lives.take_down(columns, "kill")
        if self._machine.network_delay_s > 0.0:
            self._timers.after(self._machine.network_delay_s, self._ask, event)
        else:
            self._ask(event)

    def _relieve_hosts(self) -> None:
        """Kill the largest containers of hosts whose memory is full. As on a machine, only allocators without
        a trap get an event."""
        columns = memory.too_much(self._fleet, self._physics.host, self._population.host_memory_bytes)
        event = OomEvents(self._members.issued[columns], np.full(len(columns), PAGE_BYTES), self.env.now)
        self._note("oom", columns)
        self._lives.take_down(columns, "kill")
        if columns.size and not self._allocator.traps_oom:
            self._timers.after(self._machine.network_delay_s, self._ask, event)

    def _ask(self, event: OomEvents) -> None:
        self._carry_out(self._allocator.on_oom(event), answer=self._allocator.traps_oom)

    def _sweep(self) -> None:
        rule = self._allocator.reclaim
        if rule is not None:
            self._plan_sweep(rule.interval_s)
            self._timers.after(self._machine.reclaim_delay_s, self._reclaim, self._all_apps())

    def _plan_sweep(self, delay_s: float) -> None:
        if self._sweeps_late:
            self._sweep_s = self.env.now + delay_s
        else:
            self._timers.after(delay_s, self._sweep)

    def _set_sweep(self, until_s: float) -> None:
        """Set the timer of the next sweep, if the sweep is due until then."""
        if self._sweep_s <= until_s:
            self._timers.exactly(self._sweep_s, self._sweep)
            self._sweep_s = np.inf

    def _all_apps(self) -> NDArray[np.int64]:
        return np.arange(len(self._population.applications))

    def _reclaim(self, apps: NDArray[np.int64]) -> None:
        """Let the agents shrink the applications' containers in one instant and report it."""
        rule = self._allocator.reclaim
        if rule is None:
            raise InvariantError(f"{self._allocator.name} asked for a reclaim and has no rule for it")
        columns = self._members.columns
        if len(apps) < len(self._population.applications):
            columns = columns[np.isin(self._population.app[columns], apps)]
        self._order += 1
        columns, ids, limits = memory.shrink_running(
            self._fleet, self._members, columns, rule.margin_bytes, self._order
        )
        self._note("reclaim", columns)
        shrunk = Shrunk(apps, ids, limits, self.env.now)
        if self._machine.network_delay_s > 0.0:
            self._timers.after(self._machine.network_delay_s, self._reclaimed, shrunk)
        else:
            self._reclaimed(shrunk)

    def _reclaimed(self, shrunk: Shrunk) -> None:
        self._carry_out(self._allocator.on_reclaimed(shrunk), answer=True)

    # --- members ---------------------------------------------------------------------------------

    def _deploy(self) -> None:
        columns = self._physics.first()
        decision = self._allocator.start(self._population.applications, self._newcomers.join(columns))
        self._admit(columns, decision)

    def _change_members(self, row: int) -> None:
        changes = self._physics.changes(row)
        if changes is None:
            return
        left, joined = changes
        if left.size:
            self.leave(left)
        if joined.size:
            self.join(joined)

    def _admit(self, columns: Columns, decision: Decision) -> None:
        """Start newcomers with the last limits of the decision. Its other parts take effect now too."""
        count = len(columns)
        if count:
            cpu, limits = decision.cpu, decision.memory
            ids: Ids = cpu.ids[len(cpu.ids) - count :]
            if len(cpu.ids) < count or not np.array_equal(ids, limits.ids[len(limits.ids) - count :]):
                raise InvariantError(f"{self._allocator.name}: newcomers without a CPU and a memory limit")
            self._members.add(columns, ids)
            self._lives.begin(columns)
            self._physics.admit(
                columns,
                cpu.quota_cores[len(cpu.ids) - count :],
                limits.limit_bytes[len(limits.ids) - count :],
            )
            self._note("join", columns)
        self._order += 1
        self._apply(decision, self._order, False)
        if decision.reclaim.size:
            self._timers.after(self._machine.reclaim_delay_s, self._reclaim, decision.reclaim)

    def _dismiss(self, columns: Columns) -> Ids:
        self._physics.dismiss(columns)
        self._lives.end(columns)
        self.requests.forget(columns)
        self._note("leave", columns)
        return self._members.remove(columns)

    def _note(self, kind: str, columns: Columns) -> None:
        self._events.note(self.env.now, kind, columns, self._fleet.limit_bytes[columns])
