"""The runnable visits of a container, in the order in which their parts end.

For: kernels that begin the part of a visit, end the part that ends first, and add up the work that is left.
Not for: when that is (waiting.py), nor what follows (visits.py, events.py).

The four visits that end first stand in the container's record, in order. The others are a heap in `runnable`.
Beginning and ending a part write all four places. So no branch depends on the number of visits, which would
be mispredicted at one event in five.
"""

from __future__ import annotations

from math import inf
from typing import Any

from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.records import rarely, runnable_at, select
from twin.containers.requests.engine.waiting import bits_of, time_of


@inlined
def begin_part(e: Any, container: Any, v: float, n: int) -> tuple[int, float]:
    """Make node n runnable until the virtual time of the container reaches v.

    Returns (runnable visits, virtual time at which the first of them ends).
    """
    k = container.runnable
    v0, v1, v2, v3 = container.end0_v, container.end1_v, container.end2_v, container.end3_v
    n0, n1, n2, n3 = container.end0, container.end1, container.end2, container.end3
    s0, s1, s2, s3 = v < v0, v < v1, v < v2, v < v3
    container.runnable = k + 1
    first_v = min(v, v0)
    container.end0_v = first_v
    container.end1_v = min(max(v, v0), v1)
    container.end2_v = min(max(v, v1), v2)
    container.end3_v = min(max(v, v2), v3)
    container.end0 = select(s0, n, n0)
    container.end1 = select(s1, select(s0, n0, n), n1)
    container.end2 = select(s2, select(s1, n1, n), n2)
    container.end3 = select(s3, select(s2, n2, n), n3)
    if rarely(k > 3):
        _push(e, container.first, k - 4, max(v, v3), select(s3, n3, n))
    return k + 1, first_v


@inlined
def finish_part(e: Any, container: Any) -> tuple[int, int, float]:
    """End the first runnable visit.

    Returns (its node, runnable visits, virtual time until the next of them ends).
    """
    n: int = container.end0
    k: int = container.runnable - 1
    now_v, next_v = container.end0_v, container.end1_v
    container.runnable = k
    container.v = time_of(select(k > 0, bits_of(now_v), 0))
    container.end0_v = next_v
    container.end1_v = container.end2_v
    container.end2_v = container.end3_v
    container.end0 = container.end1
    container.end1 = container.end2
    container.end2 = container.end3
    container.end3_v = inf
    if rarely(k > 3):
        other = runnable_at(e, container.first)
        container.end3_v = other.v
        container.end3 = other.node
        _pop(e, container.first, k - 3)
    return n, k, next_v - now_v


@package_kernel
def _push(e: Any, first: int, count: int, v: float, n: int) -> None:
    """Add an entry to a heap of `count` entries of the runnable visits."""
    i = count
    while i > 0:
        up = (i - 1) >> 1
        above = runnable_at(e, first + up)
        if above.v <= v:
            break
        here = runnable_at(e, first + i)
        here.v = above.v
        here.node = above.node
        i = up
    here = runnable_at(e, first + i)
    here.v = v
    here.node = n


@package_kernel
def _pop(e: Any, first: int, count: int) -> None:
    """Remove the entry that ends first from a heap of `count` entries."""
    last = runnable_at(e, first + count - 1)
    v, n = last.v, last.node
    i = 0
    while True:
        down = 2 * i + 1
        if down >= count - 1:
            break
        # No branch, which would be mispredicted. It may compare with the last entry, where the loop ends.
        down += runnable_at(e, first + down + 1).v < runnable_at(e, first + down).v
        below = runnable_at(e, first + down)
        if below.v >= v:
            break
        here = runnable_at(e, first + i)
        here.v = below.v
        here.node = below.node
        i = down
    here = runnable_at(e, first + i)
    here.v = v
    here.node = n


@package_kernel
def unfinished_s(e: Any, container: Any) -> float:
    """Return the CPU work of the container (synced) that has begun and is not done, s."""
    if container.runnable == 0:
        return 0.0
    total: float = container.end0_v - container.v
    for later_v in (container.end1_v, container.end2_v, container.end3_v):
        if later_v < inf:
            total += later_v - container.v
    for j in range(container.runnable - 4):
        total += runnable_at(e, container.first + j).v - container.v
    return total
