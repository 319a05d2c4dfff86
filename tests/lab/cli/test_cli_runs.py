"""`twinbed runs`: the store from the command line, on runs made by hand."""

import json
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


def test_runs_are_listed_with_their_policy_and_seed(twinbed, run):
    lines = twinbed("runs", "list").out
    assert run.id in lines
    assert "escra" in lines


def test_listing_for_machines_has_the_metrics(twinbed, run):
    (row,) = json.loads(twinbed("runs", "list", "--format", "json").out)["rows"]
    assert (row["id"], row["cost"]) == (run.id, 1.0)


def test_a_damaged_run_is_listed_with_what_is_wrong(twinbed, run):
    (run.path / "events.parquet").unlink()
    assert "tables missing: events" in twinbed("runs", "list").out


def test_a_run_is_shown_with_what_determined_it(twinbed, run):
    ended = twinbed("runs", "show", run.id[:12])
    assert ended.code == 0
    for text in (run.id, "upsilon=20.0", "A note on the data.", "CPU slack p50"):
        assert text in ended.out


def test_a_table_of_a_run_is_shown(twinbed, run):
    ended = twinbed("runs", "show", run.id, "--table", "events", "--format", "json")
    (row,) = json.loads(ended.out)["rows"]
    assert (row["container"], row["kind"]) == ("db", "kill")


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
    assert json.loads(ended.out)["rows"] == [{"run": run.id, "n": 80}]


def test_sql_that_makes_no_sense_is_one_line(twinbed, run):
    assert twinbed("runs", "query", "SELEC 1").refused.startswith("query: ")


@pytest.mark.parametrize("verb", [["compare"], ["runs", "show"], ["runs", "rm"], ["report"]])
def test_an_unknown_run_is_named(twinbed, run, verb):
    assert "run 'nonsense': there is no such run" in twinbed(*verb, "nonsense").refused


def test_the_beginning_of_several_ids_is_refused(twinbed, run, store_path):
    publish(RunStore(store_path), "vpa")
    assert "2 runs begin so" in twinbed("runs", "show", "sample").refused


def test_the_same_run_twice_is_not_compared(twinbed, run):
    assert "is given twice" in twinbed("compare", run.id, run.id).refused


def test_a_store_that_is_a_file_is_refused(twinbed, csv_path):
    assert "not a directory" in twinbed("runs", "list", "--store", csv_path).refused
