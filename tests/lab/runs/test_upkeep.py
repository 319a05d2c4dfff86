"""Tags, ages and sizes, and which runs go to make room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab.runs.stores import store_at
from lab.runs.upkeep import Tags, age_s, collect, remove, size, usage
from tests.lab.runs.test_run_store import manifest, tables
from twinbed import ScenarioError, StoreError

HOURS = {"a-1": 50, "a-2": 30, "a-3": 1, "b-1": 40}
"""Run → its age, h. Its scenario is its first letter."""


@pytest.fixture
def aged(store):
    """A store with runs of two scenarios, of known ages."""
    now = datetime.now(UTC)
    for run_id, hours in HOURS.items():
        made = (now - timedelta(hours=hours)).isoformat()
        store.publish(manifest(run_id, made) | {"name": run_id[0]}, tables())
    return store


def test_a_removed_run_leaves_no_tag_for_a_new_one_of_its_id(aged):
    Tags(aged).add("a-1", "paper")
    remove(aged, ["a-1", "b-1"])
    assert (aged.names(), Tags(aged).all()) == (["a-2", "a-3"], {})


@pytest.mark.parametrize("url", ["file://", "memory://"])
def test_a_damaged_run_is_removed_by_its_whole_id(url, tmp_path):
    pytest.importorskip("fsspec", reason="the extra scale is not installed")
    runs = store_at(f"{url}{tmp_path}/runs")
    for run_id in ("a-1", "b-1"):
        runs.publish(manifest(run_id), tables())
    runs.shelf("a-1").write("manifest.json", b"{")
    with pytest.raises(StoreError, match="there is no such run"):
        remove(runs, ["a-"])
    remove(runs, ["a-1"])
    assert runs.names() == ["b-1"]


def test_what_a_bucket_has_beside_runs_stays(tmp_path):
    pytest.importorskip("fsspec", reason="the extra scale is not installed")
    bucket = store_at(f"memory://{tmp_path.name}")
    run = bucket.publish(manifest(), tables())
    for name in ("train.csv", "part.0.parquet"):
        bucket.shelf("data-sets").write(name, b"1")
    bucket.shelf(run.id).write("notes.txt", b"mine")
    assert bucket.sweep(-1.0) == 0
    assert bucket.shelf("data-sets").names() == ["part.0.parquet", "train.csv"]


@pytest.mark.parametrize(
    ("keep", "older_s", "tagged", "gone"),
    [
        (None, None, False, set()),
        (1, None, False, {"a-1", "a-2"}),
        (2, None, False, {"a-1"}),
        (None, 35 * 3600.0, False, {"a-1", "b-1"}),
        (1, 35 * 3600.0, False, {"a-1"}),
        (None, 0.0, True, {"a-2", "a-3"}),
    ],
)
def test_a_run_goes_that_no_rule_keeps(aged, keep, older_s, tagged, gone):
    for run_id in ("a-1", "b-1"):
        Tags(aged).add(run_id, "paper")
    listed = aged.list().set_index("id")["bytes"]
    removed = collect(aged, keep, older_s, keep_tagged=tagged)
    assert (set(removed.runs), removed.leftovers) == (gone, 0)
    assert removed.bytes == listed[list(gone)].sum()
    assert set(aged.ids()) == set(HOURS) - gone
    # The tags of a run go with it.
    assert set(Tags(aged).all()) == {"a-1", "b-1"} - gone


def test_a_run_that_another_process_removes_meanwhile_stops_nothing(aged, monkeypatch):
    real = aged.remove

    def remove(run_id):
        real(run_id)
        if run_id == "a-1":
            raise StoreError("there is no such run")

    monkeypatch.setattr(aged, "remove", remove)
    Tags(aged).add("a-2", "paper")
    assert collect(aged, 1, None).runs == ("a-2",)
    assert Tags(aged).all() == {}
    assert set(aged.ids()) == {"a-3", "b-1"}


def test_the_beginning_of_an_id_finds_a_run_and_reads_no_other(aged, monkeypatch):
    read, real = [], aged._read
    monkeypatch.setattr(aged, "_read", lambda run_id: read.append(run_id) or real(run_id))
    assert aged.open("b").id == "b-1"
    assert read == ["b-1"]
    with pytest.raises(StoreError, match="3 runs begin so"):
        aged.open("a-")
    with pytest.raises(StoreError, match="there is no such run"):
        aged.open("")


def test_the_newest_run_stays_whatever_the_zone_of_its_time(store):
    now = datetime.now(UTC)
    east = timezone(timedelta(hours=12))
    for run_id, made in (("a-1", now - timedelta(hours=2)), ("a-2", now - timedelta(hours=1))):
        shown = made.astimezone(east if run_id == "a-1" else UTC)
        store.publish(manifest(run_id, shown.isoformat()) | {"name": "a"}, tables())
    assert collect(store, 1, None).runs == ("a-1",)


def test_usage_is_per_scenario_with_the_largest_first(aged):
    frame = usage(aged)
    assert list(frame) == ["name", "runs", "bytes", "oldest", "newest"]
    assert frame[["name", "runs"]].to_numpy().tolist() == [["a", 3], ["b", 1]]
    ages_h = [age_s(frame[end]).to_numpy() / 3600 for end in ("oldest", "newest")]
    assert [column.round(1).tolist() for column in ages_h] == [[50.0, 40.0], [1.0, 40.0]]


def test_a_run_has_the_tags_that_it_was_given_and_that_were_not_taken_away(store):
    tags = Tags(store)
    for run_id, tag in (("a-1", "v2"), ("a-1", "paper"), ("b-1", "paper"), ("a-1", "v2")):
        tags.add(run_id, tag)
    assert tags.all() == {"a-1": ["paper", "v2"], "b-1": ["paper"]}
    tags.remove("a-1", "v2")
    with pytest.raises(ScenarioError, match=r"run a-1: no tag 'v2'; it has paper$"):
        tags.remove("a-1", "v2")
    tags.forget("a-1")
    with pytest.raises(ScenarioError, match=r"it has none$"):
        tags.remove("a-1", "paper")
    assert tags.all() == {"b-1": ["paper"]}
    tags.add("a-1", "1" + "x" * 39)
    for wrong in ("", ".a", "a b", "x" * 41, "a@b"):
        with pytest.raises(ScenarioError, match="expected at most 40 letters"):
            tags.add("a-1", wrong)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7B", 7),
        ("1.5KiB", 1536),
        ("2 MiB", 2 << 20),
        (" 50GiB ", 50 << 30),
        ("1TiB", 1 << 40),
        ("none", None),
    ],
)
def test_a_size_has_a_unit(text, wanted):
    assert size(text) == wanted
    with pytest.raises(ScenarioError, match=r"^5: expected a number and B, KiB"):
        size("5")
    with pytest.raises(ScenarioError, match="expected a number and B, KiB"):
        size(f"{'9' * 400}GiB")


def test_runs_are_newest_first_whatever_the_zone_and_form_of_their_times(store):
    store.publish(manifest("first-a-1", created_at="2026-01-01T01:00:00+02:00"), tables())
    store.publish(manifest("second-a-1", created_at="2026-W01-4T00:00:00+00:00"), tables())
    store.publish(manifest("third-a-1", created_at="20260101T000000.5Z"), tables())
    listed = store.list()
    assert listed["id"].tolist() == ["third-a-1", "second-a-1", "first-a-1"]
    assert listed["created_at"].tolist()[-1] == "2025-12-31T23:00:00.000+00:00"


def test_a_damaged_quota_is_named_with_its_cure(store):
    store.shelf(".quota").write("bytes", b"much")
    with pytest.raises(StoreError, match=r"\.quota/bytes: not a number; set it again: twinbed runs quota"):
        store.quota.get()
    store.quota.set(None)
    assert store.quota.get() is None


def test_a_replaced_run_counts_once_and_a_damaged_one_as_what_is_on_disk(store):
    run = store.publish(manifest("a-1"), tables())
    size_bytes = int(store.list()["bytes"].sum())
    store.quota.set(int(2.5 * size_bytes))
    again = store_at(str(store.root))
    for _ in range(4):
        again.publish(manifest("a-1"), tables())
    (run.path / "manifest.json").write_text("no manifest")
    assert store.list()["bytes"].sum() > size_bytes / 2
    (run.path / "more").write_bytes(bytes(2 * size_bytes))
    with pytest.raises(StoreError, match="full"):
        again.publish(manifest("a-2"), tables())
