"""Notes of a sweep's table: what its means lack, what failed, and what a stop rule could not judge."""

from dataclasses import replace

import numpy as np

from lab.runs.compare import BOUNDS
from lab.runs.formats import table
from lab.sweep.plan import Shard, SweepPlan
from lab.sweep.points import points
from lab.sweep.result import chosen, result
from lab.sweep.rules import Until
from lab.sweep.sweep import sweep
from tests.lab.kinds import dice as dice_kind
from twinbed import ScenarioError


def test_a_shard_says_what_its_means_lack(dice, store, here):
    made = points(dice, ["dice.throws=10,40"], None)
    notes = []
    for part in (1, 2):
        swept = sweep(SweepPlan("throws", made, range(5), Shard.parse(f"{part}/2")), store, here)
        notes.append([note for note in result(swept, chosen(swept, [])).notes if note.startswith("Shard")])
    assert [len(some) for some in notes] == [1, 0]
    assert notes[0][0].startswith("Shard 1 of 2: the means lack 10 of 20 values")


def test_runs_that_points_share_count_once(dice, store, here):
    plan = SweepPlan("throws", points(dice, ["title=a,b"], None), range(3))
    swept = sweep(plan, store, here)
    assert (len(swept.frame), result(swept, chosen(swept, [])).facts["runs"]) == (12, 6)
    assert len(store.ids()) == 6


def test_seeds_that_fail_alike_are_one_note(plan, store, here, monkeypatch):
    def throw(spec, store):
        raise ScenarioError("no die")

    monkeypatch.setattr(dice_kind, "_throw", throw)
    swept = sweep(plan, store, here)
    failed = [note for note in result(swept, chosen(swept, [])).notes if note.startswith("Failed")]
    assert len(failed) == 4
    assert failed[0] == "Failed: dice.throws=10 policy=fair seed=0,1,2,3,4 and 1 more: no die"
    nameless = replace(swept, failures=swept.failures.assign(**{"dice.throws": None}))
    assert len([note for note in result(nameless, chosen(swept, [])).notes if note.startswith("Failed")]) == 2


def test_a_rule_on_a_metric_without_values_is_told(plan, store, here):
    swept = sweep(plan, store, here)
    watched = plan.kind.metrics()[:1]
    assert chosen(swept, [], watched)[0] == watched[0]
    assert not [note for note in result(swept, watched, watched).notes if "--until" in note]
    blind = replace(swept, frame=swept.frame.assign(mean_pips=np.nan))
    notes = result(blind, chosen(blind, [], watched), watched).notes
    note = "No run has a value of mean_pips that is more than a lower bound, so --until left out no seeds."
    assert note in notes
    bounds = replace(swept, frame=swept.frame.assign(mean_pips_censored=True))
    assert note in result(bounds, watched, watched).notes


def test_a_rule_that_has_too_few_seeds_to_leave_any_out_is_told(dice, store, here):
    plan = SweepPlan("throws", points(dice, [], None), [0])
    swept = sweep(plan, store, here, until=Until("mean_pips", 9.0))
    metrics = plan.kind.metrics()[:1]
    note = (
        "--until leaves out seeds after the first 5 of a point, and this sweep has 1; give more, "
        "such as --seeds 0:20"
    )
    assert note in result(swept, metrics, metrics).notes
    assert note not in result(swept, metrics).notes


def test_a_mean_over_some_of_the_seeds_is_told(plan, store, here):
    swept = sweep(plan, store, here)
    rows = swept.frame.eval("`dice.throws` == 40 and policy == 'loaded' and seed < 4")
    frame = swept.frame.assign(mean_pips=swept.frame["mean_pips"].mask(rows))
    notes = result(replace(swept, frame=frame), chosen(swept, [])).notes
    assert [note for note in notes if "2 of 6 seeds" in note and note.startswith("dice.throws=40 loaded: ")]
    assert not [note for note in notes if note.startswith("dice.throws=10")]


def test_a_mean_over_lower_bounds_is_told_as_a_bound(dice, store, here, monkeypatch):
    (metric,) = dice_kind.METRICS
    monkeypatch.setattr(dice_kind, "METRICS", (replace(metric, may_be_bound=True),))
    real = dice_kind.store_run
    monkeypatch.setattr(
        dice_kind, "store_run", lambda spec, *given, **more: real(
            spec, *given, **more, censored=["mean_pips"] if spec.seed == 2 else []
        ),
    )  # fmt: skip
    swept = sweep(
        SweepPlan("throws", points(dice, [], None), range(6)), store, here, until=Until("mean_pips", 9.0)
    )
    shown = result(swept, chosen(swept, []))
    assert [row["mean_pips_censored"] for row in shown.rows] == [True, True]
    assert "> " in table(shown)
    assert BOUNDS in shown.notes
