"""The event loop of the request engine: the next event, and what it begins.

For: `advance`, which moves all requests to a moment. Not for: the parts of an event (visits.py, clients.py),
nor for what the control loop does between two events (control.py).
"""

from __future__ import annotations

from math import inf
from typing import Any

from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.calendar import owners_of, pace, place_line, sync, time_of
from twin.containers.requests.engine.clients import expire_requests, handle_arrival, tell_caller
from twin.containers.requests.engine.queues import finish_part, keep_exceeding, schedule, unlink
from twin.containers.requests.engine.records import (
    ARRIVE,
    ATTEMPT,
    DELAY,
    LEAVE,
    NEEDS_NUMBERS,
    NEEDS_ROOM,
    NOBODY,
    REACHED,
    RUN,
    SIGNALLED,
    TIMEOUT,
    TRANSIT,
    Records,
    container_at,
    host_at,
    key_at,
    line_at,
    node_at,
    owner_at,
    rarely,
    timer_at,
)
from twin.containers.requests.engine.visits import call_stage, leave, proceed, time_out


@inlined
def on_cpu(e: Any, i: int) -> tuple[int, int]:
    """Handle the event of container i: its pool is empty, or its first runnable part is done.

    Returns (the node that goes on, its step).
    """
    container = container_at(e, i)
    sync(e, container)
    if rarely(container.empties):
        container.runs = False
        container.stalled = min(float(container.runnable), container.cap)
        container.stalled_at_s = e.now
        container.throttled = True
        return NOBODY, RUN
    n = finish_part(e, container)
    if rarely(e.wake_s > 0.0):
        container.idle_since_s = e.now
    node = node_at(e, n)
    stage = node.stage
    if stage == node.last_stage:
        return n, LEAVE
    child = call_stage(e, node, n, stage)
    if child == NOBODY:
        return n, RUN
    return child, ATTEMPT


@inlined
def on_delay_line(e: Any, index: int) -> None:
    """Handle a delay line whose head is due, or was due before it was taken out."""
    now = e.now
    if index == e.line_count:
        expire_requests(e)
        return
    line = line_at(e, index)
    n = line.head
    if n == NOBODY:
        place_line(e, index, inf)
        return
    node = node_at(e, n)
    due_s = node.due_s if line.kind == DELAY else timer_at(e, n).due_s
    if due_s > now:
        place_line(e, index, due_s)
        return
    if line.kind == TIMEOUT:
        time_out(e, n)
        return
    unlink(e, line, n)
    place_line(e, index, node_at(e, line.head).due_s if line.head != NOBODY else inf)
    schedule(e, n, ARRIVE if node.state == TRANSIT else ATTEMPT)


@package_kernel
def advance(engine: Records, until: float) -> int:
    """Handle all events up to `until` (s; arrivals only before it), or stop when the loop is needed.

    Returns REACHED; NEEDS_ROOM or NEEDS_NUMBERS (provide them and call again); or SIGNALLED: at `now` a
    running container exceeds its memory limit, or (with `watch`) a request has ended. Nothing happens if the
    clock is past `until` already, for instance by rounding. With `until` = −inf only what has begun at this
    instant is finished.
    """
    e = engine[0]
    finishing = until == -inf
    busy, n, step = e.busy_with, NOBODY, RUN
    e.busy_with = -1
    while True:
        while n != NOBODY or e.head != NOBODY:
            if e.numbers < e.reserve:
                if n != NOBODY:
                    schedule(e, n, step)
                e.busy_with = busy
                return NEEDS_NUMBERS
            if n == NOBODY:
                n = e.head
                node = node_at(e, n)
                step = node.state
                e.head = node.next
                if e.head == NOBODY:
                    e.tail = NOBODY
            while n != NOBODY:
                if step < LEAVE:
                    if not proceed(e, n, step, busy):
                        n = NOBODY
                        break
                elif step == LEAVE:
                    leave(e, n)
                n, step = tell_caller(e, n)
        if busy >= 0:
            pace(e, busy, container_at(e, busy))
            busy = -1
        if finishing:
            return REACHED
        if rarely(e.over > 0) and keep_exceeding(engine) > 0:
            return SIGNALLED
        if e.watch and e.ended > e.told:
            e.told = e.ended
            return SIGNALLED
        if rarely(e.spare < e.reserve):
            return NEEDS_ROOM
        at = time_of(key_at(e.top, 1).key)
        if e.next_due_s < at:
            if e.next_due_s >= until:
                break
            e.now = max(e.now, e.next_due_s)
            handle_arrival(e)
        else:
            if at > until or at == inf:
                break
            e.now = max(e.now, at)
            owner: int = owner_at(owners_of(e.top, e.top_size), 1).owner
            if rarely(owner >= e.container_count):
                owner -= e.container_count
                if owner >= e.host_count:
                    on_delay_line(e, owner - e.host_count)
                    continue
                host = host_at(e, owner)
                owner = owner_at(owners_of(host.tree, host.size), 1).owner
            busy = owner
            n, step = on_cpu(e, owner)
    e.now = max(e.now, until)
    return REACHED
