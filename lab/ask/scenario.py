"""What a user asks: a workload, policies, seeds and the conditions, as a checked YAML file.

For: reading, checking, changing (`with_overrides`) and expanding scenarios into single runs. Not for:
running them (lab.runs.runner), nor for what a workload consists of (lab.containers.input.sections).
scenarios/schema.json is generated from here.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from lab.ask import policy as policies_
from lab.ask import shipped, strict_yaml
from lab.ask.assignments import assign, names_policy
from lab.ask.policy import SCHEMES, PolicySpec
from lab.ask.problems import describe
from lab.ask.section import Section
from lab.containers.calibrate.values import Calibration, load_calibration
from lab.containers.input.sections import JobInput, ServicesInput, SyntheticWorkload, TraceInput
from lab.containers.input.services.serverless import ServerlessInput
from lab.fabric.calibrate import values as fabrics
from lab.fabric.input import FabricInput
from twin.containers.model import Machine
from twinbed import ScenarioError

DEFAULT_POLICIES = ("escra", "autopilot", "vpa", "static")
INPUTS = ("trace", "workload", "services", "serverless", "job", "fabric")
"""The sections that say what a scenario is about; every scenario has one of them."""
_PATHS = ("trace.source", "job.file", "services.app", "services.arrivals.file", "serverless.arrivals.file")
"""Keys that may be a path; it is relative to the scenario file if there is such a file."""
_OF_CONTAINERS = (
    "period_s",
    "budget",
    "budget_factor",
    "host_cores",
    "threads",
    "profile",
    "refine",
    "machine",
    "price",
)
"""Conditions that a fabric does not know."""


def _policy_text(text: str) -> str:
    try:
        return policies_.parse(text).text
    except ScenarioError as error:
        raise ValueError(str(error)) from None


def _default_policies(given: dict[str, Any]) -> list[str]:
    return list(DEFAULT_POLICIES if given.get("fabric") is None else SCHEMES)


PolicyText = Annotated[str, AfterValidator(_policy_text)]


class Budget(Section):
    """Global limits of every application (Ω and M): the same ceiling for every policy."""

    cpu_cores: PositiveFloat
    memory_bytes: PositiveInt


class Profile(Section):
    """How the peaks were profiled that static limits and budgets are made from."""

    interval_s: PositiveFloat = Field(
        default=1.0,
        description="CPU peaks are maxima of means over this many seconds. The longer, the more of a "
        "spike is averaged away: a policy built on such a peak throttles inside the spike.",
    )


class Refine(Section):
    """Burstiness inside an interval of a trace coarser than the period; defaults come from traces."""

    cv: NonNegativeFloat | None = Field(default=None, description="Coefficient of variation of CPU use.")
    correlation_s: NonNegativeFloat | None = Field(
        default=None, description="Correlation time of the bursts, seconds."
    )


class MachineOverrides(Section):
    """Single values of the calibration replaced; see twin.containers.model.Machine."""

    telemetry_delay_s: NonNegativeFloat | None = None
    telemetry_jitter_s: NonNegativeFloat | None = None
    quota_write_delay_s: NonNegativeFloat | None = None
    oom_grant_delay_s: NonNegativeFloat | None = None
    reclaim_delay_s: NonNegativeFloat | None = None
    restart_s: NonNegativeFloat | None = None
    restart_cpu_s: NonNegativeFloat | None = None
    burst_s: NonNegativeFloat | None = None
    network_delay_s: NonNegativeFloat | None = None
    telemetry_loss: Annotated[float, Field(ge=0, le=1)] | None = None


class Price(Section):
    """What a reserved core-hour and GiB-hour cost, with where the price is from."""

    cpu_core_hour: NonNegativeFloat = 0.031611
    memory_gib_hour: NonNegativeFloat = 0.004237
    currency: str = "USD"
    source: str = (
        "Google Compute Engine, N1 predefined, us-central1, on demand: the rates that give the listed "
        "n1-standard-4 0.189999, n1-highcpu-16 0.5667888 and n1-highmem-8 0.473212 per hour"
    )
    as_of: datetime.date | None = datetime.date(2026, 7, 22)


class Scenario(Section):
    """One question: a workload under each policy, with each seed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="Also begins the run ids.")
    title: str = ""
    question: str = Field(default="", description="What the scenario is to answer, in a sentence.")
    trace: TraceInput | None = None
    workload: SyntheticWorkload | None = None
    job: JobInput | None = None
    services: ServicesInput | None = None
    serverless: ServerlessInput | None = None
    fabric: FabricInput | None = None
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Dotted key of the scenario (or POLICY.PARAMETER) → its values. Every combination of "
        "values is run, the last key changing fastest.",
    )
    policies: list[PolicyText] = Field(
        default_factory=_default_policies,
        min_length=1,
        description="NAME[:KEY=VALUE]…; with a fabric, how edge faults are met: " + ", ".join(SCHEMES),
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
        given = [key for key in INPUTS if getattr(self, key) is not None]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise ValueError(f"give one of {', '.join(INPUTS)}{found}")
        if len(set(self.policies)) < len(self.policies) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("policies and seeds must not repeat")
        return self

    @model_validator(mode="after")
    def _schemes_with_a_fabric(self) -> Scenario:
        if self.fabric is None:
            for text in set(self.policies) & set(SCHEMES):
                raise ValueError(f"policy {text} is for scenarios with a fabric")
            return self
        for text in (each for each in self.policies if each not in SCHEMES):
            raise ValueError(f"policy {text} is for containers; with a fabric give {', '.join(SCHEMES)}")
        for key in (each for each in _OF_CONTAINERS if each in self.model_fields_set):
            raise ValueError(f"{key} has no meaning with a fabric; leave it out")
        return self


_NOT_CONDITIONS = {"title", "question", "policies", "seeds", "machine", "calibration", "vary"}


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run, fully resolved: one policy on one workload with one seed.

    scenario: the conditions (its `policies` and `seeds` are those of the whole question and are not part
    of this run), nothing in it varies; variant: which of the values that vary it has, as text.
    """

    scenario: Scenario
    policy: PolicySpec
    seed: int
    calibration: Calibration
    variant: str = ""

    @property
    def machine(self) -> Machine:
        """Calibration with overrides applied, where the scenario is about containers."""
        return self.calibration.machine(self.scenario.machine.model_dump(exclude_none=True))

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def label(self) -> str:
        """How a progress bar calls this run: the policy's text, what varies, and the seed if several."""
        seed = f"seed {self.seed}" if len(self.scenario.seeds) > 1 else ""
        return " ".join(part for part in (self.policy.text, self.variant, seed) if part)

    def resolved(self) -> dict[str, Any]:
        """Everything that the result depends on, except file contents, in JSON types; defaults included."""
        of_whom = {
            "policy": {"name": self.policy.name, "parameters": self.policy.resolved()},
            "seed": self.seed,
        }
        if self.scenario.fabric is not None:
            return self.scenario.model_dump(mode="json", include={"name", "fabric"}) | of_whom
        conditions = self.scenario.model_dump(mode="json", exclude=_NOT_CONDITIONS)
        absent = [key for key in INPUTS if conditions[key] is None]
        given = {key: value for key, value in conditions.items() if key not in absent}
        return given | of_whom | {"machine": asdict(self.machine)}


def load(path: str | Path) -> Scenario:
    """Reads a scenario file, or a shipped one by its name.

    Raises ScenarioError (file, dotted key, problem, nearest valid key).
    """
    where = shipped.path_of("scenario", path)
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
    """A checked scenario, with its variants, from plain data; raises ScenarioError beginning with `where`."""
    scenario = _validated(raw, where)
    variants(scenario, where)
    return scenario


def variants(scenario: Scenario, where: str = "scenario") -> list[tuple[str, Scenario]]:
    """Every combination of the values that vary, as (`KEY=VALUE …`, a scenario without `vary`), in order.

    Raises ScenarioError, beginning with `where`, for a key that is not there or a value that is wrong.
    """
    if not scenario.vary:
        return [("", scenario)]
    if any(key.partition(".")[0] == "vary" for key in scenario.vary):
        raise ScenarioError(f"{where}: vary: what varies cannot vary itself")
    found = []
    for values in itertools.product(*scenario.vary.values()):
        pairs = list(zip(scenario.vary, values, strict=True))
        text = " ".join(f"{key}={_short(value)}" for key, value in pairs)
        raw = _plain(scenario)
        del raw["vary"]
        for key, value in pairs:
            assign(raw, key, value, f"{where}: vary.{key}")
        found.append((text, _validated(raw, f"{where}: with {text} (vary)")))
    return found


def with_overrides(scenario: Scenario, assignments: Sequence[str]) -> Scenario:
    """The scenario with `KEY=VALUE` assignments applied, in order; values are YAML.

    KEY is as in lab.ask.assignments. A key that varies is fixed to VALUE; `vary.KEY=[…]` lets it vary. Raises
    ScenarioError naming the assignment.
    """
    raw = _plain(scenario)
    for assignment in assignments:
        where = f"--set {assignment}"
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ScenarioError(f"{where}: expected KEY=VALUE")
        value = strict_yaml.parse(text, where)
        vary = raw.get("vary", {})
        if key.startswith("vary."):
            raw["vary"] = vary | {key.removeprefix("vary."): value}
            continue
        vary.pop(key, None)
        for other in vary:
            if f"{other}.".startswith(f"{key}.") or f"{key}.".startswith(f"{other}."):
                raise ScenarioError(
                    f"{where}: would be overwritten, {other} varies; set {other} or vary.{other}"
                )
        assign(raw, key, text if names_policy(key) else value, where)
    return build(raw, "--set")


def expand(scenario: Scenario) -> list[RunSpec]:
    """One RunSpec per variant × policy × seed, in that order; reads calibrations, but no workload.

    A run that several variants share, because what varies does not concern its policy, comes once.
    """
    calibrations: dict[str | None, Calibration] = {}
    specs: dict[str, RunSpec] = {}
    for text, variant in variants(scenario, scenario.name):
        if variant.calibration not in calibrations:
            of_kind = load_calibration if variant.fabric is None else fabrics.load_calibration
            calibrations[variant.calibration] = of_kind(variant.calibration)
        calibration = calibrations[variant.calibration]
        for policy in variant.policies:
            for seed in variant.seeds:
                spec = RunSpec(variant, policies_.parse(policy), seed, calibration, text)
                same = json.dumps([spec.resolved(), calibration.sha256], sort_keys=True)
                specs.setdefault(same, spec)
    return list(specs.values())


def schema_json() -> str:
    """The JSON schema of a scenario file, as kept in scenarios/schema.json."""
    return json.dumps(Scenario.model_json_schema(), indent=1, sort_keys=True) + "\n"


def _validated(raw: dict[str, Any], where: str) -> Scenario:
    try:
        return Scenario.model_validate(raw)
    except ValidationError as error:
        raise ScenarioError(describe(error, Scenario, where)) from None


def _plain(scenario: Scenario) -> dict[str, Any]:
    """What was given of the scenario, as plain data to be changed; with its policies in any case."""
    return scenario.model_dump(exclude_unset=True) | {"policies": list(scenario.policies)}


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _anchor(raw: dict[str, Any], folder: Path) -> None:
    """Paths in a file are relative to the file, wherever the command is run."""
    for key in _PATHS:
        *parents, last = key.split(".")
        table: Any = raw
        for parent in parents:
            table = table.get(parent) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(table.get(last), str):
            beside = folder / table[last]
            if beside.exists():
                table[last] = str(beside)
    if isinstance(raw.get("calibration"), str):
        raw["calibration"] = str(folder / raw["calibration"])
    for key, values in raw["vary"].items() if isinstance(raw.get("vary"), dict) else ():
        if isinstance(values, list):
            values[:] = [_anchored(key, value, folder) for value in values]


def _anchored(key: str, value: Any, folder: Path) -> Any:
    """A value of `key` that varies, anchored as if it stood in its place."""
    steps = key.split(".")
    nested: Any = value
    for step in reversed(steps):
        nested = {step: nested}
    _anchor(nested, folder)
    for step in steps:
        nested = nested[step]
    return nested
