"""Sweeps: every unit once, what failed beside the others, stopping, going on, and the tables and the page."""

import json

import pandas as pd
import pytest

from lab.ask.scenario import with_overrides
from lab.engine.running import ATTEMPTS
from lab.runs.store import RunStore
from lab.sweep.book import Book, course, prune, sweeps
from lab.sweep.page import document
from lab.sweep.plan import Shard, SweepPlan
from lab.sweep.points import Point, points
from lab.sweep.result import chosen, means, result, write
from lab.sweep.rules import Until
from lab.sweep.sweep import sweep
from tests.lab.kinds import dice as dice_kind
from twinbed import BackendError, ScenarioError, StoreError


@pytest.fixture
def thrown(monkeypatch):
    """The runs that are made, as (throws, policy, seed)."""
    made = []
    real = dice_kind._throw

    def throw(spec, store):
        made.append((spec.scenario.dice.throws, spec.policy.name, spec.seed))
        return real(spec, store)

    monkeypatch.setattr(dice_kind, "_throw", throw)

    # A runner opens what the store has, unless it is to be made anew.
    def runner(specs, store, *, fresh, progress):
        return [dice_kind._throw(spec, store) for spec in specs]

    monkeypatch.setattr(dice_kind, "throw", runner)
    return made


def test_the_table_has_parameters_metrics_and_seeds(plan, store, here):
    swept = sweep(plan, store, here)
    assert list(swept.frame.columns) == ["dice.throws", "policy", "seed", "run", "mean_pips", "seconds"]
    assert len(swept.frame) == 2 * 2 * 6
    assert sorted(swept.frame["run"]) == store.ids()
    row = swept.frame.iloc[0]
    assert store.open(row["run"]).metrics["mean_pips"] == row["mean_pips"]


def test_the_store_keeps_one_compacted_table(plan, store, here):
    swept = sweep(plan, store, here)
    folder = store.root / ".sweeps" / plan.id
    assert sorted(file.name for file in folder.iterdir()) == ["failures.csv", "metrics.parquet", "plan.json"]
    kept = pd.read_parquet(folder / "metrics.parquet").drop(columns="cell")
    pd.testing.assert_frame_equal(kept, swept.frame)
    assert len(store.list()) == 24


def test_an_engine_that_cannot_be_reached_leaves_the_former_table(plan, store, here, monkeypatch):
    sweep(plan, store, here)

    def lost(*_):
        raise BackendError("no scheduler answers")

    monkeypatch.setattr(type(here), "session", lost)
    with pytest.raises(BackendError):
        sweep(plan, store, here)
    (noted,) = sweeps(store.root)
    assert len(course(store.root, noted, ["mean_pips"]).frame) == 24


def test_a_sweep_that_was_stopped_goes_on_where_it_was(plan, store, here, thrown):
    def stop(done, failed, total):
        assert (failed, total) == (0, 12)
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(plan, store, here, told=stop)
    assert len(thrown) == 10
    swept = sweep(plan, store, here, resume=True)
    assert len(thrown) == len(set(thrown)) == 24
    pd.testing.assert_frame_equal(
        swept.frame.drop(columns="seconds"),
        sweep(plan, RunStore(store.root.parent / "other"), here).frame.drop(columns="seconds"),
    )


def test_going_on_makes_runs_again_that_were_removed(plan, store, here, thrown):
    first = sweep(plan, store, here).frame["run"][0]
    store.remove(first)
    thrown.clear()
    sweep(plan, store, here, resume=True)
    assert thrown == [(10, "fair", 0)]
    assert store.has(first)


def test_a_damaged_part_costs_no_more_than_its_rows(plan, store, here, thrown):
    whole = sweep(plan, store, here).frame.drop(columns="seconds")
    shelf = store.shelf(f".sweeps/{plan.id}")
    shelf.write("part.00.parquet", b"PAR1 and no more")
    pd.testing.assert_frame_equal(sweep(plan, store, here, resume=True).frame.drop(columns="seconds"), whole)
    assert len(thrown) == 24
    assert "part.00.parquet" not in shelf.names()
    shelf.write("metrics.parquet", b"")
    pd.testing.assert_frame_equal(sweep(plan, store, here, resume=True).frame.drop(columns="seconds"), whole)


def test_more_seeds_go_on_with_the_same_sweep(plan, store, here, thrown):
    sweep(plan, store, here)
    thrown.clear()
    more = SweepPlan(plan.name, plan.points, range(7))
    assert len(sweep(more, store, here, resume=True).frame) == 28
    assert {seed for _, _, seed in thrown} == {6}


def test_without_resume_everything_is_made_again(plan, store, here, thrown):
    for _ in range(2):
        sweep(plan, store, here)
    assert len(thrown) == 48


def test_a_unit_that_fails_is_listed_and_the_others_end(plan, store, here, monkeypatch):
    real = dice_kind._throw

    def throw(spec, store):
        if (spec.scenario.dice.throws, spec.seed) == (40, 3):
            raise BackendError("the die\nrolled away")
        return real(spec, store)

    monkeypatch.setattr(dice_kind, "_throw", throw)
    swept = sweep(plan, store, here)
    assert len(swept.frame) == 22
    assert swept.failures.to_dict("records") == [
        {"dice.throws": 40, "policy": policy, "seed": 3, "reason": "the die rolled away"}
        for policy in ("fair", "loaded")
    ]
    shown = result(swept, chosen(swept, []))
    assert "Failed: dice.throws=40 policy=loaded seed=3: the die rolled away" in shown.notes
    kept = pd.read_csv(store.root / ".sweeps" / plan.id / "failures.csv")
    assert kept["reason"].tolist() == ["the die rolled away"] * 2
    monkeypatch.setattr(dice_kind, "_throw", real)
    again = sweep(plan, store, here, resume=True)
    assert (len(again.frame), len(again.failures)) == (24, 0)


def test_a_policy_that_fails_leaves_the_others_and_is_made_alone_later(
    plan, store, here, thrown, monkeypatch
):
    counting = dice_kind._throw

    def throw(spec, store):
        if (spec.policy.name, spec.seed) == ("loaded", 3):
            raise ScenarioError("no loaded die")
        return counting(spec, store)

    monkeypatch.setattr(dice_kind, "_throw", throw)
    swept = sweep(plan, store, here)
    assert swept.left_out == 0
    # The faster point comes first.
    assert sorted(swept.failures[["dice.throws", "policy", "seed"]].values.tolist()) == [
        [10, "loaded", 3],
        [40, "loaded", 3],
    ]
    assert len(swept.frame) == len(store.ids()) == 22
    (noted,) = sweeps(store.root)
    assert len(course(store.root, noted, ["mean_pips"]).failures) == 2
    monkeypatch.setattr(dice_kind, "_throw", counting)
    thrown.clear()
    assert len(sweep(plan, store, here, resume=True).frame) == 24
    assert sorted(thrown) == [(10, "loaded", 3), (40, "loaded", 3)]


def test_shards_end_with_the_whole_table(dice, store, here):
    made = points(dice, ["dice.throws=10,40"], None)
    for part in (1, 2):
        swept = sweep(SweepPlan("throws", made, range(5), Shard.parse(f"{part}/2")), store, here)
        assert len(swept.frame) == 10 * part
    whole = sweep(SweepPlan("throws", made, range(5)), RunStore(store.root.parent / "other"), here)
    assert set(whole.frame["run"]) == set(swept.frame["run"])


def test_a_point_with_a_narrow_interval_gets_no_more_seeds(dice, store, here):
    plan = SweepPlan("throws", points(dice, ["dice.throws=1,4000"], None), range(40))
    swept = sweep(plan, store, here, until=Until("mean_pips", 0.02))
    seeds = swept.frame.groupby("dice.throws")["seed"].nunique()
    assert seeds[4000] == 5
    assert seeds[1] == 40
    assert swept.left_out == 35


def test_seeds_that_are_not_asked_for_do_not_stop_those_that_are(dice, store, here):
    made = points(dice, [], None)
    sweep(SweepPlan("throws", made, range(6)), store, here)
    more = sweep(
        SweepPlan("throws", made, range(6, 20)), store, here, resume=True, until=Until("mean_pips", 9.0)
    )
    assert sorted(set(more.frame["seed"])) == [6, 7, 8, 9, 10]


def test_a_run_that_is_made_again_counts_once_in_the_stop_rule(dice, store, here):
    made = points(dice, [], None)
    first = sweep(SweepPlan("throws", made, range(4)), store, here).frame
    for run in first.query("(policy == 'fair') == (seed < 2)")["run"]:
        store.remove(run)
    again = sweep(
        SweepPlan("throws", made, range(20)), store, here, resume=True, until=Until("mean_pips", 9.0)
    )
    assert sorted(set(again.frame["seed"])) == [0, 1, 2, 3, 4]


def test_means_have_intervals(plan, store, here):
    swept = sweep(plan, store, here)
    frame = means(swept.frame, swept.plan.keys, chosen(swept, []))
    assert frame["seeds"].tolist() == [6] * 4
    loaded = frame[frame["policy"] == "loaded"]
    assert loaded["mean_pips"].tolist() == [6.0, 6.0]
    assert loaded["mean_pips_ci95"].tolist() == [0.0, 0.0]


def test_rows_are_written_as_csv_and_parquet(plan, store, here, tmp_path):
    swept = sweep(plan, store, here)
    write(swept, tmp_path / "all.csv")
    write(swept, tmp_path / "all.parquet")
    text, binary = pd.read_csv(tmp_path / "all.csv"), pd.read_parquet(tmp_path / "all.parquet")
    pd.testing.assert_frame_equal(text, binary)


def test_a_key_with_numbers_and_words_is_written_and_drawn(dice, store, here, tmp_path):
    made = [
        Point({"most": most, "dice.throws": throws}, with_overrides(dice, [f"dice.throws={throws}"]))
        for most in (1, 2.5, "null")
        for throws in (3, 4)
    ]
    swept = sweep(SweepPlan("throws", made, range(2)), store, here)
    write(swept, tmp_path / "all.parquet")
    assert set(pd.read_parquet(tmp_path / "all.parquet")["most"]) == {"1", "2.5", "null"}
    assert "Mean over dice.throws" in document(swept, chosen(swept, []))


def test_more_points_than_a_picture_shows_are_not_drawn(plan, store, here, monkeypatch):
    swept = sweep(plan, store, here)
    monkeypatch.setattr("lab.sweep.page.MOST_DRAWN", 3)
    page = document(swept, chosen(swept, []))
    assert "Mean over dice.throws" not in page
    assert "Charts show at most" in page


def test_a_store_that_refuses_a_run_ends_the_sweep(plan, store, here, monkeypatch):
    tried = []

    def throw(spec, store):
        tried.append(spec.seed)
        raise StoreError("the store: full")

    monkeypatch.setattr(dice_kind, "_throw", throw)
    with pytest.raises(StoreError, match="the store: full"):
        sweep(plan, store, here)
    assert tried == [0] * ATTEMPTS


def test_a_store_that_workers_do_not_share_is_told(plan, store, here, monkeypatch, tmp_path):
    monkeypatch.setattr("lab.runs.runner.store_at", lambda _: RunStore(tmp_path / "of a worker"))
    with pytest.raises(StoreError, match=r"there is no run throws-.*; .* a --store that both reach"):
        sweep(plan, store, here)


def test_the_page_has_lines_and_a_heat_map(dice, store, here):
    made = points(dice, ["dice.throws=10,40", "title=<b>,c"], None)
    page = document(swept := sweep(SweepPlan("throws", made, range(2)), store, here), chosen(swept, []))
    assert "Mean over dice.throws" in page
    assert "Mean: loaded" in page
    assert "<b>" not in page


def test_a_table_that_another_shard_puts_together_meanwhile_is_read_in_its_new_form(dice, store, here):
    made = points(dice, ["dice.throws=10,40"], None)
    plans = [SweepPlan("throws", made, range(5), Shard.parse(f"{part}/2")) for part in (1, 2)]
    sweep(plans[0], store, here)
    shelf = store.shelf(f".sweeps/{plans[0].id}")
    content = shelf.read("metrics-1of2.parquet")
    shelf.remove("metrics-1of2.parquet")
    shelf.write("part-1of2.00.parquet", content)

    class Meanwhile(type(shelf)):
        """The other shard ends just before its part is read."""

        def read(self, name):
            if name.startswith("part-1of2"):
                self.remove(name)
                self.write("metrics-1of2.parquet", content)
            return super().read(name)

    book = Book(plans[1], store)
    book._shelf = Meanwhile(store.root / ".sweeps" / plans[0].id)
    assert len(book.read()) == 10


class TestVerb:
    """`twinbed sweep`."""

    @pytest.fixture
    def file(self, dice, tmp_path):
        path = tmp_path / "throws.yaml"
        path.write_text("name: throws\ndice: {throws: 20}\n")
        return path

    def test_it_sweeps_writes_and_goes_on(self, file, twinbed, tmp_path):
        command = (
            "sweep", file, "--vary", "dice.throws=5,9", "--seeds", "0:3", "--format", "json", "--jobs", "1",
        )  # fmt: skip
        out, page = tmp_path / "all.parquet", tmp_path / "page.html"
        ended = twinbed(*command, "--out", out, "--html", page)
        assert ended.code == 0, ended.err
        assert len(json.loads(ended.out)["rows"]) == 4
        assert len(pd.read_parquet(out)) == 12
        assert "Pareto" not in page.read_text()
        assert twinbed(*command, "--resume").out == ended.out

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            (("--out", "x.txt"), "--out x.txt: the name must end in .parquet or .csv"),
            (("--seeds", ""), "--seeds : expected FIRST:END"),
            (("--engine", "slurm"), "--engine slurm: expected local, dask"),
            (("--metric", "nil"), "--metric nil: there is no such metric; give one of mean_pips"),
            (("--until", "soon"), "--until soon: expected ci(METRIC)"),
        ],
    )
    def test_a_wrong_option_is_refused_before_anything_is_run(self, file, twinbed, options, problem):
        assert twinbed("sweep", file, *options).refused.startswith(problem)

    def test_the_file_of_points_is_not_overwritten(self, file, twinbed, tmp_path):
        (tmp_path / "points.csv").write_text("dice.throws\n5\n")
        command = ("sweep", file, "--points", tmp_path / "points.csv", "--out", tmp_path / "points.csv")
        assert "it is read, too" in twinbed(*command).refused
        assert (tmp_path / "points.csv").read_text() == "dice.throws\n5\n"

    def test_without_the_extra_one_line_names_it(self, file, twinbed, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "distributed", None)
        monkeypatch.delitem(__import__("sys").modules, "lab.engine.dask", raising=False)
        refused = twinbed("sweep", file, "--engine", "dask").refused
        assert refused.startswith("the package distributed is not installed; ")
        assert refused.endswith("pip install 'twinbed[scale]' installs it")


def test_a_wrong_question_is_the_units_failure_only(dice, store, here, monkeypatch):
    def throw(spec, store):
        raise ScenarioError("no table")

    monkeypatch.setattr(dice_kind, "_throw", throw)
    swept = sweep(SweepPlan("throws", points(dice, [], None), [0]), store, here)
    assert swept.failures["reason"].tolist() == ["no table"] * 2
    assert swept.frame.empty


def test_notes_of_a_sweep_go_when_its_last_run_is_gone(plan, store, here):
    swept = sweep(plan, store, here)
    first, *others = swept.frame["run"]
    for run_id in others:
        store.remove(run_id)
    assert (prune(store), len(sweeps(store.root))) == (0, 1)
    store.remove(first)
    assert (prune(store), sweeps(store.root)) == (1, [])


def test_a_failure_of_a_unit_that_succeeded_later_is_not_told(plan, store, here):
    sweep(plan, store, here)
    shelf = store.shelf(f".sweeps/{plan.id}")
    shelf.write("failures-1of2.csv", b"dice.throws,policy,seed,reason\n10,fair,0,full\n40,fair,99,full\n")
    (noted,) = sweeps(store.root)
    assert course(store.root, noted, ["mean_pips"]).failures["seed"].tolist() == [99]
