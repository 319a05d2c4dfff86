"""The input of a scenario on a market: a job with a deadline, instance types, zones, prices and availability.

For: the `cloud` section of a scenario file. Not for: drawing a market (lab.cloud.run.market) or running.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from control.market import POLICIES
from lab.ask.scenario import PolicyText, Scenario, policies_by_default
from lab.ask.section import Section
from twinbed import InvariantError

MOST_TICKS = 100_000
MOST_CHANGES = 5_000_000
"""Most changes of price and availability that are drawn in all zones: 64 B each."""
_SHORTEST_H = 1 / 60
"""Shortest time between two drawn changes, h."""


class JobInput(Section):
    """A training job that must end by a deadline."""

    name: str = Field(default="", description="A shipped training job or a job file; the testbed runs it.")
    hours: PositiveFloat = Field(description="Work, h on machines of speed 1, without saves.")
    deadline_hours: PositiveFloat = Field(description="Time from the start until it must be done, h.")
    machines: int = Field(default=1, ge=1, le=256, description="Machines that it needs together.")
    checkpoint_s: PositiveFloat = Field(default=1800.0, description="Work between two saves, s.")
    save_s: NonNegativeFloat = Field(default=0.0, description="Time that a save takes from the work, s.")
    checkpoint_gb: NonNegativeFloat = 0.0
    """Size of a checkpoint, GB; it is moved to another region with the job."""


class TypeInput(Section):
    """An instance type."""

    speed: PositiveFloat = Field(default=1.0, description="Work per second; 1: the machine of job.hours.")
    on_demand_usd_h: PositiveFloat = Field(description="Price on demand, USD per hour.")


class ZoneInput(Section):
    """A zone that sells one type as spot machines."""

    region: str = Field(description="Its region. A job that changes regions moves its checkpoint.")
    type: str = Field(description="The instance type, a key of `types`.")
    spot_usd_h: PositiveFloat
    """Price of a spot machine, USD per hour; drawn prices begin with it."""


class DrawnInput(Section):
    """Availability and prices drawn at random, for each zone alone."""

    up_h: PositiveFloat = 6.0
    """Mean length of a spell in which a zone has machines, h."""
    down_h: PositiveFloat = Field(default=2.0, description="Mean length of a spell in which it has none, h.")
    spread: NonNegativeFloat = 1.0
    """Standard deviation of the logarithm of a spell's length (log-normal)."""
    price_step: NonNegativeFloat = 0.1
    """Standard deviation of the logarithm of a change of price."""
    price_every_h: PositiveFloat = Field(default=6.0, description="Time between two changes of price, h.")


class CloudEmulationInput(Section):
    """The emulation of the market by this machine: a real job trains, in compressed time."""

    compression: PositiveFloat
    """Seconds of the market per second of this machine. The job is shorter by this factor. A real process
    starts and stops as fast as ever, so on the market its start or stop takes this many times as long, and
    counts if that is longer than start_s or stop_s."""
    cores: Annotated[float, Field(ge=0.02, le=64)]
    """CPU quota of an emulated machine of speed 1, cores."""
    network_bps: PositiveFloat = 1e9
    """Rate of the link of an emulated machine, bit/s."""


class CloudInput(Section):
    """A job on a market."""

    job: JobInput = Field(description="The training job.")
    types: dict[str, TypeInput] = Field(min_length=1, description="Instance types by name.")
    on_demand: str = Field(description="Type of the on-demand machines, which every region has.")
    zones: dict[str, ZoneInput] = Field(min_length=1, max_length=64)
    """Where spot machines are sold, by name."""
    trace: str | None = None
    """Path of a CSV with t_s, zone, available and spot_usd_h, relative to the scenario file. The seed
    determines where in it the job starts. null: drawn at random."""
    drawn: DrawnInput = Field(default=DrawnInput(), description="How the market is drawn without a trace.")
    start_s: NonNegativeFloat = 360.0
    """Time from a machine's start until the job trains, s. An assumption."""
    stop_s: NonNegativeFloat = 30.0
    """Time that a job takes to save and to leave a machine, s. An assumption."""
    move_s: NonNegativeFloat = 0.0
    """Time to fetch the checkpoint from another region, s, on top of start_s."""
    egress_usd_gb: NonNegativeFloat = 0.02
    """Price of moving data to another region, USD per GB."""
    notice_s: NonNegativeFloat = 120.0
    """Time between the notice and the loss of a spot machine, s."""
    saves_at_notice: bool = True
    """A notice makes the job save and leave, in time if stop_s is at most notice_s; false: it trains until it
    is killed."""
    tick_s: PositiveFloat = Field(default=600.0, description="Time between two decisions of the policy, s.")
    billing_s: PositiveFloat = 60.0
    """Billing step, s: the time of a machine is rounded up to whole steps."""
    emulation: CloudEmulationInput | None = None
    """How this machine emulates the market on the testbed. The twin then takes start_s and stop_s at least as
    long as the calibration's starts and stops, and job.save_s does not count."""

    @model_validator(mode="after")
    def _fits_together(self) -> CloudInput:
        if self.on_demand not in self.types:
            raise ValueError(f"on_demand: no type {self.on_demand!r}; there are {', '.join(self.types)}")
        if self.trace is not None and self.drawn.model_fields_set:
            raise ValueError("drawn: has no effect with a trace; leave it out, or set it to {}")
        for name, zone in self.zones.items():
            if zone.type not in self.types:
                raise ValueError(
                    f"zones.{name}.type: no type {zone.type!r}; there are {', '.join(self.types)}"
                )
        if self.job.deadline_hours * 3600 / self.tick_s > MOST_TICKS:
            raise ValueError(f"tick_s: more than {MOST_TICKS:,} ticks before the deadline; make it longer")
        apart_h = self.drawn.price_every_h, (self.drawn.up_h + self.drawn.down_h) / 2
        changes = self.job.deadline_hours * len(self.zones) * sum(1 / max(h, _SHORTEST_H) for h in apart_h)
        if self.trace is None and changes > MOST_CHANGES:
            raise ValueError(
                f"job.deadline_hours: {self.job.deadline_hours:g}: the market would change {changes:.2g} "
                f"times, more than {MOST_CHANGES:,}; give a shorter deadline, or longer times in `drawn`"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_effect(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what has no effect with a trace, so that no run states it as its condition."""
        fields: dict[str, Any] = dumped(self)
        if self.trace is not None:
            fields.pop("drawn", None)
        return fields


class CloudScenario(Scenario):
    """A scenario about a job on a market. Its policies are those of control.market."""

    policies: list[PolicyText] = policies_by_default(list(POLICIES))
    cloud: CloudInput | None = Field(default=None, description="Run a training job on a market of machines.")


def cloud_of(scenario: Scenario) -> CloudInput:
    """Return the scenario's market. Raises InvariantError if it is not about one."""
    if not (isinstance(scenario, CloudScenario) and scenario.cloud):
        raise InvariantError(f"{scenario.name}: not a scenario about a market")
    return scenario.cloud
