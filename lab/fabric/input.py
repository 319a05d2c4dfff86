"""What a fabric scenario asks: hosts and switches, what breaks, what is measured through it.

For: the `fabric` section of a scenario file. Not for: running it (lab.fabric.run.runner), nor for the values
of the calibration that it may replace (lab.fabric.calibrate.values).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from lab.ask.scenario import PolicyText, Scenario, policies_by_default
from lab.ask.section import Section
from lab.fabric.calibrate.values import Replaced, check
from twin.fabric.model import Scheme
from twinbed import InvariantError, ScenarioError

MEASURES = ("sends", "collective", "training", "fleet")
"""The sections that say what is measured; every fabric scenario has one of them."""


def _known(values: dict[str, dict[str, float]]) -> Replaced:
    try:
        return check(values)
    except ScenarioError as error:
        raise ValueError(str(error)) from None


Values = Annotated[dict[str, dict[str, NonNegativeFloat]], AfterValidator(_known)]


class TopologyInput(Section):
    """Hosts with uplinks to edge switches (ToRs)."""

    hosts: int = Field(default=5, ge=2, le=100_000)
    tors: PositiveInt = 2
    uplinks: PositiveInt = Field(default=2, description="Of each host, to as many different ToRs.")
    nics: PositiveInt = Field(
        default=1, description="Adapters of each host, which its uplinks are spread over."
    )
    spines: int = Field(default=0, ge=0, description="Switches that connect all ToRs; 0: none.")


class FaultsInput(Section):
    """What breaks at the edge, and when."""

    kind: Literal["none", "single", "round_robin", "flapping", "random"] = Field(
        default="round_robin",
        description="`single`: once; `round_robin`: again and again, port by port; `flapping`: one port, "
        "again and again; `random`: all devices, at the rates of per_day; `none`: nothing.",
    )
    what: Literal["port", "link", "nic", "tor"] = Field(default="port", description="Of a single fault.")
    host: int = Field(default=0, ge=0, description="Of a single fault, or of the port that flaps.")
    uplink: int | None = Field(
        default=None, ge=0, description="The same; null: the one that what is measured takes."
    )
    one_way: Literal["out", "in"] | None = Field(
        default=None, description="Of a single fault: only what the host sends, or receives, is lost."
    )
    per_day: dict[Literal["port", "link", "nic", "tor"], NonNegativeFloat] = Field(
        default_factory=dict, description="Of random faults: how often each single device fails in a day."
    )
    silent: bool = Field(default=True, description="Nobody gets a carrier signal.")
    at_s: PositiveFloat | None = Field(
        default=None, description="When the first one begins; else in the middle (single) or after up_s."
    )
    down_s: PositiveFloat = 20.0
    up_s: PositiveFloat = Field(default=20.0, description="Between two of a round, or of a port that flaps.")

    @model_validator(mode="after")
    def _rates_of_random_ones(self) -> FaultsInput:
        if (self.kind == "random") != bool(self.per_day):
            raise ValueError("per_day is for random faults, and they need it: `per_day: {port: 0.1}`")
        return self


class SendsInput(Section):
    """RDMA sends one after another, each timed, as perftest's ib_send_lat does."""

    messages: int = Field(default=10_000, ge=2, le=10_000_000)
    message_bytes: PositiveInt = 1 << 23


class CollectiveInput(Section):
    """A collective operation again and again on all hosts, as nccl-tests does."""

    operation: Literal[
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"
    ] = "all_reduce"
    message_bytes: PositiveInt = 2_000_000_000
    repeats: PositiveInt = Field(default=800, description="Operations, one after another.")


class CheckpointInput(Section):
    """How a job saves and starts again."""

    interval_s: PositiveFloat = Field(description="Of work between two saves.")
    save_s: NonNegativeFloat = Field(description="The job waits so long for a save.")
    init_s: NonNegativeFloat = Field(description="From starting anew until it computes.")


class TrainingInput(Section):
    """A training job on hosts with a GPU each, iteration after iteration."""

    parameters: PositiveFloat
    layers: PositiveInt = 1
    micro_batches: PositiveInt = Field(default=1, description="Per iteration and replica.")
    micro_batch_s: PositiveFloat = Field(description="Forward and backward of one on one GPU alone.")
    activation_bytes: NonNegativeFloat = Field(
        default=0.0, description="Of a micro-batch between two layers."
    )
    gradient_bytes: PositiveFloat = Field(default=4.0, description="Of one parameter.")
    data: PositiveInt = 1
    pipeline: PositiveInt = 1
    tensor: PositiveInt = 1
    iterations: int = Field(default=1000, ge=1, le=10_000_000)
    epochs: PositiveInt | None = Field(
        default=None,
        description="That the iterations are, in equal parts: accuracy over time is then that of the "
        "training that ships (a small CNN, 150 epochs), stretched to this job's times.",
    )
    average: PositiveInt = Field(default=1, description="Iterations in a row whose mean is one value.")
    jitter_cv: NonNegativeFloat = Field(default=0.0, description="Coefficient of variation of iterations.")
    checkpoint: CheckpointInput | None = Field(default=None, description="null: a job that dies is lost.")

    @model_validator(mode="after")
    def _enough(self) -> TrainingInput:
        if self.average > self.iterations:
            raise ValueError(f"average is {self.average}, more than the {self.iterations} iterations")
        if self.epochs is not None and self.iterations % self.epochs:
            raise ValueError(f"{self.iterations} iterations are not {self.epochs} epochs of equal length")
        return self


class FleetInput(Section):
    """A synchronous job on a whole fleet of hosts with 8 GPUs, each with an adapter of its own, for days.

    Faults and topology of the scenario have no part in it, but whether faults are silent.
    """

    gpus: int = Field(default=16_384, ge=16, le=131_072, multiple_of=8)
    days: PositiveFloat = Field(default=54.0, le=366.0)
    rates: Literal["llama3", "stepfun"] = Field(
        default="llama3", description="Whose parts fail as often: traces/fault_rates.py has both sources."
    )
    iteration_s: PositiveFloat = Field(
        default=6.2,
        description="405 G parameters, 16 Mi tokens, 400 TFLOP/s of each of 16,384 GPUs.",
    )
    degraded_iteration_s: PositiveFloat = Field(
        default=6.2,
        description="While an adapter has one of two uplinks: by default as without a scheme, where one is "
        "all that there is.",
    )
    jitter_cv: NonNegativeFloat = Field(default=0.02, description="An assumption.")
    flows: PositiveInt = Field(default=4, description="Connections of an adapter in each direction.")
    repair_s: PositiveFloat = Field(default=14_400.0, description="Until a part works again. An assumption.")
    spares: int = Field(default=64, ge=0, description="Hosts that can take a dead one's place.")
    checkpoint_interval_s: PositiveFloat | None = Field(
        default=None, description="Of work between two saves; null: Daly's optimum for the scheme's deaths."
    )
    save_s: NonNegativeFloat = Field(default=20.0, description="An assumption.")
    init_s: NonNegativeFloat = Field(
        default=600.0, description="From starting anew to computing. An assumption."
    )
    price_gpu_hour: NonNegativeFloat = Field(default=2.0, description="USD. An assumption.")


class FabricInput(Section):
    """A fabric, its faults, and what is measured: exactly one of sends, collective, training,
    fleet."""

    topology: TopologyInput = TopologyInput()
    faults: FaultsInput = FaultsInput()
    fast_path: bool = Field(
        default=False, description="Hosts turn away from a dead uplink by themselves, before BGP does."
    )
    values: Values = Field(
        default_factory=dict,
        description="Single values of the calibration replaced: `control: {hold_s: 0}`.",
    )
    sends: SendsInput | None = None
    collective: CollectiveInput | None = None
    training: TrainingInput | None = None
    fleet: FleetInput | None = None

    @model_validator(mode="after")
    def _one_measure(self) -> FabricInput:
        given = [key for key in MEASURES if getattr(self, key) is not None]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise ValueError(f"give one of {', '.join(MEASURES)}{found}")
        return self


class FabricScenario(Scenario):
    """A scenario about a fabric. Its policies say how the fabric meets faults at its edge."""

    policies: list[PolicyText] = policies_by_default([str(scheme) for scheme in Scheme])
    fabric: FabricInput | None = Field(default=None, description="Run a fabric with faults at its edge.")


def fabric_of(scenario: Scenario) -> FabricInput:
    """Return the scenario's fabric. Raises InvariantError if it is not about one."""
    if not (isinstance(scenario, FabricScenario) and scenario.fabric):
        raise InvariantError(f"{scenario.name}: not a scenario about a fabric")
    return scenario.fabric
