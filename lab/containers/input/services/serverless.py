"""A serverless function in a user's file: its pods, the parts of an invocation, and its load.

For: the section `serverless` of a scenario, and the functions that ship. Not for: the twin's workload
(functions.py) nor for pods (twin.containers.serverless). Source: Escra (ICDCS 2022) describes what the
shipped functions do, not how long that takes. Their costs are our assumptions. Each function documents its
assumptions; none was fitted to the paper's results.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lab.ask.section import Section
from lab.containers.input.services.arrivals import ArrivalSpec
from twinbed.text import nearest

Distribution = Literal["fixed", "exponential", "lognormal"]


class Length(Section):
    """A time that varies."""

    mean_s: NonNegativeFloat = Field(description="Mean, seconds.")
    distribution: Distribution = Field(default="lognormal", description="How the time varies.")
    cv: PositiveFloat = Field(default=0.5, le=100)
    """Coefficient of variation, for lognormal only; that of exponential is 1."""


class Part(Section):
    """A part of an invocation: CPU work of the pod, or a wait for something outside the pod."""

    cpu_s: NonNegativeFloat | None = Field(default=None, description="Mean CPU time, seconds.")
    wait_s: NonNegativeFloat | None = Field(default=None, description="Mean wait without CPU, seconds.")
    distribution: Distribution = Field(default="lognormal", description="How the time varies.")
    cv: PositiveFloat = Field(default=0.5, le=100)
    """Coefficient of variation, for lognormal only; that of exponential is 1."""
    what: str = Field(default="", description="What happens in this part, for readers.")

    @model_validator(mode="after")
    def _one(self) -> Part:
        if (self.cpu_s is None) == (self.wait_s is None):
            raise ValueError("give one of cpu_s, wait_s")
        return self


class Pod(Section):
    """The pods of the function, which are all alike."""

    cores: PositiveFloat = Field(default=1.0, le=4096)
    """CPU that the owner asked for, cores; policies take it for the pod's peak."""
    memory_mib: PositiveInt = Field(default=256, le=1_000_000)
    """Memory that the owner asked for, MiB; policies take it for the pod's peak."""
    threads: PositiveInt = Field(default=1, le=1024)
    """Number of threads that share CPU work evenly."""
    start: Length = Length(mean_s=2.0, cv=0.3)
    """Time from the request for a pod to a running process; its limits count during that time."""
    initialise: Length = Length(mean_s=0.5, cv=0.3)
    """CPU work before the first invocation."""
    keep_alive_s: NonNegativeFloat = 600.0
    """Time after which an idle pod ends, seconds."""
    base_mib: NonNegativeFloat = Field(default=40.0, le=1e6)
    """Memory of the started process, MiB."""
    retained_mib: NonNegativeFloat = Field(default=20.0, le=1e6)
    """Memory that initialisation adds until the pod ends, MiB."""
    working_mib: NonNegativeFloat = Field(default=60.0, le=1e6)
    """Memory that a CPU part adds while it lasts, MiB."""


class Function(Section):
    """A function: its pods, and the parts of an invocation."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")
    """Name of the function."""
    title: str = Field(default="", description="Title for people.")
    assumptions: str = Field(default="", description="Sources of the figures, and assumptions.")
    pod: Pod = Field(default=Pod(), description="Its pods.")
    parts: list[Part] = Field(min_length=1, max_length=100)
    """Parts of an invocation, one after another."""


class BatchJob(Section):
    """A batch job: workers start together and take tasks from one list until all tasks are done."""

    tasks: PositiveInt = Field(le=1_000_000, description="Number of tasks.")
    workers: PositiveInt = Field(le=100_000, description="Most pods at once.")
    retries: NonNegativeInt = Field(default=1, le=100)
    """Most times that a task is started again after its pod was killed."""


FUNCTIONS = {
    name: Function.model_validate({"name": name, **function})
    for name, function in tomllib.loads(
        Path(__file__).with_name("functions.toml").read_text(encoding="utf-8")
    ).items()
}
"""The functions that ship, by name, from functions.toml beside this file."""


def _named(function: Any) -> Any:
    """Turn the name of a shipped function into the function, and leave everything else for pydantic to
    judge."""
    if not isinstance(function, str):
        return function
    if function not in FUNCTIONS:
        hint = nearest(function, FUNCTIONS, f"there are {', '.join(FUNCTIONS)}")
        raise ValueError(f"no function {function!r}; {hint}")
    return FUNCTIONS[function]


def _allow_text(schema: dict[str, Any]) -> None:
    """Allow the short form of a function in the JSON schema: its name."""
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string", "enum": list(FUNCTIONS)}, whole]


class ServerlessInput(Section):
    """A function and the load on it: invocations every interval_s, by `arrivals`, or a batch."""

    function: Annotated[Function, BeforeValidator(_named)] = Field(json_schema_extra=_allow_text)
    """A function, or the name of a shipped one."""
    interval_s: PositiveFloat | None = None
    """Time from one invocation to the next, seconds."""
    arrivals: ArrivalSpec | None = None
    """When the function is invoked: the name of a shipped pattern, or a mapping with its `kind`."""
    batch: BatchJob | None = Field(default=None, description="A batch of tasks instead of invocations.")
    duration_s: PositiveFloat = Field(default=600.0, le=1e6)
    """Length of the run, seconds; a batch that is done ends it earlier."""
    max_pods: PositiveInt | None = Field(default=None, le=100_000)
    """Most pods at once; the batch's workers when left out."""
    hosts: PositiveInt = Field(default=3, le=10_000)
    """Number of hosts; pods are placed on them in turn."""
    phases: PositiveInt = Field(default=4, le=100)
    """Number of offsets, evenly spread over a period, at which the pods' periods begin; 1: all together."""

    @model_validator(mode="after")
    def _one_load(self) -> ServerlessInput:
        if [self.interval_s, self.arrivals, self.batch].count(None) != 2:
            raise ValueError("give one of interval_s, arrivals, batch")
        if self.max_pods is None and self.batch is None:
            raise ValueError("max_pods: give the largest number of pods at once")
        return self
