"""The owner of a run: its maker while the lock is held, nobody afterwards, unknown without a lock file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers import leftovers, ownership
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.ownership import end_run, is_alive, is_dead, is_run, lasting_run, new_run
from tests.testbed.containers.dead_runs import dead_run
from tests.testbed.containers.real_groups import folders

SPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
RECORD = (
    "import sys\n"
    "from testbed.containers.record.recorder import ContainerSpec, record\n"
    "record([ContainerSpec('a', tuple(sys.argv[1:]))], app='x')\n"
)


@pytest.fixture
def run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs have their locks: not the machine's own place."""
    monkeypatch.setattr(ownership, "RUN_ROOT", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_its_owners_until_it_is_given_up(run_root: Path) -> None:
    first, second = new_run(), new_run()
    assert first != second
    assert is_run(first)
    assert (is_alive(first), is_dead(first)) == (True, False)
    end_run(first)
    end_run(first)
    assert (is_alive(first), is_dead(first)) == (False, False)
    assert ownership.runs_with_directory() == [second]
    end_run(second)
    assert not run_root.exists()


def test_a_run_without_a_lock_is_neither_alive_nor_dead(run_root: Path) -> None:
    unseen = "run-1-0123456789abcdef"
    assert (is_alive(unseen), is_dead(unseen)) == (False, False)
    assert (is_alive(lasting_run("x")), is_dead(lasting_run("x"))) == (True, False)
    assert (is_alive("someone-else"), is_dead("someone-else")) == (False, False)
    assert (is_alive(dead := dead_run()), is_dead(dead)) == (False, True)


def test_a_dead_run_is_forgotten_once_only_its_lock_is_left(run_root: Path) -> None:
    alive, empty, holding = new_run(), dead_run(), dead_run()
    (run_root / holding / "oci").mkdir()
    ownership.forget_dead()
    assert ownership.runs_with_directory() == sorted((alive, holding))
    assert not is_run(empty) or not (run_root / empty).exists()
    end_run(alive)


def test_what_a_run_could_not_remove_is_found_by_the_next_one(run_root: Path, tmp_path: Path) -> None:
    run, other = new_run(), dead_run()
    stuck = tmp_path / "cgroup" / ownership.MARK / run / "web"
    stuck.mkdir(parents=True)
    driver = V2(tmp_path / "cgroup")
    driver.finish(run)
    assert (is_alive(run), is_dead(run)) == (False, True)
    assert driver.sweep() == [run]
    assert not stuck.exists()
    assert ownership.runs_with_directory() == sorted([run, other])
    leftovers.remove(run, driver)
    assert ownership.runs_with_directory() == [other]


# --- the real kernel ---------------------------------------------------------------------------------


@pytest.fixture
def recording(driver: V1 | V2) -> Iterator[subprocess.Popen[bytes]]:
    """A recording that runs, and that nobody waits for."""
    command = [sys.executable, "-c", RECORD, "sh", "-c", "echo $$; sleep 60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    # The command outlives its killed recorder and holds the pipe.
    leftovers.sweep(driver)
    process.communicate()


def begun(recording: subprocess.Popen[bytes]) -> int:
    """Wait until the command runs, and return its process id."""
    assert recording.stdout is not None
    return int(recording.stdout.readline())


@pytest.mark.root
def test_a_recording_in_a_pid_namespace_leaves_a_live_one_alone(recording: subprocess.Popen[bytes]) -> None:
    command = begun(recording)
    before = folders(f"run-{recording.pid}-")
    if subprocess.run([*SPACE, "true"], check=False).returncode:
        pytest.skip("unshare is refused")
    subprocess.run([*SPACE, sys.executable, "-c", RECORD, "true"], check=True)
    os.kill(command, 0)
    assert recording.poll() is None
    assert folders(f"run-{recording.pid}-") == before != []


@pytest.mark.root
def test_a_recording_with_another_run_directory_is_left_alone_and_named(
    recording: subprocess.Popen[bytes], driver: V1 | V2, run_root: Path
) -> None:
    """The run is like one in a container that shares the cgroups and has a /run of its own."""
    command = begun(recording)
    before = folders(f"run-{recording.pid}-")
    leftovers.sweep(driver)
    assert not [run for run in leftovers.down(driver) if f"-{recording.pid}-" in run.name]
    os.kill(command, 0)
    assert folders(f"run-{recording.pid}-") == before != []
    [seen] = [run for run in leftovers.runs(driver) if f"-{recording.pid}-" in run.name]
    assert (seen.alive, seen.pid, seen.processes >= 1) == (None, None, True)


@pytest.mark.root
def test_a_zombie_recorders_job_is_ended(recording: subprocess.Popen[bytes], driver: V1 | V2) -> None:
    begun(recording)
    recording.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, recording.pid, os.WEXITED | os.WNOWAIT)
    assert folders(f"run-{recording.pid}-") != []
    assert [run.alive for run in leftovers.down(driver) if f"-{recording.pid}-" in run.name] == [False]
    assert folders(f"run-{recording.pid}-") == []
    # The command's output ends when it has ended.
    assert recording.stdout is not None
    assert recording.stdout.read() == b""
