"""`runtime: oci` under the loop, the recorder and an agent: limited, started again, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.allocator import make
from control.allocator.model import Application
from testbed.containers import leftovers, ownership
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.loop import Managed, Settings, control
from testbed.containers.host.oci import bundles_of
from testbed.containers.record.recorder import record
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Report, Wanted
from testbed.containers.remote.place import CgroupPlace, sweep
from tests.patience import PATIENCE_S
from tests.testbed.containers.remote.fake_host import first_limits
from tests.testbed.containers.waiting import until
from twinbed import ScenarioError

MIB = 1 << 20
APP = (Application("app", 0.2, 400 * MIB),)
ENDS_WHEN_ASKED = "trap 'exit 0' TERM; sleep 300 & wait"
"""Process 1 of a container gets only signals that it handles."""
AGENT = f"runtimes-{os.getpid()}"

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def runc(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("cgroups")
    if shutil.which("runc") is None:
        pytest.skip("no runc here (sudo apt install runc)")


def oci(name: str, script: str, folder: Path) -> ContainerSpec:
    return ContainerSpec(name, ("sh", "-c", script), directory=folder, runtime="oci")


class UntilStarted:
    """A client with work until `started` has two lines and `worked` is there."""

    def __init__(self, started: Path, worked: Path) -> None:
        self._started, self._worked = started, worked

    def start(self) -> int:
        return time.monotonic_ns()

    def running(self) -> bool:
        twice = self._started.exists() and len(self._started.read_text().split()) >= 2
        return not (twice and self._worked.exists())

    def stop(self) -> None:
        """Do nothing, because this command has no process."""


def bundles(pid: int) -> list[Path]:
    """Return the folders of a process's runs under RUN_ROOT that hold more than their lock. Other tests may
    hold locks."""
    runs = ownership.RUN_ROOT.glob(f"run-{pid}-*")
    return [run for run in runs if any(file.name != ownership.LOCK for file in run.iterdir())]


def test_a_runtime_that_is_none_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"container a: runtime 'docker': expected process or oci"):
        ContainerSpec("a", ("true",), runtime="docker")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_loop_limits_containers_and_starts_them_again(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # Some 50 ms of CPU, of which no period gives it more than 20.
    work = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; echo > worked"
    busy = oci("busy", f"trap 'exit 0' TERM; {work}; while :; do :; done", tmp_path)
    failing = oci("failing", "echo $$ >> started; exit 3", tmp_path)
    observed = control(
        [Managed(busy), Managed(failing)],
        APP,
        make("escra", {}),
        Settings(duration_s=20),
        client=UntilStarted(tmp_path / "started", tmp_path / "worked"),
    )

    assert (tmp_path / "started").read_text().split()[:2] == ["1", "1"], "process 1 of its own namespace"
    assert observed.nr_throttled[0] > 0
    assert ("restart", 1) in zip(observed.events.kind, observed.events.container, strict=True)
    assert request.getfixturevalue("leftovers")(os.getpid()) == []
    assert bundles(os.getpid()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_loop_leaves_nothing_that_is_not_found(
    tmp_path: Path, driver: V1 | V2, number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    scene = """
        from control.allocator import make
        from control.allocator.model import Application
        from pathlib import Path
        from testbed.containers.host.container import ContainerSpec
        from testbed.containers.host.loop import Managed, Settings, control
        spec = ContainerSpec("a", ("sh", "-c", COMMAND), runtime="oci")
        def ready():
            return any(Path("/run/twinbed").glob("run-*/runc/*-a/state.json"))
        def tick(_):
            Path(RUNNING).touch()
        apps = [Application("app", 1.0, 1 << 28)]
        control([Managed(spec, ready=ready)], apps, make("escra", {}), Settings(), on_tick=tick)
    """
    program = (
        f"COMMAND, RUNNING = {ENDS_WHEN_ASKED!r}, {str(tmp_path / 'running')!r}\n{textwrap.dedent(scene)}"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    found = request.getfixturevalue("leftovers")
    try:
        until((tmp_path / "running").exists)
        assert bundles(process.pid)
        process.send_signal(number)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()

    if number == signal.SIGKILL:
        (run,) = [each.name for each in bundles(process.pid)]
        assert leftovers.runs(driver)
        leftovers.remove(run, driver)
    assert found(process.pid) == []
    assert bundles(process.pid) == []


@pytest.mark.slow
def test_a_container_is_recorded(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spec = oci("a", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo $$; exit 7", tmp_path)
    recording = record([spec], app="app", logs=tmp_path / "logs")

    assert recording.exit_codes == (7,)
    assert recording.cpu_cores.sum() > 0
    assert (tmp_path / "logs" / "a.log").read_text() == "1\n"
    assert request.getfixturevalue("leftovers")(os.getpid()) == []
    assert bundles(os.getpid()) == []


@pytest.fixture
def state(tmp_path: Path, driver: V1 | V2) -> Iterator[Path]:
    yield tmp_path / "agents"
    sweep(driver, tmp_path / "agents")


@pytest.mark.slow
def test_an_agent_adopts_a_container_and_starts_it_again(state: Path, driver: V1 | V2) -> None:
    wanted = [Wanted(name="a", command=["sh", "-c", ENDS_WHEN_ASKED], runtime="oci")]
    place = CgroupPlace(AGENT, driver, state)
    first = Hosting(place, None)
    first.carry_out(first_limits([first.converge(wanted, ()).containers[0].name]), Report())
    until(lambda: inside(first))
    before = inside(first)
    assert len(bundles_of(ownership.lasting_run(AGENT))) == 1
    place.close()  # as kill -9 would

    second = Hosting(CgroupPlace(AGENT, driver, state), None)
    (adopted,) = second.converge(wanted, ()).containers
    assert adopted.running
    assert inside(second) == before
    second.carry_out(first_limits(["a"]), Report())
    second.containers["a"].group.send(signal.SIGKILL)
    first.containers["a"].command.process.wait(PATIENCE_S)
    until(lambda: (second.supervise(time.monotonic()), inside(second) - before)[1])
    second.close()
    assert bundles_of(ownership.lasting_run(AGENT)) == []
    assert not (ownership.RUN_ROOT / ownership.lasting_run(AGENT)).exists()


def inside(hosting: Hosting) -> set[int]:
    """The command's processes: runc's own are in the group while they start it."""
    found = set()
    for pid in hosting.containers["a"].group.pids():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                found.add(pid)
    return found
