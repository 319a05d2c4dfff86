"""The calendar of the request engine: who is due next, and how fast each container runs until then.

For: tournament trees of times, the time of hosts that run slower, and the pace of containers. Not for: what
happens at an event (visits.py, advance.py).
Source: processor sharing by virtual time, as in generalised processor sharing (Parekh & Gallager 1993).
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.records import (
    OVERDRAFT_S,
    container_at,
    host_at,
    key_at,
    owner_at,
    rarely,
    select,
)


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
def place(tree: int, size: int, leaf: int, owner: int, time: float) -> float:
    """Set the time of one leaf of a tournament tree and return the least time of all leaves.

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
    least: float = time_of(key)
    return least


@inlined
def place_line(e: Any, index: int, time: float) -> None:
    """Set when a delay line is due next. The index behind the last line stands for the client's timeouts."""
    owner = e.container_count + e.host_count + index
    place(e.top, e.top_size, owner, owner, time)


@inlined
def place_host(e: Any, h: int) -> None:
    """Set when the next container of host h is due."""
    host = host_at(e, h)
    time = host.at_s + (host.next_u - host.u) / host.factor
    place(e.top, e.top_size, e.container_count + h, e.container_count + h, time)


@package_kernel
def place_shared(e: Any, i: int, time: float) -> None:
    """Set when container i of a shared host is due next, by its host's time."""
    container = container_at(e, i)
    host = host_at(e, container.host)
    least = place(host.tree, host.size, container.leaf, i, time)
    if least != host.next_u:
        host.next_u = least
        place_host(e, container.host)


@inlined
def host_factor(host: Any) -> float:
    """Return how fast the host runs (1 = as on CPUs of its own), see RequestWorkload.imbalance and stolen."""
    wanted, cores = host.wanted, host.cores
    factor = min(1.0, cores / wanted) if wanted > 0.0 else 1.0
    if rarely(host.imbalance > 0.0) and wanted > 1.0 and cores > 1.0:
        scattered = cores * (1.0 - (1.0 - 1.0 / cores) ** wanted) / wanted
        factor += host.imbalance * (scattered - factor)
    return float(factor * host.speed)


@package_kernel
def want_cpus(e: Any, h: int, cpus: float) -> None:
    """Add `cpus` to what the containers of host h want. Containers that share too few CPUs run slower."""
    host = host_at(e, h)
    host.wanted += cpus
    factor = host_factor(host)
    if factor != host.factor:
        now = e.now
        host.u += (now - host.at_s) * host.factor
        host.at_s = now
        host.factor = factor
        place_host(e, h)


@inlined
def sync(e: Any, container: Any) -> None:
    """Bring the CPU accounts of a container up to now."""
    time = e.now
    if rarely(container.shared):
        host = host_at(e, container.host)
        time = host.u + (time - host.at_s) * host.factor
    passed = time - container.since
    container.since = time
    burnt = container.rate * passed
    container.v += container.speed * passed
    container.pool -= burnt
    container.used += burnt


@inlined
def pace(e: Any, i: int, container: Any) -> None:
    """Compute how fast container i (synced) runs now and when its next event is.

    A container with nothing runnable needs no special case: its first visit ends at inf.
    """
    rate, speed, key, empties = 0.0, 0.0, inf, False
    if container.runs:
        rate = float(container.runnable)
        left = container.least_v - container.v
        allowed = container.pool + OVERDRAFT_S
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
        key = container.since + left
    container.empties = empties
    container.speed = speed
    if rarely(container.shared):
        change = rate - container.rate
        container.rate = rate
        if change != 0.0:
            want_cpus(e, container.host, change)
        place_shared(e, i, key)
    else:
        container.rate = rate
        place(e.top, e.top_size, i, i, key)
