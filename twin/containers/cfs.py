"""CFS bandwidth of a whole fleet: exact inside a period, one compiled pass over all containers at its end.

For: the fleet's state and the kernels that move it through time. Not for: the time of events (simulation.py),
nor containers at their memory limit (memory.py).

Inside a period the model is fluid: work arrives evenly, joins the backlog and is served at up to `cap` CPUs
while the runtime pool lasts. From backlog w and arrival rate a, the work done by time t is min(cap · t, w + a
· t), so the pool r is empty at max(r / cap, (r − w) / a) and no sub-steps are needed. A period's boundary and
a quota write fill the pool by the same rule, min(left + q · P, q · P + burst).

Source: kernel/sched/fair.c (__refill_cfs_bandwidth_runtime, do_sched_cfs_period_timer, throttle_cfs_rq) and
measurements of quota writes: a write refills and unthrottles, even when the value is unchanged. Tick
debt is not modelled. What CPUs keep of a period (SILO_S) is modelled by the request engine alone: with work
that arrives evenly, little depends on it.

On a crowded host (sharing.py) the CPUs that containers want are shared max-min fairly by cpu.weight. A share
changes only when a pool or a backlog is empty, or when someone writes a limit, so that these instants are the
only steps. CPU that a start-up burns (starting.py) comes on top of the host's.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import SLOT_MASK
from twin.containers.compiled import inlined, kernel, package_kernel
from twin.containers.model import Floats, Series
from twin.containers.sharing import Hosts, max_min

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bytes8 = NDArray[np.uint8]

UP, HELD, DOWN, ABSENT = 0, 1, 2, 3
"""Status: running; held at its memory limit; starting up again; absent. Only UP makes progress."""

NANOSECOND = 1e-9
"""CPU time below the kernel's resolution, s. A pool that lacks less than this is not exhausted."""

SLICE_S = 0.005
"""Run time that a CPU takes out of a group's pool at a time, s (sched_cfs_bandwidth_slice_us)."""

SILO_S = 0.001
"""The most that a CPU keeps of a slice when the group's last thread there sleeps, s (min_cfs_rq_runtime of
fair.c). It does not expire with the period, so it is there beside the next quota (sched-bwc.rst, "Quota
Caveats"). A quota write takes it back."""

_ROUNDING_S = 1e-13
"""CPU time that sums of steps may leave behind, s. A pool or a backlog this small counts as empty."""


class Fleet(NamedTuple):
    """State of N containers, one array per quantity. Times and CPU work are in seconds, quotas in cores.

    cap: CPUs that the container can keep busy. quota: inf = none. pool: runtime left.
    backlog: work arrived and not done. since: offset in the period up to which the state is integrated.
    used: work done in this period. stalled: CPUs throttled now (0 = not throttled).
    throttled, throttled_s: throttling in this period.
    reason: reason of the last quota change not yet recorded.
    cpu_order, memory_order: the decision last carried out. wanted_bytes: memory that it holds or wants.
    arrived_s … nr_throttled: totals of finished periods.
    """

    status: Bytes8
    cap: Floats
    quota: Floats
    pool: Floats
    backlog: Floats
    since: Floats
    used: Floats
    stalled: Floats
    throttled: Flags
    throttled_s: Floats
    reason: Bytes8
    cpu_order: Whole
    memory_order: Whole
    limit_bytes: Whole
    wanted_bytes: Whole
    arrived_s: Floats
    done_s: Floats
    nr_periods: Whole
    nr_throttled: Whole


class Report(NamedTuple):
    """One period's telemetry of all columns: [N] arrays as in PeriodStats, and throttled seconds."""

    quota_cores: Floats
    unused_cores: Floats
    throttled: Flags
    usage_cores: Floats
    memory_bytes: Whole
    throttled_s: Floats


class Rows(NamedTuple):
    """The recorded series' arrays, in the order of `Series` (float32, bool, int64 or uint8; [T, N])."""

    demand_cores: NDArray[np.float32]
    usage_cores: NDArray[np.float32]
    quota_cores: NDArray[np.float32]
    backlog_s: NDArray[np.float32]
    throttled: Flags
    throttled_s: NDArray[np.float32]
    memory_bytes: Whole
    limit_bytes: Whole
    cpu_reason: Bytes8
    up: Flags


def new_fleet(count: int, threads: Floats, host_cores: Floats) -> Fleet:
    """Return `count` absent containers. threads, host_cores: float64[count], upper bounds of their CPUs."""
    kinds: dict[str, type] = {"status": np.uint8, "reason": np.uint8, "throttled": np.bool_}
    whole = ("cpu_order", "memory_order", "limit_bytes", "wanted_bytes", "nr_periods", "nr_throttled")
    kinds |= dict.fromkeys(whole, np.int64)
    fleet = Fleet(**{name: np.zeros(count, kinds.get(name, np.float64)) for name in Fleet._fields})
    fleet.status[:] = ABSENT
    fleet.cap[:] = np.minimum(threads, host_cores)
    return fleet


def new_report(count: int) -> Report:
    """Return an uninitialised report of `count` containers."""
    kinds: dict[str, type] = {"throttled": np.bool_, "memory_bytes": np.int64}
    return Report(**{name: np.empty(count, kinds.get(name, np.float64)) for name in Report._fields})


def new_series(periods: int, count: int) -> Series:
    """Return a series of `periods` × `count`, to be filled row by row by `record`."""
    kinds: dict[str, type] = {"cpu_reason": np.uint8}
    kinds |= dict.fromkeys(("throttled", "up"), np.bool_)
    kinds |= dict.fromkeys(("memory_bytes", "limit_bytes"), np.int64)
    return Series(**{name: np.zeros((periods, count), kinds.get(name, np.float32)) for name in Rows._fields})


def rows_of(series: Series) -> Rows:
    """Return the arrays of the series into which `record` writes."""
    return Rows(*(getattr(series, name) for name in Rows._fields))


@kernel
def serve(
    backlog: float, pool: float, stalled: float, rate: float, cap: float, wall_s: float
) -> tuple[float, float, float, float, float]:
    """Serve one container for `wall_s` seconds in which only its own consumption changes its pool.

    rate: cores of work arriving. Returns (done, backlog, pool, stalled, throttled_s). At exhaustion, every
    CPU's runqueue with runnable work is throttled: all of `cap` if there is a backlog, else as many as the
    arriving work keeps busy. throttled_s sums over them, as cpu.stat's throttled_time does.
    """
    offered = backlog + rate * wall_s
    if stalled > 0.0:
        return 0.0, offered, pool, stalled, stalled * wall_s
    wanted = min(cap * wall_s, offered)
    if wanted <= pool + NANOSECOND:
        done = min(wanted, pool)
        return done, offered - done, pool - done, 0.0, 0.0
    return pool, offered - pool, 0.0, *exhaust(backlog, pool, rate, cap, wall_s)


@kernel
def exhaust(backlog: float, pool: float, rate: float, cap: float, wall_s: float) -> tuple[float, float]:
    """Return (stalled, throttled_s) of `serve` for a pool that does not suffice."""
    at = pool / cap
    cpus = ceil(cap)
    if pool - backlog > rate * at:
        at = (pool - backlog) / rate
        cpus = ceil(rate)
    return float(cpus), cpus * (wall_s - at)


@inlined
def advance_one(fleet: Fleet, i: int, offset: float, rate: float) -> None:
    """Integrate container i alone up to `offset` s into the period. rate: cores of work arriving."""
    wall_s = offset - fleet.since[i]
    if wall_s <= 0.0:
        return
    fleet.since[i] = offset
    if fleet.status[i] == UP:
        done, backlog, pool, stalled, throttled_s = serve(
            fleet.backlog[i], fleet.pool[i], fleet.stalled[i], rate, fleet.cap[i], wall_s
        )
        fleet.backlog[i] = backlog
        fleet.pool[i] = pool
        fleet.used[i] += done
        if stalled > 0.0:
            fleet.stalled[i] = stalled
            fleet.throttled[i] = True
            fleet.throttled_s[i] += throttled_s
    elif fleet.status[i] != ABSENT:
        fleet.backlog[i] += rate * wall_s


@package_kernel
def _want(fleet: Fleet, hosts: Hosts, h: int, rest_s: float, demand: Floats, row: int) -> float:
    """Write the CPUs that each container of host h wants for the next rest_s seconds into hosts.wanted.

    A container that has an empty pool and wants more is throttled. Returns the sum of the CPUs wanted.
    """
    total = 0.0
    for j in range(hosts.first[h], hosts.first[h + 1]):
        i, wanted = hosts.members[j], 0.0
        rate, backlog = demand[row, i], fleet.backlog[i]
        if fleet.status[i] == UP and fleet.stalled[i] == 0.0:
            wanted = fleet.cap[i] if backlog > 0.0 else min(rate, fleet.cap[i])
            if fleet.pool[i] <= _ROUNDING_S:
                wanted = 0.0
                if backlog + rate * rest_s > NANOSECOND:
                    fleet.stalled[i] = ceil(fleet.cap[i] if backlog > 0.0 else rate)
                    fleet.throttled[i] = True
        hosts.wanted[j] = wanted
        total += wanted
    return total


@package_kernel
def _step(fleet: Fleet, hosts: Hosts, h: int, rest_s: float, demand: Floats, row: int) -> float:
    """Serve the containers of host h with the CPUs `given` for rest_s, or until a pool or a backlog is empty.
    Return the seconds served."""
    first, last = hosts.first[h], hosts.first[h + 1]
    wall_s = rest_s
    for j in range(first, last):
        i, cpus = hosts.members[j], hosts.given[j]
        if cpus > 0.0:
            wall_s = min(wall_s, fleet.pool[i] / cpus)
            gain = cpus - demand[row, i]
            if fleet.backlog[i] > 0.0 and gain > 0.0:
                wall_s = min(wall_s, fleet.backlog[i] / gain)
    if rest_s - wall_s <= NANOSECOND:
        wall_s = rest_s
    for j in range(first, last):
        i = hosts.members[j]
        if fleet.status[i] != ABSENT:
            offered = fleet.backlog[i] + demand[row, i] * wall_s
            done = min(hosts.given[j] * wall_s, fleet.pool[i], offered)
            left = offered - done
            fleet.backlog[i] = left if left > _ROUNDING_S else 0.0
            fleet.pool[i] -= done
            fleet.used[i] += done
            fleet.throttled_s[i] += fleet.stalled[i] * wall_s
    return wall_s


@package_kernel
def _advance_host(fleet: Fleet, hosts: Hosts, h: int, offset: float, demand: Floats, row: int) -> None:
    """Integrate all containers of host h up to `offset`, step by step while the host is short of CPUs."""
    first, last = hosts.first[h], hosts.first[h + 1]
    rest_s = offset - fleet.since[hosts.members[first]]
    if rest_s <= 0.0:
        return
    while rest_s > 0.0 and _want(fleet, hosts, h, rest_s, demand, row) > hosts.cores[h]:
        max_min(hosts.wanted[first:last], hosts.weight[first:last], hosts.cores[h], hosts.given[first:last])
        rest_s -= _step(fleet, hosts, h, rest_s, demand, row)
    for j in range(first, last):
        i = hosts.members[j]
        fleet.since[i] = offset - max(rest_s, 0.0)
        advance_one(fleet, i, offset, demand[row, i])
        fleet.since[i] = offset


@kernel
def _most(status: int, backlog: float, pool: float, cap: float, rate: float, rest_s: float) -> float:
    """Return the most CPUs that a container may want in rest_s if its limits and its status do not change."""
    if status == ABSENT:
        return 0.0
    calm = status == UP and backlog == 0.0 and rate * rest_s <= pool
    return min(rate, cap) if calm else cap


@package_kernel
def _has_room(fleet: Fleet, hosts: Hosts, h: int, demand: Floats, row: int, period_s: float) -> bool:
    """Return whether host h has as many CPUs as its containers may want in this period.

    If so, each container is integrated alone, and only when its state is needed.
    """
    if hosts.most[h] < 0.0:
        hosts.most[h] = 0.0
        for j in range(hosts.first[h], hosts.first[h + 1]):
            i = hosts.members[j]
            hosts.wanted[j] = _most(
                fleet.status[i], fleet.backlog[i], fleet.pool[i], fleet.cap[i], demand[row, i], period_s
            )
            hosts.most[h] += hosts.wanted[j]
    return bool(hosts.most[h] <= hosts.cores[h])


@package_kernel
def _one_by_one(fleet: Fleet, hosts: Hosts, h: int, offset: float, demand: Floats, row: int) -> None:
    """Integrate each container of host h alone up to `offset`; the host must have room for all of them."""
    for j in range(hosts.first[h], hosts.first[h + 1]):
        advance_one(fleet, hosts.members[j], offset, demand[row, hosts.members[j]])


@package_kernel
def advance(
    fleet: Fleet, hosts: Hosts, columns: Whole, offset: float, demand: Floats, row: int, period_s: float
) -> None:
    """Integrate the containers `columns` (int64[m]) up to `offset` seconds into period `row`.

    demand: float64[T, N], cores. Call it before their status changes.
    """
    for i in columns:
        h, j = hosts.of[i], hosts.place[i]
        if h < 0:
            advance_one(fleet, i, offset, demand[row, i])
        elif _has_room(fleet, hosts, h, demand, row, period_s):
            # From now on the container may want all of its CPUs, whatever its status becomes.
            _one_by_one(fleet, hosts, h, offset, demand, row)
            hosts.most[h] += fleet.cap[i] - hosts.wanted[j]
            hosts.wanted[j] = fleet.cap[i]
        else:
            _advance_host(fleet, hosts, h, offset, demand, row)


@inlined
def write_quotas(
    fleet: Fleet,
    hosts: Hosts,
    issued: Whole,
    column_of: Whole,
    ids: Whole,
    quotas: Floats,
    reasons: Bytes8,
    order: int,
    offset: float,
    demand: Floats,
    row: int,
    period_s: float,
    burst_s: float,
) -> int:
    """Write quotas at `offset` of period `row`. Return how many changed, or −1 if one is not above 0.

    issued: int64[N], current id per column. column_of: int64[slots], column per slot (−1 = none). Ids that
    are no longer issued are skipped, and so are containers that already follow a later decision than `order`.
    """
    changed = 0
    for entry in range(len(ids)):
        slot = ids[entry] & SLOT_MASK
        if slot >= len(column_of):
            continue
        i = column_of[slot]
        if i < 0 or issued[i] != ids[entry] or fleet.cpu_order[i] > order:
            continue
        quota = quotas[entry]
        if not quota > 0.0:
            return -1
        h, rate = hosts.of[i], demand[row, i]
        # The comparison saves the call, which takes longer than everything else in this loop.
        known = h < 0 or 0.0 <= hosts.most[h] <= hosts.cores[h]
        if known or _has_room(fleet, hosts, h, demand, row, period_s):
            advance_one(fleet, i, offset, rate)
        else:
            _advance_host(fleet, hosts, h, offset, demand, row)
        full = quota * period_s
        fleet.pool[i] = min(fleet.pool[i] + full, full + burst_s)
        fleet.stalled[i] = 0.0
        if h >= 0 and hosts.most[h] <= hosts.cores[h]:
            j, rest_s = hosts.place[i], period_s - offset
            most = _most(fleet.status[i], fleet.backlog[i], fleet.pool[i], fleet.cap[i], rate, rest_s)
            hosts.most[h] += most - hosts.wanted[j]
            hosts.wanted[j] = most
            if hosts.most[h] > hosts.cores[h]:
                _one_by_one(fleet, hosts, h, offset, demand, row)
        fleet.cpu_order[i] = order
        fleet.reason[i] = reasons[entry]
        if quota != fleet.quota[i]:
            fleet.quota[i] = quota
            changed += 1
    return changed


@inlined
def end_crowded(fleet: Fleet, hosts: Hosts, demand: Floats, row: int, period_s: float) -> None:
    """Integrate the containers of hosts that are short of CPUs up to the end of period `row`."""
    for h in range(len(hosts.cores)):
        if not _has_room(fleet, hosts, h, demand, row, period_s):
            _advance_host(fleet, hosts, h, period_s, demand, row)
        hosts.most[h] = -1.0


@inlined
def record(rows: Rows, row: int, fleet: Fleet, report: Report, demand: Floats) -> None:
    """Write period `row`, which has just ended, into the series and forget the reasons it recorded."""
    for i in range(len(fleet.status)):
        status = fleet.status[i]
        rows.demand_cores[row, i] = 0.0 if status == ABSENT else demand[row, i]
        rows.usage_cores[row, i] = report.usage_cores[i]
        rows.quota_cores[row, i] = report.quota_cores[i]
        rows.backlog_s[row, i] = fleet.backlog[i]
        rows.throttled[row, i] = report.throttled[i]
        rows.throttled_s[row, i] = report.throttled_s[i]
        rows.memory_bytes[row, i] = report.memory_bytes[i]
        rows.limit_bytes[row, i] = fleet.limit_bytes[i]
        rows.cpu_reason[row, i] = fleet.reason[i]
        rows.up[row, i] = status <= HELD
        fleet.reason[i] = 0


@inlined
def reserve(reserved: Floats, held: Floats, fleet: Fleet, columns: Whole) -> None:
    """Add the recorded quotas of running `columns` to `reserved`; without a quota, `held` (cores)."""
    for i in columns:
        reserved[i] += _reserved(fleet.status[i], fleet.quota[i], held[i])


@inlined
def reserve_all(reserved: Floats, held: Floats, fleet: Fleet) -> None:
    """`reserve` of all columns."""
    for i in range(len(reserved)):
        reserved[i] += _reserved(fleet.status[i], fleet.quota[i], held[i])


@inlined
def _reserved(status: int, quota: float, held: float) -> float:
    recorded = np.float64(np.float32(quota))
    cores = recorded if recorded < np.inf else held
    return cores if status <= HELD else 0.0
