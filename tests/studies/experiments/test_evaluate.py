"""From a definition to figures: runs are made once, and item figure is a mean over seeds."""

import math
from dataclasses import replace

import pytest

from lab.runs.store import RunStore
from studies.experiments.evaluate import DECLARED, assess, cases_of, evaluate, scenario_of, sensitivity
from studies.experiments.measures import Pick, mean
from studies.experiments.model import Figure
from studies.judge import Verdict
from tests.studies import tiny_experiment
from tests.studies.experiments.sample_cases import case
from tests.studies.tiny_experiment import TINY
from twinbed import InvariantError, ScenarioError


@pytest.fixture
def store(tmp_path, monkeypatch):
    tiny_experiment.install(monkeypatch, tmp_path)
    return RunStore(tmp_path / "runs")


def only(figure):
    return replace(TINY, name="E9", figures=(figure,))


def test_a_figure_is_the_mean_over_seeds_with_student_s_interval():
    # Seeds give 1, 2 and 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.303: 2.484.
    experiment = only(Figure("x", "X", "s", 1, mean("x", Pick("escra"))))
    cases = [case(seed=seed, x=seed + 1.0) for seed in range(3)]
    (measured,) = assess(experiment, None, cases).measured
    assert (measured.mean, measured.ci95) == (pytest.approx(2.0), pytest.approx(2.484, abs=1e-3))
    assert measured.judgement is None


def test_seeds_without_a_value_are_left_out():
    experiment = only(Figure("x", "X", "s", 1, mean("x", Pick("escra"))))
    (measured,) = assess(experiment, None, [case(seed=0, x=1.0), case(seed=1, x=math.nan)]).measured
    assert measured.mean == 1.0
    assert math.isnan(measured.ci95)


def test_an_experiment_runs_every_variant_once_and_judges_what_the_source_has(store):
    first = evaluate(TINY, store, jobs=1)
    assert len(first.cases) == 2 * 2 * 3
    assert {(item.policy, item.settings["budget_factor"]) for item in first.cases} == {
        (policy, factor) for policy in ("escra", "static:factor=1.5") for factor in (1.5, 2.0)
    }
    verdicts = {item.figure.key: item.judgement and item.judgement.verdict for item in first.measured}
    assert verdicts == {"slack": None, "follows_s": Verdict.SIZE}
    made = {path.name: path.stat().st_mtime_ns for path in store.root.iterdir()}
    again = evaluate(TINY, store, jobs=1)
    assert again.measured == first.measured
    assert {path.name: path.stat().st_mtime_ns for path in store.root.iterdir()} == made


def test_sensitivity_begins_with_the_declared_figures_and_names_each_change(store):
    declared, changed = sensitivity(TINY, store, jobs=1)
    assert (declared.title, changed.title) == (DECLARED, "kappa=0.2")
    one_seed = evaluate(TINY, store, seeds=[0], jobs=1)
    assert declared.values == {item.figure.key: item.mean for item in one_seed.measured}
    assert changed.values["slack"] != declared.values["slack"]


def test_runs_in_another_order_than_the_scenario_s_are_a_defect(store):
    scenario = scenario_of(TINY)
    runs = [item.run for item in evaluate(TINY, store, jobs=1).cases]
    with pytest.raises(InvariantError, match="not in the order"):
        cases_of(scenario, runs[::-1])


def test_a_missing_scenario_file_is_named(store):
    with pytest.raises(ScenarioError, match=r"experiment E1: .*nothing\.yaml: there is no such file"):
        scenario_of(replace(TINY, scenario="nothing.yaml"))
