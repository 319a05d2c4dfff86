"""What a scenario can be about: a recorded trace, a written-down demand, or clients and an application.

For: the sections of a scenario file that name a workload. Not for: the conditions it runs under
(lab.ask.scenario), nor for turning it into the twin's arrays (lab.containers.input.workload,
lab.containers.input.services.prepare).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from lab.ask.section import Section
from lab.containers.input.services.arrivals import ArrivalSpec


class TraceInput(Section):
    """Which trace to replay, and which part of it."""

    source: str = Field(
        min_length=1,
        description="A shipped recording's name, or a path (relative to the scenario file, else to "
        "the working directory).",
    )
    format: str | None = Field(default=None, description="Trace format; sniffed when left out.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the format's reader.")
    containers: list[str] | None = Field(
        default=None, description="Replay only these containers.", min_length=1
    )
    max_containers: PositiveInt | None = Field(default=None, description="Replay only the first so many.")
    start_s: NonNegativeFloat | None = Field(
        default=None, description="Skip this many seconds from the start."
    )
    end_s: PositiveFloat | None = Field(
        default=None, description="Stop this many seconds after the trace's start."
    )


class Step(Section):
    """A stretch of constant demand."""

    duration_s: PositiveFloat = Field(description="Length in seconds; rounded to whole periods.")
    cpu_cores: NonNegativeFloat = Field(description="CPU work arriving per second, cores.")
    memory_bytes: int | None = Field(
        default=None, ge=0, description="Working set; the container's when left out."
    )


class SyntheticContainer(Section):
    """A container whose demand is written down instead of recorded."""

    name: str = Field(min_length=1)
    app: str = Field(default="app", min_length=1, description="Application (tenant) it belongs to.")
    threads: PositiveInt | None = Field(default=None, description="CPUs it can keep busy at once.")
    memory_bytes: int = Field(
        default=0, ge=0, description="Working set in bytes; 0 = memory is not simulated."
    )
    steps: list[Step] = Field(min_length=1)


class SyntheticWorkload(Section):
    """Containers with stepwise demand; all start together, a shorter one leaves at its end."""

    containers: list[SyntheticContainer] = Field(min_length=1)


class JobInput(Section):
    """Commands that run together: the testbed runs them, the twin replays a recording of them.

    The recording is made without limits, once on each machine, and kept in ~/.cache/twinbed/jobs.
    """

    file: str = Field(
        min_length=1,
        description="File of containers as for `twinbed record --file` (relative to the scenario file, else "
        "to the working directory), in the host's network; `python` is the one that runs twinbed.",
    )
    duration_s: PositiveFloat = Field(
        default=30.0, le=3600.0, description="How much of it is recorded and replayed, seconds."
    )


class ServicesInput(Section):
    """Clients that ask an application for something, and the hosts that its containers are on."""

    app: str = Field(
        min_length=1,
        description="A shipped application's name, or the path of its file (relative to the scenario file, "
        "else to the working directory).",
    )
    arrivals: ArrivalSpec = Field(
        description="When clients ask: the name of a shipped pattern, or a mapping with its `kind`."
    )
    duration_s: PositiveFloat = Field(default=300.0, le=1e6, description="How long clients ask, seconds.")
    hosts: PositiveInt = Field(
        default=3,
        le=100_000,
        description="Hosts of host_cores cores; containers are spread over them in turn.",
    )
    cpu_scale: PositiveFloat = Field(
        default=1.0, le=1e6, description="Every CPU time of the application is multiplied by it."
    )
    connections: NonNegativeInt = Field(
        default=0,
        description="Requests that the clients together have open at once (0: no limit); others wait, and "
        "their latency counts from when they were due.",
    )
    client_queue: NonNegativeInt = Field(
        default=1_000_000, le=10_000_000, description="How many requests may wait so; more are turned away."
    )
    client_timeout_s: PositiveFloat | None = Field(
        default=None, description="After which a client gives up, from when its request was due; null: never."
    )
    phases: PositiveInt = Field(
        default=4,
        le=1000,
        description="From how many offsets the containers' CFS periods are drawn, evenly over a period; 1: "
        "all end together.",
    )
    program: Literal["none", "twinbed"] = Field(
        default="none",
        description="What the twin's containers run: `none`, exactly the declared demand; `twinbed`, the "
        "testbed's service program with what the calibration says that it costs, beside its control loop and "
        "load generator.",
    )
