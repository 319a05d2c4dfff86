"""The input of a fabric scenario: hosts and switches, faults, and the measurement.

For: the `fabric` section of a scenario file. Not for: running it (lab.fabric.run.runner), nor the calibrated
values that it may replace (lab.fabric.calibrate.values).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from lab.ask.scenario import PolicyText, Scenario, policies_by_default
from lab.ask.section import Section
from lab.fabric import nccl
from lab.fabric.calibrate.retries import RetryProfile
from lab.fabric.calibrate.values import Replaced, check
from twin.fabric.model import Scheme
from twin.fabric.planner import NO_LAST_TIER
from twin.fabric.steps import BY_NCCL
from twinbed import InvariantError, ScenarioError

MEASURES = ("sends", "collective", "training", "fleet")
"""The sections that define the measurement. Every fabric scenario has exactly one of them."""


def _known(values: dict[str, dict[str, float]]) -> Replaced:
    try:
        return check(values)
    except ScenarioError as error:
        raise ValueError(str(error)) from None


Values = Annotated[dict[str, dict[str, NonNegativeFloat]], AfterValidator(_known)]


class TopologyInput(Section):
    """Hosts with an uplink to every ToR of their rack. Hosts of different racks need spines."""

    hosts: int = Field(default=5, ge=2, le=100_000, description="Number of hosts.")
    tors: PositiveInt = Field(default=2, description="Number of ToRs of all racks.")
    racks: PositiveInt = Field(default=1, description="Number of racks; they share hosts and ToRs.")
    nics: PositiveInt = Field(default=1, description="Number of adapters that share a host's uplinks.")
    spines: int = Field(default=0, ge=0)
    """Number of switches that connect all ToRs; 0: there are none."""

    @property
    def uplinks(self) -> int:
        """Number of uplinks of every host, one to each ToR of its rack."""
        return self.tors // self.racks

    @model_validator(mode="after")
    def _racks_alike(self) -> TopologyInput:
        if self.tors % self.racks:
            raise ValueError(f"tors: {self.tors} do not fill {self.racks} racks; give a multiple of racks")
        return self


_PLACE = ("what", "host", "uplink", "one_way")
"""Keys of faults of one device."""


class FaultsInput(Section):
    """Faults at the edge of the fabric."""

    kind: Literal["none", "single", "round_robin", "flapping", "random"] = "round_robin"
    """`single`: one fault; `round_robin`: faults of one port after another; `flapping`: faults of the same
    device; `random`: faults of all devices at the rates of `per_day`; `none`."""
    what: Literal["port", "link", "nic", "tor"] = "port"
    """Device that a single fault breaks, or that flaps."""
    host: int = Field(default=0, ge=0, description="Host of a single fault or of a flapping device.")
    uplink: int | None = Field(default=None, ge=0)
    """Uplink of that host; null: the first path that the measurement takes."""
    one_way: Literal["out", "in"] | None = None
    """The only direction that a single or flapping fault silences, seen from the host; null: both."""
    per_day: dict[Literal["port", "link", "nic", "tor"], NonNegativeFloat] = Field(default_factory=dict)
    """Random faults: faults of each single device per day, by kind."""
    silent: bool = Field(default=True, description="Links keep their carrier, so a fault is not reported.")
    at_s: PositiveFloat | None = None
    """Start of the first fault, s; null: the middle (`single`), or after `up_s`."""
    down_s: PositiveFloat = Field(default=20.0, description="Length of a fault, s.")
    up_s: PositiveFloat = 20.0
    """Healthy time between faults that follow one another, s."""

    @model_validator(mode="after")
    def _rates_of_random_ones(self) -> FaultsInput:
        if (self.kind == "random") != bool(self.per_day):
            raise ValueError("per_day is for random faults, and they need it: `per_day: {port: 0.1}`")
        return self

    @model_validator(mode="after")
    def _places_of_one_device(self) -> FaultsInput:
        ignored = {"round_robin": _PLACE, "random": (*_PLACE, "at_s")}.get(self.kind, ())
        for key in ignored:
            if getattr(self, key) != FaultsInput.model_fields[key].default:
                raise ValueError(f"{key}: {self.kind} faults choose their own; give kind: single or flapping")
        return self


class SendsInput(Section):
    """RDMA sends one after another, each timed as perftest's ib_send_lat does."""

    messages: int = Field(default=10_000, ge=2, le=10_000_000, description="Number of messages.")
    message_bytes: PositiveInt = Field(default=1 << 23, description="Size of a message, B.")


class CollectiveInput(Section):
    """A collective operation on all hosts, repeated and timed as nccl-tests does."""

    operation: Literal[
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"
    ] = Field(default="all_reduce", description="The operation, by its name in nccl-tests.")
    message_bytes: PositiveInt = 2_000_000_000
    """Message size as nccl-tests counts it, B."""
    repeats: int = Field(default=800, ge=1, le=10_000_000)
    """Number of operations, one after another."""


class CheckpointInput(Section):
    """The times of a job's saves and restarts."""

    interval_s: PositiveFloat = Field(description="Work between two saves, s.")
    save_s: NonNegativeFloat = Field(description="Time that the job waits for a save, s.")
    init_s: NonNegativeFloat = Field(description="Time from a restart until the job computes again, s.")


class TrainingInput(Section):
    """A training job on hosts with one GPU each, iteration after iteration."""

    parameters: PositiveFloat = Field(description="Number of parameters of the model.")
    layers: PositiveInt = Field(default=1, description="Number of layers of the model.")
    micro_batches: PositiveInt = Field(default=1, description="Micro-batches per iteration and replica.")
    micro_batch_s: PositiveFloat
    """Time of the forward and backward pass of one micro-batch on one GPU alone, s."""
    activation_bytes: NonNegativeFloat = 0.0
    """Size of a micro-batch's activations between two layers, B."""
    gradient_bytes: PositiveFloat = 4.0
    """Size of the gradient of one parameter, B."""
    data: PositiveInt = Field(default=1, description="Degree of data parallelism.")
    pipeline: PositiveInt = Field(default=1, description="Degree of pipeline parallelism.")
    tensor: PositiveInt = Field(default=1, description="Degree of tensor parallelism.")
    iterations: int = Field(default=1000, ge=1, le=10_000_000, description="Number of iterations.")
    epochs: PositiveInt | None = None
    """Number of equally long epochs that the iterations make up. Accuracy over time is then that of the
    shipped training (a small CNN, 150 epochs), stretched to this job's times."""
    average: PositiveInt = 1
    """Number of consecutive iterations whose mean is one value."""
    jitter_cv: NonNegativeFloat = 0.0
    """Coefficient of variation of an iteration's length."""
    checkpoint: CheckpointInput | None = None
    """How the job saves; null: a job that dies is lost."""

    @model_validator(mode="after")
    def _enough(self) -> TrainingInput:
        if self.average > self.iterations:
            raise ValueError(f"average is {self.average}, more than the {self.iterations} iterations")
        if self.layers % self.pipeline:
            raise ValueError(
                f"pipeline: {self.pipeline} stages do not share {self.layers} layers evenly; give a multiple"
            )
        if self.epochs is not None and self.iterations % self.epochs:
            raise ValueError(f"{self.iterations} iterations are not {self.epochs} epochs of equal length")
        return self


class TierInput(Section):
    """A kind of checkpoint."""

    name: str = Field(description="Name of this kind, for example peer, disk or remote.")
    survives: Literal["process", "reboot", "node", "peers"]
    """The greatest loss that it survives: `process` (the host's own memory), `reboot` (its disk), `node` (a
    peer's memory), `peers` (a remote store: everything)."""
    save_s: NonNegativeFloat = Field(description="Time that the job waits for a save, s.")
    restore_s: NonNegativeFloat = Field(description="Time to load it, s.")


def _tiers() -> list[TierInput]:
    return [
        TierInput(name="peer", survives="node", save_s=0.04, restore_s=10.0),
        TierInput(name="remote", survives="peers", save_s=20.0, restore_s=120.0),
    ]


class PlanInput(Section):
    """A fleet and the failures of all its parts, failure by failure (lab/fabric/fleet_causes.csv)."""

    failures_per_node_day: NonNegativeFloat = 3.79e-3
    """Failures of a node of 8 GPUs per day. Default: Llama 3's 419 in 54 days on 2,048 nodes; Meta's clusters
    had 6.5e-3 and 2.34e-3 (arXiv 2410.21680)."""
    inspection: bool = True
    """Inspection finds failures, in ByteRobust's times. Without it, a dead network is found when queue pairs
    give up, and any other failure after `undetected_s`."""
    undetected_s: PositiveFloat = 600.0
    """Time to find a failure without inspection, s; at least the time that inspection needs."""
    switch_share: float = Field(default=0.2, ge=0, le=1)
    """Share of switches in failures of switches and cables; assumed."""
    tiers: list[TierInput] = Field(default_factory=_tiers, description="Kinds of checkpoints.", min_length=1)
    intervals_s: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Work between two saves by tier, s: `{remote: 1800.0}`. The other tiers have the first-order optimum for
    the failures that they serve."""
    warm: int | None = Field(default=None, ge=0)
    """Number of initialised standby nodes; null: ByteRobust's pool."""
    cold: int = Field(default=16, ge=0, description="Number of spare nodes that must start first.")
    requeue_s: NonNegativeFloat | None = None
    """Time to restart all nodes, s; null: ByteRobust's at this size."""
    update_s: NonNegativeFloat | None = None
    """Time to restart in place, s; null: ByteRobust's at this size."""
    standby_gain: float = Field(default=10.87, ge=1)
    """Factor by which warm nodes are faster than `requeue_s` (ByteRobust)."""
    cold_gain: float = Field(default=5.36, ge=1)
    """Factor by which warm nodes are faster than cold nodes (ByteRobust)."""
    start_fails: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a start fails, as in a restart storm."""
    updates_per_day: NonNegativeFloat = 0.0
    """Changes of the code per day that need a restart; each waits up to a day for a failure."""
    replica_groups: int | None = Field(default=None, ge=2)
    """Number of replica groups that leave the job and join it again. A failure costs its group `rejoin_s` and
    all others a step; failures of a switch or of the state end the job. null: every failure ends the job."""
    rejoin_s: NonNegativeFloat = 60.0
    """Time until a group of replicas has joined again, s. An assumption."""

    @model_validator(mode="after")
    def _tiers_by_name(self) -> PlanInput:
        names = [tier.name for tier in self.tiers]
        if len(set(names)) < len(names):
            raise ValueError("tiers: two have the same name")
        if all(tier.survives != "peers" for tier in self.tiers):
            raise ValueError(NO_LAST_TIER)
        for name in self.intervals_s.keys() - set(names):
            raise ValueError(f"intervals_s: {name} is no tier; there are {', '.join(names)}")
        return self


_MOST_GPUS = 131_072
"""Largest fleet whose single iterations are simulated."""
_WITHOUT_PLAN = (
    "rates", "degraded_iteration_s", "jitter_cv", "spares", "checkpoint_interval_s", "save_s", "init_s",
)  # fmt: skip
"""Keys of a fleet that a plan replaces by its own."""


class FleetInput(Section):
    """A synchronous job on a whole fleet for days. Hosts have 8 GPUs, each with its own adapter.

    A scenario's `topology` and `faults` are not for fleets, except `faults.silent`.
    """

    gpus: int = Field(default=16_384, ge=8, le=1 << 20, multiple_of=8)
    """Number of GPUs; without a plan at most 131,072."""
    days: PositiveFloat = Field(default=54.0, le=366.0, description="Simulated time, days.")
    rates: Literal["llama3", "stepfun"] = "llama3"
    """Fleet whose failure rates are used; traces/fault_rates.py names the sources."""
    iteration_s: PositiveFloat = 6.2
    """Length of an iteration, s. Default: 405 G parameters and 16 Mi tokens at 400 TFLOP/s on each of 16,384
    GPUs."""
    degraded_iteration_s: PositiveFloat | None = None
    """Length of an iteration while an adapter has one of two uplinks, s; null: `iteration_s`, as without a
    scheme, where adapters have a single uplink."""
    jitter_cv: NonNegativeFloat = 0.02
    """Coefficient of variation of an iteration's length. An assumption."""
    flows: PositiveInt = Field(default=4, description="Connections of an adapter in each direction.")
    repair_s: PositiveFloat = 14_400.0
    """Time until a failed part works again, s. An assumption."""
    spares: int = Field(default=64, ge=0, description="Number of hosts that can replace a dead one.")
    checkpoint_interval_s: PositiveFloat | None = None
    """Work between two saves, s; null: Daly's optimum for the scheme's deaths."""
    save_s: NonNegativeFloat = Field(default=20.0, description="Time of a save, s. An assumption.")
    init_s: NonNegativeFloat = 600.0
    """Time from a restart until the job computes again, s. An assumption."""
    price_gpu_hour: NonNegativeFloat = 2.0
    """Price of a GPU-hour, USD. An assumption."""
    plan: PlanInput | None = None
    """Plan for all failures: spares, restarts and checkpoints. It uses only these keys of this section:
    `gpus`, `days`, `repair_s`, `flows`, `price_gpu_hour`, and `iteration_s` for `replica_groups`. null:
    single iterations and faults of the edge are simulated."""

    @model_validator(mode="after")
    def _with_a_plan_or_without(self) -> FleetInput:
        if self.plan is None and self.gpus > _MOST_GPUS:
            raise ValueError(f"gpus: {self.gpus}: more than {_MOST_GPUS:,} need a plan: `plan: {{}}`")
        for key in _WITHOUT_PLAN if self.plan is not None else ():
            if getattr(self, key) != FleetInput.model_fields[key].default:
                raise ValueError(f"{key}: has no effect with a plan, which has keys of its own; leave it out")
        if self.degraded_iteration_s is not None and self.degraded_iteration_s < self.iteration_s:
            raise ValueError(
                f"degraded_iteration_s: {self.degraded_iteration_s:g} s is below iteration_s, "
                f"{self.iteration_s:g} s: with an uplink less, no iteration is shorter"
            )
        return self


class NcclInput(Section):
    """NCCL's version and its variables, which give queue pairs their timeout and their retries."""

    version: str = nccl.LAST
    """Version as text, `'2.18.1'`; its defaults apply (lab/fabric/nccl_defaults.csv)."""
    variables: dict[str, int | str] = Field(default_factory=dict)
    """Environment variables in place of defaults: `{NCCL_IB_TIMEOUT: 20}`. The twin uses NCCL_IB_TIMEOUT and
    NCCL_IB_RETRY_CNT, and under `nccl-failover` and `nccl-recovery` the NCCL_IB_RESILIENCY_PORT_… times; of
    the others it checks that the version has them."""
    receiver_lag_s: NonNegativeFloat = 0.0
    """Time between the sender and the receiver noticing a dead port, s (`nccl-recovery`). Ready messages stop
    when data stop, so it may be as long as until the queue pair's own error."""

    @model_validator(mode="after")
    def _in_this_version(self) -> NcclInput:
        try:
            nccl.settings(self.version, self.variables)
        except ScenarioError as error:
            raise ValueError(str(error).removeprefix("nccl.")) from None
        return self

    def queue_pair(self) -> dict[str, float]:
        """Return the values of the calibration's queue pairs that NCCL sets."""
        set_to = nccl.settings(self.version, self.variables)
        return {
            "timeout": float(set_to["NCCL_IB_TIMEOUT"]),
            "retry_count": float(set_to["NCCL_IB_RETRY_CNT"]),
        }


class FabricInput(Section):
    """A fabric, its faults, and exactly one measurement: sends, collective, training or fleet."""

    topology: TopologyInput = Field(default=TopologyInput(), description="Hosts and switches.")
    faults: FaultsInput = Field(default=FaultsInput(), description="What breaks, and when.")
    fast_path: bool = False
    """Hosts leave a dead uplink by themselves, before BGP reacts."""
    retry_profile: Annotated[RetryProfile, Field(strict=False)] = RetryProfile.CX6_20_43
    """When queue pairs send again: `cx6-20.43` and `cx6-20.40`, ConnectX-6 with that firmware as measured
    (RoCE); `plain`, equal ACK timeouts as in the InfiniBand specification, which soft RoCE and other vendors
    have (InfiniBand's link layer: unknown, use `plain`); `manual`, the totals of NCCL's manual; `floor-off`,
    ConnectX-6 with adaptive retransmission off; `adp`, NVIDIA's documented generator with the calibration's
    `retry_adp`."""
    nccl: NcclInput | None = Field(
        default=None,
        description="NCCL's version and variables; null: queue pairs are the calibration's, as in NCCL "
        f"{nccl.LAST}.",
    )
    values: Values = Field(default_factory=dict)
    """Values that replace values of the calibration and of `nccl`: `control: {hold_s: 0}`."""
    sends: SendsInput | None = Field(default=None, description="Measure RDMA sends.")
    collective: CollectiveInput | None = Field(default=None, description="Measure collectives.")
    training: TrainingInput | None = Field(default=None, description="Measure a training job.")
    fleet: FleetInput | None = Field(default=None, description="Measure a training job on a whole fleet.")

    @model_validator(mode="after")
    def _one_measure(self) -> FabricInput:
        measures = [key for key in MEASURES if getattr(self, key) is not None]
        if len(measures) != 1:
            instead = f", not {' and '.join(measures)}" if measures else ""
            raise ValueError(f"give one of {', '.join(MEASURES)}{instead}")
        unread = TopologyInput(), FaultsInput(silent=self.faults.silent)
        if self.fleet is not None and (self.topology, self.faults) != unread:
            raise ValueError("a fleet has a topology and faults of its own: leave out all but faults.silent")
        return self

    @property
    def replaced(self) -> Replaced:
        """Values that replace values of the calibration: NCCL's, then the scenario's own."""
        if self.nccl is None:
            return self.values
        return {**self.values, "queue_pair": self.nccl.queue_pair() | dict(self.values.get("queue_pair", {}))}


class FabricScenario(Scenario):
    """A scenario about a fabric. Its policies are the schemes that handle faults at its edge."""

    policies: list[PolicyText] = policies_by_default(
        [str(scheme) for scheme in Scheme if scheme not in BY_NCCL]
    )
    fabric: FabricInput | None = Field(default=None, description="Run a fabric with faults at its edge.")


def fabric_of(scenario: Scenario) -> FabricInput:
    """Return the scenario's fabric. Raises InvariantError if it is not about one."""
    if not (isinstance(scenario, FabricScenario) and scenario.fabric):
        raise InvariantError(f"{scenario.name}: not a scenario about a fabric")
    return scenario.fabric
