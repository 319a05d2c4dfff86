"""The keys of a scenario about containers: the workload and its conditions.

For: `ContainerScenario` and its sections. Not for: turning them into the twin's arrays (workload.py,
services/prepare.py), nor the keys of every scenario (lab.ask.scenario).
"""

from __future__ import annotations

import datetime
from dataclasses import asdict
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from control.allocator import POLICIES
from control.allocator.ports import SpanAware
from lab.ask.calibration import Calibration
from lab.ask.policy import parse
from lab.ask.scenario import PolicyText, RunSpec, Scenario, policies_by_default
from lab.ask.section import Section
from lab.containers.calibrate.values import machine
from lab.containers.input.services.arrivals import ArrivalSpec
from lab.containers.input.services.serverless import ServerlessInput
from twin.containers.model import Machine
from twinbed import InvariantError

DEFAULT_POLICIES = ("escra", "autopilot", "vpa", "static")
"""Policies of a scenario that names none."""


class TraceInput(Section):
    """The recorded trace to replay, and which part of it."""

    source: str = Field(min_length=1)
    """Name of a shipped recording, or a path, relative to the scenario file, else to the working
    directory."""
    format: str | None = Field(default=None, description="Format of the trace; recognised when left out.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the format's reader.")
    containers: list[str] | None = Field(default=None, min_length=1)
    """Replay only these containers."""
    max_containers: PositiveInt | None = None
    """Replay at most this many containers, the first ones."""
    start_s: NonNegativeFloat | None = None
    """Skip this many seconds at the start of the trace."""
    end_s: PositiveFloat | None = None
    """Stop this many seconds after the start of the trace."""


class Step(Section):
    """A stretch of constant demand."""

    duration_s: PositiveFloat = Field(description="Length, seconds; rounded to whole periods.")
    cpu_cores: NonNegativeFloat = Field(description="CPU work that arrives per second, cores.")
    memory_bytes: int | None = Field(default=None, ge=0)
    """Working set, bytes; that of the container when left out."""


class SyntheticContainer(Section):
    """A container whose demand is written down instead of recorded."""

    name: str = Field(min_length=1, description="Name of the container.")
    app: str = Field(default="app", min_length=1, description="Application (tenant) that it belongs to.")
    threads: PositiveInt | None = Field(default=None, description="Number of CPUs it can keep busy at once.")
    memory_bytes: int = Field(default=0, ge=0, description="Working set, bytes; 0: memory is not simulated.")
    steps: list[Step] = Field(min_length=1, description="Its demand, one stretch after another.")


class SyntheticWorkload(Section):
    """Containers with stepwise demand. All start together; one with a shorter demand leaves at its end."""

    containers: list[SyntheticContainer] = Field(min_length=1)
    """The containers."""


class JobInput(Section):
    """Commands that run together. The testbed runs them; the twin replays a recording of them.

    The recording is made without limits, once on each machine, and kept in ~/.cache/twinbed/jobs. Containers
    with a RANK and one WORLD_SIZE in their `env` are ranks of one job. They wait for each other on the twin,
    too.
    """

    file: str = Field(min_length=1)
    """File of containers as for `twinbed record --file`, in the host's network; relative to the scenario
    file, else to the working directory. `python` is the interpreter that runs twinbed."""
    duration_s: PositiveFloat = Field(default=30.0, le=3600.0)
    """How long the job is recorded and replayed, seconds."""


class ServicesInput(Section):
    """Clients that send requests to an application of services, and the hosts of its containers."""

    app: str = Field(min_length=1)
    """Name of a shipped application, or the path of its file, relative to the scenario file, else to the
    working directory."""
    arrivals: ArrivalSpec
    """When requests arrive: the name of a shipped pattern, or a mapping with its `kind`."""
    duration_s: PositiveFloat = Field(default=300.0, le=1e6)
    """How long clients send requests, seconds."""
    hosts: PositiveInt = Field(default=3, le=100_000)
    """Number of hosts, each with host_cores cores; containers are placed on them in turn."""
    cpu_scale: PositiveFloat = Field(default=1.0, le=1e6)
    """Factor on every CPU time of the application."""
    connections: NonNegativeInt = 0
    """Most requests that all clients together have open at once; 0: no limit. Further requests wait, and
    their latency counts from when they were due."""
    client_queue: NonNegativeInt = Field(default=1_000_000, le=10_000_000)
    """Most requests that wait for a connection; further ones are turned away."""
    client_timeout_s: PositiveFloat | None = None
    """Time after which a client gives up, counted from when its request was due, seconds; null: never."""
    phases: PositiveInt = Field(default=4, le=1000)
    """Number of offsets, evenly spread over a period, from which each container's CFS period draws its own;
    1: all periods end together."""
    program: Literal["none", "twinbed"] = "none"
    """What the twin's containers run. `none`: exactly the declared demand; `twinbed`: the testbed's service
    program, with its costs from the calibration, beside its control loop and load generator."""


class HpaInput(Section):
    """The Horizontal Pod Autoscaler: each container is a workload whose replicas share its demand.

    Keys that are left out have Kubernetes' defaults (control/allocator/hpa.py).
    """

    replicas: PositiveInt = Field(default=1, description="Replicas of each workload at the start.")
    target_utilisation: PositiveFloat | None = None
    """Target of CPU use divided by CPU requests (averageUtilization / 100); default 0.8."""
    min_replicas: PositiveInt | None = Field(default=None, description="Fewest replicas; default 1.")
    max_replicas: PositiveInt | None = Field(default=None, le=1000, description="Most replicas; default 10.")
    sync_interval_s: PositiveFloat | None = None
    """Time between two of its decisions, seconds; default 15."""
    tolerance: NonNegativeFloat | None = None
    """Largest deviation from the target, as a fraction, that changes nothing; default 0.1."""
    downscale_window_s: NonNegativeFloat | None = None
    """The number of replicas falls at most to the largest number wanted in this window, s; default 300."""
    readiness_s: NonNegativeFloat | None = None
    """Age from which a replica's CPU use counts, seconds; default 30."""

    @model_validator(mode="after")
    def _starts_within_bounds(self) -> Self:
        most = 10 if self.max_replicas is None else self.max_replicas
        if not (self.min_replicas or 1) <= self.replicas <= most:
            raise ValueError("hpa.replicas: expected a number from min_replicas to max_replicas")
        return self


class Budget(Section):
    """Global limits of every application (Ω and M), the same for every policy."""

    cpu_cores: PositiveFloat | Literal["cluster"]
    """Ω: the most CPU that an application's limits add up to, cores; `cluster`: the cores of all hosts
    together, in a scenario with services."""
    memory_bytes: PositiveInt | None = None
    """M: the most memory that an application's limits add up to, bytes; made from budget_factor when left
    out."""


class Profile(Section):
    """How the peaks are profiled that static limits and budgets use."""

    interval_s: PositiveFloat = 1.0
    """Length of the intervals of which a CPU peak is the largest mean, seconds. A longer interval averages
    more of a spike away, so a policy built on such a peak throttles inside the spike."""
    arrivals: ArrivalSpec | None = None
    """When requests arrive in the profile, as services.arrivals: one profile for all workloads. The run's own
    arrivals with other random numbers when left out."""
    cold_start: bool = False
    """Whether the profile begins with every container's start, which burns machine.restart_cpu_s of CPU time
    on all its threads."""
    history: bool = True
    """Whether the histories of policies that learn from use (Autopilot) begin with the profile, in a scenario
    with services."""


class Refine(Section):
    """Burstiness inside an interval of a trace that is coarser than the period; defaults come from traces."""

    cv: NonNegativeFloat | None = Field(default=None, description="Coefficient of variation of CPU use.")
    correlation_s: NonNegativeFloat | None = None
    """Correlation time of the bursts, seconds."""
    repeats: Annotated[int, Field(ge=0, le=20)] = 2
    """How often each run of a coarse trace is repeated with other random numbers. It is also repeated once
    with flat samples. The repeats show which part of a saving comes from refinement; 0: no repeats."""


class MachineOverrides(Section):
    """Values that replace single values of the calibration, for all hosts, on the twin only."""

    telemetry_delay_s: NonNegativeFloat | None = None
    """Time from a period's end until its statistics are read, seconds."""
    telemetry_jitter_s: NonNegativeFloat | None = None
    """Standard deviation of that time, seconds."""
    quota_write_delay_s: NonNegativeFloat | None = None
    """Time from a decision until its CPU quota is in force, seconds."""
    oom_grant_delay_s: NonNegativeFloat | None = None
    """Time for which a container is held at its memory limit until a raised limit is in force, s."""
    reclaim_delay_s: NonNegativeFloat | None = None
    """Time from a request to reclaim memory until limits are lowered and reported, seconds."""
    restart_s: NonNegativeFloat | None = None
    """Start-up time of a container that is restarted or was killed, seconds."""
    restart_cpu_s: NonNegativeFloat | None = None
    """CPU time of that start-up, on one thread under the container's quota, seconds."""
    burst_s: NonNegativeFloat | None = None
    """CPU time that a container may carry over from one period to the next (CFS burst), seconds."""
    network_delay_s: NonNegativeFloat | None = None
    """One-way delay of a message between the controller and a host, seconds."""
    telemetry_loss: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the period statistics that are lost, 0 to 1."""


class Price(Section):
    """Price of a reserved core-hour and GiB-hour, and where it is from."""

    cpu_core_hour: NonNegativeFloat = Field(default=0.031611, description="Price of a core for an hour.")
    memory_gib_hour: NonNegativeFloat = 0.004237
    """Price of a GiB of memory for an hour."""
    currency: str = Field(default="USD", description="Currency of both prices.")
    source: str = (
        "Google Compute Engine, N1 predefined, us-central1, on demand: the rates that give the "
        "listed n1-standard-4 0.189999, n1-highcpu-16 0.5667888 and n1-highmem-8 0.473212 per hour"
    )
    """Where the prices are from."""
    as_of: datetime.date | None = datetime.date(2026, 7, 22)
    """Day on which the source was read."""

    @property
    def note(self) -> str:
        """The prices and their source, in one sentence."""
        as_of = f", as of {self.as_of}" if self.as_of else ""
        return (
            f"Price: {self.cpu_core_hour:g} {self.currency} per core-hour and "
            f"{self.memory_gib_hour:g} per GiB-hour reserved ({self.source}{as_of})."
        )


class ContainerScenario(Scenario):
    """A scenario about containers: a workload, and the machine and conditions that it runs under."""

    policies: list[PolicyText] = policies_by_default(DEFAULT_POLICIES)
    trace: TraceInput | None = Field(default=None, description="Replay a recorded trace.")
    workload: SyntheticWorkload | None = Field(default=None, description="Run a demand that is written down.")
    job: JobInput | None = None
    """Run commands on the testbed, a recording on the twin."""
    services: ServicesInput | None = None
    """Run an application of services with clients."""
    serverless: ServerlessInput | None = None
    """Run the pods of a serverless function."""
    period_s: float = Field(default=0.1, ge=0.01, le=1.0, description="CFS period, seconds.")
    report_interval_s: float | None = Field(default=None, ge=0.01, le=60.0)
    """Time between two reports of a container, seconds; null: one when each period ends. Otherwise reports
    fall into the middle of periods, where a quota write refills the container's runtime."""
    series_interval_s: float | None = Field(default=None, ge=0.01, le=86_400.0)
    """Time that a row of the stored series covers, s, rounded to whole periods; null: the interval of a trace
    that is coarser than a period, else a period. Metrics always use all periods."""
    budget: Budget | None = None
    """Global limits of each application; made from budget_factor when left out."""
    budget_factor: PositiveFloat = 1.5
    """Global limits as this factor times the sum of the application's profiled peaks."""
    host_cores: PositiveFloat | None = None
    """Cores of each host; those of the trace when left out."""
    hosts: PositiveInt | None = Field(default=None, le=100_000)
    """Number of hosts on which the containers of a trace, a workload or a job are placed in turn. When left
    out, a recording, a job, and a workload with host_cores have one host; otherwise each container has a host
    of its own."""
    cpu_weight: PositiveFloat | dict[str, PositiveFloat] | None = None
    """The containers' cpu.weight on hosts that are short of CPUs, in a replay on the twin: one number for
    all, or one per container name; 100 when left out."""
    draw: int = Field(default=0, ge=0, le=1_000_000)
    """Number of the random draw of the moments within a period at which the containers' CFS periods and a
    workload's demand begin; on a machine, nobody chooses these. The load is that of the seed in every draw.
    In draw 0, a workload's demand begins with a period."""
    hpa: HpaInput | None = None
    """The Horizontal Pod Autoscaler, which changes the number of replicas in a replay of a trace or a
    workload on the twin."""
    host_memory_bytes: PositiveInt | None = None
    """Memory of each host for the containers, bytes; null: enough for all. If it is full, the kernel takes
    page cache back from all of them, and then kills the largest."""
    threads: PositiveFloat | dict[str, PositiveFloat] | None = None
    """Number of CPUs that a container can keep busy: one number for all, or one per container name."""
    profile: Profile = Field(default=Profile(), description="How peaks were profiled.")
    refine: Refine = Field(default=Refine(), description="How a coarse trace is made finer.")
    machine: MachineOverrides = MachineOverrides()
    """Values that replace single values of the calibration."""
    price: Price = Field(default=Price(), description="Price of reservations.")

    @model_validator(mode="after")
    def _hosts_of_a_replay(self) -> Self:
        """Refuse keys that only a replay uses."""
        if self.hpa is not None and (self.services or self.serverless or self.job):
            raise ValueError("hpa: has no effect on services, serverless or a job; leave it out")
        for key in ("hosts", "cpu_weight"):
            if getattr(self, key) is not None and (self.services or self.serverless):
                cure = "write services.hosts" if key == "hosts" and self.services else "leave it out"
                raise ValueError(f"{key}: only for a trace, a workload or a job; {cure}")
        return self

    @property
    def drawn(self) -> bool:
        """Whether `draw` changes anything."""
        return self.services is not None or self.workload is not None

    @model_validator(mode="after")
    def _draws_begins(self) -> Self:
        if self.draw and not self.drawn:
            raise ValueError("draw: only for services or a workload; leave it out")
        return self

    @model_validator(mode="after")
    def _profiles_services(self) -> Self:
        for key in ("arrivals", "cold_start"):
            if getattr(self.profile, key) and self.services is None:
                raise ValueError(
                    f"profile.{key}: only a scenario with services has a profile run; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _requests_have_spans(self) -> Self:
        if self.services is None and (names := self.reading_spans()):
            raise ValueError(
                f"policies: {names[0]} decides from the spans of requests, which only a scenario with "
                "services has; leave it out"
            )
        return self

    def reading_spans(self) -> list[str]:
        """Return the names of the shipped policies that need the spans of requests."""
        return [
            spec.name
            for spec in map(parse, self.policies)
            if spec.own is None and spec.name in POLICIES and isinstance(spec.make(), SpanAware)
        ]

    def derived(self, calibration: Calibration) -> dict[str, Any]:
        """Return the machine with every value, in place of the values that were replaced."""
        return {"machine": asdict(self.machine_of(calibration))}

    @property
    def most_bytes(self) -> float:
        """Memory of each host for the containers, bytes; inf: enough for all."""
        return inf if self.host_memory_bytes is None else float(self.host_memory_bytes)

    def machine_of(self, calibration: Calibration) -> Machine:
        """Return the calibration's machine with the scenario's own values."""
        return machine(calibration, self.machine.model_dump(exclude_none=True))


def container_scenario(scenario: Scenario) -> ContainerScenario:
    """Return the scenario itself. Raises InvariantError if it is not about containers."""
    if not isinstance(scenario, ContainerScenario):
        raise InvariantError(f"{scenario.name}: not a scenario about containers")
    return scenario


def machine_of(spec: RunSpec) -> Machine:
    """Return the machine that the twin imitates in a run."""
    return container_scenario(spec.scenario).machine_of(spec.calibration)
