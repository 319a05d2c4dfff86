"""The choice of traced requests, and their spans as arrays.

For: drawing the traced requests before a run, and reading the spans of a window or of the whole run. Not for:
how spans are written and kept (engine/tracing.py), nor what they mean (control.paths).

At most TRACED requests of a run are traced; of a larger run they are drawn at random. Two sets of spans stay
until the run's end: those of DRAWN traced requests, again drawn at random, and those of the SLOWEST. So
memory and time are bounded, and the slowest 5 % of the traced requests are all kept. Tracing changes no
random number of the run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.paths import Spans
from twin.containers.requests import engine
from twin.containers.requests.engine import records
from twin.containers.requests.model import RequestWorkload, ServiceGraph, SpanLog

TRACED = 20_000
DRAWN = 500
SLOWEST = 1_000
IN_FLIGHT = 1 << 16
"""Number of spans for requests that have not ended, in addition to the kept ones. A request that finds no
room is not traced."""

_MOST_VISITS = 512
"""Number of visits per request for which room is planned. The graph may require fewer."""

Tables = dict[str, records.Records]


def begin(
    workload: RequestWorkload,
    tables: Tables,
    state: records.Records,
    seed: np.random.SeedSequence,
    held: bool,
) -> None:
    """Draw the requests to trace, and make room for their spans. held: spans of answers wait for `window`."""
    requests = tables["requests"]
    if len(requests) == 0:
        return
    # A random stream of its own, so that the run's numbers are the same without spans.
    own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, len(seed.spawn_key), 1))
    order = np.random.default_rng(own).permutation(len(requests))[:TRACED]
    requests["traced"][order] = records.TRACED
    requests["traced"][order[:DRAWN]] = records.DRAWN
    room = IN_FLIGHT + (DRAWN + SLOWEST) * min(_visits(workload.graph), _MOST_VISITS)
    for name, table in (
        ("spans", np.zeros(room, records.SPAN)),
        ("slowest", np.zeros(SLOWEST, records.SLOW)),
    ):
        tables[name] = table
        state[name] = table.ctypes.data
    state["span_count"], state["fresh_span"], state["slow_most"] = room, 1, SLOWEST
    state["windowed"] = held


def window(
    graph: ServiceGraph, tables: Tables, state: records.Records, answered: NDArray[np.int64]
) -> Spans | None:
    """Return the spans of the answered requests, with containers' columns as owners, and release them."""
    log = _read(graph, tables, state, answered)
    engine.settle(state, answered)
    reached = log.container >= 0
    if not reached.all():
        return _reached(log, reached)
    return Spans(log.request, log.parent, log.container, log.start_s, log.end_s, log.work_s)


def kept(graph: ServiceGraph, tables: Tables, state: records.Records) -> SpanLog | None:
    """Return the spans that were kept, in the requests' order; None where no request was traced."""
    requests = tables["requests"]
    if state["span_count"][0] == 0:
        return None
    whole = (requests["spans"] > 0) & (requests["status"] == records.OK)
    whole &= requests["traced"] != records.LOST
    return _read(graph, tables, state, np.flatnonzero(whole))


def _reached(log: SpanLog, reached: NDArray[np.bool_]) -> Spans:
    """Return the spans that reached a container. A span that reached no container has no callees."""
    row = np.cumsum(reached) - 1
    parent = np.where(log.parent >= 0, row[log.parent], -1)[reached]
    start_s, end_s, work_s = (column[reached] for column in (log.start_s, log.end_s, log.work_s))
    return Spans(log.request[reached], parent, log.container[reached], start_s, end_s, work_s)


def _read(
    graph: ServiceGraph, tables: Tables, state: records.Records, requests: NDArray[np.int64]
) -> SpanLog:
    most = int(state["fresh_span"][0])
    request, parent, call, container = (np.empty(most, np.int64) for _ in range(4))
    times = np.empty((most, 3))
    scratch = np.full(len(tables["nodes"]), -1, np.int32)
    count = engine.read_spans(state, requests, scratch, request, parent, call, container, times)
    request, parent, call, container = (column[:count] for column in (request, parent, call, container))
    start_s, end_s, part_s = np.ascontiguousarray(times[:count].T)
    handler = np.concatenate((graph.call_handler, graph.request_handler))[call]
    work_s = np.where(container >= 0, part_s / tables["calls"]["share"][call], 0.0)
    drawn = tables["requests"]["traced"][request] == records.DRAWN
    service = graph.handler_service[handler]
    lost = int(state["untraced"][0])
    return SpanLog(request, parent, service, container, start_s, end_s, work_s, drawn, lost)


def _visits(graph: ServiceGraph) -> int:
    """Return the most visits that one request makes, if no call is repeated."""
    most: dict[int, int] = {}

    def visits(handler: int) -> int:
        if handler not in most:
            first, last = graph.first_call[graph.first_stage[[handler, handler + 1]]]
            most[handler] = 1 + sum(visits(callee) for callee in graph.call_handler[first:last].tolist())
        return most[handler]

    return max(visits(handler) for handler in graph.request_handler.tolist())
