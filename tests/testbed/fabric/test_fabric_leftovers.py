"""The leftovers of a fabric whose maker was killed, and their removal: everything of the fabric, and nothing
else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.fabric import leftovers, ownership, state
from testbed.fabric.model import Plan
from testbed.fabric.ownership import FRR_FOLDERS, NAMESPACES, state_folder
from tests.patience import PATIENCE_S
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
    """A process that makes a fabric and prints its progress."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield process
        process.kill()
    leftovers.remove(NAME)


def wait_for_stage(process: subprocess.Popen[bytes], stage: str) -> None:
    assert process.stdout is not None
    while stage not in (line := process.stdout.readline().decode()):
        assert line, "it ended before"


def whatever_is_left() -> list[object]:
    files = [path for folder in (NAMESPACES, *FRR_FOLDERS) for path in folder.glob(f"tb-{NAME}-*")]
    temporary = [path for path in Path("/var/tmp/frr").glob("*") if _modified_s(path) > BEGAN]
    return [*files, *ownership.processes_of(NAME), *state_folder(NAME).parent.glob(NAME), *_ours(temporary)]


def _modified_s(path: Path) -> float:
    """Return the time of the last change, s since the epoch; 0 if the path is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _ours(folders: list[Path]) -> list[Path]:
    """Return the folders that no living process keeps open; daemons of other fabrics keep theirs open."""
    kept = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            kept.add(path.readlink())
        except OSError:
            continue
    return [path for path in folders if path not in kept and path.exists()]


def claim_and_die() -> None:
    """Claim the name in a process that ends without giving it up."""
    program = (
        "from testbed.fabric import state\nfrom testbed.fabric.model import Plan\n"
        f"state.claim(state.FabricState(Plan(name={NAME!r})))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


BEGAN = 0.0


@pytest.fixture(autouse=True)
def _began() -> None:
    """Ignore what an earlier test left."""
    global BEGAN
    BEGAN = time.time()


@pytest.mark.parametrize("stage", ["cables", "FRR", "routes"])
def test_nothing_stays_of_a_maker_that_is_killed_in_the_middle(
    maker: subprocess.Popen[bytes], stage: str
) -> None:
    wait_for_stage(maker, stage)
    maker.kill()
    maker.wait()
    (standing,) = [fabric for fabric in leftovers.standing() if fabric.name == NAME]
    assert not standing.alive
    leftovers.down(NAME)
    assert whatever_is_left() == []


def test_hosts_for_storage_count_as_hosts(fabric_machine: None) -> None:
    state.claim(state.FabricState(Plan(name=NAME, storage=2)))
    try:
        (standing,) = [fabric for fabric in leftovers.standing() if fabric.name == NAME]
        assert standing.hosts == 4
    finally:
        leftovers.remove(NAME)


def test_nothing_stays_though_the_file_is_lost(maker: subprocess.Popen[bytes]) -> None:
    wait_for_stage(maker, "FRR")
    maker.kill()
    maker.wait()
    (state_folder(NAME) / "fabric.json").unlink()
    assert NAME in [fabric.name for fabric in leftovers.down()]
    assert whatever_is_left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_maker_tidies_up_itself(
    maker: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    wait_for_stage(maker, "FRR")
    maker.send_signal(number)
    assert maker.wait(PATIENCE_S) != 0
    assert whatever_is_left() == []


def test_a_process_that_has_not_entered_yet_goes_too(fabric_machine: None) -> None:
    """A killed maker started it for a namespace, where it would appear after everything is removed."""
    claim_and_die()
    late = subprocess.Popen(["sleep", "60"], env={**os.environ, ownership.ENVIRONMENT: NAME})
    leftovers.down(NAME)
    assert late.wait(PATIENCE_S) == -signal.SIGKILL
    assert whatever_is_left() == []


def test_who_forks_while_processes_are_listed_is_found_by_the_next_look(
    fabric_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_and_die()
    late = subprocess.Popen(["sleep", "60"], env={**os.environ, ownership.ENVIRONMENT: NAME})
    looks: list[list[int]] = []

    def processes_of(name: str) -> list[int]:
        # The first look comes between two lives of a daemon.
        looks.append(listed(name) if looks else [])
        return looks[-1]

    listed = ownership.processes_of
    monkeypatch.setattr(leftovers.ownership, "processes_of", processes_of)
    leftovers.remove(NAME)
    assert late.wait(PATIENCE_S) == -signal.SIGKILL
    assert looks[1] == [late.pid]


def test_what_is_somebody_elses_stays(fabric_machine: None) -> None:
    """Names that look alike, and a process there, do not belong to a fabric of that name."""
    foreign = ("tb-orphans-x", "orphan-h0", "tb-run-1-2-3-h0")
    for name in foreign:
        subprocess.run(["ip", "netns", "add", name], check=True)
    bystander = subprocess.Popen(["ip", "netns", "exec", foreign[0], "sleep", "60"])
    claim_and_die()
    try:
        leftovers.remove(NAME)
        leftovers.down()
        assert all((NAMESPACES / name).exists() for name in foreign)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        for name in foreign:
            subprocess.run(["ip", "netns", "delete", name], check=True)
    assert whatever_is_left() == []


def test_a_fabric_of_another_version_is_nobodys_leftover_while_its_maker_lives(fabric_machine: None) -> None:
    state.claim(state.FabricState(Plan(name=NAME)))
    path = state_folder(NAME) / "fabric.json"
    path.write_text(path.read_text().replace('"tenants"', '"colour"'))
    try:
        (standing,) = [fabric for fabric in leftovers.standing() if fabric.name == NAME]
        assert (standing.alive, standing.pid, standing.hosts) == (True, os.getpid(), None)
        assert NAME not in [fabric.name for fabric in leftovers.down()]
        with pytest.raises(BackendError, match=r"fabric\.json: cannot be understood"):
            state.read(NAME)
    finally:
        leftovers.remove(NAME)


ELSEWHERE = (
    "from testbed.fabric import frr_folders, state\nfrom testbed.fabric.model import Plan\n"
    f"state.claim(state.FabricState(Plan(name={NAME!r})))\n"
    f"frr_folders.make('tb-{NAME}-h0', {{'zebra.conf': ''}})\n"
    "print('made', flush=True)\ninput()\n"
)


def test_a_fabric_whose_run_is_elsewhere_is_left_alone_unless_it_is_named(fabric_machine: None) -> None:
    """The fabric is like one in a container that shares /etc/frr with this machine and has a /run of its
    own."""
    private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]
    folder = FRR_FOLDERS[0] / f"tb-{NAME}-h0"
    with subprocess.Popen(
        [*private, sys.executable, "-c", ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            wait_for_stage(process, "made")
            (standing,) = [fabric for fabric in leftovers.standing() if fabric.name == NAME]
            assert standing.alive is None
            assert NAME not in [fabric.name for fabric in leftovers.down()]
            with pytest.raises(BackendError, match=f"twinbed testbed down --name {NAME}"):
                leftovers.make_way(NAME)
            assert folder.exists()
            # Before this machine was started, nobody can have made what is in use.
            (folder / "boot").write_text("another\n")
            assert leftovers._standing(NAME).alive is False
        finally:
            process.kill()
            leftovers.remove(NAME)
    assert whatever_is_left() == []


def test_there_is_no_fabric_to_remove(fabric_machine: None) -> None:
    with pytest.raises(BackendError, match="no fabric 'nosuch' is up; twinbed testbed up --name nosuch"):
        leftovers.down("nosuch")
