import ast
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lab.runs import store as store_module
from lab.runs.store import Run, RunStore
from twinbed import StoreError

ROOT = Path(__file__).resolve().parents[3]


def tables(rows: int = 5) -> dict[str, pa.Table]:
    names = pa.array(["c0"] * rows).dictionary_encode()
    return {
        "summary": pa.table({"metric": ["cost"], "value": [1.5], "unit": ["USD"]}),
        "containers": pa.table({"container": ["c0"], "app": ["a"], "cost": [1.5]}),
        "events": pa.table({"at_s": [0.5], "container": ["c0"], "kind": ["oom"], "limit_bytes": [4096]}),
        "periods": pa.table(
            {
                "period": np.arange(rows, dtype=np.int32),
                "container": names,
                "usage_cores": np.ones(rows, np.float32),
            }
        ),
    }


def manifest(run_id: str = "mine-escra-0123456789", created_at: str = "2026-01-01T00:00:00.000+00:00"):
    return {
        "schema": 1,
        "id": run_id,
        "identity_sha256": "ab" * 32,
        "name": "mine",
        "title": "",
        "question": "",
        "spec": {"period_s": 0.1},
        "policy": "escra",
        "seed": 0,
        "backend": "twin",
        "inputs": [{"role": "trace", "sha256": "ab" * 32, "source": "x.csv"}],
        "calibration": {
            "name": "here", "kernel": "6.1", "cpu": "a CPU", "date": "2026-01-01", "sha256": "cd" * 32,
            "values": {},
        },
        "versions": {"twinbed": "0"},
        "notes": [],
        "created_at": created_at,
        "wall_s": 0.5,
        "metrics": {"cost": 1.5, "memory_slack_p50_mib": None},
    }  # fmt: skip


def test_a_published_run_is_listed_opened_and_read_back(store):
    run = store.publish(manifest(), tables())
    assert store.ids() == [run.id]
    again = store.open(run.id)
    assert again.manifest == run.manifest
    assert again.frame("periods")["usage_cores"].tolist() == [1.0] * 5
    assert again.table("periods", ["period"]).column_names == ["period"]
    assert list(again.frame("periods", ["period"])) == ["period"]
    assert np.isnan(again.metrics["memory_slack_p50_mib"])
    assert again.verify() == []
    files = {file.name: file.stat().st_size for file in run.path.iterdir()}
    assert set(files) == {"manifest.json", *(f"{name}.parquet" for name in tables())}
    assert run.manifest["bytes"] == sum(files.values())


def test_a_run_opens_by_the_beginning_of_its_id_if_that_is_unique(store):
    store.publish(manifest("mine-escra-00"), tables())
    store.publish(manifest("mine-static-00"), tables())
    assert store.open("mine-e").id == "mine-escra-00"
    with pytest.raises(StoreError, match=r"2 runs begin so .*: mine-escra-00, mine-static-00$"):
        store.open("mine")
    for name in ("mine-vpa-00", "mine-krr-00"):
        store.publish(manifest(name), tables())
    with pytest.raises(
        StoreError, match=r"4 runs begin so .*: mine-escra-00, mine-krr-00, mine-static-00, …$"
    ):
        store.open("mine")
    with pytest.raises(StoreError, match="no such run"):
        store.open("other")


@pytest.mark.parametrize("run_id", ["", "..", ".", "../runs", "/etc"])
def test_an_id_is_never_a_path(store, run_id):
    with pytest.raises(StoreError):
        store.open(run_id)


def test_the_same_tables_give_the_same_bytes(tmp_path):
    one, two = (
        RunStore(tmp_path / "new" / name).publish(manifest(), tables(1000)) for name in ("one", "two")
    )
    assert one.manifest["tables"] == two.manifest["tables"]
    assert (one.path / "periods.parquet").read_bytes() == (two.path / "periods.parquet").read_bytes()


def test_a_run_of_the_same_id_is_replaced(store):
    store.publish(manifest(created_at="2026-01-01T00:00:00+00:00"), tables(5))
    store.publish(manifest(created_at="2026-02-01T00:00:00+00:00"), tables(9))
    assert len(store.ids()) == 1
    assert store.open(store.ids()[0]).table("periods").num_rows == 9
    assert hidden(store) == []


def test_remove_deletes_the_run_and_nothing_else(store):
    store.publish(manifest("mine-a-1"), tables())
    store.publish(manifest("mine-b-1"), tables())
    store.remove("mine-a-1")
    assert store.ids() == ["mine-b-1"]
    assert hidden(store) == []


def full(*_args, **_options):
    """Fail like every call on a full file system."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_export_writes_a_directory_or_a_zip_and_never_over_something(store, tmp_path, monkeypatch):
    run = store.publish(manifest(), tables())
    folder = store.export(run.id, tmp_path / "copy")
    assert (folder / "manifest.json").read_bytes() == (run.path / "manifest.json").read_bytes()
    archive = store.export(run.id, tmp_path / "copy.zip")
    with zipfile.ZipFile(archive) as content:
        assert f"{run.id}/periods.parquet" in content.namelist()
    with pytest.raises(StoreError, match="exists already"):
        store.export(run.id, folder)
    with pytest.raises(StoreError, match="cannot be written"):
        store.export(run.id, tmp_path / "nowhere" / "copy")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    for half in ("half", "half.zip"):
        with pytest.raises(StoreError, match=r"half.*: cannot be written: No space left"):
            store.export(run.id, tmp_path / half)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy", "copy.zip", "runs"]


@pytest.mark.parametrize("target", ["copy", "copy.zip"])
def test_an_export_during_which_the_run_is_replaced_is_of_one_run(store, tmp_path, monkeypatch, target):
    former = store.publish(manifest(), tables(5))
    copied, copy_file = [], shutil.copyfileobj

    def replaced_after_the_first(source, copy):
        copy_file(source, copy)
        copied.append(source)
        if len(copied) == 1:
            store.publish(manifest(), tables(7))

    monkeypatch.setattr(shutil, "copyfileobj", replaced_after_the_first)
    path = store.export(former.id, tmp_path / target)
    if target.endswith(".zip"):
        zipfile.ZipFile(path).extractall(tmp_path / "unpacked")
        path = tmp_path / "unpacked" / former.id
    assert Run(path, json.loads((path / "manifest.json").read_text())).verify() == []
    assert len(list(path.iterdir())) == 1 + len(former.tables)


def test_a_store_knows_which_runs_it_has(store):
    run = store.publish(manifest(), tables())
    assert store.has(run.id)
    assert not store.has(run.id[:-1])
    (run.path / "manifest.json").write_text("{}")
    assert not store.has(run.id)


def test_what_is_only_read_stays_as_it_was(tmp_path):
    store = RunStore(tmp_path)
    assert (store.ids(), store.list().empty, store.sweep(0)) == ([], True, 0)
    assert RunStore(tmp_path / "nowhere").sweep(0) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_lists_nothing_and_says_so_when_queried(store):
    assert store.list().empty
    with pytest.raises(StoreError, match="no runs"):
        store.query("SELECT 1")


def test_damaged_and_foreign_directories_are_reported_and_the_rest_works(store):
    good = store.publish(manifest("mine-good-1"), tables())
    (store.root / "photos").mkdir()
    (store.root / "notes.txt").write_text("hello")
    broken = store.publish(manifest("mine-broken-1"), tables())
    (broken.path / "manifest.json").write_text("{")
    short = store.publish(manifest("mine-short-1"), tables())
    (short.path / "periods.parquet").unlink()
    shutil.copytree(good.path, store.root / "mine-renamed-1")
    problems = store.list().set_index("id")["problem"].to_dict()
    assert problems.pop("mine-good-1") == ""
    assert set(problems) == {"photos", "notes.txt", "mine-broken-1", "mine-short-1", "mine-renamed-1"}
    assert all(problems.values())
    answer = store.query("SELECT count(*) AS n FROM periods")
    assert answer.frame["n"].item() == 5
    assert sorted(line.partition(":")[0] for line in answer.problems) == sorted(problems)


def damage(path: Path, how: str) -> None:
    """Spoil the run in a directory in one way."""
    file, table = path / "manifest.json", path / "periods.parquet"
    said = json.loads(file.read_text())
    if how == "table":
        table.write_bytes(b"PAR1 and no more")
    elif how == "columns":
        pa.parquet.write_table(pa.table({"nothing": ["known"]}), table)
    elif how in ("manifest loop", "table loop"):
        loop = file if how == "manifest loop" else table
        loop.unlink()
        loop.symlink_to(loop.name)
    elif how == "manifest folder":
        file.unlink()
        file.mkdir()
    elif how == "table folder":
        table.unlink()
        table.mkdir()
    else:
        texts = {
            "nesting": "[" * 100_000, "digits": '{"seed": ' + "9" * 5_000 + "}", "bytes": "\udcff",
            "list": "[]", "time": json.dumps(said | {"created_at": 5}),
            "no zone": json.dumps(said | {"created_at": "2026-01-01"}),
            "no UTC": json.dumps(said | {"created_at": "0001-01-01T00:00:00+01:00"}),
            "metric": json.dumps(said | {"metrics": {"cost": "much"}}),
            "not a number": json.dumps(said | {"metrics": {"cost": float("nan")}}),
            "seed": json.dumps(said | {"seed": None}), "tables": json.dumps(said | {"tables": 1}),
            "table elsewhere": json.dumps(said | {"tables": said["tables"] | {"../../x\0": "0"}}),
            "schema": json.dumps(said | {"schema": 2}), "spec": json.dumps(said | {"spec": ["period_s"]}),
            "versions": json.dumps({key: value for key, value in said.items() if key != "versions"}),
        }  # fmt: skip
        file.write_text(texts[how], errors="surrogateescape")


NAMED = {
    "nesting": "manifest.json: ",
    "list": "manifest.json: its content: ",
    "metric": "manifest.json: metrics.cost: ",
    "versions": "manifest.json: versions: ",
    "manifest folder": "manifest.json cannot be read: ",
}
"""What the line about a bad run begins with, where that is ours to say."""


@pytest.mark.parametrize(
    "how",
    [
        *("table", "columns", "table loop", "table folder"),
        *("manifest loop", "manifest folder", "nesting", "digits", "bytes", "list", "time", "no zone"),
        *("no UTC", "metric", "not a number", "seed", "tables", "table elsewhere", "schema", "spec"),
        "versions",
    ],
)
def test_one_bad_run_is_named_in_one_line_and_the_others_are_listed_and_queried(store, how):
    good = store.publish(manifest("mine-good-1"), tables(5))
    bad = store.publish(manifest("mine-bad-1"), tables(7))
    damage(bad.path, how)
    assert "mine-good-1" in store.ids()
    problems = store.list().set_index("id")["problem"].to_dict()
    assert set(problems) == {good.id, bad.id}
    answer = store.query("SELECT run, count(container) AS n FROM periods GROUP BY run")
    assert answer.frame.to_dict("list") == {"run": [good.id], "n": [5]}
    [problem] = answer.problems
    assert problem.startswith(f"{bad.id}: {NAMED.get(how, '')}")
    assert problem.isprintable()


def test_a_metric_cannot_take_the_place_of_what_names_a_run(store):
    store.publish(manifest() | {"metrics": {"id": 1.0, "created_at": 2.0}}, tables())
    assert store.list()["id"].tolist() == ["mine-escra-0123456789"]


def test_a_name_that_no_terminal_prints_is_shown_in_signs_that_it_does(store):
    store.publish(manifest(), tables())
    (store.root / "two\nlines").mkdir()
    Path(os.fsdecode(os.fsencode(store.root) + b"/\xff")).mkdir()
    names = store.list()["id"].tolist()
    assert sorted(names) == sorted(
        ["mine-escra-0123456789", "two\N{REPLACEMENT CHARACTER}lines", "\N{REPLACEMENT CHARACTER}"]
    )


@pytest.fixture
def open_folder():
    """A folder that every user may look into, as those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.apart
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="to give up permissions one must have them")
def test_without_permissions_a_store_is_read_and_its_bad_runs_are_named(open_folder):
    store = RunStore(open_folder / "runs")
    good = store.publish(manifest("mine-good-1"), tables(5))
    private, secret = (store.publish(manifest(f"mine-{name}-1"), tables()) for name in ("private", "secret"))
    (store.root / f".old-{'0' * 16}-mine-x-1").mkdir()
    private.path.chmod(0o700)
    (secret.path / "periods.parquet").chmod(0o600)
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import tests.lab.runs.test_run_store as t
from lab.runs.store import RunStore
# Some modules are imported at the first query, from where not everybody may read.
other = RunStore({str(open_folder / "other")!r})
other.publish(t.manifest(), t.tables())
other.list(), other.query("SELECT run FROM periods")
os.setuid(65534)
store = RunStore({str(store.root)!r})
print(store.list().set_index("id")["problem"].to_dict())
print(store.query("SELECT run FROM periods").frame["run"].unique().tolist())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    problems, asked = (ast.literal_eval(line) for line in said.splitlines())
    assert problems.pop(good.id) == ""
    assert "Permission denied" in problems[private.id]
    assert "periods" in problems[secret.id]
    assert asked == [good.id]


def test_a_damaged_table_is_named_when_read_and_when_verified(store):
    run = store.publish(manifest(), tables())
    (run.path / "periods.parquet").write_bytes(b"not parquet")
    with pytest.raises(StoreError, match=r"periods\.parquet: cannot be read"):
        run.table("periods")
    assert len(run.verify()) == 1
    with pytest.raises(StoreError, match="no table 'secrets'"):
        run.table("secrets")


@pytest.mark.parametrize("failing", ["fsync", "write_table"])
def test_a_full_disk_leaves_no_run_and_names_the_path(store, monkeypatch, failing):
    monkeypatch.setattr(*((os, "fsync") if failing == "fsync" else (store_module.pq, "write_table")), full)
    opened = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(StoreError, match="mine-escra-0123456789: cannot be written: No space left"):
        store.publish(manifest(), tables())
    assert len([*Path("/proc/self/fd").iterdir()]) == opened
    assert store.ids() == []
    assert hidden(store) == []


def test_a_table_that_cannot_be_parquet_leaves_no_run_and_is_told_with_the_reason(store):
    interval = pa.array([pa.MonthDayNano([1, 2, 3])])
    with pytest.raises(StoreError, match=r"mine-escra-0123456789: cannot be written: .*interval"):
        store.publish(manifest(), tables() | {"periods": pa.table({"of": interval})})
    assert store.ids() == hidden(store) == []


def test_a_failed_replacement_keeps_the_run_that_was_there(store, monkeypatch):
    store.publish(manifest(), tables(5))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError):
        store.publish(manifest(), tables(9))
    assert store.open(store.ids()[0]).table("periods").num_rows == 5


def test_an_interrupt_while_writing_leaves_nothing(store, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module.pq, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.publish(manifest(), tables())
    assert hidden(store) == []


@pytest.mark.apart
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_really_full_file_system_leaves_no_run(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(root)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mount refused: {mounted.stderr.decode().strip()}")
    try:
        big = tables(1) | {"periods": pa.table({"noise": np.random.default_rng(0).random(200_000)})}
        with pytest.raises(StoreError, match="No space left on device"):
            RunStore(root).publish(manifest(), big)
        assert [each.name for each in root.iterdir() if each.name != ".lock"] == []
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.mark.parametrize("home", ["free", "taken"])
def test_a_former_run_goes_back_where_its_place_is_free_and_is_removed_where_it_is_not(store, home):
    """Its writer was killed between two renames."""
    run = store.publish(manifest(), tables(5))
    run.path.rename(store.root / f".old-{'0' * 16}-{run.id}")
    if home == "taken":
        shutil.copytree(store.root / f".old-{'0' * 16}-{run.id}", run.path)
        (run.path / "periods.parquet").write_bytes(b"the present one")
    opened = RunStore(store.root)
    assert opened.ids() == [run.id]
    assert hidden(store) == []
    present = (run.path / "periods.parquet").read_bytes() == b"the present one"
    assert present == (home == "taken")


def test_what_is_hidden_and_not_ours_stays(store):
    store.publish(manifest(), tables())
    (store.root / ".git").mkdir()
    (store.root / ".new-notes").mkdir()
    RunStore(store.root)
    assert sorted(hidden(store)) == [".git", ".new-notes"]


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a directory"):
        RunStore(tmp_path / "file")


def test_a_root_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        RunStore(tmp_path / "file" / "runs").publish(manifest(), tables())


def test_the_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path / "here"))
    assert RunStore().root == tmp_path / "here"
    monkeypatch.delenv("TWINBED_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert RunStore().root == tmp_path / "twinbed" / "runs"


def test_manifests_are_plain_json_without_nan(store):
    run = store.publish(manifest(), tables())
    assert json.loads((run.path / "manifest.json").read_text())["metrics"]["memory_slack_p50_mib"] is None


def hidden(store):
    names = [each.name for each in store.root.iterdir()]
    return [name for name in names if name.startswith(".") and name != ".lock"]
