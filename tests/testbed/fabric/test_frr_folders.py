"""The user frr owns folders in which root works: root follows no link that this user plants there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.fabric import frr, frr_folders, state
from testbed.fabric.model import Daemon, Host, Plan
from testbed.fabric.ownership import FRR_FOLDERS
from testbed.fabric.plan import fabric_of
from twinbed import BackendError

pytestmark = pytest.mark.root

PLAN = Plan(name="planted", real_time=False)
CONTENT = "root's own\n"


@pytest.fixture
def host(fabric_machine: None) -> Iterator[Host]:
    """A host whose namespace is there and whose fabric's name is claimed; FRR has nothing of it yet."""
    host = fabric_of(PLAN).hosts[0]
    state.claim(state.FabricState(PLAN))
    subprocess.run(["ip", "netns", "add", host.namespace], check=True)
    yield host
    subprocess.run(["ip", "netns", "delete", host.namespace], check=True)
    for folder in FRR_FOLDERS:
        shutil.rmtree(folder / host.namespace, ignore_errors=True)
        (folder / host.namespace).unlink(missing_ok=True)
    state.forget(PLAN.name)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that only root may read and write."""
    path = tmp_path / "victim"
    path.write_text(CONTENT)
    path.chmod(0o600)
    return path


def as_frr(*commands: str) -> None:
    subprocess.run(["sh", "-ec", "\n".join(commands)], user="frr", group="frr", extra_groups=(), check=True)


def assert_untouched(victim: Path) -> None:
    assert victim.read_text() == CONTENT
    assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (0, 0o600)


@pytest.mark.parametrize("folder", FRR_FOLDERS, ids=str)
def test_a_folder_that_was_there_before_is_refused_and_its_links_are_not_followed(
    host: Host, victim: Path, folder: Path
) -> None:
    own = folder / host.namespace
    as_frr(f"mkdir {own}", *(f"ln -s {victim} {own}/{name}.conf" for name in (*Daemon, "vtysh")))
    with pytest.raises(BackendError, match=f"{own}: cannot be made"):
        frr.configure(PLAN, host)
    assert_untouched(victim)


@pytest.mark.parametrize("folder", FRR_FOLDERS, ids=str)
def test_a_link_in_place_of_a_folder_is_not_followed(host: Host, tmp_path: Path, folder: Path) -> None:
    as_frr(f"ln -s {tmp_path} {folder / host.namespace}")
    with pytest.raises(BackendError, match="cannot be made"):
        frr.configure(PLAN, host)
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_uid == 0


def test_a_folder_that_is_swapped_after_it_was_made_gets_no_file(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapping(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if dir_fd is not None:
            own = FRR_FOLDERS[0] / host.namespace
            as_frr(f"mv {own} {own}-away", f"mkdir {own}")

    mkdir = os.mkdir
    monkeypatch.setattr(frr_folders.os, "mkdir", swapping)
    try:
        with pytest.raises(BackendError, match="cannot be made"):
            frr.configure(PLAN, host)
        assert list((FRR_FOLDERS[0] / host.namespace).iterdir()) == []
    finally:
        shutil.rmtree(f"{FRR_FOLDERS[0] / host.namespace}-away")


def test_the_user_frr_reads_its_configuration_and_cannot_change_it(host: Host) -> None:
    frr.configure(PLAN, host)
    own = FRR_FOLDERS[0] / host.namespace
    as_frr(f"grep -q hostname {own}/bgpd.conf")
    for change in (f"echo x >>{own}/bgpd.conf", f"rm {own}/bgpd.conf", f"ln -s / {own}/other"):
        with pytest.raises(subprocess.CalledProcessError):
            as_frr(change)
    assert (FRR_FOLDERS[1] / host.namespace).stat().st_uid == pwd.getpwnam("frr").pw_uid


def test_starting_a_daemon_writes_nothing_through_a_link_of_the_user_frr(host: Host, victim: Path) -> None:
    """Neither root nor the daemon, which begins as root, writes through the link."""
    frr.configure(PLAN, host)
    own = FRR_FOLDERS[1] / host.namespace
    as_frr(*(f"ln -s {victim} {own}/zebra{suffix}" for suffix in (".started", ".out", ".log", ".pid")))
    with pytest.raises(BackendError, match=r"zebra in .* does not start"):
        frr.start(PLAN, host.namespace, [Daemon.ZEBRA])
    assert_untouched(victim)


def test_a_process_id_is_not_read_through_a_link_nor_waited_for(host: Host, tmp_path: Path) -> None:
    """A process that looks like a daemon runs, so that only the kind of its file speaks against it."""
    frr.configure(PLAN, host)
    program = tmp_path / "zebra"
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o755)
    file, elsewhere = FRR_FOLDERS[1] / host.namespace / "zebra.pid", tmp_path / "pid"
    with subprocess.Popen([program, host.namespace], stdin=subprocess.PIPE) as process:
        as_frr(f"echo {process.pid} >{file}")
        assert frr.pid_of(host.namespace, Daemon.ZEBRA) == process.pid
        elsewhere.write_text(f"{process.pid}\n")
        as_frr(f"rm {file}", f"ln -s {elsewhere} {file}")
        assert frr.pid_of(host.namespace, Daemon.ZEBRA) is None
        as_frr(f"rm {file}", f"mkfifo {file}")
        assert frr.pid_of(host.namespace, Daemon.ZEBRA) is None


def test_temporary_files_are_not_removed_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(["sleep", "60"])
    precious = tmp_path / "elsewhere" / f"precious.{process.pid}"
    precious.mkdir(parents=True)
    (tmp_path / "frr").symlink_to(precious.parent)
    monkeypatch.setattr(frr_folders, "TEMPORARY", tmp_path / "frr")
    frr.kill_processes(lambda: [process.pid])
    process.wait()
    assert precious.is_dir()
    (tmp_path / "frr").unlink()
    precious.parent.rename(tmp_path / "frr")
    frr_folders.remove_temporary(lambda name: name.startswith("precious."))
    assert list((tmp_path / "frr").iterdir()) == []
