"""The testbed's service level: latency in an interval, with the spans of its requests.

For: choosing the requests to trace, collecting the containers' records of their calls
(testbed.containers.services.tracing), and the figures of an interval for an allocator. Not for: sending
(sender.py). The generator has all these data, and it runs outside the containers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import ServiceStats
from control.paths import Spans
from control.services import RequestStatus
from testbed.containers.load.plan import LoadPlan

_MOST_CALLS = 10_000
"""Largest number of recorded calls per request, our choice. It bounds the memory."""

_COMMONEST = 3
"""Number of kinds of request whose shares are reported, as in `ServiceStats.mix`."""

Row = tuple[tuple[int, ...], int, int, int]
"""A span: the numbers that make its name, the port of its container, start and end, ns."""


class Tracing(asyncio.DatagramProtocol):
    """Chooses the requests of a plan that are traced, and collects their spans."""

    def __init__(self, plan: LoadPlan) -> None:
        a_window = len(plan.at_s) / plan.duration_s * plan.service_interval_s
        self._every = max(ceil(a_window / plan.spans_wanted), 1) if plan.spans_wanted else 0
        self._rows: dict[int, list[Row]] = {}
        self._roots: dict[int, Row] = {}

    def begin(self, request: int) -> bool:
        """Return whether a request is to be traced."""
        if self._every == 0 or request % self._every:
            return False
        self._rows[request] = []
        return True

    def forget(self, request: int) -> None:
        """Forget a request that was not answered."""
        self._rows.pop(request, None)

    def answered(self, request: int, port: int, began_ns: int, ended_ns: int) -> None:
        """Note that a traced request was answered by the container at this port."""
        self._roots[request] = ((request,), port, began_ns, ended_ns)

    def datagram_received(self, data: bytes, _address: object) -> None:
        """See asyncio.DatagramProtocol. Calls of unknown requests, that come too late, or with numbers that
        cannot be are ignored."""
        try:
            calls = [
                (tuple(map(int, str(name).split("."))), int(port), int(began_ns), int(ended_ns))
                for name, port, began_ns, ended_ns in json.loads(data)
            ]
        except (TypeError, ValueError, OverflowError, RecursionError):
            return
        for call in calls:
            known = self._rows.get(call[0][0])
            fits = all(0 <= number < 2**63 for number in call[1:])
            if known is not None and fits and len(known) < _MOST_CALLS:
                known.append(call)

    def window(self, begins_ns: int, first_port: int) -> Spans:
        """Return the spans of requests answered since the last call, and forget them. An owner is a port less
        `first_port`. Times are seconds since begins_ns."""
        taken: list[Row] = []
        parents: list[int] = []
        for request, root in self._roots.items():
            # Callers come before their callees. A call whose caller is missing has no root.
            place = {root[0]: len(taken)}
            taken.append(root)
            parents.append(-1)
            for row in sorted(self._rows.pop(request, ())):
                parent = place.get(row[0][:-1])
                if parent is not None and row[0] not in place:
                    place[row[0]] = len(taken)
                    taken.append(row)
                    parents.append(parent)
        self._roots = {}
        names = np.array([row[0][0] for row in taken], np.int64)
        numbers = np.array([row[1:] for row in taken], np.int64).reshape(-1, 3)
        start_s, end_s = (numbers[:, 1:].T - begins_ns) * 1e-9
        unknown = np.full(len(taken), np.nan)
        return Spans(names, np.array(parents, np.int64), numbers[:, 0] - first_port, start_s, end_s, unknown)


def level(
    came: NDArray[np.int64],
    latency_s: Sequence[float],
    status: Sequence[int],
    interval_s: float,
    at_s: float,
    spans: Spans | None,
) -> ServiceStats:
    """Return an interval's service level of the one application.

    came: kind of each request that arrived in the interval. latency_s, status: latency, s, and status of each
    request that ended in it. interval_s: its length, s. at_s: its end, s. spans: its spans (None: unwanted).
    """
    answered = np.array(latency_s)[np.array(status, np.int64) == RequestStatus.OK]
    p99_s = float(np.quantile(answered, 0.99)) if answered.size else np.nan
    failed = 1.0 - len(answered) / len(status) if status else 0.0
    most = np.sort(np.bincount(came, minlength=_COMMONEST))[::-1][:_COMMONEST] / max(len(came), 1)
    rate = np.array([len(came) / interval_s])
    return ServiceStats(rate, np.array([p99_s]), at_s, spans, most[None], np.array([failed]))
