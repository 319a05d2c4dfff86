"""Real containers: started by runc in our own group, seen from inside and outside, and gone afterwards."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.containers import leftovers, ownership
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.oci import OciBundle
from testbed.containers.host.runtimes import Entering
from testbed.containers.ownership import new_run
from tests.patience import PATIENCE_S
from tests.testbed.containers.real_groups import folders, kills
from tests.testbed.containers.waiting import until
from twinbed import BackendError

Start = Callable[..., Entering]


@pytest.fixture
def start(driver: V1 | V2) -> Iterator[Start]:
    """Starts a command in a container `probe0`, `probe1` … of one run; removes them afterwards."""
    if shutil.which("runc") is None:
        pytest.skip("no runc here (sudo apt install runc)")
    run = new_run()
    made: list[Entering] = []

    def begin(*command: str, directory: Path | None = None, stdout: int | None = None) -> Entering:
        spec = ContainerSpec(f"probe{len(made)}", command, directory=directory, runtime="oci")
        made.append(Entering(spec, driver.create(run, spec.name)))
        made[-1].start((), None, stdout)
        return made[-1]

    try:
        yield begin
    finally:
        for container in made:
            container.group.remove()
            if container.process is not None:
                container.process.wait(PATIENCE_S)
            container.tidy()
        driver.finish(run)
        assert traces_of(run) == []


def traces_of(run: str) -> list[str]:
    """Everything of a run that is still there."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if run in line]
    return folders(run) + mounts + [str(place) for place in ownership.RUN_ROOT.glob(run)]


def code(container: Entering) -> int | None:
    """Return the exit code of the container's command, None while it runs."""
    assert container.process is not None
    container.process.wait(PATIENCE_S)
    return container.poll()


def test_without_runc_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match="need the command runc; install it: sudo apt install runc"):
        OciBundle(ContainerSpec("a", ("true",)), None)  # type: ignore[arg-type]


@pytest.mark.root
def test_a_container_has_its_own_world_and_our_group(start: Start) -> None:
    program = "echo $$; hostname; ls /run; touch /etc/x 2>/dev/null || echo read-only"
    container = start("sh", "-c", f"{program}; exec sleep 60", stdout=subprocess.PIPE)
    assert container.process is not None
    assert container.process.stdout is not None
    with container.process.stdout as out:
        assert [out.readline().decode().strip() for _ in range(3)] == ["1", "probe0", "read-only"]
    (pid,) = container.group.pids()
    assert Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    # Process 1 of a container does not get a signal that it does not handle.
    container.group.send(signal.SIGTERM)
    assert container.poll() is None
    container.group.send(signal.SIGKILL)
    assert code(container) == -9


@pytest.mark.root
def test_a_quota_holds_in_the_container(start: Start) -> None:
    container = start(sys.executable, "-S", "-c", "while True: pass")
    container.group.set_cpu_quota(0.02)
    until(lambda: container.group.read().nr_throttled > 3)


@pytest.mark.root
def test_a_container_over_its_memory_limit_is_killed(start: Start) -> None:
    container = start("sh", "-c", f"sleep 0.3; exec {sys.executable} -S -c \"bytearray(b'x') * (128 << 20)\"")
    container.group.set_memory_limit(32 << 20)
    assert code(container) == -9
    assert kills(container.group) >= 1


@pytest.mark.root
def test_only_the_commands_directory_is_seen_and_writable(start: Start, tmp_path: Path) -> None:
    for name in ("work", "hidden"):
        (tmp_path / name).mkdir()
    script = f"(pwd; ls {tmp_path}) > result; exit 7"
    assert code(start("sh", "-c", script, directory=tmp_path / "work")) == 7
    assert (tmp_path / "work/result").read_text() == f"{tmp_path}/work\nwork\n"


@pytest.mark.root
def test_the_group_outlives_a_container_and_takes_the_next(start: Start) -> None:
    first = start("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    assert code(first) == 0
    used = first.group.read().cpu_ns
    assert used > 0
    first.tidy()
    again = Entering(first.spec, first.group)
    again.start((), None, None)
    assert code(again) == 0
    again.tidy()
    assert first.group.read().cpu_ns > used


@pytest.mark.root
@pytest.mark.slow
def test_a_container_starts_while_another_one_is_tidied_after(start: Start) -> None:
    ended = start("true")
    code(ended)
    for number in range(10):
        container = start("sh", "-c", "exit 7")
        while container.poll() is None:
            ended.tidy()
        assert container.poll() == 7, f"start {number}"


@pytest.mark.root
def test_what_a_killed_maker_leaves_is_swept(start: Start, driver: V1 | V2) -> None:
    program = (
        "import json, os, signal, time\n"
        "from testbed.containers.cgroup.drivers import detect\n"
        "from testbed.containers.host.container import ContainerSpec\n"
        "from testbed.containers.host.runtimes import Entering\n"
        "from testbed.containers.ownership import RUN_ROOT, new_run\n"
        "run = new_run()\n"
        "state = RUN_ROOT / run / 'runc' / f'{run}-a' / 'state.json'\n"
        "spec = ContainerSpec('a', ('sleep', '60'), runtime='oci')\n"
        "container = Entering(spec, detect().create(run, 'a'))\n"
        "container.start((), None, 2)\n"
        "while not state.exists(): time.sleep(0.01)\n"
        "print(run, json.loads(state.read_text())['init_process_pid'], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    run, pid = done.stdout.decode().split()
    assert done.returncode == -9
    assert Path(f"/proc/{pid}").exists()
    assert [left.name for left in leftovers.runs(driver) if left.name == run and left.containers == 1] == [
        run
    ]
    leftovers.remove(run, driver)
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert traces_of(run) == []


def test_a_bundle_that_cannot_be_written_is_said_with_its_file(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        # The kernel's error of a write, unlike that of an open, names no file.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(BackendError, match=r"oci/probe0/config\.json: cannot be written \(No space"):
        start("true")
