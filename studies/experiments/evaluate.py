"""From an experiment's definition to its figures with intervals and verdicts; runs what the store lacks.

For: `twinbed report --experiment` and the results page. Not for: how figures are computed from one seed's
runs (measures.py) or shown (present.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.ask import shipped
from lab.ask.kind import Progress
from lab.ask.scenario import Scenario, expand, load
from lab.runs.compare import mean_ci95
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from studies.experiments.model import Case, Compute, Experiment, Figure
from studies.experiments.verdict import Judgement, judge
from studies.reference_figures import ReferenceFigure, reference_figures
from twinbed import InvariantError, ScenarioError

SCENARIOS = shipped.SCENARIOS


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure over all seeds: mean and half-width of its 95 % interval (Student's t; NaN for one seed).

    reference and judgement: None where the source has no such figure.
    """

    figure: Figure
    mean: float
    ci95: float
    reference: ReferenceFigure | None
    judgement: Judgement | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An experiment with its runs and figures; one that computes them has neither scenario nor runs."""

    experiment: Experiment
    scenario: Scenario | None
    cases: tuple[Case, ...]
    measured: tuple[Measured, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """What was drawn with."""
        return self.experiment.seeds if self.scenario is None else tuple(self.scenario.seeds)

    @property
    def basis(self) -> str:
        """What the figures come from."""
        if self.scenario is None and len(self.seeds) == 1:
            return "computed, nothing is drawn"
        seeds = ", ".join(map(str, self.seeds))
        if self.scenario is None:
            return f"computed, seeds {seeds}"
        return f"{len(self.cases):,} runs of scenarios/{self.experiment.scenario}, seeds {seeds}"


def scenario_of(experiment: Experiment, seeds: Sequence[int] | None = None) -> Scenario:
    """The experiment's scenario, with other seeds if given; ScenarioError when the file is not there."""
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
    """Runs what is not in the store yet, and computes every figure. Raises TwinbedError."""
    if experiment.compute is not None:
        return _computed(experiment, experiment.compute, progress)
    scenario = scenario_of(experiment, seeds)
    workers = 1 if experiment.timed else jobs
    runs = run_scenario(scenario, store, progress=progress, jobs=workers, fresh=False)
    return assess(experiment, scenario, cases_of(scenario, runs))


def assess(experiment: Experiment, scenario: Scenario, cases: Sequence[Case]) -> Evaluation:
    """The experiment's figures from these cases."""
    references = _references(experiment)
    by_seed = _by_seed(cases)
    measured = [
        _measured(figure, [figure.measure(cases) for cases in by_seed], references)
        for figure in experiment.figures
    ]
    return Evaluation(experiment, scenario, tuple(cases), tuple(measured))


def units(experiment: Experiment) -> int:
    """Of how many parts the progress of `evaluate` is told."""
    return len(experiment.seeds if experiment.compute else expand(scenario_of(experiment)))


def _computed(experiment: Experiment, compute: Compute, progress: Progress | None) -> Evaluation:
    found = []
    for seed in experiment.seeds:
        found.append(compute(seed))
        if progress is not None:
            progress(f"{experiment.name}, seed {seed}", 1.0)
    references = _references(experiment)
    measured = [
        _measured(figure, [each[figure.key] for each in found], references) for figure in experiment.figures
    ]
    if len(found) == 1:
        # Nothing is drawn: the figure has no spread, and is not one draw of unknown spread.
        measured = [_exact(each) for each in measured]
    return Evaluation(experiment, None, (), tuple(measured))


def _exact(each: Measured) -> Measured:
    judgement = None if each.reference is None else judge(each.reference, each.mean, 0.0)
    return replace(each, ci95=0.0, judgement=judgement)


def _references(experiment: Experiment) -> dict[str, ReferenceFigure]:
    return {each.key: each for each in reference_figures() if each.experiment == experiment.name}


def cases_of(scenario: Scenario, runs: Sequence[Run]) -> list[Case]:
    """The scenario's runs, in `expand` order, each with the settings of its variant."""
    keys = list(scenario.vary)
    units = [
        (_flat(dict(zip(keys, values, strict=True))), policy, seed)
        for values in itertools.product(*scenario.vary.values())
        for policy in scenario.policies
        for seed in scenario.seeds
    ]
    cases = [Case(*unit, run) for unit, run in zip(units, runs, strict=True)]
    # A policy's parameters may have been changed (sensitivity); its name and the seed may not.
    if any(_name(case.policy) != _name(case.run.policy) or case.seed != case.run.seed for case in cases):
        raise InvariantError(f"{scenario.name}: its runs are not in the order of its variants")
    return cases


def _measured(
    figure: Figure, by_seed: Sequence[float], references: Mapping[str, ReferenceFigure]
) -> Measured:
    values = np.array(by_seed, np.float64)
    mean, ci95 = mean_ci95(values[~np.isnan(values)])
    reference = references.get(figure.key)
    return Measured(
        figure, mean, ci95, reference, None if reference is None else judge(reference, mean, ci95)
    )


def _by_seed(cases: Sequence[Case]) -> list[list[Case]]:
    seeds = dict.fromkeys(case.seed for case in cases)
    return [[case for case in cases if case.seed == seed] for seed in seeds]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are sections, spelt out under dotted keys."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {}
        found |= _flat(inner) if inner else {key: value}
    return found


def _name(policy: str) -> str:
    return policy.split(":", 1)[0]


def groups(evaluation: Evaluation) -> Iterator[tuple[str, list[Measured]]]:
    """The measured figures by what stands side by side, in order of appearance."""
    for aside in dict.fromkeys(each.figure.aside for each in evaluation.measured):
        yield aside, [each for each in evaluation.measured if each.figure.aside == aside]
