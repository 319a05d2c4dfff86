"""Waiting in the request engine: the nodes that wait, and their times.

For: tournament trees of times, the time of hosts that run slower, the pace of containers; and putting nodes
into queues, delays and timeouts, and taking them out. Not for: the runnable visits of a container (parts.py),
nor why a node waits (visits.py, events.py). Source: processor sharing by virtual time, as in generalised
processor sharing (Parekh & Gallager 1993).
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from twin.containers.cfs import NANOSECOND, SLICE_S, UP
from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.records import (
    FREE,
    NOBODY,
    OVERDRAFT_S,
    Records,
    call_at,
    container_at,
    host_at,
    key_at,
    line_at,
    node_at,
    owner_at,
    rarely,
    select,
    timer_at,
)
from twin.containers.sharing import max_min


@inlined
def bits_of(time: float) -> Any:
    """Return the bits of a time ≥ 0 as an integer. These integers have the same order as the times."""
    return np.float64(time).view(np.int64)


@inlined
def time_of(bits: int) -> Any:
    """Return the time whose bits these are."""
    return np.int64(bits).view(np.float64)


@inlined
def owners_of(tree: int, size: int) -> int:
    """Return the address of a tree's owners, which follow its keys."""
    return tree + 16 * size


@inlined
def place(tree: int, size: int, leaf: int, owner: int, time: float) -> tuple[float, int]:
    """Set the time of one leaf of a tournament tree. Return the least time of all leaves, and whose it is.

    Node i is the earlier of the nodes 2·i and 2·i + 1. The leaves begin at `size`. All keys come first in
    memory, then all owners.
    """
    owners = owners_of(tree, size)
    i, winner, key = size + leaf, np.int32(owner), bits_of(time)
    key_at(tree, i).key = key
    while i > 1:
        rival = key_at(tree, i ^ 1).key
        sooner = rival < key
        winner = select(sooner, owner_at(owners, i ^ 1).owner, winner)
        key = select(sooner, rival, key)
        i >>= 1
        key_at(tree, i).key = key
        owner_at(owners, i).owner = winner
    return time_of(key), int(winner)


@inlined
def next_due(e: Any) -> tuple[float, int]:
    """Return the time of the next event but arrivals, and its owner in the tree in real time."""
    return time_of(key_at(e.top, 1).key), owner_at(owners_of(e.top, e.top_size), 1).owner


@inlined
def place_line(e: Any, index: int, time: float) -> None:
    """Set the time at which a delay line is due next. The index after the last line is that of the client's
    timeouts.
    """
    owner = e.container_count + e.host_count + index
    place(e.top, e.top_size, owner, owner, time)


@inlined
def place_host(e: Any, h: int) -> None:
    """Set the time at which the next container of host h is due."""
    host = host_at(e, h)
    time = host.at_s + (host.next_u - host.u) / host.factor
    place(e.top, e.top_size, e.container_count + h, e.container_count + h, time)


@package_kernel
def place_shared(e: Any, i: int, time: float) -> None:
    """Set the time, in its host's time, at which container i of a shared host is due next."""
    container = container_at(e, i)
    host = host_at(e, container.host)
    least, _ = place(host.tree, host.size, container.leaf, i, time)
    if least != host.next_u:
        host.next_u = least
        place_host(e, container.host)


@inlined
def host_factor(host: Any) -> float:
    """Return the speed of the host (1 = as on CPUs of its own), see RequestWorkload.imbalance and stolen."""
    wanted, cores = host.wanted, host.cores
    factor = min(1.0, cores / wanted) if wanted > 0.0 else 1.0
    if rarely(host.imbalance > 0.0) and wanted > 1.0 and cores > 1.0:
        scattered = cores * (1.0 - (1.0 - 1.0 / cores) ** wanted) / wanted
        factor += host.imbalance * (scattered - factor)
    return float(factor * host.speed)


@package_kernel
def want_cpus(e: Any, h: int, cpus: float) -> None:
    """Add `cpus` to the CPUs that the containers of host h want. Beyond its CPUs they run slower."""
    host = host_at(e, h)
    host.wanted += cpus
    factor = host_factor(host)
    if factor != host.factor:
        now = e.now
        host.u += (now - host.at_s) * host.factor
        host.at_s = now
        host.factor = factor
        place_host(e, h)
    if rarely(host.weighed) and (host.uneven or host.wanted > host.cores):
        share_by_weight(e, h)


@package_kernel
def share_by_weight(e: Any, h: int) -> None:
    """Share the CPUs of host h max-min fairly by weight: give each container a pace relative to the host's.

    The host's factor slows all containers alike, down to the host's CPUs. A container's `share` is its part
    of these CPUs divided by that pace, so that all containers together run as fast as without weights.
    """
    host = host_at(e, h)
    count, owners = host.members, owners_of(host.tree, host.size)
    wanted, weight, given = np.empty(count), np.empty(count), np.empty(count)
    for k in range(count):
        container = container_at(e, owner_at(owners, host.size + k).owner)
        sync(e, container)
        wanted[k], weight[k] = container.rate, container.weight
    max_min(wanted, weight, host.cores, given)
    alike = min(1.0, host.cores / host.wanted) if host.wanted > 0.0 else 1.0
    host.uneven = alike < 1.0
    for k in range(count):
        i = owner_at(owners, host.size + k).owner
        container = container_at(e, i)
        container.share = given[k] / (wanted[k] * alike) if wanted[k] > 0.0 else 1.0
        place_shared(e, i, due_u(container))


@inlined
def due_u(container: Any) -> float:
    """Return when a synced container of a shared host is due next at its pace, in the host's time."""
    left = inf
    if container.rate > 0.0:
        if container.empties:
            left = (container.pool + OVERDRAFT_S) / container.rate
        else:
            left = (container.end0_v - container.v) / container.speed
    return float(container.since + left / container.share)


@inlined
def sync(e: Any, container: Any) -> tuple[float, float, float]:
    """Update the CPU accounts of a container to the present instant. Return its new (since, v, pool).

    Use the returned values: reading the same fields back from memory takes longer.
    """
    time = e.now
    passed = time - container.since
    if rarely(container.shared):
        host = host_at(e, container.host)
        time = host.u + (time - host.at_s) * host.factor
        passed = (time - container.since) * container.share
    container.since = time
    burnt = container.rate * passed
    v: float = container.v + container.speed * passed
    pool: float = container.pool - burnt
    container.v = v
    container.pool = pool
    container.used += burnt
    return time, v, pool


@inlined
def taken_s(container: Any) -> float:
    """Return the part of the pool that a CPU has taken and not used, s: the rest of its slice while the
    container (synced) runs, else of its silo."""
    left: float = container.silo_end - container.used
    if left < -NANOSECOND and container.runnable > 0:
        left = SLICE_S - -left % SLICE_S
    return float(max(min(left, container.pool), 0.0))


@inlined
def pace(e: Any, i: int, container: Any) -> None:
    """Compute the speed of container i (synced) and the time of its next event."""
    left = container.end0_v - container.v
    pace_by(e, i, container, container.since, container.pool, container.runnable, left)


@inlined
def pace_by(e: Any, i: int, container: Any, since: float, pool: float, runnable: int, left: float) -> None:
    """Do what `pace` does for a container with this state; `left` until its first visit ends in its v.

    A container without runnable visits needs no special case: its first visit ends at inf.
    """
    rate, speed, key, empties = 0.0, 0.0, inf, False
    if container.runs:
        rate = float(runnable)
        allowed = pool + OVERDRAFT_S
        if rate <= container.cap:
            speed = min(rate, 1.0)
            empties = left * rate > allowed
            if rarely(empties):
                left = allowed / rate
        else:
            speed = container.cap / rate
            rate = container.cap
            empties = left * rate > allowed * speed
            left = allowed / rate if empties else left / speed
        key = since + left
    container.empties = empties
    container.speed = speed
    if rarely(container.shared):
        change = rate - container.rate
        container.rate = rate
        if change != 0.0:
            want_cpus(e, container.host, change)
        place_shared(e, i, container.since + (key - container.since) / container.share)
        return
    container.rate = rate
    place(e.top, e.top_size, i, i, key)


@inlined
def append(e: Any, owner: Any, n: int) -> None:
    """Put node n at the end of a queue. `owner` is a record with a head and a tail."""
    node = node_at(e, n)
    node.next = NOBODY
    node.prev = owner.tail
    if owner.tail == NOBODY:
        owner.head = n
    else:
        node_at(e, owner.tail).next = n
    owner.tail = n


@inlined
def unlink(e: Any, owner: Any, n: int) -> None:
    """Take node n out of the queue of `owner`."""
    node = node_at(e, n)
    if node.prev == NOBODY:
        owner.head = node.next
    else:
        node_at(e, node.prev).next = node.next
    if node.next == NOBODY:
        owner.tail = node.prev
    else:
        node_at(e, node.next).prev = node.prev


@inlined
def schedule(e: Any, n: int, step: int) -> None:
    """Schedule node n at the present instant: it continues with `step`, after the nodes scheduled earlier."""
    node = node_at(e, n)
    node.state = step
    node.next = NOBODY
    if e.tail == NOBODY:
        e.head = n
    else:
        node_at(e, e.tail).next = n
    e.tail = n


@inlined
def start_delay(e: Any, index: int, n: int) -> None:
    """Put node n into a delay line."""
    line = line_at(e, index)
    due_s = e.now + line.delay_s
    node_at(e, n).due_s = due_s
    if line.head == NOBODY:
        place_line(e, index, due_s)
    append(e, line, n)


@package_kernel
def start_timeout(e: Any, index: int, n: int) -> None:
    """Start the timeout of node n. (A line's time may be earlier than its head's, which costs one extra
    check.)
    """
    line, timer = line_at(e, index), timer_at(e, n)
    timer.due_s = e.now + line.delay_s
    timer.later = NOBODY
    timer.sooner = line.tail
    node_at(e, n).timed = True
    if line.tail == NOBODY:
        line.head = n
        place_line(e, index, timer.due_s)
    else:
        timer_at(e, line.tail).later = n
    line.tail = n


@inlined
def cancel_timeout(e: Any, n: int) -> None:
    """Cancel the timeout of node n, if it has one."""
    node = node_at(e, n)
    if not node.timed:
        return
    node.timed = False
    timer, line = timer_at(e, n), line_at(e, call_at(e, node.call).timeout)
    if timer.sooner == NOBODY:
        line.head = timer.later
    else:
        timer_at(e, timer.sooner).later = timer.later
    if timer.later == NOBODY:
        line.tail = timer.sooner
    else:
        timer_at(e, timer.later).sooner = timer.sooner


@inlined
def take_node(e: Any) -> int:
    """Take a node off the free list and return its index."""
    n: int = e.free
    e.free = node_at(e, n).next
    e.spare -= 1
    return n


@inlined
def free_node(e: Any, n: int) -> None:
    """Put node n back on the free list."""
    node = node_at(e, n)
    node.state = FREE
    node.next = e.free
    e.free = n
    e.spare += 1


@inlined
def charge_memory(e: Any, i: int, more_bytes: int) -> None:
    """Change the memory that container i wants. Add the container to the list if it now exceeds its limit."""
    container = container_at(e, i)
    container.wanted_bytes += more_bytes
    if container.wanted_bytes > container.limit_bytes and not container.over:
        container.over = True
        container_at(e, e.over).over_list = i
        e.over += 1


@package_kernel
def keep_exceeding(engine: Records) -> int:
    """Drop from the list the containers that are within their limit again or do not run.

    Returns the number of containers that are left.
    """
    e = engine[0]
    left = 0
    for j in range(e.over):
        i = container_at(e, j).over_list
        container = container_at(e, i)
        if container.status == UP and container.wanted_bytes > container.limit_bytes:
            container_at(e, left).over_list = i
            left += 1
        else:
            container.over = False
    e.over = left
    return left
