"""One assumption changed at a time: how far each figure of an experiment hangs on it.

For: the runs with a change and their figures. Not for: which assumptions (the definitions) or the table
(present.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.ask import strict_yaml
from lab.ask.kind import Progress
from lab.ask.scenario import Scenario, build, with_overrides
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from studies.experiments.evaluate import SCENARIOS, assess, cases_of, scenario_of
from studies.experiments.model import Change, Edit, Experiment

DECLARED = "as declared"
"""Title of the runs without a change."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The figures (key → value, NaN where undefined) under one change."""

    title: str
    values: Mapping[str, float]


def sensitivity(
    experiment: Experiment,
    store: RunStore,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Iterator[Moved]:
    """The experiment as declared and under each of its changes, one by one as they are done."""
    declared = with_overrides(
        scenario_of(experiment, experiment.sensitivity_seeds), experiment.sensitivity_part
    )
    for change in (Change(DECLARED), *experiment.sensitivity):
        with tempfile.TemporaryDirectory() as folder:
            scenario = changed(declared, change, Path(folder))
            told, workers = _told_of(change, progress), 1 if experiment.timed else jobs
            runs = run_scenario(scenario, store, progress=told, jobs=workers, fresh=False)
        # The settings are those of the declared scenario: an edited application is a file of another name.
        found = assess(experiment, declared, cases_of(declared, runs))
        yield Moved(change.title, {each.figure.key: each.mean for each in found.measured})


def _told_of(change: Change, progress: Progress | None) -> Progress | None:
    """Runs under different changes have the same label otherwise."""
    return (
        None if progress is None else lambda label, fraction: progress(f"{change.title}: {label}", fraction)
    )


def changed(scenario: Scenario, change: Change, folder: Path) -> Scenario:
    """The scenario under a change; edited applications are written into `folder`."""
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


def _edited(name: str, edit: Edit, folder: Path) -> str:
    source = SCENARIOS / "apps" / f"{name}.yaml"
    raw: dict[str, Any] = strict_yaml.parse(source.read_text(encoding="utf-8"), str(source))
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(edit(raw), sort_keys=False), encoding="utf-8")
    return str(path)
