"""A question as a checked YAML file: a workload, its policies and its seeds.

For: reading, checking, changing (`with_overrides`) and expanding scenarios into single runs;
scenarios/schema.json is generated from here. Not for: the sections of one kind of scenario, which its pillar
declares (lab.kinds), nor running scenarios (lab.runs.runner).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model, model_validator

from lab import kinds
from lab.ask import guard, shipped
from lab.ask import policy as policies_
from lab.ask.calibration import Calibration
from lab.ask.policy import PolicySpec, Value
from lab.ask.problems import validated
from lab.ask.section import Section
from twinbed import ScenarioError, own
from twinbed.files import read_standard_input, read_user_text

MOST_RUNS = 10_000
"""Largest number of runs of one scenario. More runs take hours and are usually a mistake; they can be split
into several files."""


def _policy_text(text: str) -> str:
    try:
        return policies_.parse(text).text
    except ScenarioError as error:
        raise ValueError(str(error)) from None


PolicyText = Annotated[str, AfterValidator(_policy_text)]


def policies_by_default(names: Sequence[str]) -> Any:
    """Return the field `policies` of a kind of scenario that runs these policies unless others are given."""
    return Field(
        default_factory=lambda: list(names),
        min_length=1,
        description="Policies to compare, each `NAME[:KEY=VALUE]…`, or your own, "
        "`FILE.py:CLASS(KEY=VALUE, …)`; `twinbed policies` lists them. In a scenario "
        + "; ".join(
            f"with {kind.title}: {', '.join(kind.policies)}" for kind in kinds.KINDS if kind.policies
        ),
    )


class Scenario(Section):
    """One question: a workload, or a fabric with its faults, under each policy and with each seed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Short name; the ids of the runs begin with it."""
    title: str = Field(default="", description="Title for people, shown in reports.")
    question: str = Field(default="", description="The question that the scenario answers, in one sentence.")
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """Values to try for a key: dotted key of the scenario, or POLICY.PARAMETER → list of values. Every
    combination is run; the last key changes fastest."""
    policies: list[PolicyText] = Field(default_factory=list, min_length=1)
    """Policies to compare; by default those of the kind of scenario, see below."""
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default_factory=lambda: [0], min_length=1)
    """Seeds of the random numbers; every policy is run with every seed."""
    calibration: str | None = None
    """Path of a calibration file, relative to the scenario file; when left out, the one that ships."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Scenario:
        if len(set(self.policies)) < len(self.policies) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a policy or a seed is given twice; give it once")
        return self

    def derived(self, calibration: Calibration) -> dict[str, Any]:  # noqa: ARG002 - pillars use it
        """Return the further data that determine a run's result, besides the scenario's keys, in JSON
        types."""
        return {}


_NOT_CONDITIONS = {"title", "question", "policies", "seeds", "calibration", "vary"}
"""Keys that are not conditions of a single run: texts, keys about other runs, and keys that are recorded in
another form."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A single run: one policy on one variant of a scenario, with one seed.

    scenario: the conditions, in which nothing varies; its `policies` and `seeds` are those of the whole
        question and not part of this run
    policy, seed: the policy and the seed of this run
    calibration: the machine or the fabric that the twin imitates
    variant: the varied values of this run, as text
    """

    scenario: Scenario
    policy: PolicySpec
    seed: int
    calibration: Calibration
    variant: str = ""

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def label(self) -> str:
        """The run's name in a progress bar: policy, varied values, and the seed if there are several."""
        seed = f"seed {self.seed}" if len(self.scenario.seeds) > 1 else ""
        return " ".join(part for part in (self.policy.label, self.variant, seed) if part)

    def resolved(self) -> dict[str, Any]:
        """Return everything that the result depends on, except file contents, in JSON types with defaults."""
        return {**self.conditions(), "policy": self.policy.identity(), "seed": self.seed}

    def conditions(self) -> dict[str, Any]:
        """Return what `resolved` returns, without the policy and the seed."""
        derived = self.scenario.derived(self.calibration)
        conditions = self.scenario.model_dump(mode="json", exclude=_NOT_CONDITIONS | set(derived))
        absent = [section for section in kinds.of(self.scenario).sections if conditions[section] is None]
        return {
            **{key: value for key, value in conditions.items() if key not in absent},
            **derived,
        }


def load(path: str | Path) -> Scenario:
    """Read a scenario file, or a shipped one by its name, or standard input by `-`.

    Files that the scenario names are relative to its folder, or to the working directory for `-`. Raises
    ScenarioError that names the file, the dotted key, the problem and the nearest valid key.
    """
    if str(path) == "-":
        file, text = Path("-"), read_standard_input(guard.MOST_BYTES)
    else:
        file = shipped.path_of("scenario", path)
        text = read_user_text(file, guard.MOST_BYTES)
    raw = guard.keys(text, str(file), "keys and values of a scenario; twinbed whatif takes traces")
    _anchor(raw, file.parent)
    return build(raw, str(file))


def build(raw: dict[str, Any], where: str = "scenario") -> Scenario:
    """Return the checked scenario of plain data and its variants. Errors begin with `where`."""
    scenario = _validated(raw, where)
    variants(scenario, where)
    return scenario


def variants(scenario: Scenario, where: str = "scenario") -> list[tuple[str, Scenario]]:
    """Return every combination of the varied values, as (`KEY=VALUE …`, scenario without `vary`), in order.

    Raises ScenarioError, beginning with `where`, for a key that does not exist or a value that is wrong.
    """
    if not scenario.vary:
        return [("", scenario)]
    if any(key.partition(".")[0] == "vary" for key in scenario.vary):
        raise ScenarioError(f"{where}: vary: `vary` cannot vary itself")
    count = math.prod(map(len, scenario.vary.values()))
    _refuse_too_many(count * len(scenario.policies) * len(scenario.seeds), f"{where}: vary")
    # The copy for each combination leaves out the lists of values, which may be long.
    fixed = scenario.model_copy(update={"vary": {}})
    combinations = []
    for values in itertools.product(*scenario.vary.values()):
        pairs = list(zip(scenario.vary, values, strict=True))
        text = " ".join(f"{key}={_short(value)}" for key, value in pairs)
        raw = _plain(fixed)
        del raw["vary"]
        for key, value in pairs:
            assign(raw, key, value, f"{where}: vary.{key}")
        combinations.append((text, _validated(raw, f"{where}: with {text} (vary)")))
    return combinations


def with_overrides(scenario: Scenario, assignments: Sequence[str], option: str = "--set") -> Scenario:
    """Return the scenario after `KEY=VALUE` assignments in order, checked. See `changed`."""
    made = changed(scenario, assignments, option)
    variants(made, option)
    return made


def changed(scenario: Scenario, assignments: Sequence[str], option: str) -> Scenario:
    """Return the scenario with `KEY=VALUE` assignments applied in order; values are YAML.

    KEY is as in lab.ask.scenario. A key that varies becomes fixed to VALUE; `vary.KEY=[…]` lets it
    vary. Raises ScenarioError that names the assignment. option: the option that gave the assignments, for
    messages.
    """
    raw = _plain(scenario)
    for assignment in assignments:
        where = f"{option} {assignment}"
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ScenarioError(f"{where}: expected KEY=VALUE")
        value = guard.parse(text, where)
        vary = raw.get("vary", {})
        if key.startswith("vary."):
            raw["vary"] = vary | {key.removeprefix("vary."): value}
            continue
        vary.pop(key, None)
        for other in vary:
            if f"{other}.".startswith(f"{key}.") or f"{key}.".startswith(f"{other}."):
                raise ScenarioError(f"{where}: vary sets {other}; set {other} or vary.{other} instead")
        if (
            "." not in key
            and key not in any_kind().model_fields
            and (owner := _policy_with(key, raw["policies"]))
        ):
            raise ScenarioError(f"{where}: unknown key; did you mean '{owner}.{key}'?")
        assign(raw, key, text if names_policy(key, raw["policies"]) else value, where)
    return _validated(raw, option)


def _policy_with(parameter: str, texts: Sequence[str]) -> str:
    """Return the first policy that has this parameter, "" if none has. texts: the scenario's policies."""
    specs = map(policies_.parse, texts) if isinstance(texts, list) else ()
    return next((spec.name for spec in specs if parameter in spec.resolved()), "")


def paths_in(scenario: Scenario) -> dict[str, str]:
    """Return the texts that may be paths, by their dotted key; of a user's own trace reader, its file."""
    texts, sections = {}, type(scenario).model_fields
    for key in kinds.paths():
        if key.partition(".")[0] not in sections:
            continue
        value: Any = scenario
        for step in key.split("."):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if isinstance(value, str):
            texts[key] = value
    if reader := own.file_of(getattr(getattr(scenario, "trace", None), "format", None)):
        texts["trace.format"] = reader
    return texts


def with_paths(scenario: Scenario, places: Mapping[str, str]) -> Scenario:
    """Return the scenario with other paths of the same files. places: path → path of equal content."""
    for key, path in paths_in(scenario).items():
        if places.get(path, path) != path:
            scenario = _with(scenario, key.split("."), path, places[path])
    return scenario


def _with(value: Any, steps: Sequence[str], path: str, place: str) -> Any:
    if not steps:
        return value.replace(path, place, 1)
    step, *rest = steps
    if isinstance(value, dict):
        return value | {step: _with(value[step], rest, path, place)}
    return value.model_copy(update={step: _with(getattr(value, step), rest, path, place)})


def expand(scenario: Scenario) -> list[RunSpec]:
    """Return one RunSpec per variant, policy and seed, in that order. Calibrations are read, workloads are
    not.

    If the varied keys do not concern a policy, several variants share one run, which is returned once.
    """
    kind = kinds.of(scenario)
    calibrations: dict[str | None, Calibration] = {}
    specs: dict[str, RunSpec] = {}
    combinations = variants(scenario, scenario.name)
    _refuse_too_many(
        sum(len(variant.policies) * len(variant.seeds) for _, variant in combinations), scenario.name
    )
    for text, variant in combinations:
        if variant.calibration not in calibrations:
            calibrations[variant.calibration] = kind.load_calibration(variant.calibration)
        calibration = calibrations[variant.calibration]
        for policy in variant.policies:
            for seed in variant.seeds:
                spec = RunSpec(variant, policies_.parse(policy), seed, calibration, text)
                identity = json.dumps([spec.resolved(), calibration.sha256], sort_keys=True)
                specs.setdefault(identity, spec)
    return list(specs.values())


def schema_json() -> str:
    """Return the JSON schema of a scenario file of any kind, as kept in scenarios/schema.json."""
    return json.dumps(any_kind().model_json_schema(), indent=1, sort_keys=True) + "\n"


@cache
def any_kind() -> type[Scenario]:
    """Return a model with the keys of all kinds. A scenario has the keys of one kind."""
    models = tuple(kind.scenario_model() for kind in kinds.KINDS)
    return create_model("Scenario", __base__=models, __doc__=Scenario.__doc__)


def _validated(raw: dict[str, Any], where: str) -> Scenario:
    """Return the scenario, checked by the model of the kind to which its only section belongs."""
    present = [section for section in kinds.sections() if raw.get(section) is not None]
    if len(present) != 1:
        validated(any_kind(), raw, where)
        instead = f", not {' and '.join(present)}" if present else ""
        raise ScenarioError(f"{where}: give one of {', '.join(kinds.sections())}{instead}")
    kind = kinds.with_section(present[0])
    model = kind.scenario_model()
    given = {key: value for key, value in raw.items() if value is not None or key in model.model_fields}
    for key in given:
        if key not in model.model_fields and key in any_kind().model_fields:
            raise ScenarioError(f"{where}: {key} has no meaning with {kind.title}; leave it out")
    scenario = validated(model, given, where)
    for text in scenario.policies:
        spec = policies_.parse(text)
        owner = kinds.with_policy(spec.name, spec.own.group if spec.own else "")
        if owner is not kind:
            known = ", ".join(kind.policies or policies_.names())
            raise ScenarioError(
                f"{where}: policy {text} is for scenarios with {owner.title}; with {kind.title} give {known}"
            )
    return scenario


def _plain(scenario: Scenario) -> dict[str, Any]:
    """Return the given keys as plain data that can be changed, always with the policies."""
    return scenario.model_dump(exclude_unset=True) | {"policies": list(scenario.policies)}


def _refuse_too_many(runs: int, where: str) -> None:
    if runs > MOST_RUNS:
        raise ScenarioError(f"{where}: {runs:,} runs; at most {MOST_RUNS:,} are run at once; vary less")


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _anchor(raw: dict[str, Any], folder: Path) -> None:
    """Make the paths in a file relative to the file's folder, wherever the command is run."""
    for key in kinds.paths():
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
    if isinstance(raw.get("policies"), list):
        raw["policies"] = [own.beside(text, folder) for text in raw["policies"]]
    trace = raw.get("trace")
    if isinstance(trace, dict) and isinstance(trace.get("format"), str):
        trace["format"] = own.beside(trace["format"], folder)
    for key, values in raw["vary"].items() if isinstance(raw.get("vary"), dict) else ():
        if isinstance(values, list):
            values[:] = [_anchored(key, value, folder) for value in values]


def _anchored(key: str, value: Any, folder: Path) -> Any:
    """Return a varied value of `key`, made relative to the folder as if it were the key's only value."""
    steps = key.split(".")
    nested: Any = value
    for step in reversed(steps):
        nested = {step: nested}
    _anchor(nested, folder)
    for step in steps:
        nested = nested[step]
    return nested


def names_policy(key: str, texts: Sequence[str]) -> bool:
    """Return whether `key` is POLICY.PARAMETER. texts: the scenario's policies, which may be a user's own."""
    head, _, rest = key.partition(".")
    if not rest or head in policies_.names():
        return bool(rest)
    specs = map(policies_.parse, texts) if isinstance(texts, list) else ()
    return any(spec.own is not None and spec.name == head for spec in specs)


def assign(raw: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set `key` in `raw`, whose `policies` are texts. Raises ScenarioError that begins with `where`."""
    if names_policy(key, raw["policies"]):
        name, _, parameter = key.partition(".")
        raw["policies"] = _set_policy(raw["policies"], name, parameter, value, where)
        return
    *parents, last = key.split(".")
    table = raw
    for parent in parents:
        if table.get(parent) is None:
            table[parent] = {}
        table = table[parent]
        if not isinstance(table, dict):
            raise ScenarioError(f"{where}: {parent} has no keys inside")
    table[last] = value


def _set_policy(texts: list[str], name: str, key: str, value: Value, where: str) -> list[str]:
    specs = [policies_.parse(text) for text in texts]
    if not any(spec.name == name for spec in specs):
        raise ScenarioError(f"{where}: the scenario has no policy {name}")
    try:
        changed = [spec.with_parameter(key, value) if spec.name == name else spec for spec in specs]
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return [spec.text for spec in changed]
