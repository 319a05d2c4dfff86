"""The end of a period for all containers: their use, their reports, and their pools for the next period.

For: `end_period`. Not for: the inside of a period (cfs.py).

One loop without branches and calls does everything for a container, so that the compiler handles several
containers at once. Before it, containers whose pool does not suffice are found, and their throttling is
computed one by one.
"""

from __future__ import annotations

import numpy as np

from twin.containers.cfs import (
    ABSENT,
    HELD,
    NANOSECOND,
    UP,
    Flags,
    Fleet,
    Report,
    Whole,
    end_crowded,
    exhaust,
)
from twin.containers.compiled import inlined, vectorised
from twin.containers.model import Floats
from twin.containers.sharing import Hosts

_MOST = np.finfo(np.float64).max
"""The largest finite number. Comparing with it takes fewer instructions than comparing with infinity."""


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
    _throttle(fleet, demand[row], period_s, report.throttled, over)
    broken, above = _end_all(fleet, demand[row], want[row], period_s, burst_s, report)
    if broken < len(fleet.status):
        return -1 - broken
    over_count = 0
    for i in range(len(fleet.status) if above else 0):
        if fleet.status[i] == UP and want[row, i] > fleet.limit_bytes[i]:
            over[over_count] = i
            over_count += 1
    return over_count


@vectorised
def _throttle(fleet: Fleet, rates: Floats, period_s: float, special: Flags, short: Whole) -> None:
    """Note the throttling of containers whose pool does not suffice until the period's end. `special` and
    `short` (bool[N], int64[N]) hold intermediate results."""
    count = 0
    for i in range(len(fleet.status)):
        wall_s = period_s - fleet.since[i]
        wanted = min(fleet.cap[i] * wall_s, fleet.backlog[i] + rates[i] * wall_s)
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
            _, throttled_s = exhaust(fleet.backlog[i], fleet.pool[i], rates[i], fleet.cap[i], wall_s)
        fleet.throttled[i] = True
        fleet.throttled_s[i] += throttled_s


@vectorised
def _end_all(
    fleet: Fleet, rates: Floats, want: Whole, period_s: float, burst_s: float, report: Report
) -> tuple[int, bool]:
    """Serve, report, account and refill all containers.

    Returns (the first container that breaks an invariant, else their number; whether any running container
    wants more memory than its limit).
    """
    count = len(fleet.status)
    broken, above = count, False
    for i in range(count):
        status, rate, cap, quota = fleet.status[i], rates[i], fleet.cap[i], fleet.quota[i]
        throttled, throttled_s, stalled = fleet.throttled[i], fleet.throttled_s[i], fleet.stalled[i]
        backlog, wall_s = fleet.backlog[i], period_s - fleet.since[i]
        came = 0.0 if status == ABSENT else rate
        offered = backlog + came * wall_s
        runs = (status == UP) & (stalled == 0.0)
        pool, most = fleet.pool[i], min(cap * wall_s, offered)
        done = min(most, pool) if runs else 0.0
        used = fleet.used[i] + done
        pool -= done
        fleet.backlog[i] = offered - done
        fleet.done_s[i] += used
        fleet.arrived_s[i] += came * period_s
        fleet.nr_periods[i] += ((used > 0.0) | throttled) & (quota < np.inf)
        fleet.nr_throttled[i] += throttled
        fleet.throttled_s[i] = 0.0 if throttled else throttled_s
        fleet.stalled[i] = 0.0 if throttled else stalled
        fleet.throttled[i] = False
        there, asked, wanted, limit = status <= HELD, want[i], fleet.wanted_bytes[i], fleet.limit_bytes[i]
        wanted = asked if there else wanted
        fleet.wanted_bytes[i] = wanted
        report.quota_cores[i] = quota
        report.unused_cores[i] = min(pool / period_s, quota)
        report.throttled[i] = throttled
        report.usage_cores[i] = used / period_s
        report.memory_bytes[i] = min(wanted, limit)
        report.throttled_s[i] = throttled_s if throttled else 0.0
        above |= (status == UP) & (asked > limit)
        fine = (rate >= 0.0) & (rate <= _MOST) & (used <= cap * period_s + NANOSECOND) & (pool >= 0.0)
        fine &= (not there) | (asked >= 0)
        broken = min(broken, count if fine else i)
        full = quota * period_s
        fleet.pool[i] = min(pool + full, full + burst_s)
        fleet.used[i] = 0.0
        fleet.since[i] = 0.0
    return broken, above
