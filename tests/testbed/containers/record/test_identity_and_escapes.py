"""Recorded jobs: who they run as, what they see and may do, and that none stays behind unseen."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.containers import ownership
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.host.container import RuntimeName
from testbed.containers.host.identity import Identity, identity
from testbed.containers.record.recorder import ContainerSpec, record
from tests.testbed.containers.real_groups import folders
from tests.testbed.containers.waiting import is_gone, until
from twinbed import BackendError, ScenarioError

NOBODY = pwd.getpwnam("nobody")

root = pytest.mark.root


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user nobody. Its parent is root's, and not below tmp_path, which root alone enters."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        own = Path(name, "own")
        own.mkdir()
        os.chown(own, NOBODY.pw_uid, NOBODY.pw_gid)
        yield own


def nobody(**environment: str) -> Identity:
    return identity("nobody", [], {"PATH": os.defpath, **environment})


def status_of(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


# --- what a job sees ---------------------------------------------------------------------------------


def test_a_job_sees_what_programs_need_and_no_secret() -> None:
    needed = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "PYTHONPATH": "/x",
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_NUM_THREADS": "2",
        "NCCL_IB_PKEY": "1",
    }
    secret = dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "NVIDIA_API_KEY", "SUDO_COMMAND", "LD_PRELOAD"), "x"
    )
    environment = identity(None, [], {**needed, **secret}).environment
    assert {name: environment.get(name) for name in (*needed, *secret)} == needed | dict.fromkeys(secret)


def test_further_variables_are_named_with_or_without_a_value() -> None:
    environment = identity(None, ["HF_TOKEN", "EMPTY=", "A=b=c"], {"HF_TOKEN": "x", "EMPTY": "y"}).environment
    assert environment == {"HF_TOKEN": "x", "EMPTY": "", "A": "b=c"}


@pytest.mark.parametrize("text", ["NOT_SET", "=x", ""])
def test_a_variable_that_is_not_set_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=f"--env {text}: expected NAME=VALUE, or the NAME of a variable"):
        identity(None, [text], {})


def test_a_user_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ScenarioError, match="user no-such-user: there is no such user here"):
        identity("no-such-user", [], {})


@root
def test_jobs_belong_to_the_user_who_called_sudo() -> None:
    called = identity(None, [], {"SUDO_USER": "nobody", "HOME": "/root", "USER": "root"})
    assert (called.name, called.uid, called.gid) == ("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
    assert called.environment["HOME"] == NOBODY.pw_dir
    assert called.environment["USER"] == called.environment["LOGNAME"] == "nobody"
    assert identity(None, [], {}).uid == os.geteuid()
    assert identity("root", [], {"SUDO_USER": "nobody", "HOME": "/home/x"}).environment["HOME"] == "/home/x"


# --- what a job may do -------------------------------------------------------------------------------


@root
@pytest.mark.parametrize("user", ["nobody", "root"])
@pytest.mark.parametrize("runtime", ["process", "oci"])
def test_a_job_has_no_capability_and_can_gain_none(
    driver: V1 | V2, folder: Path, user: str, runtime: RuntimeName
) -> None:
    if runtime == "oci" and shutil.which("runc") is None:
        pytest.skip("no runc here (sudo apt install runc)")
    job = identity(user, [], {"PATH": os.defpath})
    os.chown(folder, job.uid, job.gid)
    spec = ContainerSpec("a", ("cat", "/proc/self/status"), runtime=runtime)
    recording = record([spec], app="x", driver=driver, logs=folder, identity=job)
    log = folder / "a.log"
    assert recording.exit_codes == (0,), log.read_text()
    status = status_of(log)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split() == [str(job.uid)] * 4
    assert status["Gid"].split() == [str(job.gid)] * 4
    assert {job.gid, *map(int, status["Groups"].split())} == set(job.groups)
    assert log.stat().st_uid == job.uid
    assert "escaped_processes" not in recording.metadata


@root
def test_a_user_s_job_cannot_leave_its_cgroup(driver: V1 | V2, folder: Path) -> None:
    leave = "for file in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do echo $$ >$file; done; :"
    recording = record(
        [ContainerSpec("a", ("sh", "-c", leave))], app="x", driver=driver, logs=folder, identity=nobody()
    )
    assert "Permission denied" in (folder / "a.log").read_text()
    assert "escaped_processes" not in recording.metadata


@root
def test_a_log_is_not_written_through_a_link_to_what_the_user_may_not_write(
    driver: V1 | V2, folder: Path
) -> None:
    victim = folder.parent / "victim"
    victim.write_text("root's own\n")
    (folder / "a.log").symlink_to(victim)
    with pytest.raises(BackendError, match=r"a\.log: the log cannot be written"):
        record([ContainerSpec("a", ("true",))], app="x", driver=driver, logs=folder, identity=nobody())
    assert victim.read_text() == "root's own\n"


@root
def test_a_program_that_the_user_may_not_execute_is_named_with_the_user(
    driver: V1 | V2, folder: Path
) -> None:
    (folder.parent / "program").write_text("#!/bin/sh\n")
    (folder.parent / "program").chmod(0o700)
    spec = ContainerSpec("a", (str(folder.parent / "program"),))
    with pytest.raises(ScenarioError, match="program: cannot be executed by user nobody"):
        record([spec], app="x", driver=driver, identity=nobody())


# --- what leaves its cgroup --------------------------------------------------------------------------

LEAVE = "for place in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do echo $$ >$place/cgroup.procs; done;"


@root
@pytest.mark.parametrize("user", [None, "root"])
def test_processes_that_left_are_counted_told_and_ended(
    driver: V1 | V2, leftovers: Callable[[int], list[str]], tmp_path: Path, user: str | None
) -> None:
    """A daemon: its parent has ended, its session is its own, and it is in the root of every hierarchy."""
    (tmp_path / "daemon").write_text(f"{LEAVE} echo $$ >{tmp_path}/pid; exec sleep 600")
    script = f"setsid sh {tmp_path}/daemon & while ! [ -s {tmp_path}/pid ]; do sleep 0.02; done"
    job = identity(user, [], dict(os.environ)) if user else None
    recording = record([ContainerSpec("a", ("sh", "-c", script))], app="x", driver=driver, identity=job)
    assert recording.metadata["escaped_processes"] == "1"
    assert "1 process left the container's cgroup" in recording.notes[0]
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert recording.exit_codes == (0,)
    assert leftovers(os.getpid()) == []


@root
def test_a_command_that_left_itself_ends_with_the_recording(
    driver: V1 | V2, leftovers: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.containers.host.container.TERMINATION_GRACE_S", 0.2)
    spec = ContainerSpec("a", ("sh", "-c", LEAVE + " exec sleep 600"))
    recording = record([spec], app="x", duration_s=1, driver=driver)
    assert recording.metadata["escaped_processes"] == "1"
    assert leftovers(os.getpid()) == []


@root
def test_the_caller_s_other_children_are_left_alone(driver: V1 | V2) -> None:
    before = children()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        recording = record([ContainerSpec("a", ("sh", "-c", "sleep 0.1 & exit 0"))], app="x", driver=driver)
        assert bystander.poll() is None
        bystander.kill()
    assert "escaped_processes" not in recording.metadata
    assert children() == before


def children() -> set[str]:
    """Processes that this one would have to wait for. Earlier tests may have left libraries' helpers."""
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for file in listed for pid in file.read_text().split()}


# --- a recorder that is killed -----------------------------------------------------------------------


@root
@pytest.mark.usefixtures("cgroups", "root_network")
@pytest.mark.parametrize("verb", ["record", "profile"])
def test_nothing_stays_of_a_verb_that_is_killed(
    verb: str, tmp_path: Path, leftovers: Callable[[int], list[str]]
) -> None:
    job = tmp_path / "job.yaml"
    command = ["sh", "-c", "setsid sleep 600 & echo up; exec sleep 600"]
    job.write_text(json.dumps({"name": "job", "command": command, "batch": 1, "samples": 10}))
    words = {"record": ["--network", "own", "--", *command], "profile": [str(job), "--workers", "0"]}
    program = "import sys; from lab.cli.main import call; sys.exit(call(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", program, verb, "--out", str(tmp_path / "x"), *words[verb]],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        inside = tree.pids(map(Path, folders(f"run-{process.pid}-")))
        assert len(inside) >= 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: all(map(is_gone, inside)), "its processes end")
    until(lambda: leftovers(process.pid) == [], "groups, links and namespaces are removed")
    mark = f"run-{process.pid}-"
    until(lambda: not [run for run in ownership.temporary_directories() if run.startswith(mark)], "folders")
