"""The input of a cluster scenario: servers, queues, jobs, faults, and how schedulers are set.

For: the `cluster` section of a scenario file. Not for: drawing jobs (lab.cluster.run.jobs) or running them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from control.scheduler import SETTINGS, settings
from lab.ask.scenario import PolicyText, Scenario, policies_by_default
from lab.ask.section import Section
from twinbed import InvariantError, ScenarioError

SOURCES = ("synthetic", "log", "measured")
"""The sections that define the jobs. Every cluster has exactly one of them."""

MOST_GPUS, MOST_JOBS = 1_000_000, 1_000_000


def _known(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    try:
        for family, given in values.items():
            settings(family, given)
    except ScenarioError as error:
        raise ValueError(str(error)) from None
    return values


class ServersInput(Section):
    """Equal servers with GPUs of one type."""

    count: int = Field(ge=0, le=100_000, description="Number of servers.")
    gpus: int = Field(default=8, ge=1, le=1024, description="GPUs of each server.")
    racks: PositiveInt = Field(default=1, description="Number of racks over which the servers are spread.")
    speed: PositiveFloat = 1.0
    """Speed of this type, relative to the type on which durations were measured. A job whose model is in
    `models` has the speed that is given there."""
    price_usd_h: NonNegativeFloat = Field(default=0.0, description="Price of a GPU-hour, USD.")


class QueueInput(Section):
    """The share of the GPUs that a queue may use."""

    share: NonNegativeFloat
    """Share of all GPUs that the queue is guaranteed under policy `yarn`, 0 to 1."""
    most: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of all GPUs that the queue may use, under every policy but `isolated`, the reference of
    fairness."""


class GoodputInput(Section):
    """A model's goodput, as in Pollux.

    A GPU computes b samples in alpha_c + beta_c·b seconds. K GPUs exchange gradients in
    alpha_r + beta_r·(K−2) seconds in one server, and in alpha_n + beta_n·(K−2) seconds between servers.
    """

    alpha_c: PositiveFloat = Field(description="Fixed computing time of a step, s.")
    beta_c: PositiveFloat = Field(description="Additional computing time of each sample, s.")
    alpha_n: NonNegativeFloat = Field(description="Exchange time of two GPUs in different servers, s.")
    beta_n: NonNegativeFloat = Field(default=0.0, description="Additional time of each further GPU, s.")
    alpha_r: NonNegativeFloat = Field(description="Exchange time of two GPUs in one server, s.")
    beta_r: NonNegativeFloat = Field(default=0.0, description="Additional time of each further GPU, s.")
    gamma: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Overlap of computing and exchange, 1 (none) to 10."""
    noise: PositiveFloat = Field(description="Noise scale of the gradients, samples.")
    batch: PositiveInt = Field(description="Batch size with which the model was tuned, samples of all GPUs.")
    most_batch: PositiveInt = Field(description="Largest batch size, samples of all GPUs.")
    most_local: PositiveInt = Field(description="Largest batch that fits a GPU's memory, samples.")

    @model_validator(mode="after")
    def _in_order(self) -> GoodputInput:
        if self.most_batch < self.batch:
            raise ValueError("most_batch must not be below batch")
        return self


class SyntheticInput(Section):
    """Jobs drawn at random: Poisson arrivals, log-uniform durations, equally likely models."""

    count: int = Field(ge=1, le=MOST_JOBS, description="Number of jobs.")
    per_hour: PositiveFloat = Field(description="Mean number of jobs that are submitted per hour.")
    shortest_s: PositiveFloat = Field(default=300.0, description="Shortest duration at speed 1, s.")
    longest_s: PositiveFloat = Field(default=36_000.0, description="Longest duration at speed 1, s.")
    gpus: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        default=[1] * 14 + [2] * 2 + [4] * 3 + [8],
        min_length=1,
        description="Gang sizes to draw from, each entry with equal probability; a size may be repeated.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> SyntheticInput:
        if self.longest_s < self.shortest_s:
            raise ValueError(f"longest_s is {self.longest_s:g}, below shortest_s, {self.shortest_s:g}")
        return self


class LogInput(Section):
    """Jobs that were recorded in a scheduler's log."""

    path: str = Field(description="Path of the log, relative to the scenario file.")
    format: Literal["philly", "alibaba-gpu-2023", "swf", "sacct", "csv", "kubernetes", "surf"]
    """Format of the log; docs/how-to/ask-about-a-cluster.md describes them."""
    skip: int = Field(default=0, ge=0, description="Number of jobs at its start that are left out.")
    count: int | None = Field(default=None, ge=1, description="Number of jobs that are used; null: all.")
    stretch: PositiveFloat = 1.0
    """Factor on the times between submissions; 0.5 doubles the load."""
    any_type: bool = False
    """Jobs may have GPUs of any type, also if the log names a type for them."""


class MeasuredInput(Section):
    """Jobs drawn from a table of measured speeds, as Gavel's generator does."""

    path: str = Field(description="CSV of measured speeds, relative to the scenario file; it is not shipped.")
    source: str | None = None
    """Use only the rows with this `source`; needed if the table has several."""
    count: int = Field(ge=1, le=MOST_JOBS, description="Number of jobs.")
    per_hour: PositiveFloat | None
    """Mean number of jobs that are submitted per hour; null: all at the start."""
    several_gpus: bool = False
    """Jobs have 1, 2, 4 or 8 GPUs (70, 10, 15, 5 %); false: one GPU each."""
    urgent_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of jobs with weight 5; the others have 1."""
    reference: str = Field(default="v100", description="Type on which durations are drawn.")
    pairs: str | None = None
    """CSV of measured speeds of two jobs on the same GPUs, relative to the scenario file; null: `pair_speed`
    holds. It is not shipped."""


class FaultsInput(Section):
    """Servers that fail: at random moments, or by a trace."""

    per_server_day: NonNegativeFloat | None = None
    """Faults of each server per day; null: those of the trace."""
    repair_s: PositiveFloat = 14_400.0
    """Time until a server works again, s; a trace has its own times."""
    trace: str | None = None
    """CSV of StepFun's fault trace (InfiniteHBD), relative to the scenario file; null: none. Each server has
    the faults of a different server of the trace, drawn at random. It is not shipped."""
    from_day: NonNegativeFloat = 0.0
    """Day of the trace that corresponds to begin_s; the trace has 348 days."""
    begin_s: NonNegativeFloat = Field(default=0.0, description="First moment of faults, s.")
    end_s: PositiveFloat = Field(default=604_800.0, description="Last moment of faults, s; default: a week.")
    types: list[str] = Field(default_factory=list)
    """Types whose servers fail, for example those of the spot market, which a provider takes back; empty: all
    types."""

    @model_validator(mode="after")
    def _in_order(self) -> FaultsInput:
        if self.end_s <= self.begin_s:
            raise ValueError("end_s must be after begin_s")
        if (self.per_server_day is None) == (self.trace is None):
            raise ValueError("give one of per_server_day and trace")
        key, place = ("from_day", "without") if self.trace is None else ("repair_s", "with")
        if getattr(self, key) != FaultsInput.model_fields[key].default:
            raise ValueError(f"{key}: has no effect {place} a trace; leave it out")
        return self


class EmulationInput(Section):
    """The emulation of the cluster by this machine's CPUs: real jobs train, in compressed time."""

    compression: PositiveFloat
    """Seconds of the cluster per second of the machine. Jobs are shorter by this factor. Real processes start
    and restart as fast as ever, so in the cluster that takes this many times as long."""
    gpu_cores: Annotated[float, Field(ge=0.02, le=64)]
    """CPU quota that emulates a GPU on which a job has speed 1, cores."""
    slurm: Literal["no", "runs", "decides"] = "no"
    """Use of a real Slurm on the testbed: no; it runs what the scheduler decides (runs); it decides itself
    (decides), for which the twin uses policy fifo-backfill."""
    draw: Annotated[int, Field(ge=0, lt=1000)] = 0
    """Number of the draw of the times of starts. The twin draws from the measured ones, and real jobs
    ignore this number."""


class WatchedInput(Section):
    """The jobs that count, by their place in the order of submission."""

    first: int = Field(default=0, ge=0)
    """Number of the first job that counts; earlier jobs only fill the queue."""
    last: int | None = Field(default=None, ge=1)
    """Number of the first job that no longer counts; null: all count."""

    @model_validator(mode="after")
    def _in_order(self) -> WatchedInput:
        if self.last is not None and self.last <= self.first:
            raise ValueError("last must be above first, or no job counts")
        return self


class ClusterInput(Section):
    """A cluster and its jobs: exactly one of synthetic, log and measured."""

    servers: dict[str, ServersInput] = Field(min_length=1, description="Servers by GPU type.")
    queues: dict[str, QueueInput] = Field(default_factory=dict)
    """Quotas of queues by name. The other queues share equally what is left."""
    models: dict[str, dict[str, NonNegativeFloat]] = Field(default_factory=dict)
    """Speeds of a job by model and type, relative to the type on which durations were measured; 0: it cannot
    run there. A type that is left out has its own speed. A job without a known model gets one of these at
    random."""
    goodput: dict[str, GoodputInput] = Field(default_factory=dict)
    """Goodput by model. It gives the speed of a job on any number of GPUs at the best batch size. Only policy
    `pollux` uses it; a job of another model gets its whole gang or nothing."""
    synthetic: SyntheticInput | None = Field(default=None, description="Jobs drawn at random.")
    log: LogInput | None = Field(default=None, description="Jobs of a log.")
    measured: MeasuredInput | None = Field(default=None, description="Jobs drawn from measured speeds.")
    deadlines: list[PositiveFloat] = Field(default_factory=list)
    """Factors to draw from with equal probability. A job is due this many times its run time alone on its
    fastest type after its submission; empty: no deadlines. Policy `gavel-cost` uses them."""
    together: bool | list[str] = False
    """Jobs wait for as few servers as possible; false: they spread if need be; a list: only jobs of these
    models wait."""
    spread_speed: Annotated[float, Field(gt=0, le=1)] | None = None
    """Speed of a gang on more servers than it needs, relative to its speed on as few as possible; null: as
    measured, else 0.9."""
    pair_speed: Annotated[float, Field(gt=0, le=1)] | None = None
    """Speed of a job that shares its GPUs with another job, relative to its speed alone, for pairs that were
    not measured; null: they cannot share. Policies `gavel-sharing` and `gandiva` use it."""
    sync_s: NonNegativeFloat = 10.0
    """Time in each round in which the copies of a forked job exchange their parameters, s. Policy `hadar-e`
    forks jobs. An assumption."""
    round_s: PositiveFloat = Field(default=360.0, description="Length of a scheduler's round, s.")
    at_events: bool = True
    """Schedulers that can decide at each arrival, end and fault do so; false: all decide in rounds."""
    restart_s: NonNegativeFloat = 30.0
    """Time without progress after a job's servers changed, s. An assumption."""
    checkpoint_s: PositiveFloat = 600.0
    """Work at speed 1 between two saves, s; a fault loses later work. An assumption. Saves take time under
    `emulation` only."""
    faults: FaultsInput | None = Field(default=None, description="Faults of servers; null: no server fails.")
    emulation: EmulationInput | None = None
    """How this machine emulates the cluster on the testbed; models are then names of training jobs. The twin
    takes the time of restarts and saves from the calibration, and ignores restart_s. Starts share the
    machine's cores, on both backends."""
    watched: WatchedInput = Field(default=WatchedInput(), description="Which jobs count in the metrics.")
    fairness: bool = True
    """Simulate an equally divided cluster, too, which finish-time fairness compares with."""
    settings: Annotated[dict[str, dict[str, Any]], AfterValidator(_known)] = Field(
        default_factory=dict, description=f"Settings of schedulers, by family: {', '.join(SETTINGS)}."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ClusterInput:
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            instead = f", not {' and '.join(given)}" if given else ""
            raise ValueError(f"give one of {', '.join(SOURCES)}{instead}")
        gpus = sum(part.count * part.gpus for part in self.servers.values())
        if not 0 < gpus <= MOST_GPUS:
            raise ValueError(f"servers: {gpus} GPUs; give 1 to {MOST_GPUS:,}")
        if self.restart_s >= self.round_s:
            raise ValueError("restart_s must be below round_s, or a job that changes servers gets no further")
        if self.sync_s >= self.round_s:
            raise ValueError("sync_s must be below round_s, or a forked job gets no further")
        for model, speeds in self.models.items():
            if unknown := set(speeds) - set(self.servers):
                raise ValueError(f"models.{model}.{min(unknown)}: there are no servers of this type")
        if self.faults is not None and (unknown := set(self.faults.types) - set(self.servers)):
            raise ValueError(f"faults.types: there are no servers of type {min(unknown)}")
        if self.queues and sum(queue.share for queue in self.queues.values()) > 1 + 1e-9:
            raise ValueError("queues: their shares are more than 1 together")
        return self


class ClusterScenario(Scenario):
    """A scenario about a cluster. Its policies are schedulers."""

    policies: list[PolicyText] = policies_by_default(["fifo", "tiresias", "gavel"])
    cluster: ClusterInput | None = Field(default=None, description="Run training jobs on a cluster of GPUs.")


def cluster_of(scenario: Scenario) -> ClusterInput:
    """Return the scenario's cluster. Raises InvariantError if it is not about one."""
    if not (isinstance(scenario, ClusterScenario) and scenario.cluster):
        raise InvariantError(f"{scenario.name}: not a scenario about a cluster")
    return scenario.cluster
