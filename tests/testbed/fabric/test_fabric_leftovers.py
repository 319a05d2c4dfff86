"""What a fabric leaves when its maker is killed, and its removal: all of it, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers.ownership import new_run
from testbed.fabric import leftovers, ownership, state
from testbed.fabric.model import Plan
from testbed.fabric.ownership import FRR_FOLDERS, NAMESPACES, state_folder
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.slow]

NAME = "orphan"
MAKER = (
    "from testbed.fabric.model import Plan\n"
    "from testbed.fabric.up import up\n"
    f"up(Plan(name={NAME!r}), progress=lambda what: print(what, flush=True))\n"
    "print('up', flush=True)\n"
    "input()\n"
)


@pytest.fixture
def maker(fabric_machine: None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that makes a fabric and says how far it is."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield process
        process.kill()
    leftovers.remove(NAME)


def wait_for_stage(process: subprocess.Popen[bytes], words: str) -> None:
    assert process.stdout is not None
    while words not in (line := process.stdout.readline().decode()):
        assert line, "it ended before"


def whatever_is_left() -> list[object]:
    files = [each for folder in (NAMESPACES, *FRR_FOLDERS) for each in folder.glob(f"tb-{NAME}-*")]
    temporary = [each for each in Path("/var/tmp/frr").glob("*") if _modified_s(each) > BEGAN]
    return [*files, *ownership.processes_of(NAME), *state_folder(NAME).parent.glob(NAME), *_ours(temporary)]


def _modified_s(path: Path) -> float:
    """Seconds since the epoch; 0: it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _ours(folders: list[Path]) -> list[Path]:
    """Of no process that lives: those of other fabrics are kept open by their daemons."""
    kept = set()
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            kept.add(each.readlink())
        except OSError:
            continue
    return [each for each in folders if each not in kept and each.exists()]


BEGAN = 0.0


@pytest.fixture(autouse=True)
def _began() -> None:
    """What an earlier test left is not this one's."""
    global BEGAN
    BEGAN = time.time()


@pytest.mark.parametrize("stage", ["cables", "FRR", "routes"])
def test_nothing_stays_of_a_maker_that_is_killed_in_the_middle(
    maker: subprocess.Popen[bytes], stage: str
) -> None:
    wait_for_stage(maker, stage)
    maker.kill()
    maker.wait()
    (found,) = [each for each in leftovers.standing() if each.name == NAME]
    assert not found.alive
    leftovers.down(NAME)
    assert whatever_is_left() == []


def test_nothing_stays_though_the_file_is_lost(maker: subprocess.Popen[bytes]) -> None:
    wait_for_stage(maker, "FRR")
    maker.kill()
    maker.wait()
    (state_folder(NAME) / "fabric.json").unlink()
    assert NAME in [each.name for each in leftovers.down()]
    assert whatever_is_left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_maker_tidies_up_itself(
    maker: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    wait_for_stage(maker, "FRR")
    maker.send_signal(number)
    assert maker.wait(30) != 0
    assert whatever_is_left() == []


def test_a_process_that_has_not_entered_yet_goes_too(fabric_machine: None) -> None:
    """Started for a namespace by somebody who was killed: it would turn up there after everything is gone."""
    state.claim(state.FabricState(Plan(name=NAME), f"run-{2**22}-1-0"))
    late = subprocess.Popen(["sleep", "60"], env={**os.environ, ownership.ENVIRONMENT: NAME})
    leftovers.down(NAME)
    assert late.wait(10) == -signal.SIGKILL
    assert whatever_is_left() == []


def test_who_forks_while_processes_are_listed_is_found_by_the_next_look(
    fabric_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.claim(state.FabricState(Plan(name=NAME), f"run-{2**22}-1-0"))
    late = subprocess.Popen(["sleep", "60"], env={**os.environ, ownership.ENVIRONMENT: NAME})
    looks: list[list[int]] = []

    def processes_of(name: str) -> list[int]:
        # The first look comes between two lives of a daemon.
        looks.append(found(name) if looks else [])
        return looks[-1]

    found = ownership.processes_of
    monkeypatch.setattr(leftovers.ownership, "processes_of", processes_of)
    leftovers.remove(NAME)
    assert late.wait(10) == -signal.SIGKILL
    assert looks[1] == [late.pid]


def test_what_is_somebody_elses_stays(fabric_machine: None) -> None:
    """Names that look alike, and a process beside: not of a fabric by that name."""
    foreign = ("tb-orphans-x", "orphan-h0", "tb-run-1-2-3-h0")
    for each in foreign:
        subprocess.run(["ip", "netns", "add", each], check=True)
    bystander = subprocess.Popen(["ip", "netns", "exec", foreign[0], "sleep", "60"])
    state.claim(state.FabricState(Plan(name=NAME), f"run-{2**22}-1-0"))
    try:
        leftovers.remove(NAME)
        leftovers.down()
        assert all((NAMESPACES / each).exists() for each in foreign)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        for each in foreign:
            subprocess.run(["ip", "netns", "delete", each], check=True)
    assert whatever_is_left() == []


def test_a_fabric_of_another_version_is_nobodys_leftover_while_its_maker_lives(fabric_machine: None) -> None:
    state.claim(state.FabricState(Plan(name=NAME), new_run()))
    path = state_folder(NAME) / "fabric.json"
    path.write_text(path.read_text().replace('"vni"', '"colour"'))
    try:
        (found,) = [each for each in leftovers.standing() if each.name == NAME]
        assert (found.alive, found.pid, found.hosts) == (True, os.getpid(), None)
        assert NAME not in [each.name for each in leftovers.down()]
        with pytest.raises(BackendError, match=r"fabric\.json: not to be understood"):
            state.read(NAME)
    finally:
        leftovers.remove(NAME)


def test_there_is_no_fabric_to_remove(fabric_machine: None) -> None:
    with pytest.raises(BackendError, match="no fabric nosuch is up; twinbed testbed up --name nosuch"):
        leftovers.down("nosuch")
