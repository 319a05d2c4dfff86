"""Critical paths of requests: the calls that a request waited for, and the owners whose waiting made it slow.

For: critical paths of span trees, and each owner's time on them. Not for: recording spans
(twin.containers.requests), nor acting on the result (control.allocator). The owner of a span is a service or
a container.

A critical path begins at the request's root. At each span the call that returned last is on it. Before that
call, the call that returned last among those that had returned by then is on it, and so on backwards. So the
calls of a span that are on the path never overlap, and the own times of the spans on it add up to the root's
time.

Source: Qiu et al., "FIRM: An Intelligent Fine-grained Resource Management Framework for SLO-Oriented
Microservices", OSDI 2020, Algorithm 1. As printed, it appends the path of every earlier call. We append the
path of the last earlier call only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of requests. The spans of a request are consecutive: the root first, callers before their
    callees.

    request: int64[n]. parent: int64[n], row of the caller, −1 for a root. owner: int64[n]. start_s, end_s:
    float64[n], times of the call and of the answer at the caller. work_s: float64[n], the span's own CPU
    work, s.
    """

    request: Index
    parent: Index
    owner: Index
    start_s: Floats
    end_s: Floats
    work_s: Floats


@dataclass(frozen=True, slots=True)
class Paths:
    """Critical paths. on: bool[n], the span is on its request's path. own_s: float64[n], time of a span on
    the path in which it waited for no call on the path, 0 elsewhere."""

    on: NDArray[np.bool_]
    own_s: Floats


def critical_paths(spans: Spans) -> Paths:
    """Return the critical path of every request."""
    count = len(spans.parent)
    start, end, parents = spans.start_s.tolist(), spans.end_s.tolist(), spans.parent.tolist()
    callees: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        if parent >= 0:
            callees.setdefault(parent, []).append(row)
    on = [parent < 0 for parent in parents]
    own = [0.0] * count
    for row in range(count):
        if not on[row]:
            continue
        own[row] = end[row] - start[row]
        before = end[row]
        for callee in sorted(callees.get(row, ()), key=lambda callee: (end[callee], callee), reverse=True):
            if end[callee] <= before:
                on[callee] = True
                own[row] -= end[callee] - start[callee]
                before = start[callee]
    return Paths(np.array(on, np.bool_), np.maximum(np.array(own, np.float64), 0.0))


@dataclass(frozen=True, slots=True)
class Blame:
    """Mean contribution of each owner per request. The owners that add most waiting come first.

    owner: int64[k]. wait_s: float64[k], time on the critical path in which the owner neither did this
    request's CPU work nor waited for a call on the path: queues, throttling, lack of CPUs, the network.
    work_s: float64[k], CPU work on the path. requests: number of requests.
    """

    owner: Index
    wait_s: Floats
    work_s: Floats
    requests: int


def blame(spans: Spans, paths: Paths, requests: Index) -> Blame:
    """Return each owner's contribution to `requests` (int64[m], distinct; requests without spans do not
    count).
    """
    chosen = paths.on & np.isin(spans.request, requests)
    owners, place = np.unique(spans.owner[chosen], return_inverse=True)
    count = len(np.unique(spans.request[chosen]))
    own_s = paths.own_s[chosen]
    work_s = np.minimum(spans.work_s[chosen], own_s)
    mean = [
        np.bincount(place, weights=values, minlength=len(owners)) / max(count, 1)
        for values in (own_s - work_s, work_s)
    ]
    order = np.argsort(-mean[0], kind="stable")
    return Blame(owners[order], mean[0][order], mean[1][order], count)
