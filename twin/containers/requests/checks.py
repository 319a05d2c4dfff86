"""Checks of a workload of requests before it is simulated.

For: shapes, ranges, and the absence of cycles. Not for: users' mistakes, which are found where their text is
read (lab.containers.input.services). An error found here is our bug.
"""

from __future__ import annotations

import numpy as np

from control.services import MOST_AT_ONCE, Draw, cycle
from twin.containers.requests.model import Index, RequestWorkload, ServiceGraph
from twinbed import InvariantError


def check(workload: RequestWorkload) -> None:
    """Raise InvariantError for arrays that do not match, values out of range, or a cycle."""
    _check_population(workload)
    check_graph(workload.graph)
    if int(workload.graph.first_container[-1]) != len(workload.names):
        raise InvariantError("requests: the graph's containers are not the workload's")
    arrivals, client = workload.arrivals, workload.client
    kinds = len(workload.graph.request_names)
    if arrivals.at_s.shape != arrivals.kind.shape:
        raise InvariantError("requests: arrivals and their kinds differ in number")
    if arrivals.at_s.size and not (
        (np.diff(arrivals.at_s) >= 0).all() and arrivals.at_s[0] >= 0 and np.isfinite(arrivals.at_s[-1])
    ):
        raise InvariantError("requests: arrivals must be finite, from 0 on, and ascending")
    _indices("arrivals' kinds", arrivals.kind, kinds)
    if (
        client.connections < 0
        or client.queue < 0
        or not client.timeout_s > 0
        or not 0 <= client.way_s < np.inf
    ):
        raise InvariantError(f"requests: {client}")


def _check_population(workload: RequestWorkload) -> None:
    count, hosts = len(workload.names), len(workload.cores_of_host)
    per_container = ("app", "threads", "host", "host_cores", "peak_cores", "peak_bytes", "phase_s")
    if count == 0 or hosts == 0 or any(getattr(workload, name).shape != (count,) for name in per_container):
        raise InvariantError("requests: arrays of different lengths side by side")
    _indices("host", workload.host, hosts)
    _indices("app", workload.app, len(workload.applications))
    for name in ("threads", "cores_of_host"):
        values = getattr(workload, name)
        if not (np.isfinite(values) & (values > 0)).all():
            raise InvariantError(f"requests: {name} must be finite and above zero")
    cores = workload.host_cores
    if not (np.isfinite(cores) & (cores >= workload.cores_of_host[workload.host])).all():
        raise InvariantError("requests: host_cores are less than those of the hosts, or not finite")
    if not (0 <= workload.stolen < 1 and 0 <= workload.imbalance <= 1 and 0 <= workload.moves <= 1):
        shares = f"stolen {workload.stolen}, imbalance {workload.imbalance}, moves {workload.moves}"
        raise InvariantError(f"requests: {shares}")
    if not (np.isfinite(workload.period_s) and workload.period_s > 0 and workload.periods > 0):
        raise InvariantError(f"requests: {workload.periods} periods of {workload.period_s} s")
    if not ((workload.phase_s >= 0) & (workload.phase_s < workload.period_s)).all():
        raise InvariantError("requests: phase_s must be in [0, period_s)")


def check_graph(graph: ServiceGraph) -> None:
    """Raise InvariantError for arrays that do not match, or handlers that call in a circle."""
    containers = _offsets("first_container", graph.first_container, len(graph.services), least=1)
    stages = _offsets("first_stage", graph.first_stage, len(graph.handlers), least=0)
    calls = _offsets("first_call", graph.first_call, stages, least=0)
    for names, length in (
        (
            ("workers", "queue", "base_bytes", "request_bytes", "cache_bytes", "cache_request_bytes"),
            containers,
        ),
        (("handler_service", "draw", "mean_s", "cv"), len(graph.handlers)),
        (("call_handler", "probability", "timeout_s", "retries", "backoff_s", "network_s", "pool"), calls),
        (("request_handler",), len(graph.request_names)),
    ):
        for name in names:
            if getattr(graph, name).shape != (length,):
                raise InvariantError(f"service graph: {name} has not {length} entries")
    _indices("handler_service", graph.handler_service, len(graph.services))
    _indices("call_handler", graph.call_handler, len(graph.handlers))
    _indices("request_handler", graph.request_handler, len(graph.handlers))
    _indices("draw", graph.draw.astype(np.int64), len(Draw))
    _indices("pool", graph.pool + 1, len(graph.pool_connections) + 1)
    bounds: tuple[tuple[str, float], ...] = (
        ("workers", 1),
        ("pool_connections", 1),
        *(
            (name, 0)
            for name in ("queue", "base_bytes", "request_bytes", "cache_bytes", "cache_request_bytes")
        ),
        *((name, 0) for name in ("retries", "mean_s", "cv", "backoff_s", "network_s")),
    )
    for name, least in bounds:
        values = getattr(graph, name)
        if not (np.isfinite(values) & (values >= least)).all():
            raise InvariantError(f"service graph: {name} must be finite and at least {least:g}")
    if not ((graph.probability > 0) & (graph.probability <= 1)).all() or not (graph.timeout_s > 0).all():
        raise InvariantError("service graph: probabilities are in (0, 1], timeouts above 0")
    delays = np.unique(np.concatenate((graph.network_s, graph.backoff_s, graph.timeout_s)))
    for name, number in (
        ("calls at once", np.diff(graph.first_call).max(initial=0)),
        ("different delays", len(delays)),
    ):
        if number > MOST_AT_ONCE:
            raise InvariantError(f"service graph: {number} {name}, at most {MOST_AT_ONCE}")
    if not (0 <= graph.wake_s < np.inf and graph.wake_tau_s > 0):
        raise InvariantError(f"service graph: wake_s {graph.wake_s}, wake_tau_s {graph.wake_tau_s}")
    if not 0 <= graph.keep_s < np.inf:
        raise InvariantError(f"service graph: keep_s {graph.keep_s}")
    _check_acyclic(graph)


def _check_acyclic(graph: ServiceGraph) -> None:
    callers = np.repeat(np.arange(len(graph.handlers)), np.diff(graph.first_call[graph.first_stage]))
    callees: dict[str, list[str]] = {}
    for caller, callee in zip(callers.tolist(), graph.call_handler.tolist(), strict=True):
        callees.setdefault(graph.handlers[caller], []).append(graph.handlers[callee])
    around = cycle(callees)
    if around:
        raise InvariantError(f"service graph: {' → '.join(around)} call in a circle")


def _offsets(name: str, values: Index, owners: int, least: int) -> int:
    """Check a CSR array of `owners` with at least `least` entries each. Return the number of entries that it
    points to.
    """
    if values.shape != (owners + 1,) or values[0] != 0 or (np.diff(values) < least).any():
        raise InvariantError(f"service graph: {name} does not divide what follows among {owners} owners")
    return int(values[-1])


def _indices(name: str, values: Index, count: int) -> None:
    if ((values < 0) | (values >= count)).any():
        raise InvariantError(f"requests: {name} points outside 0 … {count - 1}")
