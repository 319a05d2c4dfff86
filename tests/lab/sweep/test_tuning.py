"""Tunings: what is found, what is not tried further, how sure it is, and the file that asks for it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml

from lab.ask.scenario import build, load
from lab.containers.metrics import BY_KEY
from lab.runs.store import RunStore
from lab.sweep.book import note_tuning, prune, tunings
from lab.sweep.plan import SweepPlan
from lab.sweep.points import points
from lab.sweep.rules import Limit
from tests.lab.ask.test_own_policies import CODE
from tests.lab.kinds import dice as dice_kind
from twinbed import BackendError, ScenarioError

pytest.importorskip("optuna", reason="the extra scale is not installed")

from lab.sweep.tuned import noted, result, scenario_text
from lab.sweep.tuning import FIRST_SEEDS, Question, Range, Trial, best, checked, figures, single, tune


@pytest.fixture
def question(dice, monkeypatch):
    """Throws whose mean falls with their number, by 0.01 each, and differs between the seeds."""

    def throw(spec, store):
        random = np.random.default_rng(spec.seed)
        throws = spec.scenario.dice.throws
        values = {"mean_pips": 10.0 - 0.01 * throws + random.normal(0.0, 0.1)}
        about = {"backend": "twin", "inputs": [], "notes": []}
        identity = dice_kind.identified(spec, spec.resolved(), "")
        tables = {"summary": dice_kind.summary(dice_kind.METRICS, values)}
        if store.has(identity["id"]):
            return store.open(identity["id"])
        thrown.append((throws, spec.seed))
        return dice_kind.store_run(spec, store, identity, about, values, tables, began=0.0)

    thrown: list[tuple[int, int]] = []
    monkeypatch.setattr(dice_kind, "_throw", throw)
    scenario = single(build({"name": "t", "dice": {}, "policies": ["fair"]}), [])
    over = [Range.parse("dice.throws=1:500")]
    asked = Question(scenario, "mean_pips", 1, [], over, trials=24, seeds=range(5))
    return asked, thrown


def limit(question, text):
    kind = SweepPlan("t", points(question.scenario, [], None), [0]).kind
    return replace(question, limits=[Limit.parse(text, kind)])


def test_the_search_nears_the_best(question, store, here):
    asked, _ = question
    found = best(asked, tune(asked, store, here))
    assert found.values["dice.throws"] > 450


def test_a_limit_is_kept(question, store, here):
    asked = limit(question[0], "mean_pips >= 7")
    trials = tune(asked, store, here)
    found = best(asked, trials)
    assert found.mean("mean_pips") >= 7
    assert any(trial.excess(asked.limits) > 0 for trial in trials)


def test_after_each_batch_it_can_be_noted_how_far_a_tuning_is_until_its_runs_are_gone(question, store, here):
    asked = limit(question[0], "mean_pips >= 7")
    metrics, seen = [dice_kind.METRICS[0]], []
    trials = tune(asked, store, here, note=lambda so_far: seen.append(noted(asked, metrics, so_far)))
    found_mean = best(asked, trials).mean("mean_pips")
    assert [tuning.done for tuning in seen] == [8, 16, 24]
    assert len({tuning.id for tuning in seen}) == 1
    whole = noted(asked, metrics * 2, trials, ended=True)
    assert (whole.aim, whole.ended) == ("minimise mean_pips, mean_pips >= 7", True)
    assert whole.notes[0].startswith("Best: dice.throws=")
    assert 0 < sum(on_front for *_, on_front in whole.points) <= len(whole.points)
    states = {state: mean for _, mean, _, state in whole.tried}
    assert (whole.keys, whole.heading) == ({"dice.throws": False}, metrics[0].heading)
    assert states["best"] == found_mean
    assert {len(values) for values, *_ in whole.tried} == {1}
    note_tuning(whole, store)
    assert [tuning.notes for tuning in tunings(store.root)] == [list(whole.notes)]
    first, *others = store.names()
    for run_id in others:
        store.remove(run_id)
    prune(store)
    assert len(tunings(store.root)) == 1
    store.remove(first)
    prune(store)
    assert tunings(store.root) == []
    assert list((store.root / ".sweeps").iterdir()) == []


def test_what_is_clearly_worse_gets_no_more_seeds(question, store, here):
    asked, _ = question
    trials = tune(asked, store, here)
    pruned = [trial for trial in trials if trial.pruned]
    assert pruned
    for trial in pruned:
        assert trial.figures["mean_pips"].size == FIRST_SEEDS


def test_the_same_command_goes_on_where_it_was(question, store, here):
    asked, thrown = question

    def stop(done, failed, total):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(asked, store, here, stop)
    first = list(thrown)
    assert first
    again = tune(asked, store, here)
    assert len(thrown) == len(set(thrown))
    elsewhere = tune(asked, RunStore(store.root.parent / "other"), here)
    assert set(first) <= set(thrown)
    assert [trial.values for trial in again] == [trial.values for trial in elsewhere]


def test_the_best_is_looked_at_with_other_seeds(question, store, here):
    asked, thrown = question
    trial = best(asked, tune(asked, store, here))
    thrown.clear()
    again = checked(asked, trial, store, here)
    assert {seed for _, seed in thrown} == {5, 6, 7, 8, 9}
    assert again.mean("mean_pips") != trial.mean("mean_pips")
    again = checked(replace(asked, seeds=[2**63 - 2, 0, 2]), trial, store, here)
    assert again.figures["mean_pips"].size == 3


def test_a_trial_that_fails_is_not_the_best(question, store, here, monkeypatch):
    asked, _ = question
    real = dice_kind._throw

    def throw(spec, store):
        if spec.scenario.dice.throws > 250:
            raise BackendError("too many")
        return real(spec, store)

    monkeypatch.setattr(dice_kind, "_throw", throw)
    trials = tune(asked, store, here)
    found = best(asked, trials)
    assert found.values["dice.throws"] <= 250
    assert "Failed: too many" in result(asked, trials, found, None, []).notes


def test_nothing_is_best_where_no_trial_keeps_the_limits(question, store, here):
    asked = limit(question[0], "mean_pips <= 1")
    trials = tune(replace(asked, trials=3), store, here)
    assert best(asked, trials) is None
    assert (
        result(asked, trials, None, None, []).notes[0].startswith("No trial keeps the limits. The nearest is")
    )


def test_the_words_say_how_sure_it_is(question):
    asked = limit(question[0], "mean_pips <= 4")
    sure = Trial(0, {"dice.throws": 1}, {"mean_pips": np.array([3.0, 3.1, 3.0, 3.1, 3.0])})
    unsure = Trial(1, {"dice.throws": 2}, {"mean_pips": np.array([2.0, 6.0, 2.0, 6.0, 2.0])})
    notes = result(asked, [sure, unsure], sure, replace(unsure, number=0), dice_kind.METRICS).notes
    assert notes[0] == "Best: dice.throws=1."
    assert notes[1] == "mean_pips <= 4 is kept with its whole 95 % interval, and by 5 of 5 seeds."
    assert notes[2] == "The seeds do not distinguish it from 1 other trial within the limits."
    assert notes[3].endswith("it has mean_pips 3.60 ± 2.72 pips, and keeps the limits.")
    notes = result(replace(asked, seeds=[0]), [sure], sure, unsure, dice_kind.METRICS).notes
    assert notes[3].startswith("With 1 seed that the search did not see")
    ended = Trial(2, {"dice.throws": 3}, {"mean_pips": np.array([9.0])}, pruned=True)
    notes = result(asked, [sure, ended], sure, None, dice_kind.METRICS).notes
    assert (
        notes[3] == "Trials that were stopped early are not in the table, also if better in a limit's metric."
    )
    notes = result(asked, [unsure], unsure, None, dice_kind.METRICS).notes
    assert "but not with its whole 95 % interval, and by 3 of 5 seeds" in notes[1]


def test_the_scenario_file_asks_for_the_best(question, tmp_path):
    asked, _ = question
    trial = Trial(0, {"dice.throws": 123})
    (tmp_path / "best.yaml").write_text(scenario_text(asked, trial))
    scenario = load(tmp_path / "best.yaml")
    assert (scenario.dice.throws, scenario.seeds, scenario.policies) == (123, [0, 1, 2, 3, 4], ["fair"])


def test_the_scenario_file_finds_the_users_own_policy_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "follow.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    own = build({"name": "t", "trace": {"source": "x"}, "policies": ["follow.py:Follow"]})
    asked = Question(own, "cost", 1, [], [], trials=1, seeds=[0])
    kept = yaml.safe_load(scenario_text(asked, Trial(0, {"Follow.headroom": 2.5})))
    assert kept["policies"] == [f"{tmp_path}/follow.py:Follow(headroom=2.5)"]


def test_a_price_is_told_in_the_scenarios_currency():
    raw = {"name": "t", "trace": {"source": "x"}, "price": {"currency": "EUR"}, "policies": ["escra"]}
    asked = Question(build(raw), "cost", 1, [], [], trials=1, seeds=[0])
    shown = result(asked, [], None, None, [BY_KEY["cost"]])
    assert shown.columns[-1].heading == "Cost (EUR)"


def test_one_policy_is_tuned():
    both = build({"name": "t", "trace": {"source": "x"}, "policies": ["escra", "static"]})
    assert single(both, [Range.parse("escra.kappa=0.1:1")]).policies == ["escra"]
    with pytest.raises(ScenarioError, match=r"one policy is tuned at a time.*--set policies="):
        single(both, [Range.parse("budget_factor=1.0:2.0")])
    with pytest.raises(ScenarioError, match="one policy"):
        single(both, [Range.parse("escra.kappa=0.1:1"), Range.parse("static.factor=1.0:2.0")])


def test_a_range_is_numbers_whole_numbers_or_choices():
    assert Range.parse("a=1:5") == Range("a", 1.0, 5.0, whole=True)
    assert Range.parse("a=0.1:5:log") == Range("a", 0.1, 5.0, log=True)
    assert Range.parse("a=x,2,true") == Range("a", choices=("x", 2, True))


def test_a_range_has_whole_numbers_only_where_its_key_does(question):
    scenario = build({"name": "t", "trace": {"source": "x"}, "policies": ["escra"]})
    kappa = Range.parse("escra.kappa=0:1").fitted(scenario)
    assert kappa == Range("escra.kappa", 0.0, 1.0)
    throws = Range.parse("dice.throws=1:500")
    assert throws.fitted(question[0].scenario) == throws
    factor = Range.parse("budget_factor=1:3").fitted(scenario)
    assert not factor.whole


def test_values_that_are_proposed_again_are_no_other_trial(question):
    asked = replace(question[0], over=[Range.parse("dice.throws=1:400")])
    figures = {"mean_pips": np.array([3.0, 3.1, 3.2])}
    trials = [Trial(number, {"dice.throws": throws}, figures) for number, throws in enumerate((7, 7, 8))]
    shown = result(asked, trials, trials[0], None, dice_kind.METRICS[:1], everything=True)
    assert [row["trial"] for row in shown.rows] == [0, 2]
    assert (shown.facts["trials"], shown.facts["different trials"]) == (3, 2)


@pytest.mark.parametrize(
    ("over", "tried"),
    [
        (["dice.throws=1,400,1"], {1, 400}),
        (["dice.throws=3:12"], {*range(3, 13)}),
    ],
)
def test_few_values_are_each_tried_once_and_the_search_ends(question, store, here, over, tried):
    asked = replace(question[0], over=[Range.parse(text) for text in over])
    trials = tune(asked, store, here)
    assert sorted(trial.values["dice.throws"] for trial in trials) == sorted(tried)
    shown = result(asked, trials, best(asked, trials), None, dice_kind.METRICS[:1])
    assert shown.notes[0] == f"All {len(tried)} combinations of values were tried."
    assert shown.rows[0]["dice.throws"] == max(tried)


def test_a_script_gets_every_trial_and_what_became_of_it(question, store, here):
    asked = limit(question[0], "mean_pips >= 7")
    trials = tune(asked, store, here)
    broken = Trial(99, {"dice.throws": 501}, failure="why")
    shown = result(
        asked, [*trials, broken], best(asked, trials), None, dice_kind.METRICS[:1], everything=True
    )
    what = {row["trial"]: row["what"] for row in shown.rows}
    assert len(what) == len(trials) + 1
    assert what[99] == "failed"
    assert {what[trial.number] for trial in trials if trial.pruned} <= {"stopped early"}
    assert [*what.values()].count("best") == 1
    assert "beyond a limit" in what.values()
    # The mean of a trial that was stopped early is that of its first seeds.
    seeds = {row["trial"]: row["seeds"] for row in shown.rows}
    assert seeds.pop(99) == 0
    assert {number for number, count in seeds.items() if count == FIRST_SEEDS} == {
        trial.number for trial in trials if trial.pruned
    }
    assert [column.key for column in shown.columns][2] == "seeds"


def test_a_metric_without_a_value_is_said_and_no_limit_is_blamed(question):
    none = Trial(0, {"dice.throws": 1}, {"mean_pips": np.array([3.0, np.nan])})
    notes = result(question[0], [none], None, None, []).notes
    assert notes[0] == "No trial that keeps the limits has a value of mean_pips for every seed."
    never = replace(none, figures={"mean_pips": np.array([np.nan, np.nan])})
    notes = result(question[0], [never, never], None, None, []).notes
    assert notes[0] == (
        "No run has a value of mean_pips that is more than a lower bound, so no trial can be judged by it."
    )


def test_a_lower_bound_neither_keeps_a_limit_nor_is_the_least(question):
    rows = pd.DataFrame({"mean_pips": [3.0, 4.0, 9.0], "mean_pips_censored": [False, True, True]})
    asked = replace(limit(question[0], "mean_pips <= 5"), metric="rolls", sign=1)
    rows["rolls"] = [1.0, 2.0, 3.0]
    found = figures(asked, rows)
    np.testing.assert_array_equal(found["mean_pips"], [3.0, np.nan, 9.0])
    np.testing.assert_array_equal(found["rolls"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(figures(question[0], rows)["mean_pips"], [3.0, np.nan, np.nan])
    for other in (replace(question[0], sign=-1), limit(replace(question[0], sign=-1), "mean_pips >= 5")):
        np.testing.assert_array_equal(figures(other, rows)["mean_pips"], [3.0, 4.0, 9.0])


@pytest.mark.parametrize(
    "text", ["a", "a=1", "a=5:1", "a=0:1:log", "a=1:2:lin", "=1:2", "a=x:y", "a=1:", "a=true:false", "a=[1,2"]
)
def test_a_wrong_range_is_refused(text):
    with pytest.raises(ScenarioError, match="--over"):
        Range.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("name=a,b", "title=a,b", "question=a,b", "seeds=1:5", "policies=escra,vpa"),
        *("price.source=a,b", "price.currency=EUR,USD", "price.as_of=1:2"),
    ],
)
def test_a_key_that_changes_no_run_is_no_setting(text):
    key = text.partition("=")[0]
    with pytest.raises(ScenarioError, match=f"--over {text}: {key} is no setting; give a key that changes"):
        Range.parse(text)


class TestVerb:
    """`twinbed tune`."""

    @pytest.fixture
    def file(self, question, tmp_path):
        path = tmp_path / "t.yaml"
        path.write_text("name: t\ndice: {throws: 20}\npolicies: [fair]\n")
        return path

    def test_it_prints_the_front_and_writes_the_scenario(self, file, twinbed, tmp_path):
        ended = twinbed(
            *("tune", file, "--minimise", "mean_pips", "--subject-to", "mean_pips >= 7"),
            *("--over", "dice.throws=1:500", "--trials", "8", "--jobs", "1", "--format", "json"),
            *("--out", tmp_path / "best.yaml"),
        )
        assert ended.code == 0, ended.err
        document = json.loads(ended.out)
        assert document["rows"][0]["what"] == "best"
        assert load(tmp_path / "best.yaml").dice.throws == document["rows"][0]["dice.throws"]

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ((), "give one of --minimise METRIC and --maximise METRIC"),
            (("--minimise", "pips", "--minimise", "mean_pips"), "give one of --minimise METRIC and --max"),
            (("--minimise", "nil"), "--minimise nil: there is no such metric"),
            (("--minimise", "pips", "--over", "nil=1,2", "--jobs", "1"), "--over"),
            (("--minimise", "pips", "--subject-to", "pips"), "--subject-to pips: expected METRIC <="),
            (("--minimise", "pips", "--over", "dice.throws=1:2"), "--over: a key is given twice"),
            (("--minimise", "pips", "--set", "vary.title=[a,b]"), "t: vary has no meaning for tune"),
        ],
    )
    def test_a_wrong_option_is_refused(self, file, twinbed, options, problem):
        assert twinbed("tune", file, "--over", "dice.throws=1:5", *options).refused.startswith(problem)

    def test_a_limit_that_none_keeps_ends_with_1(self, file, twinbed):
        options = ("--minimise", "pips", "--subject-to", "pips <= 0", "--trials", "2", "--jobs", "1")
        assert twinbed("tune", file, "--over", "dice.throws=1:5", *options).code == 1
