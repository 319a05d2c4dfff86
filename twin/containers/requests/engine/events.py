"""The events of the request engine: arrivals, ends of calls and requests, CPU work, delays, and their loop.

For: `advance`, which moves all requests to a moment; client requests from when they are due to the end that
the log records; reporting the end of an attempt to its caller. Not for: the course of a visit (visits.py),
nor the control loop's actions between two events (control.py).
"""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from twin.containers.cfs import SILO_S, SLICE_S, UP
from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.parts import finish_part
from twin.containers.requests.engine.records import (
    ARRIVE,
    ATTEMPT,
    DELAY,
    DROPPED,
    FAILED,
    LEAVE,
    NEEDS_NUMBERS,
    NEEDS_ROOM,
    NOBODY,
    OK,
    PENDING,
    REACHED,
    RUN,
    SEND,
    SIGNALLED,
    TIMED_OUT,
    TIMEOUT,
    TRANSIT,
    UNTRACED,
    Records,
    container_at,
    fetch,
    host_at,
    line_at,
    node_at,
    owner_at,
    rarely,
    request_at,
    timer_at,
)
from twin.containers.requests.engine.tracing import end_trace, trace
from twin.containers.requests.engine.visits import (
    abandon,
    call_stage,
    disconnect,
    leave,
    proceed,
    time_out,
    try_again,
    wake,
)
from twin.containers.requests.engine.waiting import (
    cancel_timeout,
    free_node,
    keep_exceeding,
    next_due,
    owners_of,
    pace,
    pace_by,
    place_line,
    schedule,
    sync,
    take_node,
    unlink,
)

FAR = 128
"""Containers that stay in the nearest cache: 256 bytes each are needed often, of 32 to 64 KiB."""


@inlined
def open_request(e: Any, r: int) -> int:
    """Give request r a client connection. Return the node that represents the request."""
    n = take_node(e)
    node, request = node_at(e, n), request_at(e, r)
    e.open += 1
    node.parent = -1 - r
    node.call = e.client + request.kind
    node.pooled = False
    node.timed = False
    node.request = r if request.traced != UNTRACED else -1
    node.called_s = e.now
    request.node = n
    return n


@inlined
def log_request(e: Any, r: int, outcome: int) -> None:
    """Record how request r ended."""
    request = request_at(e, r)
    request.status = outcome
    request.end_s = e.now
    request.node = NOBODY
    request_at(e, e.ended).order = r
    e.ended += 1


@inlined
def close_request(e: Any, r: int, outcome: int) -> None:
    """End request r, which was open, and open the next request in line for a connection."""
    log_request(e, r, outcome)
    if rarely(request_at(e, r).traced != UNTRACED):
        end_trace(e, r)
    e.open -= 1
    if e.waiting == 0:
        return
    following = e.opened
    while request_at(e, following).status != PENDING:
        following += 1
    e.opened = following + 1
    e.waiting -= 1
    schedule(e, open_request(e, following), SEND)


@inlined
def mark_due(e: Any, r: int) -> None:
    """Mark request r as due. From now on it may time out."""
    e.arrived = r + 1
    e.next_due_s = request_at(e, r + 1).at_s if r + 1 < e.count else inf
    if e.timeout_s < inf and e.expiring == r:
        place_line(e, e.line_count, request_at(e, r).at_s + e.timeout_s)


@inlined
def handle_arrival(e: Any) -> None:
    """Handle the next request of the arrivals, which is due now."""
    r = e.arrived
    mark_due(e, r)
    if e.connections == 0 or e.open < e.connections:
        e.opened = r + 1
        schedule(e, open_request(e, r), SEND)
    elif e.waiting < e.queue:
        if e.waiting == 0:
            e.opened = r
        e.waiting += 1
    else:
        log_request(e, r, DROPPED)


@package_kernel
def expire_requests(e: Any) -> None:
    """Time out the oldest pending request if it is due. Requests time out in the order in which they became
    due.
    """
    r = e.expiring
    while r < e.arrived and request_at(e, r).status != PENDING:
        r += 1
    e.expiring = r
    if r == e.arrived:
        place_line(e, e.line_count, inf)
        return
    due_s = request_at(e, r).at_s + e.timeout_s
    if due_s > e.now:
        place_line(e, e.line_count, due_s)
        return
    n = request_at(e, r).node
    if n == NOBODY:
        e.waiting -= 1
        log_request(e, r, TIMED_OUT)
    else:
        abandon(e, n)
        close_request(e, r, TIMED_OUT)


@inlined
def tell_caller(e: Any, n: int) -> tuple[int, int]:
    """Report the end of attempt n to its caller. The caller tries again, waits for other calls, or continues.

    Returns (the node that continues, its step).
    """
    node = node_at(e, n)
    p: int = node.parent
    outcome = node.outcome
    if rarely(node.request >= 0):
        trace(e, n)
    if p <= 0:
        free_node(e, n)
        if p < 0:
            close_request(e, -1 - p, outcome)
        return NOBODY, RUN
    cancel_timeout(e, n)
    disconnect(e, n)
    caller = node_at(e, p)
    if rarely(outcome != OK):
        if node.attempts > 0:
            return try_again(e, n), ATTEMPT
        caller.outcome = FAILED
    pending = caller.pending - 1
    caller.pending = pending
    free_node(e, n)
    if pending > 0:
        if rarely(e.wake_s > 0.0):
            wake(e, container_at(e, caller.container))
        return NOBODY, RUN
    if rarely(caller.outcome != OK):
        if container_at(e, caller.container).status == UP:
            return p, LEAVE
        caller.part_s = 0.0  # a held process answers when it runs again
        caller.stage = caller.last_stage
    return p, RUN


@inlined
def fetch_next(e: Any) -> None:
    """Ask for the memory that the next event will probably need, while this one is handled.

    Fewer containers stay in the nearest cache by themselves.
    """
    if e.container_count > FAR:
        _, owner = next_due(e)
        if owner < e.container_count:
            container = container_at(e, owner)
            fetch(container)
            fetch(node_at(e, container.end0))


@inlined
def on_cpu(e: Any, i: int) -> tuple[int, int, int]:
    """Handle the event of container i: its pool is empty, or its first runnable part is done.

    Returns (the node that continues, its step, the call that it makes at that step).
    """
    container = container_at(e, i)
    since, _, pool = sync(e, container)
    if rarely(container.empties):
        container.runs = False
        container.stalled = min(float(container.runnable), container.cap)
        container.stalled_at_s = e.now
        container.throttled = True
        pace(e, i, container)
        return NOBODY, RUN, 0
    n, runnable, left = finish_part(e, container)
    taken = container.used - container.silo_end
    if runnable == 0 and taken > 0.0:
        slices = taken / SLICE_S
        container.silo_end = container.used + min(SILO_S, (ceil(slices) - slices) * SLICE_S)
    if rarely(e.moves > 0.0) and runnable == 1 and container.cap > 1.0:
        # The second CPU sleeps. The rest of its slice is at least SILO_S in four of five cases; always, here.
        kept = max(min(SILO_S, pool), 0.0)
        pool -= kept
        container.pool = pool
        container.stranded += kept
    pace_by(e, i, container, since, pool, runnable, left)
    fetch_next(e)
    if rarely(e.wake_s > 0.0):
        container.idle_since_s = e.now
    node = node_at(e, n)
    stage = node.stage
    if stage == node.last_stage:
        return n, LEAVE, 0
    child, c = call_stage(e, node, n, stage)
    if child == NOBODY:
        return n, RUN, 0
    return child, ATTEMPT, c


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
    clock is already past `until`, for instance by rounding. With `until` = −inf, only events that have begun
    at this instant are finished.
    """
    e = engine[0]
    finishing = until == -inf
    n, step, c = NOBODY, RUN, 0
    while True:
        while n != NOBODY or e.head != NOBODY:
            if e.numbers < e.reserve:
                if n != NOBODY:
                    schedule(e, n, step)
                return NEEDS_NUMBERS
            if n == NOBODY:
                n = e.head
                node = node_at(e, n)
                step, c = node.state, node.call
                e.head = node.next
                if e.head == NOBODY:
                    e.tail = NOBODY
            while n != NOBODY:
                if step < LEAVE:
                    if not proceed(e, n, step, c):
                        n = NOBODY
                        break
                elif step == LEAVE:
                    leave(e, n)
                n, step = tell_caller(e, n)
                if rarely(step == ATTEMPT):
                    c = node_at(e, n).call
        at, owner = next_due(e)
        if finishing:
            return REACHED
        if rarely(e.over > 0) and keep_exceeding(engine) > 0:
            return SIGNALLED
        if e.watch and e.ended > e.told:
            e.told = e.ended
            return SIGNALLED
        if rarely(e.spare < e.reserve):
            return NEEDS_ROOM
        if e.next_due_s < at:
            if e.next_due_s >= until:
                break
            e.now = max(e.now, e.next_due_s)
            handle_arrival(e)
        else:
            if at > until or at == inf:
                break
            e.now = max(e.now, at)
            if rarely(owner >= e.container_count):
                owner -= e.container_count
                if owner >= e.host_count:
                    on_delay_line(e, owner - e.host_count)
                    continue
                host = host_at(e, owner)
                owner = owner_at(owners_of(host.tree, host.size), 1).owner
            n, step, c = on_cpu(e, owner)
    e.now = max(e.now, until)
    return REACHED
