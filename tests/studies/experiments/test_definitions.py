"""The definitions fit the source's figures, their scenarios and each other."""

import math
from types import SimpleNamespace

import pytest

from lab.ask.scenario import expand
from lab.containers.metrics import METRICS
from lab.fabric.metrics import METRICS as FABRIC_METRICS
from lab.runs.store import RunStore
from studies.experiments.catalogue import EXPERIMENTS, experiment
from studies.experiments.evaluate import SCENARIOS, cases_of, evaluate, scenario_of
from studies.experiments.sensitivity import changed
from studies.experiments.verdict import Verdict
from studies.reference_figures import reference_figures
from twinbed import ScenarioError

FROM_TABLES = ("E1", "E7")
"""Experiments whose figures are read from tables and manifests, which runs made by hand lack."""

ALL = pytest.mark.parametrize("each", EXPERIMENTS.values(), ids=EXPERIMENTS.keys())
RUN = pytest.mark.parametrize(
    "each",
    [each for each in EXPERIMENTS.values() if each.compute is None],
    ids=lambda each: each.name,
)


def test_every_figure_of_the_source_is_computed():
    ours = {(each.name, figure.key) for each in EXPERIMENTS.values() for figure in each.figures}
    missing = [(each.experiment, each.key) for each in reference_figures()]
    assert [key for key in missing if key not in ours] == []


def test_ours_have_the_unit_of_the_source():
    units = {(each.experiment, each.key): each.unit for each in reference_figures()}
    for each in EXPERIMENTS.values():
        for figure in each.figures:
            assert units.get((each.name, figure.key), figure.unit) == figure.unit, figure.key


@ALL
def test_keys_are_used_once(each):
    keys = [figure.key for figure in each.figures]
    assert len(set(keys)) == len(keys)


@RUN
def test_the_scenario_is_there_with_five_seeds(each):
    assert len(scenario_of(each).seeds) >= 5


@RUN
def test_every_figure_is_of_runs_that_the_scenario_has(each):
    scenario = scenario_of(each, [0])
    metrics = dict.fromkeys((metric.key for metric in (*METRICS, *FABRIC_METRICS)), 2.0)
    runs = [
        SimpleNamespace(policy=spec.policy.text, seed=spec.seed, metrics=metrics) for spec in expand(scenario)
    ]
    cases = cases_of(scenario, runs)
    for figure in each.figures:
        if each.name not in FROM_TABLES:
            assert not math.isnan(figure.measure(cases)), figure.key


@pytest.mark.slow
@RUN
def test_every_assumption_can_be_changed(each, tmp_path):
    declared = scenario_of(each, each.sensitivity_seeds)
    for change in each.sensitivity:
        scenario = changed(declared, change, tmp_path)
        assert scenario != declared, change.title
        assert [len(values) for values in scenario.vary.values()] == [
            len(values) for values in declared.vary.values()
        ], change.title


@pytest.mark.parametrize("name", ["F1", "F2", "F3", "F4"])
def test_what_is_computed_has_every_figure_and_no_spread(name, tmp_path):
    found = evaluate(experiment(name), RunStore(tmp_path))
    assert found.basis == "computed, nothing is drawn"
    assert all(not math.isnan(each.mean) and each.ci95 == 0 for each in found.measured)
    assert all(each.judgement.verdict is not Verdict.OPEN for each in found.measured if each.judgement)
    assert not list(tmp_path.iterdir())


def test_what_is_computed_has_no_scenario():
    with pytest.raises(ScenarioError, match="C1 has no scenario"):
        scenario_of(experiment("C1"))


def test_the_titles_of_changes_are_unique():
    for each in EXPERIMENTS.values():
        titles = [change.title for change in each.sensitivity]
        assert len(set(titles)) == len(titles)


def test_a_name_is_found_in_any_case_and_a_wrong_one_gets_the_nearest():
    assert experiment("e2").name == "E2"
    with pytest.raises(ScenarioError, match="did you mean 'beyond'"):
        experiment("beyon")
    with pytest.raises(ScenarioError, match="there are E1"):
        experiment("zzz")


def test_scenarios_are_where_they_are_looked_for():
    assert (SCENARIOS / "E1.yaml").is_file()
