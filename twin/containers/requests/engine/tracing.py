"""Spans of traced requests: the container that served a request, the times, and the CPU work.

For: kernels that write a span when an attempt to make a visit has ended and its caller has the result, and
that keep or drop a request's spans when it is answered. Spans of requests that were drawn before the run are
kept, and those of the slowest requests. Not for: which requests are traced (requests/tracing.py), nor
critical paths (control.paths).

A request's spans are a list, newest first. An attempt that its caller gave up has no span, because no caller
waits for it. The caller's own span of the failed attempt ends when the caller gave up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import inlined, package_kernel
from twin.containers.model import Floats
from twin.containers.requests.engine.records import (
    LOST,
    NOBODY,
    OK,
    PENDING,
    TRACED,
    Records,
    node_at,
    request_at,
    slow_at,
    span_at,
)

_Int32 = NDArray[np.int32]


@inlined
def take_span(e: Any) -> int:
    """Take a free span and return its index, 0 if there is none."""
    s: int = e.free_span
    if s > 0:
        e.free_span = span_at(e, s).next
    elif e.fresh_span < e.span_count:
        s = e.fresh_span
        e.fresh_span += 1
    return s


@package_kernel
def trace(e: Any, n: int) -> None:
    """Write the span of attempt n, which has just ended, unless its caller or its request has given it up."""
    node = node_at(e, n)
    r = node.request
    request = request_at(e, r)
    if node.parent == NOBODY or request.status != PENDING or request.traced == LOST:
        return
    s = take_span(e)
    if s == 0:
        request.traced = LOST
        return
    span = span_at(e, s)
    span.node = n
    span.parent = node.parent
    span.call = node.call
    span.container = node.container if node.outcome == OK else -1
    span.called_s = node.called_s
    span.end_s = e.now
    span.part_s = node.part_s
    span.next = request.spans
    request.spans = s
    if request.first_span == 0:
        request.first_span = s


@inlined
def drop_spans(e: Any, r: int) -> None:
    """Free the spans of request r."""
    request = request_at(e, r)
    if request.spans > 0:
        span_at(e, request.first_span).next = e.free_span
        e.free_span = request.spans
        request.spans = 0
        request.first_span = 0


@package_kernel
def end_trace(e: Any, r: int) -> None:
    """Keep or drop the spans of request r, which has just ended; `windowed`: hold those of an answer."""
    request = request_at(e, r)
    e.untraced += request.traced == LOST
    if request.traced == LOST or request.status != OK:
        drop_spans(e, r)
    elif not e.windowed:
        keep_slowest(e, r)


@package_kernel
def settle(engine: Records, requests: NDArray[np.int64]) -> None:
    """Keep or drop the spans of answered requests, which were held for the control loop to read."""
    e = engine[0]
    for r in requests:
        keep_slowest(e, r)


@package_kernel
def keep_slowest(e: Any, r: int) -> None:
    """Keep the spans of answered request r if it was drawn, or while it is among the slowest."""
    request = request_at(e, r)
    if request.traced != TRACED or request.spans == 0:
        return
    latency_s = request.end_s - request.at_s
    if e.slow_count < e.slow_most:
        i = e.slow_count
        e.slow_count += 1
        while i > 0 and slow_at(e, (i - 1) >> 1).latency_s > latency_s:
            _move(e, (i - 1) >> 1, i)
            i = (i - 1) >> 1
    elif e.slow_most > 0 and latency_s > slow_at(e, 0).latency_s:
        drop_spans(e, slow_at(e, 0).request)
        i = 0
        while True:
            down = 2 * i + 1
            if down >= e.slow_count:
                break
            if down + 1 < e.slow_count and slow_at(e, down + 1).latency_s < slow_at(e, down).latency_s:
                down += 1
            if slow_at(e, down).latency_s >= latency_s:
                break
            _move(e, down, i)
            i = down
    else:
        drop_spans(e, r)
        return
    here = slow_at(e, i)
    here.latency_s = latency_s
    here.request = r


@inlined
def _move(e: Any, source: int, target: int) -> None:
    here, there = slow_at(e, source), slow_at(e, target)
    there.latency_s = here.latency_s
    there.request = here.request


@package_kernel
def read_spans(
    engine: Records,
    requests: NDArray[np.int64],
    row_of_node: _Int32,
    request: NDArray[np.int64],
    parent: NDArray[np.int64],
    call: NDArray[np.int64],
    container: NDArray[np.int64],
    times: Floats,
) -> int:
    """Copy the spans of `requests` whose callers have a span, the root first, and return how many.

    row_of_node: int32[nodes] of −1, scratch. request, parent, call, container: int64[n] to fill; parent is a
    row, −1 for a root. times: float64[n, 3] to fill: called, ended, CPU work of a part, s. What does not fit
    is left out.
    """
    e = engine[0]
    row = 0
    for r in requests:
        begin = row
        s = request_at(e, r).spans
        while s > 0 and row < len(request):
            span = span_at(e, s)
            s = span.next
            caller = -1
            if span.parent > 0:
                # Newest first: the last span read of the caller's node is the one that made this call.
                caller = row_of_node[span.parent]
                if caller < begin:
                    continue
                if times[caller, 0] > span.called_s:
                    continue  # the node has served another visit since
            elif row != begin:
                continue
            row_of_node[span.node] = row
            request[row] = r
            parent[row] = caller
            call[row] = span.call
            container[row] = span.container
            times[row, 0] = span.called_s
            times[row, 1] = span.end_s
            times[row, 2] = span.part_s
            row += 1
    return row
