"""Turns an application into the arrays that the request-level twin runs, and computes its mean demand.

For: making a `ServiceGraph` of an `AppSpec`. Not for: checking the text (application.py), nor for hosts,
budgets and arrivals (prepare.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.containers.input.services.application import AppSpec, Call, Settings
from twin.containers.requests.model import NO_TIMEOUT, Draw, Index, ServiceGraph

Floats = NDArray[np.float64]

_KIB = 2**10
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class CompiledApp:
    """An application for the twin. graph: N containers and R kinds of request; names: of the containers;
    threads: float64[N], CPUs that a container can keep busy; weights: float64[R], of the kinds, as written
    and not all 0."""

    graph: ServiceGraph
    names: tuple[str, ...]
    threads: Floats
    weights: Floats


def compile_graph(app: AppSpec, cpu_scale: float = 1.0) -> CompiledApp:
    """Return the application's arrays; cpu_scale (> 0) multiplies every CPU demand.

    Services, handlers, calls and requests keep the order of the file; calls with `times` are written out.
    """
    names = list(app.services)
    settings = [app.settings(name) for name in names]
    replicas = np.array([service.replicas for service in settings], np.int64)
    handlers = app.handlers()
    number = {name: index for index, name in enumerate(handlers)}
    owner = [names.index(name.partition(".")[0]) for name in handlers]
    calls, first_stage, first_call = _calls(app)
    callers = np.repeat(np.arange(len(handlers)), np.diff(np.array(first_call)[first_stage]))
    pools = {
        (service, callee): index
        for index, (service, callee) in enumerate(
            (name, callee) for name, spec in app.services.items() for callee in spec.connections
        )
    }
    by_caller = [(names[owner[caller]], call) for caller, call in zip(callers, calls, strict=True)]
    rules = [_Rule.of(call, app.settings(service)) for service, call in by_caller]
    graph = ServiceGraph(
        services=tuple(names),
        first_container=_first(replicas),
        workers=_integers(np.repeat([service.workers for service in settings], replicas)),
        queue=_integers(np.repeat([service.queue for service in settings], replicas)),
        base_bytes=_bytes([service.memory.base_mib for service in settings], _MIB, replicas),
        request_bytes=_bytes([service.memory.request_kib for service in settings], _KIB, replicas),
        cache_bytes=_bytes([service.memory.cache_mib for service in settings], _MIB, replicas),
        cache_request_bytes=_bytes(
            [service.memory.cache_request_kib for service in settings], _KIB, replicas
        ),
        handlers=tuple(handlers),
        handler_service=_integers(owner),
        draw=np.array([Draw[handler.distribution.upper()] for handler in handlers.values()], np.uint8),
        mean_s=np.array([handler.cpu_ms * 1e-3 * cpu_scale for handler in handlers.values()]),
        cv=np.array([handler.cv for handler in handlers.values()]),
        first_stage=_integers(first_stage),
        first_call=_integers(first_call),
        call_handler=_integers([number[call.call] for call in calls]),
        probability=np.array([call.probability for call in calls], np.float64),
        timeout_s=np.array([rule.timeout_s for rule in rules], np.float64),
        retries=_integers([rule.retries for rule in rules]),
        backoff_s=np.array([rule.backoff_s for rule in rules], np.float64),
        network_s=np.full(len(calls), app.network_s),
        pool=_integers(
            [pools.get((service, call.call.partition(".")[0]), -1) for service, call in by_caller]
        ),
        pool_connections=_integers(
            [limit for spec in app.services.values() for limit in spec.connections.values()]
        ),
        request_names=tuple(app.requests),
        request_handler=_integers([number[request.handler] for request in app.requests.values()]),
    )
    threads = np.repeat(np.array([service.threads for service in settings]), replicas)
    weights = np.array([request.weight for request in app.requests.values()])
    return CompiledApp(graph, app.container_names(), threads, weights)


def visits_per_request(compiled: CompiledApp) -> Floats:
    """Return float64[H]: how often a client's request visits each handler on average, in the declared mix.

    Retries are not counted, because none happens while nothing fails.
    """
    graph = compiled.graph
    visits = np.bincount(
        graph.request_handler, compiled.weights / compiled.weights.sum(), len(graph.handlers)
    )
    bounds = graph.first_call[graph.first_stage]
    for caller in _callers_first(graph):
        calls = slice(bounds[caller], bounds[caller + 1])
        np.add.at(visits, graph.call_handler[calls], visits[caller] * graph.probability[calls])
    return np.asarray(visits, np.float64)


def mean_cores(compiled: CompiledApp, rate_rps: float) -> Floats:
    """Return float64[N]: CPU cores that each container needs on average at a rate of requests.

    A container that needs more than its threads, its limit or its host allow is saturated.
    """
    graph = compiled.graph
    per_service = np.bincount(
        graph.handler_service, visits_per_request(compiled) * graph.mean_s, len(graph.services)
    )
    replicas = np.diff(graph.first_container)
    return np.asarray(np.repeat(per_service / replicas, replicas) * rate_rps, np.float64)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a caller does about a call without an answer. The call's own settings precede the service's."""

    timeout_s: float
    retries: int
    backoff_s: float

    @staticmethod
    def of(call: Call, settings: Settings) -> _Rule:
        # A call's `timeout_s: null` means that the call has no timeout, whatever the service says.
        timeout_s = (call if "timeout_s" in call.model_fields_set else settings).timeout_s
        return _Rule(
            NO_TIMEOUT if timeout_s is None else timeout_s,
            settings.retries if call.retries is None else call.retries,
            settings.backoff_s if call.backoff_s is None else call.backoff_s,
        )


def _calls(app: AppSpec) -> tuple[list[Call], list[int], list[int]]:
    """Return all calls in order, and two CSR arrays: handler → stages, stage → calls."""
    calls: list[Call] = []
    first_stage, first_call = [0], [0]
    for handler in app.handlers().values():
        for _, stage in handler.stages():
            calls += stage
            first_call.append(len(calls))
        first_stage.append(len(first_call) - 1)
    return calls, first_stage, first_call


def _callers_first(graph: ServiceGraph) -> list[int]:
    """Return the handlers in an order in which each comes after all that call it (Kahn's algorithm)."""
    bounds = graph.first_call[graph.first_stage]
    waiting = np.bincount(graph.call_handler, minlength=len(graph.handlers))
    order = list(np.flatnonzero(waiting == 0))
    for caller in order:
        for callee in graph.call_handler[bounds[caller] : bounds[caller + 1]]:
            waiting[callee] -= 1
            if waiting[callee] == 0:
                order.append(callee)
    return [int(handler) for handler in order]


def _first(counts: Index) -> Index:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _integers(values: list[int] | Index) -> Index:
    return np.asarray(values, np.int64)


def _bytes(amounts: list[float], unit: int, replicas: Index) -> Index:
    return np.repeat(np.round(np.array(amounts) * unit), replicas).astype(np.int64)
