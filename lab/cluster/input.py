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
    speed: PositiveFloat = Field(
        default=1.0,
        description="Speed of this type beside the one on which durations were measured. A job whose model "
        "is in `models` has its own.",
    )
    price_usd_h: NonNegativeFloat = Field(default=0.0, description="Price of a GPU-hour, USD.")


class QueueInput(Section):
    """A queue's part of the GPUs."""

    share: NonNegativeFloat = Field(
        description="Share of all GPUs that the queue is guaranteed under policy `yarn`, 0 to 1."
    )
    most: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="Largest share of all GPUs that the queue may use, under every policy."
    )


class GoodputInput(Section):
    """A model's goodput, as in Pollux: b samples on a GPU take alpha_c + beta_c·b; K GPUs exchange in
    alpha_r + beta_r·(K−2) in one server, alpha_n + beta_n·(K−2) between servers."""

    alpha_c: PositiveFloat = Field(description="Time of a step's computing without samples, s.")
    beta_c: PositiveFloat = Field(description="Time of a sample, s.")
    alpha_n: NonNegativeFloat = Field(description="Exchange of two GPUs in different servers, s.")
    beta_n: NonNegativeFloat = Field(default=0.0, description="More of it for each further GPU, s.")
    alpha_r: NonNegativeFloat = Field(description="Exchange of two GPUs in one server, s.")
    beta_r: NonNegativeFloat = Field(default=0.0, description="More of it for each further GPU, s.")
    gamma: Annotated[float, Field(ge=1, le=10)] = Field(
        default=1.0, description="Overlap of computing and exchange, 1 (none) to 10."
    )
    noise: PositiveFloat = Field(description="Noise scale of the gradients, samples.")
    batch: PositiveInt = Field(description="Batch with which the model was tuned, samples of all GPUs.")
    most_batch: PositiveInt = Field(description="Largest batch of all GPUs, samples.")
    most_local: PositiveInt = Field(description="Largest batch that a GPU's memory holds, samples.")

    @model_validator(mode="after")
    def _in_order(self) -> GoodputInput:
        if self.most_batch < self.batch:
            raise ValueError("most_batch must not be below batch")
        return self


class SyntheticInput(Section):
    """Jobs drawn at random: Poisson arrivals, log-uniform durations, models drawn alike."""

    count: int = Field(ge=1, le=MOST_JOBS, description="Number of jobs.")
    per_hour: PositiveFloat = Field(description="Mean number of jobs that are submitted per hour.")
    shortest_s: PositiveFloat = Field(default=300.0, description="Shortest duration at speed 1, s.")
    longest_s: PositiveFloat = Field(default=36_000.0, description="Longest duration at speed 1, s.")
    gpus: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        default=[1] * 14 + [2] * 2 + [4] * 3 + [8],
        min_length=1,
        description="Gang sizes, drawn alike; a size that stands here more often is drawn more often.",
    )


class LogInput(Section):
    """Jobs of a log."""

    path: str = Field(description="Path of the log, relative to the scenario file.")
    format: Literal["philly", "alibaba-gpu-2023", "swf", "sacct", "csv", "kubernetes", "surf"] = Field(
        description="Its format; docs/how-to/ask-about-a-cluster.md describes them."
    )
    skip: int = Field(default=0, ge=0, description="Number of jobs at its begin that are left out.")
    count: int | None = Field(default=None, ge=1, description="Number of jobs that are used; null: all.")
    stretch: PositiveFloat = Field(
        default=1.0, description="Factor on the times between submissions; 0.5 doubles the load."
    )


class MeasuredInput(Section):
    """Jobs as Gavel's generator draws them from a table of measured speeds."""

    path: str = Field(description="CSV of measured speeds, relative to the scenario file; it is not shipped.")
    source: str | None = Field(
        default=None, description="Rows of this `source`, where the table has more than one."
    )
    count: int = Field(ge=1, le=MOST_JOBS, description="Number of jobs.")
    per_hour: PositiveFloat | None = Field(
        description="Mean number of jobs that are submitted per hour; null: all at the start."
    )
    several_gpus: bool = Field(
        default=False, description="Jobs have 1, 2, 4 or 8 GPUs (70, 10, 15, 5 %); false: one GPU each."
    )
    urgent_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Share of jobs with weight 5; the others have 1."
    )
    reference: str = Field(default="v100", description="Type on which durations are drawn.")
    pairs: str | None = Field(
        default=None,
        description="CSV of measured speeds of two jobs on the same GPUs, relative to the scenario file; "
        "null: `pair_speed` holds. It is not shipped.",
    )


class FaultsInput(Section):
    """Servers that fail: at random moments, or by a trace."""

    per_server_day: NonNegativeFloat | None = Field(
        default=None, description="Faults of each server per day; null: as in the trace."
    )
    repair_s: PositiveFloat = Field(
        default=14_400.0, description="Time until it works again, s; a trace has its own times."
    )
    trace: str | None = Field(
        default=None,
        description="CSV of StepFun's fault trace (InfiniteHBD), relative to the scenario file; null: none. "
        "Each server has the faults of another one of its servers, drawn. It is not shipped.",
    )
    from_day: NonNegativeFloat = Field(
        default=0.0, description="Day of the trace that is at begin_s; the trace has 348 days."
    )
    begin_s: NonNegativeFloat = Field(default=0.0, description="First moment of faults, s.")
    end_s: PositiveFloat = Field(default=604_800.0, description="Last moment of faults, s; default: a week.")

    @model_validator(mode="after")
    def _in_order(self) -> FaultsInput:
        if self.end_s <= self.begin_s:
            raise ValueError("end_s must be after begin_s")
        if (self.per_server_day is None) == (self.trace is None):
            raise ValueError("give one of per_server_day and trace")
        return self


class EmulationInput(Section):
    """How a machine's CPUs emulate the cluster: real jobs train, in compressed time."""

    compression: PositiveFloat = Field(
        description="Seconds of the cluster per second of the machine. Jobs are that much "
        "shorter; starts and restarts of real processes are not, and count that many times."
    )
    gpu_cores: Annotated[float, Field(ge=0.02, le=64)] = Field(
        description="CPU quota that emulates a GPU on which a job has speed 1, cores."
    )
    slurm: Literal["no", "runs", "decides"] = Field(
        default="no",
        description="On the testbed, a real Slurm runs what the scheduler decides (runs), or decides itself "
        "(decides), which the twin takes for policy fifo-backfill.",
    )


class WatchedInput(Section):
    """Which jobs count, by their place in the order of submission."""

    first: int = Field(default=0, ge=0, description="First job that counts; those before warm the queue up.")
    last: int | None = Field(
        default=None, ge=1, description="Number of the first job that no longer counts; null: all count."
    )


class ClusterInput(Section):
    """A cluster and its jobs: exactly one of synthetic, log and measured."""

    servers: dict[str, ServersInput] = Field(min_length=1, description="Servers by GPU type.")
    queues: dict[str, QueueInput] = Field(
        default_factory=dict, description="Quotas of queues by name; without any, queues share alike."
    )
    models: dict[str, dict[str, NonNegativeFloat]] = Field(
        default_factory=dict,
        description="Speeds of a job by model and type beside the one on which durations were measured; 0: "
        "cannot run. Jobs without a known model draw one of these.",
    )
    goodput: dict[str, GoodputInput] = Field(
        default_factory=dict,
        description="Goodput by model, which gives its jobs' speed with other numbers of GPUs at their "
        "best batches. Policy `pollux` heeds it; jobs of other models have their gang or nothing.",
    )
    synthetic: SyntheticInput | None = Field(default=None, description="Jobs drawn at random.")
    log: LogInput | None = Field(default=None, description="Jobs of a log.")
    measured: MeasuredInput | None = Field(default=None, description="Jobs drawn from measured speeds.")
    deadlines: list[PositiveFloat] = Field(
        default_factory=list,
        description="Factors, drawn alike: a job is due so many times its time alone on its fastest type "
        "after its submission; empty: no deadlines. Policy `gavel-cost` heeds them.",
    )
    together: bool = Field(
        default=False, description="Jobs run on as few servers as possible or wait; false: spread if need be."
    )
    spread_speed: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Speed of a gang on more servers than it needs beside one together; null: 0.9, or as "
        "measured.",
    )
    pair_speed: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Share of its speed alone that a job keeps beside another one on the same GPUs, where "
        "nobody measured it; null: none can. Policies `gavel-sharing` and `gandiva` heed it.",
    )
    sync_s: NonNegativeFloat = Field(
        default=10.0,
        description="Time of each round in which the copies of a forked job exchange what they learnt, s. "
        "Policy `hadar-e` forks jobs. An assumption.",
    )
    round_s: PositiveFloat = Field(default=360.0, description="Length of a scheduler's round, s.")
    at_events: bool = Field(
        default=True,
        description="Schedulers that can are asked at each arrival, end and fault; false: all in rounds.",
    )
    restart_s: NonNegativeFloat = Field(
        default=30.0, description="Time without progress after a job's servers changed, s. An assumption."
    )
    checkpoint_s: PositiveFloat = Field(
        default=600.0, description="Work between two saves, s; a fault loses later work. An assumption."
    )
    faults: FaultsInput | None = Field(default=None, description="Servers that fail; null: none does.")
    emulation: EmulationInput | None = Field(
        default=None,
        description="How this machine emulates the cluster on the testbed; models are then names of "
        "training jobs. The twin takes the time of restarts from the calibration, and "
        "ignores restart_s. Starts share the machine's cores, on both backends.",
    )
    watched: WatchedInput = Field(default=WatchedInput(), description="Which jobs count in the metrics.")
    fairness: bool = Field(
        default=True, description="Simulate an equally divided cluster, too, for the finish-time fairness."
    )
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
