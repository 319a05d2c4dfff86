"""The definitions fit the source's figures, their scenarios and item other."""

import math
from types import SimpleNamespace

import pytest

from lab.ask.scenario import expand
from lab.containers.metrics import METRICS
from lab.fabric.metrics import METRICS as FABRIC_METRICS
from lab.runs.store import RunStore
from studies.experiments.catalogue import EXPERIMENTS, experiment
from studies.experiments.evaluate import SCENARIOS, cases_of, changed, evaluate, scenario_of
from studies.judge import Verdict
from studies.reference_figures import reference_figures
from twinbed import ScenarioError

FROM_TABLES = ("E1", "E7", "E9", "E10")
"""Experiments whose figures are read from tables and manifests, which runs made by hand lack."""

ALL = pytest.mark.parametrize("item", EXPERIMENTS.values(), ids=EXPERIMENTS.keys())
RUN = pytest.mark.parametrize(
    "item", [item for item in EXPERIMENTS.values() if item.compute is None], ids=lambda item: item.name
)


def test_every_figure_of_the_source_is_computed():
    ours = {(item.name, figure.quantity) for item in EXPERIMENTS.values() for figure in item.figures}
    missing = [(figure.experiment, figure.key) for figure in reference_figures() if figure.compared]
    assert [key for key in missing if key not in ours] == []


def test_ours_have_the_unit_of_the_source():
    units = {(figure.experiment, figure.key): figure.unit for figure in reference_figures()}
    for item in EXPERIMENTS.values():
        for figure in item.figures:
            assert units.get((item.name, figure.quantity), figure.unit) == figure.unit, figure.key


@ALL
def test_keys_are_used_once(item):
    keys = [figure.key for figure in item.figures]
    assert len(set(keys)) == len(keys)


@RUN
def test_the_scenario_is_there_with_enough_seeds(item):
    assert len(scenario_of(item).seeds) >= (3 if item.references else 5)


@RUN
def test_every_figure_is_of_runs_that_the_scenario_has(item):
    scenario = scenario_of(item, [0])
    metrics = dict.fromkeys((metric.key for metric in (*METRICS, *FABRIC_METRICS)), 2.0)
    runs = [
        SimpleNamespace(censored=(), policy=spec.policy.text, seed=spec.seed, metrics=metrics)
        for spec in expand(scenario)
    ]
    cases = cases_of(scenario, runs)
    for figure in item.figures:
        if item.name not in FROM_TABLES:
            assert not math.isnan(figure.measure(cases)), figure.key


@pytest.mark.slow
@RUN
def test_every_assumption_can_be_changed(item, tmp_path):
    declared = scenario_of(item, item.sensitivity_seeds)
    for change in item.sensitivity:
        scenario = changed(declared, change, tmp_path)
        assert scenario != declared, change.title
        assert [len(values) for values in scenario.vary.values()] == [
            len(values) for values in declared.vary.values()
        ], change.title


@pytest.mark.parametrize("name", ["F1", "F2", "F3", "F4"])
def test_what_is_computed_has_every_figure_and_no_spread(name, tmp_path):
    evaluation = evaluate(experiment(name), RunStore(tmp_path))
    assert evaluation.basis == "computed without randomness"
    assert all(not math.isnan(item.mean) and item.ci95 == 0 for item in evaluation.measured)
    assert all(item.judgement.verdict is not Verdict.OPEN for item in evaluation.measured if item.judgement)
    assert not list(tmp_path.iterdir())


def test_what_is_computed_has_no_scenario():
    with pytest.raises(ScenarioError, match="C1 has no scenario"):
        scenario_of(experiment("C1"))


def test_the_titles_of_changes_are_unique():
    for item in EXPERIMENTS.values():
        titles = [change.title for change in item.sensitivity]
        assert len(set(titles)) == len(titles)


def test_a_name_is_found_in_any_case_and_a_wrong_one_gets_the_nearest():
    assert experiment("e2").name == "E2"
    with pytest.raises(ScenarioError, match="did you mean 'beyond'"):
        experiment("beyon")
    with pytest.raises(ScenarioError, match="there are E1"):
        experiment("zzz")


def test_scenarios_are_where_they_are_looked_for():
    assert (SCENARIOS / "E1.yaml").is_file()
