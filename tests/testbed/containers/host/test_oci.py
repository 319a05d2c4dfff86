"""Real containers: started by runc in our own group, seen from inside and outside, and gone afterwards."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.containers import leftovers, ownership
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.oci import OciContainer, check_id
from testbed.containers.ownership import new_run
from tests.testbed.containers.eater import kills, wait_for
from twinbed import BackendError, ScenarioError

Start = Callable[..., OciContainer]


@pytest.fixture
def start(driver: V1 | V2) -> Iterator[Start]:
    """Starts a command in a container `probe` of a run of its own; removes it afterwards."""
    if shutil.which("runc") is None:
        pytest.skip("no runc here (sudo apt install runc)")
    run = new_run()
    made: list[OciContainer] = []

    def begin(*command: str, **more: object) -> OciContainer:
        spec = ContainerSpec(f"probe{len(made)}", command, directory=more.pop("directory", None))  # type: ignore[arg-type]
        made.append(OciContainer(spec, driver.create(run, spec.name), run, folders=more.pop("folders", ())))  # type: ignore[arg-type]
        made[-1].start(**more)  # type: ignore[arg-type]
        return made[-1]

    try:
        yield begin
    finally:
        for each in made:
            each.remove()
        driver.finish(run)
        assert traces_of(run) == []


def traces_of(run: str) -> list[str]:
    """Everything of a run that is still there."""
    groups = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if Path(folder).name == run]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if run in line]
    return groups + mounts + [str(each) for each in ownership.RUN_ROOT.glob(run)]


def output(container: OciContainer) -> str:
    assert container.process is not None
    out, _ = container.process.communicate(timeout=30)
    return out.decode()


@pytest.mark.parametrize("name", ["a;b", "a b", "$(id)", "../a", "-a", "", "a/b", "a\n", "ä", "a" * 129])
def test_an_id_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"container id .* expected letters, digits, - and _"):
        check_id(name)


def test_without_runc_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match="need the command runc; install it: sudo apt install runc"):
        OciContainer(ContainerSpec("a", ("true",)), None, new_run())  # type: ignore[arg-type]


@pytest.mark.root
def test_a_container_has_its_own_world_and_our_group(start: Start) -> None:
    program = "echo $$; hostname; ls /run; touch /etc/x || echo read-only"
    container = start(
        "sh", "-c", f"{program}; exec sleep 60", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert container.process is not None
    assert container.process.stdout is not None
    lines = [container.process.stdout.readline().decode().strip() for _ in range(3)]
    assert lines == ["1", "probe0", "read-only"]
    assert container.pid in container.group.pids()
    assert Path(f"/proc/{container.pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    assert container.poll() is None
    container.group.set_cpu_quota(0.5)
    # Process 1 of a container does not get a signal that it does not handle.
    assert container.stop(0.2) == -9
    container.process.stdout.close()


@pytest.mark.root
def test_a_quota_holds_in_the_container(start: Start) -> None:
    container = start(sys.executable, "-S", "-c", "while True: pass")
    container.group.set_cpu_quota(0.02)
    wait_for(lambda: container.group.read().nr_throttled > 3)


@pytest.mark.root
def test_a_container_over_its_memory_limit_is_killed(start: Start) -> None:
    container = start("sh", "-c", f"sleep 0.3; exec {sys.executable} -S -c \"bytearray(b'x') * (128 << 20)\"")
    container.group.set_memory_limit(32 << 20)
    assert container.process is not None
    container.process.wait(30)
    assert container.poll() == -9
    assert kills(container.group) >= 1


@pytest.mark.root
def test_only_the_commands_directory_is_writable_and_folders_are_seen(start: Start, tmp_path: Path) -> None:
    for name in ("work", "shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    program = (
        f"cat {tmp_path}/shown/file; pwd; echo done > result; echo x > {tmp_path}/shown/y || echo refused; "
        f"ls {tmp_path}"
    )
    container = start(
        "sh",
        "-c",
        program,
        directory=tmp_path / "work",
        folders=[tmp_path / "shown"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert output(container) == f"shown{tmp_path}/work\nrefused\nshown\nwork\n"
    assert (tmp_path / "work/result").read_text() == "done\n"
    assert container.poll() == 0


@pytest.mark.root
def test_the_group_outlives_a_container_and_takes_the_next(start: Start) -> None:
    first = start("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    assert first.process is not None
    first.process.wait(30)
    used = first.group.read().cpu_ns
    assert used > 0
    first.discard()
    again = OciContainer(first.spec, first.group, first.id.rpartition("-")[0])
    again.start()
    again.stop(0.0)
    again.discard()
    assert first.group.read().cpu_ns > used


@pytest.mark.root
@pytest.mark.slow
def test_a_container_starts_while_another_one_is_tidied_after(driver: V1 | V2, start: Start) -> None:
    ended = start("true")
    run = ended.id.rpartition("-")[0]
    for number in range(10):
        spec = ContainerSpec(f"next{number}", ("sh", "-c", "exit 7"))
        container = OciContainer(spec, driver.create(run, spec.name), run)
        try:
            starting = subprocess.Popen(container.prepare(os.environ), stdin=subprocess.DEVNULL)
            while starting.poll() is None:
                ended.discard()
            assert starting.returncode == 7, f"start {number}"
        finally:
            container.remove()


@pytest.mark.root
def test_exit_codes_pass_through(start: Start) -> None:
    container = start("sh", "-c", "exit 7")
    assert container.process is not None
    container.process.wait(30)
    assert container.poll() == 7


@pytest.mark.root
def test_a_command_that_is_not_there_is_named_and_nothing_is_left(start: Start) -> None:
    with pytest.raises(
        ScenarioError, match=r"container probe0: no-such-command: .*executable file not found"
    ):
        start("no-such-command")


@pytest.mark.root
def test_what_a_killed_maker_leaves_is_swept(start: Start, driver: V1 | V2) -> None:
    program = (
        "import os, signal, sys\n"
        "from testbed.containers.cgroup.drivers import detect\n"
        "from testbed.containers.host.container import ContainerSpec\n"
        "from testbed.containers.host.oci import OciContainer\n"
        "from testbed.containers.ownership import new_run\n"
        "run = new_run()\n"
        "container = OciContainer(ContainerSpec('a', ('sleep', '60')), detect().create(run, 'a'), run)\n"
        "container.start(stdout=2)\n"
        "print(run, container.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    run, pid = done.stdout.decode().split()
    assert done.returncode == -9
    assert Path(f"/proc/{pid}").exists()
    assert [each.name for each in leftovers.runs(driver) if each.name == run and each.containers == 1] == [
        run
    ]
    leftovers.remove(run, driver)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert traces_of(run) == []


def test_a_bundle_that_cannot_be_written_is_said_with_its_file(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        # Of a write, unlike an open, the kernel's error knows no file.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(BackendError, match=r"oci/probe0/config\.json: cannot be written \(No space"):
        start("true")
