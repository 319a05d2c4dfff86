"""A store whose writers, removers and sweepers are killed at every step, and the order of the steps."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.runs import publishing
from lab.runs.publishing import machine
from lab.runs.store import RunStore
from tests.lab.killed_steps import killed_before
from tests.lab.runs import store_steps
from tests.lab.runs.store_steps import RUN
from tests.lab.runs.test_run_store import manifest, tables
from twinbed.ownership import is_mine

OTHER = "mine-static-0000000001"
LEAST_STEPS = {"publish": 25, "remove": 10, "sweep": 15}
"""Fewer would mean that the steps are not seen."""


def begin(root: Path, work: str, *, former: bool) -> publishing.Working:
    """Fill a store for one try; return what a second, living writer writes meanwhile."""
    shutil.rmtree(root, ignore_errors=True)
    store = RunStore(root)
    store.publish(manifest(OTHER), tables(3))
    if former or work != "publish":
        store.publish(manifest(RUN), tables(5))
    if work == "sweep":
        (root / RUN).rename(root / f".old-{'0' * 16}-{RUN}")
        shutil.copytree(root / OTHER, root / f".old-{'0' * 16}-{OTHER}")
        shutil.copytree(root / OTHER, root / f".new-{machine()}{'0' * 8}-{OTHER}")
        shutil.copytree(root / OTHER, root / f".gone-{'0' * 16}-{OTHER}")
    second = publishing.Working(root, "mine-vpa-0000000002")
    second.make()
    return second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "former", "rows"),
    [
        ("publish", False, {None, 9}),
        ("publish", True, {5, 9}),
        ("remove", True, {None, 5}),
        ("sweep", True, {5}),
    ],
)
def test_a_run_is_whole_or_gone_wherever_a_process_is_killed(tmp_path, work, former, rows):
    root, seen = tmp_path / "runs", set()
    for step in itertools.count(1):
        second = begin(root, work, former=former)
        killed = killed_before(step, getattr(store_steps, work), root)
        opened = RunStore(root)
        assert not opened.list()["problem"].any(), step
        assert opened.open(OTHER).verify() == []
        found = None
        if opened.has(RUN):
            assert opened.open(RUN).verify() == []
            found = opened.open(RUN).table("periods").num_rows
        assert found in rows, step
        seen.add(found)
        # The second writer was not disturbed, and nothing else is left.
        hidden = [entry.name for entry in root.iterdir() if entry.name.startswith(".")]
        assert sorted(hidden) == sorted([".lock", second.folder.name]), step
        second.discard()
        if not killed:
            break
    assert step > LEAST_STEPS[work]
    assert seen == rows


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """Return the renames and syncs in the store `runs`, in order; ` unlocked` follows where the store's lock
    is not held."""
    root, taken = tmp_path / "runs", list[str]()
    rename, fsync = os.rename, os.fsync

    def plain(path: Path) -> str:
        kind = path.name.split("-")[0] if path.name.startswith(".") else path.name
        return kind if path.parent == root else path.name if path == root else f"{plain(path.parent)}/{kind}"

    def note(what: str) -> None:
        taken.append(what if is_mine(root / ".lock") else f"{what} unlocked")

    def noted_rename(source: Path, target: Path) -> None:
        note(f"rename {plain(Path(source))} {plain(Path(target))}")
        rename(source, target)

    def noted_fsync(descriptor: int) -> None:
        note(f"sync {plain(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        fsync(descriptor)

    monkeypatch.setattr(os, "rename", noted_rename)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    return taken


FILES = [f"sync .new/{name}.parquet unlocked" for name in ("summary", "containers", "events", "periods")]
FILES += ["sync .new/manifest.json unlocked", "sync .new"]


def test_everything_is_synced_before_the_rename_and_the_root_after_it(tmp_path, steps):
    store = RunStore(tmp_path / "runs")
    store.publish(manifest(RUN), tables())
    assert steps == [*FILES, f"rename .new {RUN}", "sync runs"]
    steps.clear()
    store.publish(manifest(RUN), tables())
    assert steps == [*FILES, f"rename {RUN} .old", f"rename .new {RUN}", "rename .old .gone", "sync runs"]
    steps.clear()
    store.remove(RUN)
    assert steps == [f"rename {RUN} .gone", "sync runs"]


def test_what_is_synced_is_whole_and_no_file_stays_open(tmp_path, monkeypatch):
    """A machine that loses power after the rename has nothing of a file but what was synced."""
    sizes, fsync = dict[str, int](), os.fsync

    def noted_fsync(descriptor: int) -> None:
        sizes[Path(f"/proc/self/fd/{descriptor}").readlink().name] = os.fstat(descriptor).st_size
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    run = RunStore(tmp_path / "runs").publish(manifest(RUN), tables())
    files = {file.name: file.stat().st_size for file in run.path.iterdir()}
    assert {name: sizes[name] for name in files} == files
    before = len(list(Path("/proc/self/fd").iterdir()))
    RunStore(tmp_path / "runs").publish(manifest(RUN), tables())
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "no file stays open"


def test_a_sweep_renames_under_the_lock_and_leaves_alone_what_is_being_written(tmp_path, steps):
    second = begin(tmp_path / "runs", "sweep", former=True)
    steps.clear()
    RunStore(tmp_path / "runs")
    assert steps == ["rename .new .gone", f"rename .old {RUN}", "rename .old .gone"]
    assert second.folder.exists(), "it is being written"
    second.discard()


def test_two_writers_of_one_run_and_a_reader_never_see_half_a_run(tmp_path):
    root, writers = tmp_path / "runs", []
    RunStore(root).publish(manifest(RUN), tables(1))
    for rows in (1, 9):
        store = RunStore(root)
        writers.append(
            threading.Thread(
                target=lambda store=store, rows=rows: [
                    store.publish(manifest(RUN), tables(rows)) for _ in range(15)
                ]
            )
        )
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        listing = RunStore(root).list()
        assert listing[["id", "problem"]].to_numpy().tolist() == [[RUN, ""]]
    assert RunStore(root).open(RUN).verify() == []
    assert [entry.name for entry in root.iterdir() if entry.name.startswith(".")] == [".lock"]


def test_an_interrupt_before_the_lock_is_taken_leaves_nothing(tmp_path, monkeypatch):
    store = RunStore(tmp_path)
    take = publishing.take

    def interrupted(path: Path, *patience: Any) -> Any:
        if path.name == "lock":
            raise KeyboardInterrupt
        return take(path, *patience)

    monkeypatch.setattr(publishing, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.publish(manifest(), tables())
    assert list(store.root.glob(".new-*")) == []


class TestAnotherMachine:
    """A shared folder whose mount keeps locks on each machine."""

    @pytest.fixture
    def leftover(self, tmp_path):
        folder = tmp_path / f".new-{'0' * 8}{'1' * 8}-run"
        folder.mkdir()
        (folder / "lock").touch()
        return folder

    def test_what_it_writes_is_left_alone(self, leftover):
        RunStore(leftover.parent)
        assert leftover.exists()

    @pytest.mark.parametrize(("hours", "stays"), [(23, True), (25, False)])
    def test_what_did_not_change_for_a_day_goes(self, leftover, monkeypatch, hours, stays):
        clock = SimpleNamespace(time=lambda: time.time() + hours * 3600.0)
        monkeypatch.setattr("lab.runs.publishing.time", clock)
        RunStore(leftover.parent)
        assert leftover.exists() is stays

    def test_what_is_older_than_is_asked_for_goes(self, leftover):
        store = RunStore(leftover.parent)
        assert (store.sweep(3600.0), leftover.exists()) == (0, True)
        assert (store.sweep(-1.0), leftover.exists()) == (1, False)

    def test_what_died_here_goes_at_once(self, leftover):
        own = leftover.rename(leftover.with_name(f".new-{machine()}{'1' * 8}-run"))
        RunStore(leftover.parent)
        assert not Path(own).exists()


ROOT = Path(__file__).resolve().parents[3]
WRITER = """
import sys
import lab.runs.store as s
import tests.lab.runs.test_run_store as t

def wait(*args, **options):
    print("writing", flush=True)
    sys.stdin.read()

s.pq.write_table = wait
s.RunStore(sys.argv[1]).publish(t.manifest(), t.tables())
"""


@pytest.mark.apart
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace of its own needs root")
@pytest.mark.parametrize("apart", ["reader", "writer"])
def test_a_list_leaves_alone_what_a_writer_of_another_pid_namespace_writes(tmp_path, apart):
    space = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*space, "true"], check=False).returncode:
        pytest.skip("unshare is refused")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writer = subprocess.Popen(
        [*(space if apart == "writer" else ()), sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        before = hidden(tmp_path)
        assert len(before) >= 1
        reader = [sys.executable, "-m", "lab.cli.main", "runs", "list", "--store", str(tmp_path)]
        subprocess.run([*(space if apart == "reader" else ()), *reader], check=True, env=environment)
        assert hidden(tmp_path) == before
        writer.kill()
        # The namespace ends when the writer inside has ended.
        assert writer.stdout.read() == b""
    RunStore(tmp_path)
    assert hidden(tmp_path) == []


def hidden(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.name != ".lock")
