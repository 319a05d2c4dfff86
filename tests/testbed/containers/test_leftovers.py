"""The leftovers of runs and their removal: dead runs, live runs that are asked to end, and never others'
things."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers import leftovers, ownership
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.ownership import is_alive, lasting_run, new_run
from testbed.containers.remote.place import STATE
from tests.patience import PATIENCE_S
from tests.testbed.containers.dead_runs import dead_run
from tests.testbed.containers.real_groups import folders
from tests.testbed.containers.waiting import is_gone, until
from twinbed import BackendError

pytestmark = pytest.mark.root

HOLD = (
    "import signal, subprocess, sys, time\n"
    "from testbed.containers.cgroup.drivers import detect\n"
    "from testbed.containers.ownership import new_run\n"
    "signal.signal(signal.SIGTERM, signal.{on_term})\n"
    "run = new_run()\n"
    "group = detect().create(run, 'web')\n"
    "child = subprocess.Popen(['sleep', '60'], preexec_fn=group.enter, stdout=2)\n"
    "print(run, child.pid, flush=True)\n"
    "time.sleep(60)"
)


AGENT = (
    "import signal, sys, time\n"
    "from testbed.containers.cgroup.drivers import detect\n"
    "from testbed.containers.remote.origin import Origin\n"
    "from testbed.containers.remote.place import CgroupPlace\n"
    "place = CgroupPlace(sys.argv[1], detect())\n"
    "place.create('web')\n"
    "place.remember([Origin('web', ('sleep', '60'))])\n"
    "print('there', flush=True)\n"
    "time.sleep(60)"
)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that this test is about: those of others on this machine are not to be ended."""
    names: list[str] = []
    everything = leftovers.runs
    monkeypatch.setattr(
        leftovers, "runs", lambda driver: tuple(each for each in everything(driver) if each.name in names)
    )
    return names


class Holders:
    """Starts processes that hold a run, and adds their runs to those that the test is about."""

    def __init__(self, only: list[str]) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._only = only

    def run(self, on_term: str = "SIG_DFL") -> tuple[str, int]:
        """A run with one command inside: its name and the command's process."""
        run, child = self._start(HOLD.format(on_term=on_term)).split()
        self._only.append(run)
        return run, int(child)

    def agent(self, name: str) -> str:
        """An agent of that name with one group, as far as others can tell; its run."""
        self._only.append(lasting_run(name))
        assert self._start(AGENT, name) == "there"
        return self._only[-1]

    def kill(self) -> None:
        self.processes[-1].kill()
        self.processes[-1].wait()

    def _start(self, program: str, *arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert self.processes[-1].stdout is not None
        return self.processes[-1].stdout.readline().decode().strip()


@pytest.fixture
def holders(driver: V1 | V2, only: list[str]) -> Iterator[Holders]:
    """Processes that hold a run; ended afterwards."""
    made = Holders(only)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def there(run: str) -> list[str]:
    return folders(run) + [str(path) for path in ownership.RUN_ROOT.glob(run)]


def test_a_run_is_listed_with_what_it_has(holders: Holders, driver: V1 | V2) -> None:
    run, _ = holders.run()
    ownership.make_directory(run, "oci", "web")
    [found] = leftovers.runs(driver)
    assert (found.name, found.alive, found.pid) == (run, True, holders.processes[0].pid)
    assert found.groups >= 2
    assert (found.processes, found.networks, found.containers, found.attached) == (1, 0, 1, 0)
    leftovers.down(driver, live=True)


def test_what_is_alive_is_left_alone_unless_asked_for(holders: Holders, driver: V1 | V2) -> None:
    run, child = holders.run()
    assert leftovers.down(driver) == ()
    assert not is_gone(child)
    assert [each.name for each in leftovers.down(driver, live=True)] == [run]
    assert holders.processes[0].wait(PATIENCE_S) == -signal.SIGTERM
    until(lambda: is_gone(child))
    assert there(run) == []


def test_a_process_that_does_not_listen_is_ended_all_the_same(
    holders: Holders, driver: V1 | V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "ENDING_TIMEOUT_S", 0.2)
    run, child = holders.run(on_term="SIG_IGN")
    leftovers.down(driver, live=True)
    assert holders.processes[0].wait(PATIENCE_S) == -signal.SIGKILL
    until(lambda: is_gone(child))
    assert there(run) == []


def test_a_killed_run_is_removed_with_its_commands(holders: Holders, driver: V1 | V2) -> None:
    run, child = holders.run()
    ownership.make_directory(run, "runc", "state")
    holders.kill()
    assert not is_alive(run)
    assert not is_gone(child)
    assert [each.name for each in leftovers.down(driver)] == [run]
    until(lambda: is_gone(child))
    assert there(run) == []
    assert leftovers.down(driver) == ()


def test_a_run_that_is_to_last_has_no_process_to_end(driver: V1 | V2, only: list[str]) -> None:
    run = lasting_run("a test of leftovers")
    only.append(run)
    group = driver.create(run, "web")
    group.close()
    assert leftovers.down(driver) == ()
    assert [each.name for each in leftovers.down(driver, live=True)] == [run]
    assert there(run) == []


def test_temporary_files_of_a_killed_run_are_removed_with_it(
    driver: V1 | V2, only: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ownership.temporary_directory() as live:
        run, link = "run-4194300-0123456789abcdef", "run-4194300-0123456789abcde0"
        dead = tmp_path / f"twinbed-{run}"
        for each in (live, dead):
            (each / "logs").mkdir(parents=True)
        (dead / ".lock").touch()
        (tmp_path / f"twinbed-{link}").symlink_to("/etc")
        only += [run, link, *ownership.temporary_directories()]
        assert {each.name: each.folders for each in leftovers.runs(driver)}[run] == 1
        assert [each.name for each in leftovers.down(driver)] == [run]
        assert not dead.exists()
        assert live.exists()
    assert not live.exists()


@pytest.mark.parametrize("full", [False, True])
def test_a_temporary_directory_replaces_that_of_a_killed_process_and_no_other(
    full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """full: a process that begins later finds no room there, and has its files in another usual place."""
    tmp_path, other = tmp_path / "usual", tmp_path / "other"
    tmp_path.mkdir()
    other.mkdir()
    monkeypatch.setattr(ownership, "USUAL", (str(tmp_path), str(other)))
    monkeypatch.setattr(tempfile, "tempdir", str(other if full else tmp_path))
    foreign = tmp_path / "twinbed-run-mine"
    foreign.mkdir()
    maker = (
        "import os, signal\n"
        "from testbed.containers.ownership import temporary_directory\n"
        "with temporary_directory():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", maker], env=environment, check=False)
    (killed,) = set(tmp_path.iterdir()) - {foreign}
    with ownership.temporary_directory() as first, ownership.temporary_directory() as second:
        assert not killed.exists()
        assert {*tmp_path.iterdir(), *other.iterdir()} == {foreign, first, second}


def test_an_agent_is_listed_with_its_process_and_ended_when_asked_for(
    holders: Holders, driver: V1 | V2
) -> None:
    name = f"agent-{os.getpid()}-live"
    run = holders.agent(name)
    [found] = leftovers.runs(driver)
    assert (found.alive, found.pid) == (True, holders.processes[0].pid)
    assert leftovers.down(driver) == ()
    assert [run.name for run in leftovers.down(driver, live=True)] == [run]
    assert holders.processes[0].wait(PATIENCE_S) == -signal.SIGTERM
    assert there(run) == []
    assert not (STATE / name).exists()


def test_a_killed_agent_is_left_over_and_removed(holders: Holders, driver: V1 | V2) -> None:
    name = f"agent-{os.getpid()}-dead"
    run = holders.agent(name)
    holders.kill()
    [found] = leftovers.runs(driver)
    assert (found.alive, found.pid) == (False, None)
    assert [run.name for run in leftovers.down(driver)] == [run]
    assert there(run) == []
    assert not (STATE / name).exists()


def test_an_agent_that_comes_back_meanwhile_keeps_what_it_has(
    holders: Holders, driver: V1 | V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"agent-{os.getpid()}-back"
    run = holders.agent(name)
    # Looked at just before it was started, it was a dead one's.
    [found] = leftovers.runs(driver)
    seen = dataclasses.replace(found, alive=False, pid=None)
    monkeypatch.setattr(leftovers, "runs", lambda _driver: (seen,))
    leftovers.down(driver)
    assert there(run) != []
    holders.kill()
    leftovers.down(driver)
    assert there(run) == []


def test_the_runs_of_this_process_are_never_touched(driver: V1 | V2, only: list[str]) -> None:
    run = new_run()
    only.append(run)
    group = driver.create(run, "web")
    assert leftovers.down(driver, live=True) == ()
    group.charged_bytes()
    group.remove()
    driver.finish(run)


def test_one_that_cannot_be_removed_does_not_keep_the_others(
    driver: V1 | V2, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = [dead_run(), dead_run()]
    only += dead
    for run in dead:
        driver.create(run, "web").close()
    real = leftovers.remove

    def refuse(run: str, driver: V1 | V2) -> None:
        if run == dead[0]:
            raise BackendError(f"{run}: is kept for the test")
        real(run, driver)

    monkeypatch.setattr(leftovers, "remove", refuse)
    with pytest.raises(BackendError, match="is kept for the test"):
        leftovers.down(driver)
    assert there(dead[1]) == []
    real(dead[0], driver)
    assert there(dead[0]) == []


def test_an_agent_that_cannot_be_swept_does_not_keep_the_runs(
    driver: V1 | V2, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = dead_run()
    only.append(run)
    driver.create(run, "web").close()

    def refuse(_: V1 | V2) -> None:
        raise BackendError("an agent is kept for the test")

    monkeypatch.setattr(leftovers, "_sweep_agents", refuse)
    with pytest.raises(BackendError, match="an agent is kept for the test"):
        leftovers.down(driver)
    assert there(run) == []
