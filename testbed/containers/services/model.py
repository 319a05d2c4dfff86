"""A service graph to be run by real processes: services, handlers, calls, and what clients may ask for.

For: the data that a deployment and its containers share, and their JSON form. Not for: running it (serve.py),
addresses (deploy.py), nor the text that a user writes (lab.containers.input.services). The meanings are those
of twin.containers.requests.model.ServiceGraph. Only its network_s has no counterpart: the way between two
processes takes as long as the loopback device needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, get_args

from twinbed import ScenarioError

Draw = Literal["fixed", "exponential", "lognormal"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a handler. handler: `service.handler`; probability: that a visit makes it; timeout_s: per
    attempt, from the moment the caller makes it, s (None = never); retries: further attempts after a failed
    or timed-out one; backoff_s: wait before each of these, s."""

    handler: str
    probability: float = 1.0
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Handler:
    """An operation. mean_s: mean CPU time of a visit, s; a visit's time is drawn once and spent in equal
    parts before, between and after the stages; cv: coefficient of variation (lognormal only); stages: made
    one after another, the calls of a stage in parallel."""

    mean_s: float
    draw: Draw = "fixed"
    cv: float = 0.0
    stages: tuple[tuple[Call, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """A container's bytes: base + min(cache, finished visits · cache_request) + request · visits with a
    worker."""

    base_bytes: int = 0
    request_bytes: int = 0
    cache_bytes: int = 0
    cache_request_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Service:
    """A service, and how each of its containers runs. threads: CPUs that a container can keep busy at once,
    rounded up; workers: visits at once; queue: visits that may wait for a worker, more are dropped;
    connections: open calls at once to a callee, by its name, over all containers of this service."""

    handlers: Mapping[str, Handler]
    replicas: int = 1
    threads: float = 8.0
    workers: int = 256
    queue: int = 1024
    memory: Memory = Memory()
    connections: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceApp:
    """Services by name, and what clients ask for: name → `service.handler`, in the order of their kinds.
    Raises ScenarioError (dotted key, problem) for values out of range, for calls to what is not there, and
    for calls that form a cycle."""

    name: str
    services: Mapping[str, Service]
    requests: Mapping[str, str]

    def __post_init__(self) -> None:
        _check(self)

    def containers(self) -> dict[str, tuple[str, int]]:
        """Return container name → (service, replica from 0), service by service. Replicas are called -1, -2,
        …"""
        return {
            name if service.replicas == 1 else f"{name}-{replica + 1}": (name, replica)
            for name, service in self.services.items()
            for replica in range(service.replicas)
        }

    def to_json(self) -> str:
        """Return the JSON form, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str, where: str = "application") -> ServiceApp:
    """Return the application in the text. Raises ScenarioError that begins with `where` and names the key."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ScenarioError(f"{where}: not JSON ({error})") from None
    return from_plain(raw, where)


def from_plain(raw: object, where: str = "application") -> ServiceApp:
    """The application in what a JSON parser gave; raises ScenarioError that begins with `where`."""
    top = _Keys(raw, where, "")
    services = {name: _service(top.under(f"services.{name}", value)) for name, value in top.table("services")}
    requests = {name: _text(value, f"{where}: requests.{name}") for name, value in top.table("requests")}
    name = _text(top.take("name"), f"{where}: name")
    top.end()
    try:
        return ServiceApp(name, services, requests)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


# --- reading ---------------------------------------------------------------------------------------------


class _Keys:
    """A mapping whose keys are taken one by one. A key that is left in the end is a mistake."""

    def __init__(self, raw: object, where: str, key: str) -> None:
        self._where, self._key = where, key
        if not isinstance(raw, dict):
            raise ScenarioError(f"{where}: {key or 'top'}: expected keys and values")
        self._left: dict[str, Any] = dict(raw)

    def name(self, key: str) -> str:
        """Return the name of a key of this mapping for messages."""
        return f"{self._where}: {self._key}{'.' if self._key else ''}{key}"

    def take(self, key: str) -> Any:
        if key not in self._left:
            raise ScenarioError(f"{self.name(key)}: missing")
        return self._left.pop(key)

    def number(self, key: str) -> float:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ScenarioError(f"{self.name(key)}: expected a number, not {value!r}")
        return float(value)

    def whole(self, key: str) -> int:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ScenarioError(f"{self.name(key)}: expected a whole number, not {value!r}")
        return value

    def table(self, key: str) -> list[tuple[str, Any]]:
        value = self.take(key)
        if not isinstance(value, dict):
            raise ScenarioError(f"{self.name(key)}: expected keys and values")
        return list(value.items())

    def entries(self, key: str) -> list[Any]:
        value = self.take(key)
        if not isinstance(value, list):
            raise ScenarioError(f"{self.name(key)}: expected a list")
        return value

    def under(self, key: str, raw: object) -> _Keys:
        return _Keys(raw, self._where, f"{self._key}{'.' if self._key else ''}{key}")

    def end(self) -> None:
        for key in self._left:
            raise ScenarioError(f"{self.name(key)}: no such key")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ScenarioError(f"{where}: expected text, not {value!r}")
    return value


def _service(keys: _Keys) -> Service:
    memory = keys.under("memory", keys.take("memory"))
    service = Service(
        handlers={
            name: _handler(keys.under(f"handlers.{name}", value)) for name, value in keys.table("handlers")
        },
        replicas=keys.whole("replicas"),
        threads=keys.number("threads"),
        workers=keys.whole("workers"),
        queue=keys.whole("queue"),
        memory=Memory(*(memory.whole(key) for key in Memory.__slots__)),
        connections={name: _connections(keys, name, value) for name, value in keys.table("connections")},
    )
    memory.end()
    keys.end()
    return service


def _connections(keys: _Keys, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScenarioError(f"{keys.name('connections')}.{name}: expected a whole number, not {value!r}")
    return value


def _handler(keys: _Keys) -> Handler:
    draw = keys.take("draw")
    if draw not in get_args(Draw):
        raise ScenarioError(f"{keys.name('draw')}: {draw!r} is none of {', '.join(get_args(Draw))}")
    stages = []
    for at, stage in enumerate(keys.entries("stages")):
        if not isinstance(stage, list):
            raise ScenarioError(f"{keys.name('stages')}.{at}: expected a list")
        stages.append(
            tuple(
                _call(keys.under(f"stages.{at}.{place}", call_keys)) for place, call_keys in enumerate(stage)
            )
        )
    handler = Handler(keys.number("mean_s"), draw, keys.number("cv"), tuple(stages))
    keys.end()
    return handler


def _call(keys: _Keys) -> Call:
    timeout_s = keys.take("timeout_s")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
        raise ScenarioError(f"{keys.name('timeout_s')}: expected a number or null, not {timeout_s!r}")
    call = Call(
        handler=_text(keys.take("handler"), keys.name("handler")),
        probability=keys.number("probability"),
        timeout_s=None if timeout_s is None else float(timeout_s),
        retries=keys.whole("retries"),
        backoff_s=keys.number("backoff_s"),
    )
    keys.end()
    return call


# --- consistency -----------------------------------------------------------------------------------------


def _check(app: ServiceApp) -> None:
    callees: dict[str, set[str]] = {}
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
            callees[f"{name}.{operation}"] = _check_handler(app, handler, f"{where}.handlers.{operation}")
    for kind, target in app.requests.items():
        _check_target(app, target, f"requests.{kind}")
    try:
        TopologicalSorter(callees).prepare()
    except CycleError as error:
        raise ScenarioError(f"services: calls go round in a cycle: {' → '.join(error.args[1])}") from None


def _check_handler(app: ServiceApp, handler: Handler, where: str) -> set[str]:
    _within(f"{where}.mean_s", handler.mean_s, 0)
    _within(f"{where}.cv", handler.cv, 0)
    targets = set()
    for at, stage in enumerate(handler.stages):
        for place, call in enumerate(stage):
            key = f"{where}.stages.{at}.{place}"
            _check_target(app, call.handler, f"{key}.handler")
            _within(f"{key}.probability", call.probability, 0, above=True)
            _within(f"{key}.retries", call.retries, 0)
            _within(f"{key}.backoff_s", call.backoff_s, 0)
            if call.timeout_s is not None:
                _within(f"{key}.timeout_s", call.timeout_s, 0, above=True)
            if call.probability > 1:
                raise ScenarioError(f"{key}.probability: {call.probability:g}, expected at most 1")
            targets.add(call.handler)
    return targets


def _check_target(app: ServiceApp, target: str, where: str) -> None:
    service, _, handler = target.partition(".")
    if service not in app.services or handler not in app.services[service].handlers:
        raise ScenarioError(f"{where}: no handler is called {target!r}; expected service.handler")


def _within(where: str, value: float, least: float, *, above: bool = False) -> None:
    if not math.isfinite(value) or value < least or (above and value == least):
        raise ScenarioError(f"{where}: {value:g}, expected {'more than' if above else 'at least'} {least:g}")
