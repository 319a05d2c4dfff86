"""Runs many periods in one compiled pass as long as only periods, reports and CPU limits happen.

For: days of a trace, in which one period costs more in calls than in arithmetic. Not for: rare events. A pass
ends before the next timer, when containers join or leave, and when a container exceeds its memory limit,
unless leap_memory.py handles that. The
control loop (simulation.py) then continues. The result equals the loop's to the bit: instants are summed as
SimPy does, and the kernels are those of cfs.py. It serves two kinds of policies: `ports.Patient` ones, which
get many periods at once while they decide nothing, and `ports.Tabled` ones, whose rule is applied here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from control.allocator.autothrottle_settle import settle_captains
from control.allocator.escra_settle import EscraBooks, Rule, Table, settle
from control.allocator.model import History, Ids
from control.allocator.ports import Allocator, Patient, Tabled, Tables
from twin.containers import cfs
from twin.containers.asking import Requests
from twin.containers.cfs import Bytes8, Fleet, Report, Rows, Whole
from twin.containers.compiled import compiled, kernel, released
from twin.containers.ending import end_period
from twin.containers.fluid import Fluid
from twin.containers.leap_memory import NOTED, ORDER, Memory, go_to, has_room, hold, is_due, new_memory
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Machine
from twin.containers.recording import Recorder
from twin.containers.sharing import Hosts
from twinbed import InvariantError

_MOST_PERIODS = 2048
"""Most periods of a pass: large enough to make the call's cost negligible, small enough to report
progress."""

_MOST_CELLS = 1 << 20
"""Most container-periods of a pass. It bounds the memory of a pass to 16 MiB."""

_LEAST_PERIODS = 3
"""Fewest periods for which a pass costs less than the periods one by one."""

_settle = compiled(settle)
_settle_captains = compiled(settle_captains)


Notes = tuple[Floats, Columns, Bytes8, Whole]


class Moment(NamedTuple):
    """The state of the loop after the end of period `row`, at now_s, before its report is sent.

    order: order of the last decision. last_arrival_s: time at which the last report arrived. until_s: time of
    the next timer. sweep_s: time of the agents' next sweep, if no timer is set for it, else inf.
    """

    now_s: float
    row: int
    order: int
    last_arrival_s: float
    until_s: float
    sweep_s: float


class Leapt(NamedTuple):
    """The result of a pass. at: the state of the loop after it. over: columns above their memory limit.
    reports: container reports that arrived. changed: number of limits that were changed. reclaim_s: time of
    the agents' next reclaim, s; inf: no sweep is in progress. notes: events as arrays of times, columns,
    kinds and limits."""

    at: Moment
    over: Columns
    reports: int
    changed: int
    reclaim_s: float
    notes: Notes


class _Room(NamedTuple):
    """Arrays for one report of M containers and the decision on it."""

    quota: Floats
    unused: Floats
    usage: Floats
    memory: Whole
    throttled: cfs.Flags
    rows: Whole
    ids: Ids
    cores: Floats
    reasons: Bytes8


class _Told(NamedTuple):
    """Use of containers in the periods of a pass: float64, int64 and bool[periods, N]."""

    usage_cores: Floats
    memory_bytes: Whole
    throttled: cfs.Flags


class _Clock(NamedTuple):
    """Delays. delays_s: delay of each period's report, s. settle_s: time from a report's arrival until its
    decision is in force, s."""

    period_s: float
    burst_s: float
    delays_s: Floats
    settle_s: float


def new_leaps(
    physics: object, allocator: Allocator, machine: Machine, delays_s: Floats, recorder: Recorder | None
) -> Leaps | None:
    """Return the passes for this physics, allocator and machine; None if periods must be run one by one."""
    if type(physics) is not Fluid or not isinstance(allocator, Patient | Tabled):
        return None
    load = physics.population
    alone = load.host_memory_bytes == np.inf and load.report_interval_s == 0.0
    if not alone or machine.telemetry_loss > 0.0 or machine.restart_cpu_s > 0.0:
        return None
    settle_s = max(machine.quota_write_delay_s + machine.network_delay_s, 0.0)
    room = new_memory(len(physics.group), machine.reclaim_delay_s, machine.oom_grant_delay_s)
    remote = machine.network_delay_s > 0.0
    clock = _Clock(load.period_s, machine.burst_s, np.ascontiguousarray(delays_s[:, 0]), settle_s)
    return Leaps(physics, allocator, clock, recorder, None if remote else room)


class Leaps:
    """Passes over the periods of `physics`. recorder: recorder of the periods; None: their quotas are summed
    in `reserved`. memory: room for memory events; None: the control loop handles these events."""

    def __init__(
        self,
        physics: Fluid,
        allocator: Allocator,
        clock: _Clock,
        recorder: Recorder | None,
        memory: Memory | None,
    ) -> None:
        self._physics, self._clock = physics, clock
        self._tabled = allocator if isinstance(allocator, Tabled) else None
        self._patient = allocator if isinstance(allocator, Patient) else None
        self._reclaim = allocator.reclaim
        count = len(physics.group)
        self._memory = memory
        self._no_memory = new_memory(0, 0.0, 0.0)
        self._next_row = 0
        self._recorder = recorder
        self._no_rows = cfs.rows_of(cfs.new_series(0, 0))
        self._over = np.empty(count, np.int64)
        self._most = max(_LEAST_PERIODS, min(_MOST_PERIODS, _MOST_CELLS // count))
        self._times = np.empty((2, self._most))
        shape = (0 if self._patient is None else self._most, count)
        self._told = _Told(np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.bool_))
        self._room = _Room(
            np.empty(count), np.empty(count), np.empty(count), np.empty(count, np.int64),
            np.empty(count, np.bool_), np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count),
            np.empty(count, np.uint8),
        )  # fmt: skip

    def run(
        self,
        at: Moment,
        over: Columns,
        report: Report,
        members: Members,
        requests: Requests,
        reserved: Floats,
    ) -> Leapt | None:
        """Run periods after `at`, and let `report` be the last one's. over: columns above their memory limit
        at `at`. Return None, with nothing changed, if no period fits, or if the control loop must handle
        `over`.
        """
        if at.row < self._next_row:
            return None
        physics, clock = self._physics, self._clock
        columns, ids = members.by_group[0]
        memory = self._cared(at)
        if over.size and not memory.handled:
            return None
        until_s = at.until_s if memory.handled else min(at.until_s, at.sweep_s)
        left = (until_s - at.now_s) / clock.period_s
        most = int(min(physics.steady_periods(at.row), self._most, left))
        if most >= _LEAST_PERIODS and ids.size:
            most = _reach(at.now_s, at.row, most, clock, at.last_arrival_s, until_s, self._times)
        ends_s: Floats = np.arange(at.row + 1.0, at.row + most + 1.0) * clock.period_s
        table: Tables | None = _NO_TABLE
        if most < _LEAST_PERIODS or not ids.size:
            return None
        if self._patient is not None:
            most = min(most, self._patient.quiet_reports(ends_s, clock.period_s))
        elif self._tabled is not None:
            table, reports = self._tabled.table(ids, ends_s, clock.period_s) or (None, 0)
            most = min(most, reports)
        if most < _LEAST_PERIODS or table is None:
            # The policy is about to decide, or decides at every report. Asking the policy takes time, too.
            self._next_row = at.row + _LEAST_PERIODS
            return None
        hosts, demand, want, begin = physics.tables
        rows = self._no_rows if self._recorder is None else self._recorder.reach(at.row + 1)
        memory.counts[:] = at.order, 0, 0, 0, 0
        memory.due_s[:] = at.sweep_s, np.inf, np.inf
        start_s = (at.row + 1) * clock.period_s
        offset = min(max(at.now_s - start_s, 0.0), clock.period_s)
        if over.size and not hold(
            memory, physics.fleet, hosts, over, members.issued, at.now_s, offset, self._times[1, 0],
            self._times[0, 0], demand, at.row + 1 - begin, clock.period_s,
        ):  # fmt: skip
            return None
        done, found, changed = _run(
            physics.fleet, hosts, demand, want, begin, at.row, most, clock, self._times,
            report, self._over, rows, self._recorder is not None, reserved, requests.held, self._told,
            self._tabled is not None, table, members.in_order, columns, ids, members.issued,
            members.column_of, self._room, memory,
        )  # fmt: skip
        physics.go_on(at.row + done, found)
        if changed < 0:
            raise InvariantError("telemetry has a quota or an unused runtime that is not a number")
        requests.fill(at.row + 1, at.row + 1 + done, columns)
        if self._tabled is not None:
            self._tabled.close(table, done)
        elif self._patient is not None:
            told = self._told
            used, size, throttled = told.usage_cores[:done], told.memory_bytes[:done], told.throttled[:done]
            if not members.in_order:
                used, size, throttled = used[:, columns], size[:, columns], throttled[:, columns]
            self._patient.on_periods(ids, History(used, size, clock.period_s), throttled, ends_s[:done])
        last_s = max(float((ends_s[:done] + clock.delays_s[at.row : at.row + done]).max()), at.last_arrival_s)
        order, granted, noted = memory.counts[: NOTED + 1].tolist()
        sweep_s, reclaim_s, _ = memory.due_s.tolist()
        reached = Moment(float(self._times[0, done - 1]), at.row + done, order, last_s, at.until_s, sweep_s)
        notes = memory.at_s[:noted], memory.column[:noted], memory.kind[:noted], memory.limit_bytes[:noted]
        over_now = self._over[:found].copy()
        return Leapt(reached, over_now, done * len(ids), changed + granted, reclaim_s, notes)

    def _cared(self, at: Moment) -> Memory:
        """Return the memory events after `at`. They are not handled here unless the policy has books for
        them."""
        rule, room = self._reclaim, self._memory
        books = None if self._tabled is None or room is None else self._tabled.memory_books()
        if room is None or books is None or rule is None or not at.sweep_s < np.inf:
            return self._no_memory
        if rule.interval_s <= room.reclaim_s:
            return self._no_memory
        return room._replace(
            handled=True, books=books, margin_bytes=rule.margin_bytes, interval_s=rule.interval_s
        )


@kernel
def _reach(
    now_s: float,
    row: int,
    most: int,
    clock: _Clock,
    last_arrival_s: float,
    until_s: float,
    times: Floats,
) -> int:
    """Return the number of periods after `row` that end before until_s. Each of them ends after the decision
    on the period before it is in force. times: float64[2, most], receives their ends and the times at which
    the decisions take force, s."""
    for k in range(most):
        arrival_s = max((row + k + 1) * clock.period_s + clock.delays_s[row + k], last_arrival_s)
        in_force_s = now_s + max(arrival_s - now_s, 0.0) + clock.settle_s
        end_s = now_s + max((row + k + 2) * clock.period_s - now_s, 0.0)
        if not in_force_s < end_s < until_s:
            return k
        times[0, k], times[1, k] = end_s, in_force_s
        now_s, last_arrival_s = end_s, arrival_s
    return most


@released
def _run(
    fleet: Fleet,
    hosts: Hosts,
    demand: Floats,
    want: Whole,
    begin: int,
    first: int,
    most: int,
    clock: _Clock,
    times: Floats,
    report: Report,
    over: Whole,
    rows: Rows,
    recording: bool,
    reserved: Floats,
    held: Floats,
    told: _Told,
    deciding: bool,
    table: Tables,
    in_order: bool,
    columns: Columns,
    ids: Ids,
    issued: Ids,
    column_of: Columns,
    room: _Room,
    memory: Memory,
) -> tuple[int, int, int]:
    """Run the periods first + 1 … first + most, while the report of `first` is on its way.

    begin: the period of the first row of `demand`, `want` and `rows`. times: as in `_reach`. in_order:
    whether `columns` are all, in order.

    Returns (periods run, columns over their memory limit in the last, quotas changed). A negative
    second number is as in `end_period`. A negative last number means that a report was not a number.
    """
    changed = 0
    for k in range(most):
        row, start_s = first + k + 1 - begin, (first + k + 1) * clock.period_s
        if k > 0 and memory.handled and not has_room(memory):
            return k, 0, changed
        if len(told.usage_cores):
            for i in range(len(fleet.status)):
                told.usage_cores[k, i] = report.usage_cores[i]
                told.memory_bytes[k, i] = report.memory_bytes[i]
                told.throttled[k, i] = report.throttled[i]
        if deciding:
            decided = _applied(table, k, report, in_order, columns, room)
            if decided < 0:
                return k, 0, -1
            if decided > 0:
                for j in range(decided):
                    room.ids[j] = ids[room.rows[j]]
                if memory.handled and is_due(memory, times[1, k]):
                    go_to(
                        memory, times[1, k], fleet, hosts, columns, issued, demand, row, start_s,
                        clock.period_s,
                    )  # fmt: skip
                memory.counts[ORDER] += 1
                offset = min(max(times[1, k] - start_s, 0.0), clock.period_s)
                changed += cfs.write_quotas(
                    fleet, hosts, issued, column_of, room.ids[:decided], room.cores[:decided],
                    room.reasons[:decided], memory.counts[ORDER], offset, demand, row, clock.period_s,
                    clock.burst_s,
                )  # fmt: skip
        if memory.handled and is_due(memory, times[0, k]):
            go_to(memory, times[0, k], fleet, hosts, columns, issued, demand, row, start_s, clock.period_s)
        found = end_period(
            fleet, hosts, demand, want, row, clock.period_s, clock.burst_s, report, over
        )  # fmt: skip
        if found < 0:
            return k + 1, found, changed
        if recording:
            cfs.record(rows, row, fleet, report, demand)
        else:
            cfs.reserve_all(reserved, held, fleet)
        if found > 0:
            handled = False
            if k + 1 < most:
                after_s = (first + k + 2) * clock.period_s
                offset = min(max(times[0, k] - after_s, 0.0), clock.period_s)
                handled = hold(
                    memory, fleet, hosts, over[:found], issued, times[0, k], offset, times[1, k + 1],
                    times[0, k + 1], demand, row + 1, clock.period_s,
                )  # fmt: skip
            if not handled:
                return k + 1, found, changed
    return most, 0, changed


def _applied(
    table: Tables, number: int, report: Report, in_order: bool, columns: Columns, room: _Room
) -> int:
    """Apply a table's rule to its report `number`, and return as the rule does. The types choose the rule."""
    rule = _settled if isinstance(table, Table) else _settled_captains
    return int(rule(table, number, report, in_order, columns, room))


@overload(_applied, jit_options={"error_model": "numpy"})
def _rule_of(table: Any, number: Any, report: Any, in_order: Any, columns: Any, room: Any) -> Any:  # noqa: ARG001 - as above
    return _settled if issubclass(table.instance_class, Table) else _settled_captains


def _settled(table: Any, number: Any, report: Any, in_order: Any, columns: Any, room: Any) -> Any:
    quota, unused, throttled = report.quota_cores, report.unused_cores, report.throttled
    if not in_order:
        count = len(columns)
        quota, unused, throttled = room.quota[:count], room.unused[:count], room.throttled[:count]
        for j in range(count):
            quota[j] = report.quota_cores[columns[j]]
            unused[j] = report.unused_cores[columns[j]]
            throttled[j] = report.throttled[columns[j]]
    position = table.position
    if table.everyone:
        position = (position + number + 1) % len(table.books.unused)
    return _settle(
        table.rule, table.books, position, table.slots, table.everyone, quota, unused, throttled, room.rows,
        room.cores, room.reasons,
    )  # fmt: skip


def _settled_captains(table: Any, number: Any, report: Any, in_order: Any, columns: Any, room: Any) -> Any:  # noqa: ARG001 - as above
    quota, usage, memory = report.quota_cores, report.usage_cores, report.memory_bytes
    throttled = report.throttled
    if not in_order:
        count = len(columns)
        quota, usage, memory = room.quota[:count], room.usage[:count], room.memory[:count]
        throttled = room.throttled[:count]
        for j in range(count):
            quota[j] = report.quota_cores[columns[j]]
            usage[j] = report.usage_cores[columns[j]]
            memory[j] = report.memory_bytes[columns[j]]
            throttled[j] = report.throttled[columns[j]]
    return _settle_captains(
        table.numbers, table.books, table.slots, table.everyone, quota, usage, memory, throttled, room.rows,
        room.cores, room.reasons,
    )  # fmt: skip


_NO_TABLE = Table(
    Rule(0.0, 0.0, 0.0, False, 0.0, 0.0, 1),
    EscraBooks(
        np.zeros((1, 0)), np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.zeros(0, np.uint8),
        np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0),
    ),
    np.empty(0, np.int64),
    False,
    0,
)  # fmt: skip
"""The table of a policy that has none."""
