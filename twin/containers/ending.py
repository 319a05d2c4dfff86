"""The end of a period for all containers: their use, their reports, and their pools for the next period.

For: `end_period`. Not for: the inside of a period (cfs.py).

A loop handles one quantity of all containers and few arrays, so that the compiler vectorises it over
containers. Containers whose pool does not suffice are integrated one by one.
"""

from __future__ import annotations

import numpy as np

from twin.containers.cfs import (
    ABSENT,
    HELD,
    NANOSECOND,
    UP,
    Fleet,
    Report,
    Whole,
    end_crowded,
    exhaust,
)
from twin.containers.compiled import inlined, package_kernel
from twin.containers.model import Floats
from twin.containers.sharing import Hosts


@inlined
def end_period(
    fleet: Fleet,
    hosts: Hosts,
    demand: Floats,
    want: Whole,
    row: int,
    period_s: float,
    burst_s: float,
    report: Report,
    over: Whole,
) -> int:
    """Finish period `row` for all containers, fill `report`, and refill the pools for the next period.

    demand: float64[T, N]. want: int64[T, N], bytes wanted at the period's end. The columns of running
    containers that want more than their limit are written to `over` (int64[N]). Returns their number, or −1 −
    i if container i breaks an invariant: its input is negative or not finite, or it used more than its CPUs.
    """
    end_crowded(fleet, hosts, demand, row, period_s)
    _serve_all(fleet, demand, row, period_s, report, over)
    broken = _account(fleet, demand, row, period_s, report)
    above = _use_memory(fleet, want, row, report)
    if broken or above < 0:
        return -1 - _first_broken(fleet, demand, want, row, period_s)
    for i in range(len(fleet.status)):
        full = fleet.quota[i] * period_s
        fleet.pool[i] = min(fleet.pool[i] + full, full + burst_s)
    fleet.used[:] = 0.0
    fleet.since[:] = 0.0
    over_count = 0
    for i in range(len(fleet.status) if above > 0 else 0):
        if fleet.status[i] == UP and want[row, i] > fleet.limit_bytes[i]:
            over[over_count] = i
            over_count += 1
    return over_count


@package_kernel
def _serve_all(fleet: Fleet, demand: Floats, row: int, period_s: float, report: Report, short: Whole) -> None:
    """Serve all containers until the period's end, as `advance_one` does. `report` and `short` (int64[N])
    hold intermediate results."""
    special, done, count = report.throttled, report.usage_cores, 0
    for i in range(len(fleet.status)):
        wall_s = period_s - fleet.since[i]
        wanted = min(fleet.cap[i] * wall_s, fleet.backlog[i] + demand[row, i] * wall_s)
        suffices = wanted <= fleet.pool[i] + NANOSECOND
        special[i] = (fleet.status[i] == UP) & ((fleet.stalled[i] > 0.0) | (not suffices))
    # Without a branch, which would be mispredicted: the next entry overwrites an entry that does not count.
    for i in range(len(fleet.status)):
        short[count] = i
        count += special[i]
    for i in short[:count]:
        stalled, wall_s = fleet.stalled[i], period_s - fleet.since[i]
        throttled_s = stalled * wall_s
        if stalled == 0.0:
            _, throttled_s = exhaust(fleet.backlog[i], fleet.pool[i], demand[row, i], fleet.cap[i], wall_s)
        fleet.throttled[i] = True
        fleet.throttled_s[i] += throttled_s
    for i in range(len(fleet.status)):
        wall_s = period_s - fleet.since[i]
        wanted = min(fleet.cap[i] * wall_s, fleet.backlog[i] + demand[row, i] * wall_s)
        runs = (fleet.status[i] == UP) & (fleet.stalled[i] == 0.0)
        done[i] = min(wanted, fleet.pool[i]) if runs else 0.0
    for i in range(len(fleet.status)):
        left = fleet.backlog[i] + demand[row, i] * (period_s - fleet.since[i]) - done[i]
        fleet.backlog[i] = fleet.backlog[i] if fleet.status[i] == ABSENT else left
    for i in range(len(fleet.status)):
        fleet.pool[i] -= done[i]
        fleet.used[i] += done[i]


@package_kernel
def _account(fleet: Fleet, demand: Floats, row: int, period_s: float, report: Report) -> bool:
    """Report CPU and throttling, and add them to the totals. Return whether any container breaks an
    invariant."""
    broken = False
    for i in range(len(fleet.status)):
        broken |= _breaks(demand[row, i], fleet.used[i], fleet.cap[i], fleet.pool[i], period_s)
    for i in range(len(fleet.status)):
        report.usage_cores[i] = fleet.used[i] / period_s
        fleet.done_s[i] += fleet.used[i]
    for i in range(len(fleet.status)):
        report.quota_cores[i] = fleet.quota[i]
        report.unused_cores[i] = min(fleet.pool[i] / period_s, fleet.quota[i])
    for i in range(len(fleet.status)):
        fleet.arrived_s[i] += 0.0 if fleet.status[i] == ABSENT else demand[row, i] * period_s
    for i in range(len(fleet.status)):
        ran = (fleet.used[i] > 0.0) | fleet.throttled[i]
        fleet.nr_periods[i] += ran & (fleet.quota[i] < np.inf)
    for i in range(len(fleet.status)):
        report.throttled[i] = fleet.throttled[i]
        fleet.nr_throttled[i] += fleet.throttled[i]
    for i in range(len(fleet.status)):
        report.throttled_s[i] = fleet.throttled_s[i] if fleet.throttled[i] else 0.0
    for i in range(len(fleet.status)):
        fleet.throttled_s[i] = 0.0 if fleet.throttled[i] else fleet.throttled_s[i]
        fleet.stalled[i] = 0.0 if fleet.throttled[i] else fleet.stalled[i]
    fleet.throttled[:] = False
    return broken


@package_kernel
def _use_memory(fleet: Fleet, want: Whole, row: int, report: Report) -> int:
    """Set the memory that containers want to `want`, and report their memory. Return 1 if any container wants
    more than its limit, else 0; −1 if any wants a negative amount."""
    above, negative = False, False
    for i in range(len(fleet.status)):
        wanted, status = want[row, i], fleet.status[i]
        negative |= (status <= HELD) & (wanted < 0)
        above |= (status == UP) & (wanted > fleet.limit_bytes[i])
        fleet.wanted_bytes[i] = wanted if status <= HELD else fleet.wanted_bytes[i]
    for i in range(len(fleet.status)):
        report.memory_bytes[i] = min(fleet.wanted_bytes[i], fleet.limit_bytes[i])
    return -1 if negative else int(above)


@inlined
def _breaks(rate: float, used: float, cap: float, pool: float, period_s: float) -> bool:
    fine = (rate >= 0.0) & (rate < np.inf) & (used <= cap * period_s + NANOSECOND) & (pool >= 0.0)
    return not fine


@package_kernel
def _first_broken(fleet: Fleet, demand: Floats, want: Whole, row: int, period_s: float) -> int:
    for i in range(len(fleet.status)):
        broken = _breaks(demand[row, i], fleet.used[i], fleet.cap[i], fleet.pool[i], period_s)
        if broken or (fleet.status[i] <= HELD and want[row, i] < 0):
            return i
    return -1
