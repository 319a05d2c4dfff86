"""Clients of the request engine: their requests, the connections they use, and when they give up.

For: requests from the moment they are due to the end that the log records, and telling any caller how its
attempt ended. Not for: when requests are due (arrivals.py), nor for the visits they cause (visits.py).
"""

from __future__ import annotations

from math import inf
from typing import Any

from twin.containers.cfs import UP
from twin.containers.compiled import inlined, package_kernel
from twin.containers.requests.engine.calendar import place_line
from twin.containers.requests.engine.queues import cancel_timeout, free_node, schedule, take_node
from twin.containers.requests.engine.records import (
    ATTEMPT,
    DROPPED,
    FAILED,
    LEAVE,
    NOBODY,
    OK,
    PENDING,
    RUN,
    SEND,
    TIMED_OUT,
    container_at,
    node_at,
    rarely,
    request_at,
)
from twin.containers.requests.engine.visits import abandon, disconnect, try_again, wake


@inlined
def open_request(e: Any, r: int) -> int:
    """Give request r a client connection. Returns the node that stands for the request."""
    n = take_node(e)
    node, request = node_at(e, n), request_at(e, r)
    e.open += 1
    node.parent = -1 - r
    node.call = e.client + request.kind
    node.pooled = False
    node.timed = False
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
    """Time out the oldest pending request if it is due. Requests time out in the order they were due."""
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
    """Tell the caller of attempt n how it ended. The caller tries again, waits for other calls, or goes on.

    Returns (the node that goes on, its step).
    """
    node = node_at(e, n)
    p: int = node.parent
    outcome = node.outcome
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
