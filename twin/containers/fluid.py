"""Containers that follow a trace: CPU demand and memory per period.

For: `physics.Physics` over a `Workload`; the kernels are in cfs.py. Not for: requests (requests/), nor the
time of events (simulation.py). Work arrives evenly within a period; memory is wanted at its end. A killed
container tries its trace's memory again at the next period's end. A container that leaves drops its backlog.
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import Bytes, CpuLimits
from twin.containers import cfs
from twin.containers.compiled import kernel
from twin.containers.ending import end_period
from twin.containers.members import Columns, Members
from twin.containers.model import BlockReader, Floats, Machine, Workload
from twin.containers.sharing import Hosts, Whole, crowded_hosts
from twinbed import InvariantError


class Fluid:
    """`physics.Physics` of a trace. Raises InvariantError for arrays that do not match."""

    signalled = False

    def __init__(self, workload: Workload, machine: Machine) -> None:
        _check(workload)
        self.population, self._machine = workload, machine
        self._present = workload.present
        self._demand = np.ascontiguousarray(workload.demand_cores, np.float64)
        self._want = np.ascontiguousarray(workload.memory_bytes, np.int64)
        self.periods, count = workload.periods, len(workload.names)
        self._first, self._block_rows = 0, self.periods
        self._reader: BlockReader | None = None
        if workload.blocks is None:
            self._changes = np.flatnonzero(_changed_rows(workload.present))
        else:
            self._changes, self._block_rows = workload.blocks.starts, workload.blocks.block_rows
            self._reader = workload.blocks.reader()
            self._take(0)
        self._changed = frozenset(self._changes.tolist())
        self._there = self._present[:1].any(axis=0)
        self.fleet = cfs.new_fleet(count, workload.threads, workload.host_cores)
        self._hosts = crowded_hosts(workload.host, workload.host_cores, self.fleet.cap, workload.weight)
        self.group = np.zeros(count, np.int64)
        self.host = workload.host
        self.ends_s: Floats = np.array([workload.period_s])
        self._over = np.empty(count, np.int64)
        self._row, self._start_s, self._now_s = 0, 0.0, 0.0

    def first(self) -> Columns:
        """Return the columns present in the first period."""
        return np.flatnonzero(self._there)

    def run_until(self, at_s: float) -> float:
        """Return `at_s`. Periods are integrated in closed form, so nothing moves before its time."""
        self._now_s = at_s
        return at_s

    def take_over(self) -> Columns:
        """Return none, because memory is checked when periods end."""
        return self._over[:0]

    def end_period(self, row: int, group: int, report: cfs.Report) -> Columns:
        """See `Physics`. All containers are one group."""
        del group
        load, place = self.population, self._local(row)
        count = end_period(
            self.fleet,
            self._hosts,
            self._demand,
            self._want,
            place,
            load.period_s,
            self._machine.burst_s,
            report,
            self._over,
        )
        self.go_on(row, count)
        return self._over[:count].copy() if count else self._over[:0]

    def _local(self, row: int) -> int:
        """Return the index of period `row` in the tables. Its block is read first if necessary."""
        if self._reader is not None and row >= self._first + len(self._demand):
            self._take(row // self._block_rows)
        return row - self._first

    def _take(self, number: int) -> None:
        assert self._reader is not None
        block = self._reader.block(number)
        self._first, self._demand, self._want = block.first, block.cpu_cores, block.memory_bytes
        self._present = block.present

    @property
    def tables(self) -> tuple[Hosts, Floats, Whole, int]:
        """The hosts, the CPU demand and the wanted memory of each period for the kernels of cfs.py, and the
        period of the first row."""
        return self._hosts, self._demand, self._want, self._first

    def steady_periods(self, row: int) -> int:
        """Return the number of periods after `row` that are in `tables` and at whose begin no container joins
        or leaves."""
        if row + 1 >= self.periods:
            return 0
        self._local(row + 1)
        after = np.searchsorted(self._changes, row, side="right")
        last = int(self._changes[after]) if after < len(self._changes) else self.periods
        return min(last, self._first + len(self._demand)) - row - 1

    def go_on(self, row: int, found: int) -> None:
        """Record that the kernels of cfs.py ran the periods up to `row`. found: result of `end_period`."""
        if found < 0:
            self._blame(-1 - found, row)
        self._start_s = (row + 1) * self.population.period_s
        self._row = min(row + 1, self.periods - 1)

    def account(self, columns: Columns) -> None:
        """See `Physics`."""
        period_s, place = self.population.period_s, self._local(self._row)
        cfs.advance(self.fleet, self._hosts, columns, self._offset(), self._demand, place, period_s)

    def record(self, rows: cfs.Rows, row: int, group: int, report: cfs.Report) -> None:
        """See `Physics`. Rows begin with the block's first period."""
        del group
        cfs.record(rows, self._local(row), self.fleet, report, self._demand)

    def write_quotas(self, members: Members, limits: CpuLimits, order: int) -> int:
        """See `Physics`."""
        place = self._local(self._row)
        return cfs.write_quotas(
            self.fleet,
            self._hosts,
            members.issued,
            members.column_of,
            limits.ids,
            limits.quota_cores,
            limits.reason,
            order,
            self._offset(),
            self._demand,
            place,
            self.population.period_s,
            self._machine.burst_s,
        )

    def weigh(self, columns: Columns, weights: Floats) -> None:
        """See `Physics`. Weights only matter on hosts that may be short of CPUs."""
        self.account(columns)
        places = self._hosts.place[columns]
        self._hosts.weight[places[places >= 0]] = weights[places >= 0]

    def changes(self, row: int) -> tuple[Columns, Columns] | None:
        """See `Physics`. The changes are those of the trace's `present`."""
        if row not in self._changed:
            return None
        before, after = self._there, self._present[self._local(row)].copy()
        self._there = after
        return np.flatnonzero(before & ~after), np.flatnonzero(after & ~before)

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """See `Physics`. The first memory charge is at the first period's end."""
        self.fleet.status[columns] = cfs.UP
        self.fleet.quota[columns] = quota_cores
        self.fleet.limit_bytes[columns] = limit_bytes

    def dismiss(self, columns: Columns) -> None:
        """See `Physics`."""
        fleet = self.fleet
        fleet.status[columns] = cfs.ABSENT
        for values in (fleet.quota, fleet.pool, fleet.backlog):
            values[columns] = 0.0
        fleet.limit_bytes[columns] = 0
        fleet.wanted_bytes[columns] = 0

    def hold(self, columns: Columns) -> None:
        """See `Physics`. Work that arrives joins the backlog."""
        self._set(columns, cfs.HELD)

    def take_down(self, columns: Columns) -> None:
        """See `Physics`. Work that arrives joins the backlog."""
        self._set(columns, cfs.DOWN)
        self.fleet.wanted_bytes[columns] = 0

    def dependents(self, columns: Columns) -> Columns:
        """See `Physics`. Containers of a trace do not depend on each other."""
        return columns[:0]

    def burn(self, columns: Columns, cpu_s: Floats) -> None:
        """See `Physics`. The CPU counts as work that arrived and is done."""
        self.fleet.pool[columns] -= cpu_s
        self.fleet.used[columns] += cpu_s
        self.fleet.arrived_s[columns] += cpu_s

    def release(self, columns: Columns) -> None:
        """See `Physics`."""
        self._set(columns, cfs.UP)

    def service_level(self, now_s: float) -> None:
        """Return None: a trace has no clients."""

    def finish(self) -> None:
        """Return None: a trace has no requests. Nothing more is read."""
        if self._reader is not None:
            self._reader.close()

    def _set(self, columns: Columns, status: int) -> None:
        self.account(columns)
        self.fleet.status[columns] = status
        if status != cfs.UP:
            # Nothing in them is runnable any more, so no runqueue stays throttled.
            self.fleet.stalled[columns] = 0.0

    def _offset(self) -> float:
        return min(max(self._now_s - self._start_s, 0.0), self.population.period_s)

    def _blame(self, column: int, row: int) -> None:
        place = self._local(row)
        demand, want = self._demand[place, column], self._want[place, column]
        name = self.population.names[column]
        if not (0.0 <= demand < np.inf) or want < 0:
            raise InvariantError(f"container {name!r}, period {row}: demand {demand} cores, {want} bytes")
        raise InvariantError(f"container {name!r}, period {row}: more done than its CPUs can do")


def _check(workload: Workload) -> None:
    """Raise InvariantError for arrays that do not match or constants out of range.

    The kernels check the tables' values row by row as they read them (`ending.end_period`).
    """
    shape = (len(workload.demand_cores), len(workload.names))
    tables = (workload.demand_cores.shape, workload.memory_bytes.shape, workload.present.shape)
    names = ("app", "threads", "host", "host_cores", "weight", "peak_cores", "peak_bytes")
    columns = [getattr(workload, name).shape for name in names]
    if set(tables) != {shape} or set(columns) != {shape[1:]}:
        raise InvariantError("workload: arrays of different lengths side by side")
    for name in ("threads", "host_cores", "weight"):
        values = getattr(workload, name)
        if not (np.isfinite(values) & (values > 0)).all():
            raise InvariantError(f"workload: {name} must be finite and above zero")
    _, example, index = np.unique(workload.host, return_index=True, return_inverse=True)
    if not np.array_equal(workload.host_cores, workload.host_cores[example][index]):
        raise InvariantError("workload: containers of one host differ in its host_cores")
    if not (np.isfinite(workload.period_s) and workload.period_s > 0):
        raise InvariantError(f"workload: a period of {workload.period_s} s")


@kernel
def _changed_rows(present: cfs.Flags) -> cfs.Flags:
    """Return the rows of `present` (bool[T, N]) that differ from the row before, bool[T]. Row 0 is False."""
    periods, count = present.shape
    changed = np.zeros(periods, np.bool_)
    for row in range(1, periods):
        for i in range(count):
            if present[row, i] != present[row - 1, i]:
                changed[row] = True
                break
    return changed
