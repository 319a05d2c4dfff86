"""An application as a user writes it: services, their handlers, the calls these make, and what clients ask.

For: checking such text, with the key of what is wrong, and generating its JSON schema. Not for: finding and
reading files (lab.containers.input.services.load), nor for the arrays that the twin runs
(lab.containers.input.services.graph).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
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

from control.services import container_names, cycle
from lab.ask.section import Section

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Target = Annotated[str, StringConstraints(pattern=r"^[^.\s]+\.[^.\s]+$")]


class Memory(Section):
    """A container's memory: base + its caches + what each visit holds while it has a worker."""

    base_mib: NonNegativeFloat = Field(default=64.0, le=1e6, description="Of the idle process, MiB.")
    request_kib: NonNegativeFloat = Field(default=256.0, le=1e9, description="Of each visit, KiB.")
    cache_mib: NonNegativeFloat = Field(default=0.0, le=1e6, description="What its caches grow to, MiB.")
    cache_request_kib: NonNegativeFloat = Field(
        default=0.0, le=1e9, description="By how much each finished visit grows them until then, KiB."
    )


class Settings(Section):
    """How a service's containers run and how it calls: for all services in `defaults`, or in a service."""

    replicas: PositiveInt = Field(default=1, le=1000, description="Containers of the service.")
    threads: PositiveFloat = Field(
        default=8.0, le=4096, description="CPUs that a container can keep busy at once."
    )
    workers: PositiveInt = Field(default=256, le=1_000_000, description="Visits at once in a container.")
    queue: NonNegativeInt = Field(
        default=1024,
        le=10_000_000,
        description="Visits that may wait for a worker of a container; more are dropped.",
    )
    memory: Memory = Memory()
    timeout_s: PositiveFloat | None = Field(
        default=None, description="After which a call that the service makes is given up; null: never."
    )
    retries: NonNegativeInt = Field(
        default=0, le=100, description="Further attempts of a call that failed or timed out."
    )
    backoff_s: NonNegativeFloat = Field(default=0.0, description="Wait before each further attempt, seconds.")


class Call(Section):
    """A call to a handler. Where nothing but `call` is to be said, its text alone will do."""

    call: Target = Field(description="`service.handler`.")
    probability: float = Field(default=1.0, gt=0, le=1, description="That a visit makes the call.")
    times: PositiveInt = Field(
        default=1,
        le=1000,
        description="How often: one after another, or at once if the call stands in a list of parallel ones.",
    )
    timeout_s: PositiveFloat | None = Field(
        default=None, description="The service's when left out; null: never."
    )
    retries: NonNegativeInt | None = Field(default=None, le=100, description="The service's when left out.")
    backoff_s: NonNegativeFloat | None = Field(default=None, description="The service's when left out.")


def _spelt_out(calls: Any) -> Any:
    """Calls written as text, as mappings; everything else as it is, for pydantic to judge."""
    if isinstance(calls, str):
        return {"call": calls}
    return [_spelt_out(each) for each in calls] if isinstance(calls, list) else calls


def _stage_kind(stage: Any) -> Literal["one", "parallel"]:
    return "parallel" if isinstance(stage, list) else "one"


Parallel = Annotated[list[Call], Field(min_length=1, max_length=1000)]
Stage = Annotated[
    Annotated[Call, Tag("one")] | Annotated[Parallel, Tag("parallel")], Discriminator(_stage_kind)
]


_AsWritten = list[Target | Call | Annotated[list[Target | Call], Field(min_length=1)]]


class Handler(Section):
    """An operation of a service: its CPU demand, spent in equal parts around its calls, and these calls."""

    cpu_ms: PositiveFloat = Field(le=1e7, description="Mean CPU time of a visit, without its calls, ms.")
    distribution: Literal["fixed", "exponential", "lognormal"] = Field(
        default="lognormal", description="How the CPU time of a visit varies."
    )
    cv: PositiveFloat = Field(
        default=0.5, le=100, description="Coefficient of variation (of lognormal only; exponential has 1)."
    )
    calls: Annotated[list[Stage], BeforeValidator(_spelt_out, json_schema_input_type=_AsWritten)] = Field(
        default_factory=list,
        max_length=1000,
        description="Made one after another; those in a list inside the list in parallel.",
    )

    def stages(self) -> Iterator[tuple[tuple[int, ...], tuple[Call, ...]]]:
        """(key under `calls`, the calls made at once) of each stage, in order, `times` written out."""
        for at, stage in enumerate(self.calls):
            if isinstance(stage, Call):
                yield from [((at,), (stage,))] * stage.times
            else:
                yield (at,), tuple(each for each in stage for _ in range(each.times))


class Service(Settings):
    """A service: these keys and those of Settings, where what is left out is taken from `defaults`."""

    component: str = Field(
        default="", description="What kind of thing it is (gateway, jvm, database, …): a word for the reader."
    )
    connections: dict[Name, PositiveInt] = Field(
        default_factory=dict,
        description="Open calls at once to a callee, by its name, over all containers of this service; "
        "further ones wait in line. No limit when left out.",
    )
    handlers: dict[Name, Handler] = Field(min_length=1)


class Request(Section):
    """What a client may ask for."""

    handler: Target = Field(description="`service.handler` that it calls.")
    weight: NonNegativeFloat = Field(default=1.0, le=1e9, description="Share among all requests.")


class AppSpec(Section):
    """An application: who calls whom, what that costs, and what clients ask for."""

    name: Name
    title: str = ""
    source: str = Field(default="", description="Where the shape is from.")
    assumptions: str = Field(default="", description="Where the figures are from.")
    network_s: NonNegativeFloat = Field(
        default=0.0002, le=10.0, description="A call's way to another container and back, seconds."
    )
    defaults: Settings = Settings()
    services: dict[Name, Service] = Field(min_length=1)
    requests: dict[Name, Request] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> AppSpec:
        for check in (self._check_targets, self._check_connections, self._check_cycles, self._check_names):
            check()
        if not any(request.weight for request in self.requests.values()):
            raise ValueError("requests: every weight is 0, so there is nothing to ask for")
        return self

    def settings(self, service: str) -> Settings:
        """What holds for a service: its own keys over those of `defaults`, also within `memory`."""
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
        """Every handler by its `service.handler`, in the order of the text."""
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
                    for call in calls:
                        self._check_target(call.call, where)
        for name, request in self.requests.items():
            self._check_target(request.handler, f"requests.{name}.handler")

    def _check_target(self, target: str, where: str) -> None:
        service, _, handler = target.partition(".")
        if service not in self.services:
            raise ValueError(f"{where}: no service {service!r}; {_nearest(service, self.services)}")
        handlers = self.services[service].handlers
        if handler not in handlers:
            raise ValueError(f"{where}: {service} has no handler {handler!r}; {_nearest(handler, handlers)}")

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
                    raise ValueError(f"{where}: no service {callee!r}; {_nearest(callee, self.services)}")
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
    """The JSON schema of an application's file, as kept in scenarios/apps/schema.json."""
    return json.dumps(AppSpec.model_json_schema(), indent=1, sort_keys=True) + "\n"


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
