"""Terms of a service graph, shared by the scenario files, the twin and the testbed.

For: services, their handlers, the calls between them, and the status of a request. Not for: the text that a
user writes (lab.containers.input.services.application), the arrays that the twin runs
(twin.containers.requests.model), or addresses and the JSON form that real containers read
(testbed.containers.services). It does not import NumPy, because every real container of a service imports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter

from twinbed import ScenarioError

MOST_AT_ONCE = 32_767
"""Most calls that a stage may make at once. The twin counts them in 16 bits."""


class Draw(IntEnum):
    """The distribution of a visit's CPU demand around the handler's mean (with its cv for LOGNORMAL)."""

    FIXED = 0
    EXPONENTIAL = 1
    LOGNORMAL = 2


class RequestStatus(IntEnum):
    """Result of a client's request, or of a call inside the twin.

    On the testbed OK is an answer 200 and DROPPED a 503 or a full queue of the client. FAILED is any other
    answer, or a connection that was refused or reset.
    """

    PENDING = 0
    OK = 1
    TIMED_OUT = 2
    DROPPED = 3
    FAILED = 4

    def describe(self) -> str:
        """Return the status as a short clause."""
        return _STATUS_TEXT[self]


_STATUS_TEXT = {
    RequestStatus.PENDING: "not ended when the run ended",
    RequestStatus.OK: "answered",
    RequestStatus.TIMED_OUT: "given up by its client",
    RequestStatus.DROPPED: "turned away: a queue was full",
    RequestStatus.FAILED: "lost: a container on its way was killed, restarted or down, or a call failed",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a handler.

    handler: `service.handler`.
    probability: probability that a visit makes the call, in (0, 1].
    timeout_s: time per attempt, from the moment the caller makes it, s (None: no timeout).
    retries: further attempts after a failed or timed-out one.
    backoff_s: wait before each further attempt, s.
    """

    handler: str
    probability: float = 1.0
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.0

    @property
    def service(self) -> str:
        """The service that is called."""
        return self.handler.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Handler:
    """An operation of a service.

    mean_s: mean CPU time of a visit, s. The time is drawn once and spent in equal parts before, between and
        after the stages.
    cv: coefficient of variation (LOGNORMAL only).
    stages: stages in order; the calls of a stage are made in parallel.
    """

    mean_s: float
    draw: Draw = Draw.FIXED
    cv: float = 0.0
    stages: tuple[tuple[Call, ...], ...] = ()

    def calls(self) -> Iterator[Call]:
        """Yield the calls of all stages, in order."""
        for stage in self.stages:
            yield from stage


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a container, bytes: base + min(cache, finished visits · cache_request) + request · visits
    with a worker.

    A container starts with empty caches.
    """

    base_bytes: int = 0
    request_bytes: int = 0
    cache_bytes: int = 0
    cache_request_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Service:
    """A service and how each of its containers runs.

    threads: CPUs that a container can keep busy at once.
    workers: visits at once; a visit holds a worker from start to end, also while it waits for calls.
    queue: visits that may wait for a worker; further visits are dropped.
    connections: open calls at once to each callee, by its name, over all containers of this service.
    """

    handlers: Mapping[str, Handler]
    replicas: int = 1
    threads: float = 8.0
    workers: int = 256
    queue: int = 1024
    memory: Memory = Memory()
    connections: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceApp:
    """Services by name, and the kinds of requests of clients: name → `service.handler`, in order.

    Raises ScenarioError (dotted key, problem) for values out of range, for calls to handlers that do not
    exist, and for cyclic calls.
    """

    name: str
    services: Mapping[str, Service]
    requests: Mapping[str, str]

    def __post_init__(self) -> None:
        _check(self)

    def containers(self) -> dict[str, tuple[str, int]]:
        """Return container name → (service, replica from 0), service by service."""
        return {
            container: (name, replica)
            for name, service in self.services.items()
            for replica, container in enumerate(container_names(name, service.replicas))
        }

    def handlers(self) -> dict[str, Handler]:
        """Return every handler by its `service.handler`, service by service."""
        return {
            f"{name}.{operation}": handler
            for name, service in self.services.items()
            for operation, handler in service.handlers.items()
        }


def container_names(service: str, replicas: int) -> list[str]:
    """Return the containers' names: the service's name, with -1, -2, … if there are several replicas."""
    return [service] if replicas == 1 else [f"{service}-{number}" for number in range(1, replicas + 1)]


def cycle(callees: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle of callers, the first one also last; [] if there is none. callees: by caller."""
    try:
        TopologicalSorter(callees).prepare()
    except CycleError as error:
        around: list[str] = error.args[1]
        return around[::-1]
    return []


def _check(app: ServiceApp) -> None:
    for name, service in app.services.items():
        where = f"services.{name}"
        _within(f"{where}.replicas", service.replicas, 1)
        _within(f"{where}.threads", service.threads, 0, above=True)
        _within(f"{where}.workers", service.workers, 1)
        _within(f"{where}.queue", service.queue, 0)
        for key in Memory.__slots__:
            _within(f"{where}.memory.{key}", getattr(service.memory, key), 0)
        for callee, limit in service.connections.items():
            _within(f"{where}.connections.{callee}", limit, 1)
            if callee not in app.services:
                raise ScenarioError(f"{where}.connections.{callee}: no service is called that")
        for operation, handler in service.handlers.items():
            _check_handler(app, handler, f"{where}.handlers.{operation}")
    for kind, target in app.requests.items():
        _check_target(app, target, f"requests.{kind}")
    handlers = app.handlers()
    around = cycle({name: [call.handler for call in handler.calls()] for name, handler in handlers.items()})
    if around:
        raise ScenarioError(f"services: calls go round in a cycle: {' → '.join(around)}")


def _check_handler(app: ServiceApp, handler: Handler, where: str) -> None:
    _within(f"{where}.mean_s", handler.mean_s, 0)
    _within(f"{where}.cv", handler.cv, 0)
    for number, stage in enumerate(handler.stages):
        for place, call in enumerate(stage):
            key = f"{where}.stages.{number}.{place}"
            _check_target(app, call.handler, f"{key}.handler")
            _within(f"{key}.probability", call.probability, 0, above=True)
            _within(f"{key}.retries", call.retries, 0)
            _within(f"{key}.backoff_s", call.backoff_s, 0)
            if call.timeout_s is not None:
                _within(f"{key}.timeout_s", call.timeout_s, 0, above=True)
            if call.probability > 1:
                raise ScenarioError(f"{key}.probability: {call.probability:g}, expected at most 1")


def _check_target(app: ServiceApp, target: str, where: str) -> None:
    service, _, handler = target.partition(".")
    if service not in app.services or handler not in app.services[service].handlers:
        raise ScenarioError(f"{where}: no handler is called {target!r}; expected service.handler")


def _within(where: str, value: float, least: float, *, above: bool = False) -> None:
    if not math.isfinite(value) or value < least or (above and value == least):
        raise ScenarioError(f"{where}: {value:g}, expected {'more than' if above else 'at least'} {least:g}")
