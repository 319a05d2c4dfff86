"""Computes an experiment's figures, intervals and verdicts, and makes the runs that the store lacks.

For: the results pages and `python -m studies E2`, with one assumption changed at a time (`sensitivity`), too.
Not for: computing a figure from one seed's runs (measures.py) or showing it (present.py).
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lab.ask import guard, shipped
from lab.ask.kind import Progress
from lab.ask.scenario import Scenario, build, load, with_overrides
from lab.runs.compare import mean_ci95
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from studies.experiments.model import Bounded, Case, Change, Edit, Experiment, Figure, high_end
from studies.judge import Judgement, judge_between
from studies.reference_figures import ReferenceFigure, reference_figures
from twinbed import InvariantError, ScenarioError

SCENARIOS = shipped.SCENARIOS
DECLARED = "as declared"
"""Title of the runs without a changed assumption."""


@dataclass(frozen=True, slots=True)
class SeedMean:
    """A figure over all seeds.

    mean, ci95: mean and half-width of its 95 % interval (Student's t; NaN for one seed and for an interval).
    high: upper end of the mean. It is above the mean if unanswered requests leave an interval.
    reference, judgement: the source's figure and the verdict; None if the source has no such figure.
    by_other: the judgement by the source's other printing; None without one.
    """

    figure: Figure
    mean: float
    ci95: float
    high: float
    reference: ReferenceFigure | None
    judgement: Judgement | None
    by_other: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An experiment with its runs and figures. It has no scenario and no runs if it computes its figures."""

    experiment: Experiment
    scenario: Scenario | None
    cases: tuple[Case, ...]
    measured: tuple[SeedMean, ...]

    @property
    def basis(self) -> str:
        """The origin of the figures, in words."""
        seeds = self.experiment.seeds if self.scenario is None else self.scenario.seeds
        if self.scenario is None and len(seeds) == 1:
            return "computed without randomness"
        origin = "computed"
        if self.scenario is not None:
            origin = f"{len(self.cases):,} runs of scenarios/{self.experiment.scenario}"
        return f"{origin}, seeds {', '.join(map(str, seeds))}"


@dataclass(frozen=True, slots=True)
class Moved:
    """The figures (key → value, NaN where undefined) under one changed assumption."""

    title: str
    values: Mapping[str, float]


def scenario_of(experiment: Experiment, seeds: Sequence[int] | None = None) -> Scenario:
    """Return the experiment's scenario, with other seeds if given. Raises ScenarioError if it has none."""
    if experiment.compute is not None:
        raise ScenarioError(f"experiment {experiment.name} has no scenario: it computes its figures itself")
    path = SCENARIOS / experiment.scenario
    if not path.is_file():
        raise ScenarioError(f"experiment {experiment.name}: {path}: there is no such file")
    scenario = load(path)
    return scenario if seeds is None else scenario.model_copy(update={"seeds": list(seeds)})


def evaluate(
    experiment: Experiment,
    store: RunStore,
    *,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Evaluation:
    """Make the runs that the store lacks, and compute every figure. Raises TwinbedError."""
    if experiment.compute is not None:
        return _computed(experiment, progress)
    scenario = scenario_of(experiment, seeds)
    workers = 1 if experiment.timed else jobs
    runs = run_scenario(scenario, store, progress=progress, jobs=workers, fresh=False)
    return assess(experiment, scenario, cases_of(scenario, runs))


def assess(experiment: Experiment, scenario: Scenario, cases: Sequence[Case]) -> Evaluation:
    """Return the experiment's figures from these cases."""
    seeds = dict.fromkeys(case.seed for case in cases)
    by_seed = [[case for case in cases if case.seed == seed] for seed in seeds]
    values = {figure.key: [figure.measure(cases) for cases in by_seed] for figure in experiment.figures}
    return Evaluation(experiment, scenario, tuple(cases), _measured(experiment, values))


def sensitivity(
    experiment: Experiment, store: RunStore, *, progress: Progress | None = None, jobs: int | None = None
) -> Iterator[Moved]:
    """Yield the figures as declared, then under each of the experiment's changes, when they are done."""
    declared = with_overrides(
        scenario_of(experiment, experiment.sensitivity_seeds), experiment.sensitivity_part
    )
    for change in (Change(DECLARED), *experiment.sensitivity):
        with tempfile.TemporaryDirectory() as folder:
            scenario = changed(declared, change, Path(folder))
            told, workers = _told_of(change, progress), 1 if experiment.timed else jobs
            runs = run_scenario(scenario, store, progress=told, jobs=workers, fresh=False)
        # The settings come from the declared scenario, because an edited application has another file name.
        evaluation = assess(experiment, declared, cases_of(declared, runs))
        yield Moved(
            change.title, {item.figure.key: Bounded(item.mean, item.high) for item in evaluation.measured}
        )


def changed(scenario: Scenario, change: Change, folder: Path) -> Scenario:
    """Return the scenario under a change. Edited applications are written into `folder`."""
    scenario = with_overrides(scenario, change.assignments)
    if change.of_scenario is None and change.of_apps is None:
        return scenario
    raw = scenario.model_dump(exclude_unset=True)
    if change.of_scenario is not None:
        raw = change.of_scenario(raw)
    if change.of_apps is not None:
        services = raw["services"]
        raw |= {"services": services | {"app": _edited(services["app"], change.of_apps, folder)}}
        if "services.app" in raw["vary"]:
            apps = [_edited(name, change.of_apps, folder) for name in raw["vary"]["services.app"]]
            raw |= {"vary": raw["vary"] | {"services.app": apps}}
    return build(raw, scenario.name)


def cases_of(scenario: Scenario, runs: Sequence[Run]) -> list[Case]:
    """Return the scenario's runs, which are in `expand` order, each with the settings of its variant."""
    keys = list(scenario.vary)
    units = [
        (_flat(dict(zip(keys, values, strict=True))), policy, seed)
        for values in itertools.product(*scenario.vary.values())
        for policy in scenario.policies
        for seed in scenario.seeds
    ]
    cases = [Case(*unit, run) for unit, run in zip(units, runs, strict=True)]
    # A policy's parameters may have been changed (sensitivity), but its name and the seed may not.
    if any(_name(case.policy) != _name(case.run.policy) or case.seed != case.run.seed for case in cases):
        raise InvariantError(f"{scenario.name}: its runs are not in the order of its variants")
    return cases


def groups(evaluation: Evaluation) -> Iterator[tuple[str, list[SeedMean]]]:
    """Yield the measured figures of each column (`aside`), in order of appearance."""
    for aside in dict.fromkeys(measured.figure.aside for measured in evaluation.measured):
        yield aside, [measured for measured in evaluation.measured if measured.figure.aside == aside]


def _computed(experiment: Experiment, progress: Progress | None) -> Evaluation:
    rows = []
    for seed in experiment.seeds:
        assert experiment.compute is not None
        rows.append(experiment.compute(seed))
        if progress is not None:
            progress(f"{experiment.name}, seed {seed}", 1.0)
    values = {figure.key: [row[figure.key] for row in rows] for figure in experiment.figures}
    # A single seed means that nothing is random, so the figure is exact.
    return Evaluation(experiment, None, (), _measured(experiment, values, exact=len(rows) == 1))


def _measured(
    experiment: Experiment, by_seed: Mapping[str, Sequence[float]], *, exact: bool = False
) -> tuple[SeedMean, ...]:
    references = {
        reference.key: reference
        for reference in reference_figures()
        if reference.experiment == (experiment.references or experiment.name)
    }
    rows = []
    for figure in experiment.figures:
        known = [value for value in by_seed[figure.key] if not np.isnan(value)]
        low = mean_ci95(np.array(known, np.float64))
        tops = np.array([high_end(value) for value in known], np.float64)
        high = mean_ci95(tops) if np.isfinite(tops).all() else (np.inf, 0.0)
        if exact:
            low, high = (low[0], 0.0), (high[0], 0.0)
        reference = references.get(figure.quantity)
        judgement = None if reference is None else judge_between(reference, low, high)
        ci95 = low[1] if low[0] == high[0] else np.nan
        other = None if reference is None else reference.other_printing
        by_other = None if other is None else judge_between(other, low, high)
        rows.append(SeedMean(figure, low[0], ci95, high[0], reference, judgement, by_other))
    return tuple(rows)


def _told_of(change: Change, progress: Progress | None) -> Progress | None:
    """Name the change in the progress: runs under different changes have equal labels."""
    if progress is None:
        return None
    return lambda label, fraction: progress(f"{change.title}: {label}", fraction)


def _edited(name: str, edit: Edit, folder: Path) -> str:
    source = SCENARIOS / "apps" / f"{name}.yaml"
    raw: dict[str, Any] = guard.read_keys(source, "keys and values")
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(edit(raw), sort_keys=False), encoding="utf-8")
    return str(path)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with sections spelt out under dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {}
        flat |= _flat(inner) if inner else {key: value}
    return flat


def _name(policy: str) -> str:
    return policy.split(":", 1)[0]
