"""What a user asks: a workload, policies, seeds and the conditions, as a checked YAML file.

For: reading, checking, changing (`with_overrides`) and expanding scenarios into single runs. Not for:
running them (lab.runner), nor for reading traces. scenarios/schema.json is generated from here.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from lab import policy as policies_
from lab import strict_yaml
from lab.calibration import Calibration, load_calibration
from lab.policy import PolicySpec
from lab.problems import describe
from twin.containers.model import Machine
from twinbed import ScenarioError

DEFAULT_POLICIES = ("escra", "autopilot", "vpa", "static")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _policy_text(text: str) -> str:
    try:
        return policies_.parse(text).text
    except ScenarioError as error:
        raise ValueError(str(error)) from None


PolicyText = Annotated[str, AfterValidator(_policy_text)]


class TraceInput(_Strict):
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


class Step(_Strict):
    """A stretch of constant demand."""

    duration_s: PositiveFloat = Field(description="Length in seconds; rounded to whole periods.")
    cpu_cores: NonNegativeFloat = Field(description="CPU work arriving per second, cores.")
    memory_bytes: int | None = Field(
        default=None, ge=0, description="Working set; the container's when left out."
    )


class SyntheticContainer(_Strict):
    """A container whose demand is written down instead of recorded."""

    name: str = Field(min_length=1)
    app: str = Field(default="app", min_length=1, description="Application (tenant) it belongs to.")
    threads: PositiveInt | None = Field(default=None, description="CPUs it can keep busy at once.")
    memory_bytes: int = Field(
        default=0, ge=0, description="Working set in bytes; 0 = memory is not simulated."
    )
    steps: list[Step] = Field(min_length=1)


class SyntheticWorkload(_Strict):
    """Containers with stepwise demand; all start together, a shorter one leaves at its end."""

    containers: list[SyntheticContainer] = Field(min_length=1)


class Budget(_Strict):
    """Global limits of every application (Ω and M): the same ceiling for every policy."""

    cpu_cores: PositiveFloat
    memory_bytes: PositiveInt


class Profile(_Strict):
    """How the peaks were profiled that static limits and budgets are made from."""

    interval_s: PositiveFloat = Field(
        default=1.0,
        description="CPU peaks are maxima of means over this many seconds. The longer, the more of a "
        "spike is averaged away: a policy built on such a peak throttles inside the spike.",
    )


class Refine(_Strict):
    """Burstiness inside an interval of a trace coarser than the period; defaults come from traces."""

    cv: NonNegativeFloat | None = Field(default=None, description="Coefficient of variation of CPU use.")
    correlation_s: NonNegativeFloat | None = Field(
        default=None, description="Correlation time of the bursts, seconds."
    )


class MachineOverrides(_Strict):
    """Single values of the calibration replaced; see twin.containers.model.Machine."""

    telemetry_delay_s: NonNegativeFloat | None = None
    telemetry_jitter_s: NonNegativeFloat | None = None
    quota_write_delay_s: NonNegativeFloat | None = None
    oom_grant_delay_s: NonNegativeFloat | None = None
    reclaim_delay_s: NonNegativeFloat | None = None
    restart_s: NonNegativeFloat | None = None
    burst_s: NonNegativeFloat | None = None
    network_delay_s: NonNegativeFloat | None = None
    telemetry_loss: Annotated[float, Field(ge=0, le=1)] | None = None


class Price(_Strict):
    """What a reserved core-hour and GiB-hour cost, with where the price is from."""

    cpu_core_hour: NonNegativeFloat = 0.031611
    memory_gib_hour: NonNegativeFloat = 0.004237
    currency: str = "USD"
    source: str = (
        "Google Compute Engine, N1 predefined, us-central1, on demand: the rates that give the listed "
        "n1-standard-4 0.189999, n1-highcpu-16 0.5667888 and n1-highmem-8 0.473212 per hour"
    )
    as_of: datetime.date | None = datetime.date(2026, 7, 22)


class Scenario(_Strict):
    """One question: a trace or a synthetic workload, under each policy, with each seed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="Also begins the run ids.")
    title: str = ""
    question: str = Field(default="", description="What the scenario is to answer, in a sentence.")
    trace: TraceInput | None = None
    workload: SyntheticWorkload | None = None
    policies: list[PolicyText] = Field(
        default_factory=lambda: list(DEFAULT_POLICIES), min_length=1, description="NAME[:KEY=VALUE]…"
    )
    period_s: float = Field(default=0.1, ge=0.01, le=1.0, description="CFS period, seconds.")
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default_factory=lambda: [0], min_length=1)
    budget: Budget | None = Field(
        default=None, description="Ω and M per application; else from budget_factor."
    )
    budget_factor: PositiveFloat = Field(
        default=1.5, description="Ω and M = this × the sum of the application's profiled peaks."
    )
    host_cores: PositiveFloat | None = Field(
        default=None, description="Cores of each host; else from the trace."
    )
    threads: PositiveFloat | dict[str, PositiveFloat] | None = Field(
        default=None, description="CPUs a container can keep busy: one number, or one per container name."
    )
    profile: Profile = Profile()
    refine: Refine = Refine()
    machine: MachineOverrides = MachineOverrides()
    calibration: str | None = Field(default=None, description="Path of a calibration TOML; else the default.")
    price: Price = Price()

    @model_validator(mode="after")
    def _one_workload(self) -> Scenario:
        if (self.trace is None) == (self.workload is None):
            raise ValueError("give either trace or workload" + (", not both" if self.trace else ""))
        if len(set(self.policies)) < len(self.policies) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("policies and seeds must not repeat")
        return self


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run, fully resolved: one policy on one workload with one seed.

    scenario: the conditions (its `policies` and `seeds` are those of the whole question and are not part
    of this run); machine: calibration with overrides applied.
    """

    scenario: Scenario
    policy: PolicySpec
    seed: int
    calibration: Calibration
    machine: Machine

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def label(self) -> str:
        """How a table or a progress bar calls this run: the policy's text, and the seed if several."""
        return self.policy.text if len(self.scenario.seeds) == 1 else f"{self.policy.text} seed {self.seed}"

    def resolved(self) -> dict[str, Any]:
        """Everything that the result depends on, except file contents, in JSON types; defaults included."""
        conditions = self.scenario.model_dump(
            mode="json", exclude={"title", "question", "policies", "seeds", "machine", "calibration"}
        )
        return conditions | {
            "policy": {"name": self.policy.name, "parameters": self.policy.resolved()},
            "seed": self.seed,
            "machine": asdict(self.machine),
        }


def load(path: str | Path) -> Scenario:
    """Reads a scenario file; raises ScenarioError (file, dotted key, problem, nearest valid key)."""
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioError(f"{where}: {reason}") from None
    raw = strict_yaml.parse(text, str(where))
    if not isinstance(raw, dict):
        raise ScenarioError(f"{where}: {'empty file' if raw is None else 'expected keys and values'}")
    _anchor(raw, where.parent)
    return build(raw, str(where))


def build(raw: dict[str, Any], where: str = "scenario") -> Scenario:
    """A checked scenario from plain data; raises ScenarioError that begins with `where`."""
    try:
        return Scenario.model_validate(raw)
    except ValidationError as error:
        raise ScenarioError(describe(error, Scenario, where)) from None


def with_overrides(scenario: Scenario, assignments: Sequence[str]) -> Scenario:
    """The scenario with `KEY=VALUE` assignments applied, in order; values are YAML.

    KEY is a dotted path into the scenario (`machine.restart_s`, `budget_factor`), or POLICY.PARAMETER,
    which reaches every policy of that name in the scenario. Raises ScenarioError naming the assignment.
    """
    raw = scenario.model_dump(exclude_unset=True)
    raw["policies"] = list(scenario.policies)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ScenarioError(f"--set {assignment}: expected KEY=VALUE")
        value = strict_yaml.parse(text, f"--set {assignment}")
        head, _, rest = key.partition(".")
        if head in policies_.names() and rest:
            raw["policies"] = _set_policy(raw["policies"], head, rest, text, assignment)
            continue
        _set_path(raw, key, value, assignment)
    return build(raw, "--set")


def expand(scenario: Scenario) -> list[RunSpec]:
    """One RunSpec per policy × seed, in that order; reads the calibration, not the trace."""
    calibration = load_calibration(scenario.calibration)
    overrides = scenario.machine.model_dump(exclude_none=True)
    machine = calibration.machine(overrides)
    return [
        RunSpec(scenario, policies_.parse(text), seed, calibration, machine)
        for text in scenario.policies
        for seed in scenario.seeds
    ]


def schema_json() -> str:
    """The JSON schema of a scenario file, as kept in scenarios/schema.json."""
    return json.dumps(Scenario.model_json_schema(), indent=1, sort_keys=True) + "\n"


def _anchor(raw: dict[str, Any], folder: Path) -> None:
    """Paths in a file are relative to the file, wherever the command is run."""
    trace = raw.get("trace")
    if isinstance(trace, dict) and isinstance(trace.get("source"), str):
        beside = folder / trace["source"]
        if beside.exists():
            trace["source"] = str(beside)
    if isinstance(raw.get("calibration"), str):
        raw["calibration"] = str(folder / raw["calibration"])


def _set_policy(texts: list[str], name: str, key: str, value: str, assignment: str) -> list[str]:
    specs = [policies_.parse(text) for text in texts]
    if not any(spec.name == name for spec in specs):
        raise ScenarioError(f"--set {assignment}: the scenario has no policy {name}")
    try:
        changed = [spec.with_parameter(key, value) if spec.name == name else spec for spec in specs]
    except ScenarioError as error:
        raise ScenarioError(f"--set {assignment}: {error}") from None
    return [spec.text for spec in changed]


def _set_path(raw: dict[str, Any], key: str, value: Any, assignment: str) -> None:
    *parents, last = key.split(".")
    table = raw
    for parent in parents:
        if table.get(parent) is None:
            table[parent] = {}
        table = table[parent]
        if not isinstance(table, dict):
            raise ScenarioError(f"--set {assignment}: {parent} has no keys inside")
    table[last] = value
