"""What a scenario can be about: a recorded trace or a written-down demand.

For: the sections of a scenario file that name a workload. Not for: the conditions it runs under
(lab.scenario), nor for turning it into the twin's arrays (lab.workload).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from lab.services.section import Section


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
