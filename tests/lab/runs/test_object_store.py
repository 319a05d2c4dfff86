"""Stores on folders and on object storage promise the same; what only object storage has beside."""

from __future__ import annotations

import json
import os
import threading

import pandas as pd
import pytest

from lab.runs.compare import as_result
from lab.runs.remote import ObjectStore
from lab.runs.report import document
from lab.runs.store import MANIFEST, RunStore
from lab.runs.stores import store_at
from lab.runs.upkeep import collect, usage
from tests.lab.runs.test_run_store import manifest, tables
from tests.lab.sample_runs import publish
from twinbed import StoreError

fsspec = pytest.importorskip("fsspec", reason="the extra scale is not installed")


@pytest.fixture(scope="session")
def s3():
    """A real S3 server on this machine, with the bucket `runs`."""
    server_of = pytest.importorskip("moto.server", reason="moto's server is not installed").ThreadedMotoServer
    boto3 = pytest.importorskip("boto3")
    server = server_of(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    given = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    given["AWS_DEFAULT_REGION"] = "us-east-1"
    with pytest.MonkeyPatch.context() as patch:
        for key, value in given.items():
            patch.setenv(key, value)
        boto3.client("s3").create_bucket(Bucket="runs")
        yield url
    server.stop()


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        return store_at(f"file://{tmp_path}/runs")
    if request.param == "s3":
        request.getfixturevalue("s3")
        return store_at(f"s3://runs/{tmp_path.name}")
    return store_at(f"memory://runs/{tmp_path.name}")


def test_a_run_is_stored_listed_opened_and_read(store):
    made = [publish(store, text, seed=seed) for text in ("escra", "static") for seed in (0, 1)]
    again = store_at(store.location)
    assert again.ids() == again.names() == sorted(run.id for run in made)
    opened = again.open(made[0].id[:-3])
    assert dict(opened.manifest) == dict(made[0].manifest)
    assert opened.table("periods").equals(made[0].table("periods"))
    assert opened.verify() == []
    assert again.has(made[0].id)
    assert not again.has("none")
    assert [run.id for run in again.open_all([made[1].id, made[0].id])] == [made[1].id, made[0].id]
    frame = again.list()
    assert frame["problem"].tolist() == [""] * 4


def test_a_report_and_a_comparison_read_it(store):
    runs = [publish(store, "escra"), publish(store, "static")]
    assert len(as_result(store.open_all([run.id for run in runs])).rows) == 2
    assert "static" in document([store.open(run.id) for run in runs])


def test_sql_reaches_every_table(store):
    ids = sorted(publish(store, seed=seed).id for seed in range(3))
    answer = store.query("SELECT run, count(*) AS n FROM periods GROUP BY run ORDER BY run")
    assert answer.frame["run"].tolist() == ids
    assert answer.frame["n"].nunique() == 1
    assert store.query("SELECT count(*) AS n FROM runs").frame["n"].tolist() == [3]


def test_a_run_is_replaced_removed_and_exported(store, tmp_path):
    first = store.publish(manifest(), tables(1))
    second = store.publish(manifest(), tables(2))
    assert first.manifest["tables"] != second.manifest["tables"]
    assert store.ids() == [second.id]
    read = store_at(store.location).open(second.id)
    assert read.table("summary").equals(second.table("summary"))
    exported = store.export(second.id, tmp_path / "out")
    assert (exported / MANIFEST).is_file()
    store.remove(second.id)
    assert store.ids() == store.names() == []
    assert usage(store).empty


def test_the_same_run_has_the_same_bytes_in_every_store(store, tmp_path):
    one, two = publish(store), publish(RunStore(tmp_path / "other"))
    assert one.manifest == two.manifest
    for name in one.tables:
        file = f"{name}.parquet"
        assert (one.path / file).read_bytes() == (two.path / file).read_bytes()


def spoil(store, run_id):
    """Make the manifest of a run one that cannot be read."""
    store.shelf(run_id).write(MANIFEST, b"{")


def test_a_damaged_run_is_named_and_stays(store):
    good, bad = publish(store), publish(store, seed=1)
    spoil(store, bad.id)
    problems = store.list().set_index("id")["problem"].to_dict()
    assert problems.pop(good.id) == ""
    assert list(problems) == [bad.id]
    assert problems[bad.id].startswith(f"{MANIFEST}: ")
    assert store.list().set_index("id")["bytes"].to_dict()[bad.id] > good.manifest["bytes"] / 2
    assert store.ids() == [good.id]
    before = store.shelf(bad.id).names()
    assert collect(store, 0, None).runs == (good.id,)
    assert store.sweep(-1.0) == 0
    assert store.shelf(bad.id).names() == before


def test_the_size_of_a_run_that_does_not_tell_it_is_measured_without_fetching_it(store, monkeypatch):
    run = publish(store)
    told = dict(run.manifest)
    size = told.pop("bytes")
    text = (json.dumps(told, indent=1) + "\n").encode()
    store.shelf(run.id).write(MANIFEST, text)
    monkeypatch.setattr(ObjectStore, "fetched", None)
    shorter = len((json.dumps(dict(run.manifest), indent=1) + "\n").encode()) - len(text)
    assert store_at(store.location).list()["bytes"].tolist() == [size - shorter]


def test_a_missing_run_is_named(store):
    publish(store)
    with pytest.raises(StoreError, match="no such run"):
        store.open("gone")
    with pytest.raises(StoreError, match="gone"):
        store.open_all(["gone"])


def test_a_shelf_keeps_small_files_that_are_no_runs(store):
    shelf = store.shelf(".sweeps/x")
    assert shelf.names() == []
    shelf.write("b", b"1")
    shelf.write("a", b"2")
    shelf.write("b", b"3")
    assert (shelf.names(), shelf.read("b")) == (["a", "b"], b"3")
    shelf.remove("a")
    shelf.remove("a")
    assert shelf.names() == ["b"]
    with pytest.raises(StoreError, match="\\.sweeps/x/a"):
        shelf.read("a")
    assert store.names() == store.ids() == []


def test_a_full_store_refuses_a_run_and_keeps_the_others(store):
    run, second = publish(store), publish(store, seed=1)
    store.quota.set(int(store.list()["bytes"].sum()))
    store.remove(second.id)
    again = store_at(store.location)
    publish(again, seed=1)  # to the last byte
    for _ in range(2):
        with pytest.raises(StoreError, match=r"full: .* quota of .*; twinbed runs prune makes room"):
            publish(again, seed=2)
    assert store_at(store.location).ids() == sorted([run.id, second.id])
    again.quota.set(None)
    publish(store_at(store.location), seed=2)


def test_usage_and_collection(store):
    for seed in range(3):
        publish(store, seed=seed, name="large")
    old = publish(store, name="small")
    frame = usage(store)
    assert frame["name"].tolist() == ["large", "small"]
    assert frame["bytes"].tolist()[1] == sum(file.stat().st_size for file in old.path.iterdir())
    assert collect(store, None, None).runs == ()
    assert collect(store, None, 1e12).runs == ()
    assert len(collect(store, 1, 0.0).runs) == 2
    assert collect(store, 0, None).bytes > 0
    assert old.id not in store.ids()


def test_a_run_costs_no_listing_and_no_question_about_sizes(s3, tmp_path, monkeypatch):
    store, asked = store_at(f"s3://runs/{tmp_path.name}"), []
    publish(store, seed=7)  # the first reads the quota
    real = type(store._fs)._call_s3

    async def call(fs, method, *args, **options):
        asked.append(method)
        return await real(fs, method, *args, **options)

    monkeypatch.setattr(type(store._fs), "_call_s3", call)
    assert not store.has(manifest()["id"])
    run = publish(store)
    written = len(run.manifest["tables"]) + len(["announcement", "manifest"])
    store.open(run.id)
    # Asked for before, by the writer, and by `open`: whether it is there, and what it says.
    assert sorted(asked) == ["get_object"] * 4 + ["put_object"] * written


def test_what_another_process_writes_is_seen_at_once(s3, tmp_path):
    boto3 = pytest.importorskip("boto3")
    store = store_at(f"s3://runs/{tmp_path.name}")
    run = publish(store)
    assert store.names() == [run.id]
    boto3.client("s3").delete_object(Bucket="runs", Key=f"{tmp_path.name}/{run.id}/{MANIFEST}")
    assert store.names() == []


class TestHalfARun:
    """The objects that a writer leaves when it dies between two objects are no run."""

    @pytest.fixture
    def dying(self, monkeypatch, tmp_path):
        """A store whose manifest is never written, because the process dies there."""
        store = store_at(f"memory://runs/{tmp_path.name}")
        real = type(store._fs).pipe_file

        def pipe_file(fs, path, value, *args, **options):
            if path.endswith(MANIFEST):
                raise KeyboardInterrupt
            return real(fs, path, value, *args, **options)

        monkeypatch.setattr(type(store._fs), "pipe_file", pipe_file)
        return store

    def test_readers_do_not_see_it_and_gc_removes_it(self, dying, monkeypatch):
        monkeypatch.setattr(type(dying), "_discard", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            publish(dying)
        assert dying.ids() == dying.names() == []
        assert dying.list().empty
        # The tables, and that a manifest was announced.
        assert len(dying._fs.find(dying._prefix)) == 4 + 1
        assert dying.sweep(older_s=3600) == 0
        assert dying.sweep(older_s=-1) == 4
        assert dying._fs.find(dying._prefix) == []

    def test_a_writer_that_is_stopped_leaves_what_another_has_written(self, monkeypatch, tmp_path):
        store = store_at(f"memory://runs/{tmp_path.name}")
        real = type(store._fs).pipe_file

        def pipe_file(fs, path, value, *args, **options):
            if path.endswith(MANIFEST):
                monkeypatch.setattr(type(store._fs), "pipe_file", real)
                publish(store)
                raise KeyboardInterrupt
            return real(fs, path, value, *args, **options)

        monkeypatch.setattr(type(store._fs), "pipe_file", pipe_file)
        with pytest.raises(KeyboardInterrupt):
            publish(store)
        (run,) = store.open_all(store.ids())
        assert run.verify() == []

    def test_a_writer_that_is_stopped_takes_it_back(self, dying):
        with pytest.raises(KeyboardInterrupt):
            publish(dying)
        (announced,) = dying._fs.find(dying._prefix)
        assert "/.said/" in announced


def test_readers_and_writers_at_the_same_time_see_whole_runs_only(tmp_path):
    store = store_at(f"memory://runs/{tmp_path.name}")
    store.publish(manifest(), tables(1))
    seen: list[int] = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            run = store_at(store.location).open_all([manifest()["id"]])[0]
            seen.append(len(run.manifest["tables"]))

    reader = threading.Thread(target=read)
    reader.start()
    for count in range(2, 12):
        store.publish(manifest(), tables(count))
    stop.set()
    reader.join()
    assert set(seen) == {4}


class TestBadAddress:
    """Every bad address gives an error of one line."""

    def test_a_bucket_that_does_not_exist(self, s3):
        with pytest.raises(StoreError, match=r"s3://nobody/x: there is no bucket nobody"):
            store_at("s3://nobody/x")

    def test_no_credentials(self, s3, monkeypatch, tmp_path):
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(key)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
        fsspec.filesystem("s3").clear_instance_cache()
        with pytest.raises(StoreError, match=r"s3://runs/x: .*[Cc]redentials; set AWS_ACCESS_KEY_ID and"):
            store_at("s3://runs/x")
        fsspec.filesystem("s3").clear_instance_cache()

    def test_a_scheme_that_does_not_exist(self):
        with pytest.raises(StoreError, match="nil://x: ValueError: Protocol not known: nil"):
            store_at("nil://x")

    def test_an_empty_name_is_not_the_present_folder(self):
        with pytest.raises(StoreError, match="the store's name is empty"):
            store_at("")

    def test_a_storage_whose_package_is_missing_names_that_package(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
        with pytest.raises(StoreError, match=r"^gs://runs/x: Please install gcsfs to access Google Storage$"):
            store_at("gs://runs/x")

    def test_without_the_extra_one_line_names_it(self, twinbed, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
        monkeypatch.delitem(__import__("sys").modules, "lab.runs.remote", raising=False)
        refused = twinbed("runs", "list", "--store", "s3://runs/x").refused
        assert refused.startswith("the package fsspec is not installed; ")
        assert refused.endswith("pip install 'twinbed[scale]' installs it")


class TestVerbs:
    """`twinbed runs du`, `gc` and `quota`."""

    def test_they_show_make_and_limit_room(self, twinbed, tmp_path):
        store = RunStore(tmp_path / "runs")
        publish(store)
        where = ("--store", str(tmp_path / "runs"))
        assert twinbed("runs", "quota", "1MiB", *where).code == 0
        assert '"quota": 1048576' in twinbed("runs", "du", *where, "--format", "json").out
        assert twinbed("runs", "quota", " none ", *where).code == 0
        assert '"quota"' not in twinbed("runs", "du", *where, "--format", "json").out
        assert twinbed("runs", "prune", "--older", "1x", *where).refused.startswith(
            "--older 1x: expected a number"
        )
        assert twinbed("runs", "quota", "much", *where).refused.startswith("much: expected a number and B")
        assert twinbed("runs", "prune", "--keep", "0", *where).code == 0
        assert store.ids() == []


def test_the_default_store_may_be_a_url(monkeypatch, tmp_path):
    monkeypatch.setenv("TWINBED_STORE", f"memory://runs/{tmp_path.name}")
    assert store_at().location == os.environ["TWINBED_STORE"]
    assert store_at(f"file://{tmp_path}/runs").location == str(tmp_path / "runs")
    with pytest.raises(StoreError, match="expected a folder, not a URL"):
        RunStore()


@pytest.fixture
def indexed(store, monkeypatch):
    """A store that keeps an index from the first run on, and takes a file's time of change for exact."""
    monkeypatch.setattr("lab.runs.store.INDEX_FROM", 1)
    monkeypatch.setattr("lab.runs.remote.INDEX_FROM", 1)
    monkeypatch.setattr("lab.runs.index._SETTLED_S", 0.0)
    return store


def same_as_read(store):
    """The listing is what it is without an index."""
    listed = store.list()
    for name in store.shelf(".index").names():
        store.shelf(".index").remove(name)
    pd.testing.assert_frame_equal(listed, store.list(), check_like=True)
    return set(listed["id"])


def test_an_index_says_what_the_manifests_say(indexed):
    first = publish(indexed, "escra", censored=("cost",))
    assert same_as_read(indexed) == {first.id}
    assert indexed.shelf(".index").names() != []
    second = publish(indexed, "static", metrics={"cost": 2.0})
    assert set(indexed.list()["id"]) == {first.id, second.id}
    changed = {**second.manifest, "metrics": {**second.manifest["metrics"], "cost": 7.0}}
    indexed.publish(changed, {name: second.table(name) for name in second.tables})
    assert indexed.list().set_index("id")["cost"].to_dict()[second.id] == 7.0
    assert indexed.query("SELECT max(cost) AS most FROM runs").frame["most"].tolist() == [7.0]
    indexed.remove(first.id)
    assert set(indexed.list()["id"]) == same_as_read(indexed) == {second.id}
    publish(indexed, "escra")
    indexed.list()
    assert same_as_read(indexed) == {first.id, second.id}


def test_what_is_indexed_is_not_read_again(indexed, monkeypatch):
    made = {publish(indexed, seed=seed).id for seed in range(3)}
    indexed.list()
    for read in ("lab.runs.store._read_run", "lab.runs.remote.manifest_of"):
        monkeypatch.setattr(read, None)
    assert set(indexed.list()["id"]) == made
    assert len(indexed.query("SELECT DISTINCT run FROM periods").frame) == 3


def test_an_index_is_not_written_again_for_a_run_that_cannot_be_read(indexed):
    good, bad = publish(indexed), publish(indexed, seed=1)
    spoil(indexed, bad.id)
    indexed.list()
    written = indexed.shelf(".index").names()
    assert set(indexed.list()["id"]) == {good.id, bad.id}
    assert indexed.shelf(".index").names() == written != []


@pytest.mark.parametrize("content", [b"damaged", pd.DataFrame({"id": ["a"]}).to_parquet()])
def test_a_damaged_index_is_made_again(indexed, content):
    run = publish(indexed)
    indexed.list()
    (name,) = indexed.shelf(".index").names()
    indexed.shelf(".index").write(name, content)
    assert indexed.list()["id"].tolist() == [run.id]


def test_two_readers_who_index_at_once_lose_nothing(indexed):
    publish(indexed, seed=0)
    indexed.list()
    late = publish(indexed, seed=1)
    kept = {name: indexed.shelf(".index").read(name) for name in indexed.shelf(".index").names()}
    indexed.list()
    # Another reader, who has read before, writes what it knows.
    for name, content in kept.items():
        indexed.shelf(".index").write(f"{name}0", content)
    assert late.id in set(indexed.list()["id"])


def test_a_manifest_changed_by_hand_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.runs.store.INDEX_FROM", 1)
    monkeypatch.setattr("lab.runs.index._SETTLED_S", 0.0)
    store = RunStore(tmp_path)
    run = publish(store)
    store.list()
    (run.path / MANIFEST).write_text("{}")
    assert store.list()["problem"].tolist() != [""]
    other = publish(store, seed=1)
    store.list()
    (other.path / "summary.parquet").unlink()
    assert "tables missing: summary" in store.list().set_index("id")["problem"][other.id]


def test_what_is_announced_but_not_written_stays_announced(s3, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.runs.remote.INDEX_FROM", 1)
    store = store_at(f"s3://runs/{tmp_path.name}")
    publish(store)
    store.list()
    store.shelf(".said").write("0123456789abcdef.sample-escra-0000000000", b"")
    assert len(store.list()) == 1
    # That of the run which was written is gone, because the index has it.
    assert store.shelf(".said").names() == ["0123456789abcdef.sample-escra-0000000000"]
    collect(store, None, None)
    assert store.shelf(".index").names() == []
    assert len(store.list()) == 1
