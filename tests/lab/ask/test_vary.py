"""Scenarios in which keys vary: every combination, checked before anything runs."""

import json

import pytest

from lab.ask.scenario import build, expand, load, variants, with_overrides
from lab.containers.input.sections import machine_of
from twinbed import ScenarioError

MINIMAL = {"name": "mine", "trace": {"source": "x.parquet"}, "policies": ["escra", "static"]}


def varied(**keys):
    return build(MINIMAL | {"vary": {key.replace("__", "."): values for key, values in keys.items()}})


def test_every_combination_is_a_variant_the_last_key_changing_fastest():
    found = variants(varied(budget_factor=[1.0, 2.0], machine__restart_s=[3.0, 4.0]))
    assert [text for text, _ in found] == [
        "budget_factor=1.0 machine.restart_s=3.0",
        "budget_factor=1.0 machine.restart_s=4.0",
        "budget_factor=2.0 machine.restart_s=3.0",
        "budget_factor=2.0 machine.restart_s=4.0",
    ]
    assert [(each.budget_factor, each.machine.restart_s) for _, each in found] == [
        (1.0, 3.0),
        (1.0, 4.0),
        (2.0, 3.0),
        (2.0, 4.0),
    ]
    assert all(each.vary == {} for _, each in found)


def test_a_scenario_in_which_nothing_varies_is_its_only_variant():
    scenario = build(MINIMAL)
    assert variants(scenario) == [("", scenario)]


def test_expand_runs_each_variant_under_each_policy_with_each_seed():
    specs = expand(varied(machine__restart_s=[3.0, 4.0], seeds=[[1, 2]]))
    assert [(machine_of(spec).restart_s, spec.policy.name, spec.seed) for spec in specs] == [
        (restart_s, policy, seed)
        for restart_s in (3.0, 4.0)
        for policy in ("escra", "static")
        for seed in (1, 2)
    ]
    assert len({spec.label for spec in specs}) == len(specs)


def test_a_variants_run_is_the_run_of_a_scenario_written_so():
    varying = expand(varied(budget_factor=[1.0, 2.0]))
    written = expand(build(MINIMAL | {"budget_factor": 2.0}))
    assert json.dumps(varying[2].resolved()) == json.dumps(written[0].resolved())


def test_a_policys_parameter_varies_and_runs_that_it_does_not_concern_come_once():
    specs = expand(varied(escra__kappa=[0.5, 0.8]))
    assert [spec.policy.text for spec in specs] == ["escra:kappa=0.5", "static", "escra:kappa=0.8"]


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (
            {"budget_fctor": [1.0]},
            "scenario: with budget_fctor=1.0 (vary): budget_fctor: unknown key; did you",
        ),
        ({"budget_factor": [1.0, -1.0]}, "scenario: with budget_factor=-1.0 (vary): budget_factor: Input"),
        ({"budget_factor": []}, "scenario: vary.budget_factor: List should have at least 1 item"),
        ({"budget_factor": 2.0}, "scenario: vary.budget_factor: expected a list"),
        ({"name.first": ["a"]}, "scenario: vary.name.first: name has no keys inside"),
        ({"vary.name": [["a"]]}, "scenario: vary: `vary` cannot vary itself"),
        ({"escra.kapa": [1.0]}, "scenario: vary.escra.kapa: policy 'escra' has no parameter 'kapa'"),
        ({"vpa.update_mode": [True]}, "scenario: vary.vpa.update_mode: the scenario has no policy vpa"),
    ],
)
def test_what_cannot_vary_is_named_in_one_line(vary, said):
    with pytest.raises(ScenarioError) as caught:
        build(MINIMAL | {"vary": vary})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_setting_a_key_that_varies_fixes_it():
    scenario = with_overrides(varied(budget_factor=[1.0, 2.0], period_s=[0.1, 0.2]), ["budget_factor=3.0"])
    assert [each.budget_factor for _, each in variants(scenario)] == [3.0, 3.0]


def test_a_key_can_be_set_to_vary():
    scenario = with_overrides(build(MINIMAL), ["vary.machine.restart_s=[1.0, 2.0]"])
    assert [each.machine.restart_s for _, each in variants(scenario)] == [1.0, 2.0]


def test_setting_a_part_of_what_varies_is_refused():
    scenario = build(MINIMAL | {"vary": {"trace": [{"source": "a"}, {"source": "b"}]}})
    with pytest.raises(ScenarioError, match=r"--set trace\.start_s=1: vary sets trace"):
        with_overrides(scenario, ["trace.start_s=1"])


def test_paths_that_vary_are_relative_to_the_file(tmp_path):
    (tmp_path / "a.parquet").touch()
    (tmp_path / "mine.yaml").write_text(
        "name: a\ntrace: {source: a.parquet}\nvary: {trace.source: [a.parquet, ddp_training]}"
    )
    found = [each.trace.source for _, each in variants(load(tmp_path / "mine.yaml"))]
    assert found == [str(tmp_path / "a.parquet"), "ddp_training"]


def test_an_applications_and_an_arrivals_file_are_relative_to_the_scenario_too(tmp_path):
    (tmp_path / "app.yaml").touch()
    (tmp_path / "rates.csv").touch()
    (tmp_path / "mine.yaml").write_text(
        "name: a\nservices: {app: app.yaml, arrivals: {kind: rates, file: rates.csv}}\n"
        "vary: {services.arrivals: [fixed, {kind: timestamps, file: rates.csv}]}"
    )
    scenario = load(tmp_path / "mine.yaml")
    assert scenario.services.app == str(tmp_path / "app.yaml")
    assert scenario.services.arrivals.file == str(tmp_path / "rates.csv")
    assert variants(scenario)[1][1].services.arrivals.file == str(tmp_path / "rates.csv")


def test_more_runs_than_anyone_waits_for_are_refused_before_they_are_listed():
    ten = [float(value) for value in range(1, 11)]
    keys = ("budget_factor", "period_s", "machine.restart_s", "start_s", "trace.start_s", "a", "b")
    with pytest.raises(
        ScenarioError, match=r"^scenario: vary: 20,000,000 runs; at most 10,000 are run at once"
    ):
        build(MINIMAL | {"vary": dict.fromkeys(keys, ten)})


def test_too_many_seeds_that_vary_are_refused_too():
    scenario = build(MINIMAL | {"vary": {"seeds": [list(range(6_000))]}})
    with pytest.raises(ScenarioError, match=r"^mine: 12,000 runs; at most 10,000"):
        expand(scenario)
