"""An application in a user's file: services, their handlers and calls, and the requests of clients.

For: checking such a file, with the key of each error, and generating its JSON schema. Not for: finding the
file (lab.ask.shipped), nor the arrays that the twin runs (graph.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    Tag,
    model_validator,
)

from control.services import MOST_AT_ONCE, container_names, cycle
from lab.ask import guard, shipped
from lab.ask.problems import validated
from lab.ask.section import Section
from twinbed.text import nearest

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Target = Annotated[str, StringConstraints(pattern=r"^[^.\s]+\.[^.\s]+$")]


class Memory(Section):
    """A container's memory: idle process, caches, and memory per visit."""

    base_mib: NonNegativeFloat = Field(default=64.0, le=1e6, description="Memory of the idle process, MiB.")
    request_kib: NonNegativeFloat = Field(default=256.0, le=1e9)
    """Memory that a visit holds while it has a worker, KiB."""
    cache_mib: NonNegativeFloat = Field(default=0.0, le=1e6)
    """Memory that its caches grow to, MiB."""
    cache_request_kib: NonNegativeFloat = Field(default=0.0, le=1e9)
    """Memory that each finished visit adds to the caches until they are full, KiB."""


class Settings(Section):
    """How a service's containers run and make calls; in `defaults` for all services, or in one service."""

    replicas: PositiveInt = Field(default=1, le=1000, description="Number of containers of the service.")
    threads: PositiveFloat = Field(default=8.0, le=4096)
    """Number of CPUs that a container can keep busy at once."""
    workers: PositiveInt = Field(default=256, le=1_000_000)
    """Most visits that a container serves at once."""
    queue: NonNegativeInt = Field(default=1024, le=10_000_000)
    """Most visits that wait for a worker of a container; further ones are dropped."""
    memory: Memory = Field(default=Memory(), description="Memory of a container.")
    timeout_s: PositiveFloat | None = None
    """Time after which the service gives up a call that it makes, seconds; null: never."""
    retries: NonNegativeInt = Field(default=0, le=100)
    """Number of further attempts at a call that failed or timed out."""
    backoff_s: NonNegativeFloat = Field(default=0.0, description="Wait before each further attempt, seconds.")


class Call(Section):
    """A call to a handler. If only `call` is given, its text alone is enough: `service.handler`."""

    call: Target = Field(description="The handler to call, as `service.handler`.")
    probability: float = Field(default=1.0, gt=0, le=1)
    """Probability that a visit makes the call."""
    times: PositiveInt = Field(default=1, le=1000)
    """Number of times: one after another, or at once if the call is in a list of parallel calls."""
    timeout_s: PositiveFloat | None = None
    """Time after which the call is given up, seconds; the service's when left out; null: never."""
    retries: NonNegativeInt | None = Field(default=None, le=100)
    """Number of further attempts; the service's when left out."""
    backoff_s: NonNegativeFloat | None = None
    """Wait before each further attempt, seconds; the service's when left out."""


def _spelt_out(calls: Any) -> Any:
    """Turn calls that are written as text into mappings, and leave everything else for pydantic to judge."""
    if isinstance(calls, str):
        return {"call": calls}
    return [_spelt_out(call) for call in calls] if isinstance(calls, list) else calls


def _stage_kind(stage: Any) -> Literal["one", "parallel"]:
    return "parallel" if isinstance(stage, list) else "one"


Parallel = Annotated[list[Call], Field(min_length=1, max_length=1000)]
Stage = Annotated[
    Annotated[Call, Tag("one")] | Annotated[Parallel, Tag("parallel")], Discriminator(_stage_kind)
]


_AsWritten = list[Target | Call | Annotated[list[Target | Call], Field(min_length=1)]]


class Handler(Section):
    """An operation of a service: its CPU demand, which is spent in equal parts around its calls, and its
    calls."""

    cpu_ms: PositiveFloat = Field(le=1e7, description="Mean CPU time of a visit without its calls, ms.")
    distribution: Literal["fixed", "exponential", "lognormal"] = "lognormal"
    """How the CPU time of a visit varies."""
    cv: PositiveFloat = Field(default=0.5, le=100)
    """Coefficient of variation, for lognormal only; that of exponential is 1."""
    calls: Annotated[list[Stage], BeforeValidator(_spelt_out, json_schema_input_type=_AsWritten)] = Field(
        default_factory=list, max_length=1000
    )
    """Calls, made one after another; calls in a list inside this list are made in parallel."""

    def stages(self) -> Iterator[tuple[tuple[int, ...], tuple[Call, ...]]]:
        """Yield (key under `calls`, the calls made at once) of each stage in order, with `times` written
        out."""
        for at, stage in enumerate(self.calls):
            if isinstance(stage, Call):
                yield from [((at,), (stage,))] * stage.times
            else:
                yield (at,), tuple(call for call in stage for _ in range(call.times))


class Service(Settings):
    """A service. It has these keys and those of Settings; keys that are left out are taken from
    `defaults`."""

    component: str = ""
    """Its role in a word, for readers: gateway, jvm, database, …"""
    connections: dict[Name, PositiveInt] = Field(default_factory=dict)
    """Most calls to a callee that are open at once, over all containers of this service, by the callee's
    name; further calls wait in line. No limit when left out."""
    handlers: dict[Name, Handler] = Field(min_length=1, description="Its operations by name.")


class Request(Section):
    """A kind of request that clients send."""

    handler: Target = Field(description="The handler that it calls, as `service.handler`.")
    weight: NonNegativeFloat = Field(default=1.0, le=1e9)
    """Weight of this kind among all requests."""


class AppSpec(Section):
    """An application: its services, the calls between them, their costs, and the requests of clients."""

    name: Name = Field(description="Short name of the application.")
    title: str = Field(default="", description="Title for people.")
    source: str = Field(default="", description="Where the shape of the application is from.")
    assumptions: str = Field(default="", description="Sources of the figures, and assumptions.")
    network_s: NonNegativeFloat = Field(default=0.0002, le=10.0)
    """Time that a call takes to another container and back, seconds."""
    defaults: Settings = Field(default=Settings(), description="Settings of all services.")
    services: dict[Name, Service] = Field(min_length=1, description="Services by name.")
    requests: dict[Name, Request] = Field(min_length=1, description="Kinds of requests by name.")

    @model_validator(mode="after")
    def _consistent(self) -> AppSpec:
        for check in (self._check_targets, self._check_connections, self._check_cycles, self._check_names):
            check()
        if not any(request.weight for request in self.requests.values()):
            raise ValueError("requests: every weight is 0, so there are no requests")
        return self

    def settings(self, service: str) -> Settings:
        """Return the settings of a service: its own keys over those of `defaults`, also within `memory`."""
        own = self.services[service]
        given = {key: getattr(own, key) for key in own.model_fields_set & set(Settings.model_fields)}
        if "memory" in given:
            parts = {key: getattr(own.memory, key) for key in own.memory.model_fields_set}
            given["memory"] = self.defaults.memory.model_copy(update=parts)
        return self.defaults.model_copy(update=given)

    def container_names(self) -> tuple[str, ...]:
        """Return every container's name, service by service (see control.services.container_names)."""
        replicas = {name: self.settings(name).replicas for name in self.services}
        return tuple(container for name in replicas for container in container_names(name, replicas[name]))

    def handlers(self) -> dict[str, Handler]:
        """Return every handler by its `service.handler`, in the order of the file."""
        return {
            f"{service}.{name}": handler
            for service, spec in self.services.items()
            for name, handler in spec.handlers.items()
        }

    def _check_targets(self) -> None:
        for service, spec in self.services.items():
            for name, handler in spec.handlers.items():
                for key, calls in handler.stages():
                    where = ".".join(["services", service, "handlers", name, "calls", *map(str, key)])
                    if len(calls) > MOST_AT_ONCE:
                        raise ValueError(f"{where}: {len(calls)} calls at once, at most {MOST_AT_ONCE}")
                    for call in calls:
                        self._check_target(call.call, where)
        for name, request in self.requests.items():
            self._check_target(request.handler, f"requests.{name}.handler")

    def _check_target(self, target: str, where: str) -> None:
        service, _, handler = target.partition(".")
        if service not in self.services:
            raise ValueError(f"{where}: no service {service!r}; {nearest(service, self.services)}")
        handlers = self.services[service].handlers
        if handler not in handlers:
            raise ValueError(f"{where}: {service} has no handler {handler!r}; {nearest(handler, handlers)}")

    def _check_connections(self) -> None:
        for service, spec in self.services.items():
            called = {
                call.call.partition(".")[0]
                for handler in spec.handlers.values()
                for _, calls in handler.stages()
                for call in calls
            }
            for callee in spec.connections:
                where = f"services.{service}.connections.{callee}"
                if callee not in self.services:
                    raise ValueError(f"{where}: no service {callee!r}; {nearest(callee, self.services)}")
                if callee not in called:
                    raise ValueError(f"{where}: {service} never calls {callee}")

    def _check_cycles(self) -> None:
        callees = {
            name: [call.call for _, calls in handler.stages() for call in calls]
            for name, handler in self.handlers().items()
        }
        around = cycle(callees)
        if around:
            raise ValueError(f"services: calls go round in a cycle: {' → '.join(around)}")

    def _check_names(self) -> None:
        seen: set[str] = set()
        for name in self.container_names():
            if name in seen:
                raise ValueError(f"services: two containers would be called {name!r}; rename a service")
            seen.add(name)


def app_schema_json() -> str:
    """Return the JSON schema of an application's file, as kept in scenarios/apps/schema.json."""
    return json.dumps(AppSpec.model_json_schema(), indent=1, sort_keys=True) + "\n"


def load_app(name_or_path: str | Path) -> AppSpec:
    """Return the checked application. Raises ScenarioError with file, dotted key, problem and nearest
    valid name."""
    path = shipped.path_of("application", name_or_path)
    return build_app(guard.read_keys(path, "keys and values"), str(path))


def build_app(raw: dict[str, Any], where: str = "application") -> AppSpec:
    """Return the checked application of plain data. Raises ScenarioError that begins with `where`."""
    return validated(AppSpec, raw, where)
