"""Conversion of a service graph (control.services) into the arrays that the request-level twin runs.

For: `ServiceGraph`s of `ServiceApp`s. Not for: checking the graph (control.services) or the arrays
(checks.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from control.services import ServiceApp
from twin.containers.requests.model import NO_TIMEOUT, Index, ServiceGraph


def compile_graph(app: ServiceApp, network_s: float) -> ServiceGraph:
    """Return the application's arrays. network_s: round trip of each call to another container, s.

    Services, containers, handlers, calls and requests keep the order of `app`.
    """
    services, handlers = app.services, app.handlers()
    number = {name: index for index, name in enumerate(handlers)}
    replicas = np.array([service.replicas for service in services.values()], np.int64)
    stages = [stage for handler in handlers.values() for stage in handler.stages]
    calls = [call for stage in stages for call in stage]
    callers = [name.partition(".")[0] for name, handler in handlers.items() for _ in handler.calls()]
    pools = [(name, callee) for name, service in services.items() for callee in service.connections]
    pool_of = {pool: index for index, pool in enumerate(pools)}
    memory = [service.memory for service in services.values()]

    def containers(values: Iterable[int]) -> Index:
        return np.repeat(_integers(values), replicas)

    return ServiceGraph(
        services=tuple(services),
        first_container=_first(replicas),
        workers=containers(service.workers for service in services.values()),
        queue=containers(service.queue for service in services.values()),
        base_bytes=containers(size.base_bytes for size in memory),
        request_bytes=containers(size.request_bytes for size in memory),
        cache_bytes=containers(size.cache_bytes for size in memory),
        cache_request_bytes=containers(size.cache_request_bytes for size in memory),
        handlers=tuple(handlers),
        handler_service=np.repeat(
            np.arange(len(services)), [len(service.handlers) for service in services.values()]
        ),
        draw=np.array([handler.draw for handler in handlers.values()], np.uint8),
        mean_s=np.array([handler.mean_s for handler in handlers.values()], np.float64),
        cv=np.array([handler.cv for handler in handlers.values()], np.float64),
        first_stage=_first(len(handler.stages) for handler in handlers.values()),
        first_call=_first(len(stage) for stage in stages),
        call_handler=_integers(number[call.handler] for call in calls),
        probability=np.array([call.probability for call in calls], np.float64),
        timeout_s=np.array(
            [NO_TIMEOUT if call.timeout_s is None else call.timeout_s for call in calls], np.float64
        ),
        retries=_integers(call.retries for call in calls),
        backoff_s=np.array([call.backoff_s for call in calls], np.float64),
        network_s=np.full(len(calls), network_s),
        pool=_integers(
            pool_of.get((caller, call.service), -1) for caller, call in zip(callers, calls, strict=True)
        ),
        pool_connections=_integers(services[name].connections[callee] for name, callee in pools),
        request_names=tuple(app.requests),
        request_handler=_integers(number[target] for target in app.requests.values()),
    )


def _integers(values: Iterable[int]) -> Index:
    return np.array(list(values), np.int64)


def _first(counts: Iterable[int]) -> Index:
    """Return the CSR array of owners with `counts` entries each."""
    return np.concatenate(([0], np.cumsum(_integers(counts)))).astype(np.int64)
