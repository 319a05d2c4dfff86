"""`twinbed runs`: the store from the command line, on runs made by hand."""

import json
import math
import zipfile

import pytest

from lab.runs.store import RunStore
from tests.lab.sample_runs import publish


@pytest.fixture
def run(store_path):
    return publish(RunStore(store_path))


def test_an_empty_store_lists_nothing(twinbed):
    ended = twinbed("runs", "list")
    assert ended.code == 0
    assert "nothing to show" in ended.out


def test_filters_leave_nothing_of_an_empty_store(twinbed):
    ended = twinbed("runs", "list", "--policy", "escra", "--tag", "kept")
    assert (ended.code, ended.err) == (0, "")


def test_runs_are_listed_with_their_policy_and_seed(twinbed, run):
    lines = twinbed("runs", "list").out
    assert run.id in lines
    assert "escra" in lines
    assert "Made (UTC)" in lines
    made = run.manifest["created_at"]
    assert f"{made[:10]} {made[11:16]}" in lines
    assert "+00:00" not in lines


def test_listing_for_machines_has_the_metrics(twinbed, run):
    (row,) = twinbed("runs", "list", "--format", "json").rows
    assert (row["id"], row["cost"]) == (run.id, 1.0)


def test_a_damaged_run_is_listed_with_what_is_wrong(twinbed, run):
    (run.path / "events.parquet").unlink()
    assert "tables missing: events" in twinbed("runs", "list").out


def test_a_damaged_run_is_removed_by_its_whole_id_and_a_folder_of_other_files_never(twinbed, run):
    manifest = run.path / "manifest.json"
    manifest.write_text("{")
    listed = " ".join(twinbed("runs", "list").out.split())
    assert f"twinbed runs rm {run.id} removes it" in listed
    (run.path / "notes.txt").write_text("mine")
    assert "manifest.json: " in twinbed("runs", "rm", run.id).refused
    (run.path / "notes.txt").unlink()
    assert "there is no such run" in twinbed("runs", "rm", run.id[:-1]).refused
    assert twinbed("runs", "rm", run.id).code == 0
    assert not run.path.exists()


def test_a_run_is_shown_with_what_determined_it(twinbed, run):
    ended = twinbed("runs", "show", run.id[:12])
    assert ended.code == 0
    for text in (run.id, "upsilon=20.0", "A note on the data.", "CPU slack p50"):
        assert text in ended.out


def test_a_table_of_a_run_is_shown(twinbed, run):
    ended = twinbed("runs", "show", run.id, "--table", "events", "--format", "json")
    (row,) = ended.rows
    assert (row["container"], row["kind"]) == ("db", "kill")
    for name in run.manifest["tables"]:
        assert twinbed("runs", "show", run.id, "--table", name).code == 0
    unknown = twinbed("runs", "show", run.id, "--table", "../events")
    assert (unknown.code, "no table '../events'; there are" in unknown.err) == (2, True)


def test_people_do_not_see_a_figure_that_no_container_has(twinbed, store_path):
    run = publish(RunStore(store_path), turned_away=(math.nan, math.nan))
    table = ("runs", "show", run.id, "--table", "containers")
    assert [row["turned_away"] for row in twinbed(*table, "--format", "json").rows] == [None, None]
    assert "turned" not in twinbed(*table).out


def test_a_run_whose_files_were_changed_is_shown_and_ends_with_1(twinbed, run):
    table = run.path / "events.parquet"
    table.write_bytes(table.read_bytes() + b"x")
    ended = twinbed("runs", "show", run.id)
    assert ended.code == 1
    assert "PROBLEM:" in ended.out


def test_a_removed_run_is_gone(twinbed, run, store_path):
    assert run.id in twinbed("runs", "rm", run.id).out
    assert RunStore(store_path).ids() == []


def test_nothing_is_removed_when_one_of_the_runs_is_not_there(twinbed, run, store_path):
    assert "'nonsense'" in twinbed("runs", "rm", run.id, "nonsense").refused
    assert RunStore(store_path).ids() == [run.id]


def test_a_run_is_exported_as_a_zip_file(twinbed, run, tmp_path):
    twinbed("runs", "export", run.id, tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert f"{run.id}/manifest.json" in archive.namelist()


def test_sql_answers_from_all_runs(twinbed, run):
    ended = twinbed(
        "runs", "query", "SELECT run, count(*) AS n FROM periods GROUP BY run", "--format", "json"
    )
    assert ended.rows == [{"run": run.id, "n": 80}]


def test_lists_that_sql_makes_are_shown(twinbed, run):
    ended = twinbed(
        "runs", "query", "SELECT [1, 2, 3] AS some, list(id) AS ids FROM runs", "--format", "json"
    )
    assert ended.rows == [{"some": "[1, 2, 3]", "ids": f"['{run.id}']"}]


@pytest.mark.parametrize(
    ("form", "head"),
    [("table", ["id", "nil"]), ("markdown", ["|", "id", "|", "nil", "|"]), ("csv", ["id,nil"])],
)
def test_a_queried_column_without_a_value_is_shown(twinbed, run, form, head):
    ended = twinbed("runs", "query", "SELECT id, NULL AS nil FROM runs", "--format", form)
    assert ended.out.splitlines()[0].split() == head


def test_an_empty_store_says_what_it_lacks(twinbed):
    assert twinbed("runs", "query", "SELECT 1").refused.endswith("make one, or name another --store")


def test_sql_that_makes_no_sense_is_one_line(twinbed, run):
    assert twinbed("runs", "query", "SELEC 1").refused.startswith("query: ")


@pytest.mark.parametrize("sql", ["", " ;", "/* SELECT 1 */"])
def test_sql_without_a_statement_is_one_line(twinbed, run, sql):
    assert twinbed("runs", "query", sql).refused == "query: there is no statement; try SELECT * FROM runs"


@pytest.mark.parametrize("verb", [["compare"], ["runs", "show"], ["runs", "rm"], ["report"]])
def test_an_unknown_run_is_named(twinbed, run, verb):
    refused = twinbed(*verb, "nonsense").refused
    assert refused.startswith("run 'nonsense': there is no such run")
    assert refused.endswith("; twinbed runs list shows which there are")


@pytest.mark.parametrize("verb", [["compare"], ["runs", "show"], ["runs", "rm"], ["report"]])
def test_an_empty_id_names_no_run_even_if_there_is_only_one(twinbed, run, store_path, verb):
    assert twinbed(*verb, "").refused.startswith("run '': there is no such run")
    assert RunStore(store_path).ids() == [run.id]


def test_the_beginning_of_several_ids_is_refused(twinbed, run, store_path):
    publish(RunStore(store_path), "vpa")
    refused = twinbed("runs", "show", "sample").refused
    assert "2 runs begin so" in refused
    assert f"write more of the id: {run.id}, " in refused


def test_the_same_run_twice_is_not_compared(twinbed, run):
    assert "is given twice" in twinbed("compare", run.id, run.id).refused


def test_a_store_that_is_a_file_is_refused(twinbed, csv_path):
    assert "not a directory" in twinbed("runs", "list", "--store", csv_path).refused


@pytest.fixture
def two(store_path):
    """An Escra run and a static one."""
    store = RunStore(store_path)
    return publish(store), publish(store, "static")


def listed(twinbed, *filters):
    ended = twinbed("runs", "list", *filters, "--format", "json")
    return [row["id"] for row in ended.rows]


def test_runs_are_listed_by_tag_policy_scenario_and_age(twinbed, two):
    kept, other = (run.id for run in two)
    assert twinbed("runs", "tag", kept[: len(kept) - 1], "paper.v1").code == 0
    assert listed(twinbed, "--tag", "paper.v1") == [kept]
    assert listed(twinbed, "--policy", "static") == [other]
    assert set(listed(twinbed, "--scenario", two[0].manifest["name"])) == {kept, other}
    assert listed(twinbed, "--scenario", "another") == []
    assert set(listed(twinbed, "--newer", "10000w")) == {kept, other}
    assert listed(twinbed, "--newer", "0s") == []


def test_a_long_listing_shows_the_newest_and_says_where_all_are(twinbed, run, monkeypatch):
    monkeypatch.setattr("lab.cli.runs._SHOWN", 0)
    assert "the newest 0; --format csv has all" in twinbed("runs", "list").out
    assert run.id in twinbed("runs", "list", "--format", "csv").out


def test_a_listing_has_sizes_and_tags(twinbed, run):
    twinbed("runs", "tag", run.id, "b")
    twinbed("runs", "tag", run.id, "a")
    (row,) = twinbed("runs", "list", "--format", "json").rows
    assert row["tags"] == "a b"
    assert row["bytes"] == sum(file.stat().st_size for file in run.path.iterdir())
    assert "a b" in twinbed("runs", "list").out


def test_tagged_runs_are_kept_if_asked(twinbed, two, store_path):
    kept, other = (run.id for run in two)
    twinbed("runs", "tag", kept, "paper")
    assert json.loads(twinbed("runs", "gc", "--format", "json").out)["rows"] == []
    out = twinbed("runs", "prune", "--older", "0s", "--keep-tagged", "--format", "json").out
    assert [row["removed"] for row in json.loads(out)["rows"]] == [other]
    assert RunStore(store_path).ids() == [kept]


def test_a_removed_run_takes_its_tags_with_it(twinbed, run, store_path):
    twinbed("runs", "tag", run.id, "paper")
    twinbed("runs", "rm", run.id)
    assert publish(RunStore(store_path)).id == run.id
    assert listed(twinbed, "--tag", "paper") == []


def test_a_tag_is_taken_away_once(twinbed, run):
    twinbed("runs", "tag", run.id, "paper")
    assert twinbed("runs", "tag", run.id, "paper", "--remove").code == 0
    assert twinbed("runs", "tag", run.id, "paper", "--remove").refused.endswith("it has none")


@pytest.mark.parametrize("name", ["", ".x", "a@b", "a/b", "x" * 41, "two words"])
def test_what_cannot_be_a_tag_is_refused(twinbed, run, name):
    assert twinbed("runs", "tag", run.id, name).refused.startswith(f"tag {name!r}: expected")
