"""An application's text as a service graph, as the twin's arrays, and its mean demand.

For: `ServiceApp`s and `CompiledApp`s from `AppSpec`s. Not for: checking the text
(lab.containers.input.services.application), hosts, budgets or arrivals
(lab.containers.input.services.prepare).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control import services
from control.services import Draw, Memory, ServiceApp
from lab.containers.input.services.application import AppSpec, Call, Handler, Settings
from twin.containers.requests import graph as arrays
from twin.containers.requests.model import ServiceGraph

Floats = NDArray[np.float64]

_KIB = 2**10
_MIB = 2**20


def service_app(app: AppSpec, cpu_scale: float = 1.0) -> ServiceApp:
    """Return the application's service graph; cpu_scale (≥ 0) multiplies every CPU demand.

    Services, handlers, calls and requests keep the order of the text; calls with `times` are written out.
    network_s is left out, because real containers are connected by a real network.
    """
    return ServiceApp(
        name=app.name,
        services={name: _service(app, name, cpu_scale) for name in app.services},
        requests={name: request.handler for name, request in app.requests.items()},
    )


@dataclass(frozen=True, slots=True)
class CompiledApp:
    """An application for the twin.

    graph: N containers and R kinds of request.
    names: names of the containers.
    threads: number of CPUs that each container can keep busy, float64[N].
    weights: weights of the kinds as written, not all 0, float64[R].
    """

    graph: ServiceGraph
    names: tuple[str, ...]
    threads: Floats
    weights: Floats


def compile_graph(app: AppSpec, cpu_scale: float = 1.0) -> CompiledApp:
    """Return the application's arrays; cpu_scale (> 0) multiplies every CPU demand."""
    words = service_app(app, cpu_scale)
    containers = words.containers()
    return CompiledApp(
        arrays.compile_graph(words, app.network_s),
        tuple(containers),
        np.array([words.services[name].threads for name, _ in containers.values()]),
        np.array([request.weight for request in app.requests.values()]),
    )


def _service(app: AppSpec, name: str, cpu_scale: float) -> services.Service:
    spec, settings = app.services[name], app.settings(name)
    memory = settings.memory
    return services.Service(
        handlers={key: _handler(handler, settings, cpu_scale) for key, handler in spec.handlers.items()},
        replicas=settings.replicas,
        threads=settings.threads,
        workers=settings.workers,
        queue=settings.queue,
        memory=Memory(
            base_bytes=round(memory.base_mib * _MIB),
            request_bytes=round(memory.request_kib * _KIB),
            cache_bytes=round(memory.cache_mib * _MIB),
            cache_request_bytes=round(memory.cache_request_kib * _KIB),
        ),
        connections=dict(spec.connections),
    )


def _handler(spec: Handler, settings: Settings, cpu_scale: float) -> services.Handler:
    return services.Handler(
        mean_s=spec.cpu_ms * 1e-3 * cpu_scale,
        draw=Draw[spec.distribution.upper()],
        cv=spec.cv,
        stages=tuple(tuple(_call(call, settings) for call in stage) for _, stage in spec.stages()),
    )


def _call(call: Call, settings: Settings) -> services.Call:
    # `timeout_s: null` in a call means that it has no timeout, whatever the service's default.
    timeout_s = (call if "timeout_s" in call.model_fields_set else settings).timeout_s
    return services.Call(
        handler=call.call,
        probability=call.probability,
        timeout_s=timeout_s,
        retries=settings.retries if call.retries is None else call.retries,
        backoff_s=settings.backoff_s if call.backoff_s is None else call.backoff_s,
    )


def visits_per_request(compiled: CompiledApp) -> Floats:
    """Return how often a client's request visits each handler on average, in the declared mix, float64[H].

    Retries are not counted, because there are none without failures.
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
    """Return the CPU cores that each container needs on average at that rate of requests, float64[N].

    A container that needs more than it may have (its threads, its limit, its host) is saturated.
    """
    graph = compiled.graph
    per_service = np.bincount(
        graph.handler_service, visits_per_request(compiled) * graph.mean_s, len(graph.services)
    )
    replicas = np.diff(graph.first_container)
    return np.asarray(np.repeat(per_service / replicas, replicas) * rate_rps, np.float64)


def _callers_first(graph: ServiceGraph) -> list[int]:
    """Return the handlers, ordered so that callers come before the handlers they call (Kahn's algorithm)."""
    bounds = graph.first_call[graph.first_stage]
    waiting = np.bincount(graph.call_handler, minlength=len(graph.handlers))
    order = list(np.flatnonzero(waiting == 0))
    for caller in order:
        for callee in graph.call_handler[bounds[caller] : bounds[caller + 1]]:
            waiting[callee] -= 1
            if waiting[callee] == 0:
                order.append(callee)
    return [int(handler) for handler in order]
