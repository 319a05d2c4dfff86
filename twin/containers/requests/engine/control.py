"""Actions of the control loop on the request engine: quotas, periods, stops, starts, kills, injected
requests.

For: kernels that run between two calls of `advance`. Kernels that let visits continue need an `advance` to
−inf afterwards. Not for: the time of these actions (simulation.py). Source: CPU bandwidth as in cfs.py.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import SLOT_MASK
from twin.containers.cfs import DOWN, HELD, NANOSECOND, UP, Report, Rows, Whole
from twin.containers.compiled import package_kernel
from twin.containers.model import Floats
from twin.containers.requests.engine.events import mark_due, open_request
from twin.containers.requests.engine.parts import unfinished_s
from twin.containers.requests.engine.records import (
    BACKOFF,
    ENTER,
    FAILED,
    FREE,
    IN_LINE,
    KILLED,
    NOBODY,
    OVERDRAFT_S,
    QUEUED,
    SERVED,
    Records,
    container_at,
    host_at,
    node_at,
)
from twin.containers.requests.engine.visits import (
    abandon,
    admit_queued,
    disconnect,
    end_attempt,
    settle_throttling,
)
from twin.containers.requests.engine.waiting import (
    cancel_timeout,
    charge_memory,
    pace,
    schedule,
    share_by_weight,
    sync,
    taken_s,
)


@package_kernel
def refill(e: Any, i: int, period_s: float, burst_s: float, silo_s: float) -> None:
    """Refill the pool of container i (synced), of which a CPU keeps silo_s. A throttled container runs
    again."""
    container = container_at(e, i)
    full = container.quota * period_s
    container.pool = min(container.pool + full, full + burst_s) + silo_s
    container.stalled = 0.0
    container.runs = container.status == UP
    pace(e, i, container)


@package_kernel
def write_quotas(
    engine: Records,
    issued: Whole,
    column_of: Whole,
    ids: Whole,
    quotas: Floats,
    reasons: NDArray[np.uint8],
    order: int,
    period_s: float,
    burst_s: float,
) -> int:
    """Write quotas now, as `cfs.write_quotas` does. Return the number of changes, or −1 if a quota is not
    above 0. What a CPU kept of the last period (SILO_S) is lost.
    """
    e = engine[0]
    changed: int = 0
    for j in range(len(ids)):
        slot = ids[j] & SLOT_MASK
        if slot >= len(column_of):
            continue
        i = column_of[slot]
        if i < 0 or issued[i] != ids[j] or container_at(e, i).cpu_order > order:
            continue
        if not quotas[j] > 0.0:
            return -1
        container = container_at(e, i)
        changed += quotas[j] != container.quota
        container.quota = quotas[j]
        container.cpu_order = order
        container.reason = reasons[j]
        sync(e, container)
        settle_throttling(e, i)
        container.pool -= taken_s(container)
        container.silo_end = container.used
        container.stranded = 0.0
        refill(e, i, period_s, burst_s, 0.0)
    return changed


@package_kernel
def weigh(engine: Records, columns: Whole, weights: Floats) -> None:
    """Set cpu.weight of `columns` now. From now on their hosts share their CPUs by weight."""
    e = engine[0]
    for j in range(len(columns)):
        container = container_at(e, columns[j])
        container.weight = weights[j]
        host_at(e, container.host).weighed = True
    for j in range(len(columns)):
        container = container_at(e, columns[j])
        if container.shared:
            share_by_weight(e, container.host)


@package_kernel
def trim(e: Any, i: int) -> None:
    """Return the memory that container i keeps beyond the need of its most visits at once, if it is time to
    return it."""
    container = container_at(e, i)
    if container.trim_s > e.now or container.status != UP:
        return
    spare = min(container.busy + container.kept - container.most_busy, container.kept)
    container.kept -= spare
    charge_memory(e, i, -spare * container.request_bytes)
    container.most_busy = container.busy
    container.trim_s = e.now + e.keep_s if container.kept > 0 else inf


@package_kernel
def end_period(
    engine: Records, columns: Whole, period_s: float, burst_s: float, report: Report, over: Whole
) -> int:
    """End a period of `columns` (int64[m]) now: fill their columns of `report` and refill their pools.

    Running containers that want more memory than their limit are written to `over` (int64[N]). Returns their
    number, or −1 − i if container i did more than its CPUs or its pool allow.
    """
    e = engine[0]
    over_count = 0
    for i in columns:
        container = container_at(e, i)
        sync(e, container)
        settle_throttling(e, i)
        trim(e, i)
        used, pool = container.used, container.pool
        if not (used <= container.cap * period_s * (1.0 + 1e-9) + NANOSECOND and pool >= -2.0 * OVERDRAFT_S):
            return int(-1 - i)
        report.quota_cores[i] = container.quota
        report.unused_cores[i] = min(max(pool, 0.0) / period_s, container.quota)
        report.usage_cores[i] = used / period_s
        report.throttled[i] = container.throttled
        report.throttled_s[i] = container.throttled_s
        report.memory_bytes[i] = min(container.wanted_bytes, container.limit_bytes)
        container.nr_periods += container.throttled or (used > 0.0 and container.quota < inf)
        container.nr_throttled += container.throttled
        silo_s = taken_s(container)
        container.silo_end = silo_s
        waiting_s = unfinished_s(e, container)
        begun_s = used + (waiting_s - container.backlog) + (container.lost_s - container.row_lost_s)
        container.arrived_s += begun_s
        container.done_s += used
        container.backlog = waiting_s
        container.row_demand_s = begun_s
        container.row_lost_s = container.lost_s
        container.used = 0.0
        container.throttled = False
        container.throttled_s = 0.0
        if container.status == UP and container.wanted_bytes > container.limit_bytes:
            over[over_count] = i
            over_count += 1
        container.pool -= silo_s
        refill(e, i, period_s, burst_s, silo_s)
    return over_count


@package_kernel
def account(engine: Records, columns: Whole) -> None:
    """Update the CPU use of `columns`, and the time for which they were throttled, to the present instant."""
    e = engine[0]
    for i in columns:
        sync(e, container_at(e, i))
        settle_throttling(e, i)


@package_kernel
def record(engine: Records, rows: Rows, row: int, columns: Whole, report: Report, period_s: float) -> None:
    """Write row `row` of `columns`, whose period has just ended, and forget the recorded reasons."""
    e = engine[0]
    for i in columns:
        container = container_at(e, i)
        rows.demand_cores[row, i] = container.row_demand_s / period_s
        rows.usage_cores[row, i] = report.usage_cores[i]
        rows.quota_cores[row, i] = report.quota_cores[i]
        rows.backlog_s[row, i] = container.backlog
        rows.throttled[row, i] = report.throttled[i]
        rows.throttled_s[row, i] = report.throttled_s[i]
        rows.memory_bytes[row, i] = report.memory_bytes[i]
        rows.limit_bytes[row, i] = container.limit_bytes
        rows.cpu_reason[row, i] = container.reason
        rows.up[row, i] = container.status <= HELD
        container.reason = 0


@package_kernel
def stop(engine: Records, columns: Whole) -> None:
    """Hold `columns`: nothing in them runs, and their queues stay as they are."""
    e = engine[0]
    for i in columns:
        container = container_at(e, i)
        sync(e, container)
        settle_throttling(e, i)
        container.status = HELD
        container.stalled = 0.0
        container.runs = False
        pace(e, i, container)


@package_kernel
def start(engine: Records, columns: Whole) -> None:
    """Run `columns` from now on. Those that were down start with their base memory."""
    e = engine[0]
    for i in columns:
        container = container_at(e, i)
        sync(e, container)
        charge_memory(e, i, container.base_bytes if container.status >= DOWN else 0)
        container.status = UP
        container.runs = container.stalled == 0.0
        pace(e, i, container)
        admit_queued(e, i)


@package_kernel
def kill(engine: Records, columns: Whole, status: int) -> None:
    """Fail all visits of `columns`, and set the status of these containers."""
    e = engine[0]
    for i in columns:
        container = container_at(e, i)
        sync(e, container)
        settle_throttling(e, i)
        container.status = status
        container.stalled = 0.0
        container.runs = False
        container.killed += container.busy + container.waiting
        container.lost_s += unfinished_s(e, container)
        container.v = 0.0
        container.runnable = 0
        container.idle_since_s = -inf
        container.woken_s = 0.0
        container.end0_v = container.end1_v = container.end2_v = container.end3_v = inf
        container.busy = 0
        container.waiting = 0
        container.head = NOBODY
        container.tail = NOBODY
        container.cached_bytes = 0
        container.wanted_bytes = 0
        container.kept = 0
        container.most_busy = 0
        container.trim_s = inf
        pace(e, i, container)
    for n in range(1, e.node_count):
        node = node_at(e, n)
        if (node.state == QUEUED or node.state == SERVED) and container_at(e, node.container).status >= DOWN:
            node.state = KILLED
    orphan_calls(e)
    for n in range(1, e.node_count):
        if node_at(e, n).state == KILLED:
            end_attempt(e, n, FAILED)


@package_kernel
def orphan_calls(e: Any) -> None:
    """Handle the calls of killed visits: withdraw those that never left, then orphan the others."""
    for withdraw in (True, False):
        for n in range(1, e.node_count):
            node = node_at(e, n)
            if node.state == FREE or node.parent <= 0 or node_at(e, node.parent).state != KILLED:
                continue
            if (node.state == IN_LINE or node.state == BACKOFF) != withdraw:
                continue
            if node.state == KILLED:
                cancel_timeout(e, n)
                disconnect(e, n)
                node.parent = NOBODY
            else:
                abandon(e, n)


@package_kernel
def inject(engine: Records, i: int) -> None:
    """Make the last of `requests` due now, at container i."""
    e = engine[0]
    r = e.arrived
    e.opened = r + 1
    mark_due(e, r)
    n = open_request(e, r)
    node_at(e, n).container = i
    schedule(e, n, ENTER)


@package_kernel
def in_flight(engine: Records) -> int:
    """Return the number of visits that wait or work in a container, orphans included."""
    e = engine[0]
    count = 0
    for i in range(e.container_count):
        count += container_at(e, i).busy + container_at(e, i).waiting
    return count
