"""An agent's containers on real cgroups: started, adopted after a crash, attached and let go; needs root."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers import ownership
from testbed.containers.cgroup.drivers import detect
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Order, Report, Wanted
from testbed.containers.remote.place import CgroupPlace, sweep
from tests.patience import PATIENCE_S
from tests.testbed.containers.real_groups import path_of, quota_of
from tests.testbed.containers.remote.fake_host import first_limits
from tests.testbed.containers.waiting import until
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("cgroups")]
AGENT = f"hosting-{os.getpid()}"
MIB = 1 << 20


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "agents"
    sweep(detect(), tmp_path / "agents")


def hosting(state: Path, logs: Path | None = None) -> tuple[Hosting, CgroupPlace]:
    place = CgroupPlace(AGENT, detect(), state)
    return Hosting(place, logs), place


def bury(former: Hosting, name: str) -> None:
    """Wait for a command of the former agent that has ended. Here its parent lives on, so it must reap the
    process."""
    command = former.containers[name].command
    assert command is not None
    assert command.process is not None
    command.process.wait(PATIENCE_S)


def commands(**named: str) -> list[Wanted]:
    return [Wanted(name=name, command=["sh", "-c", text]) for name, text in named.items()]


def test_a_command_starts_with_its_limits_and_not_before(state: Path, tmp_path: Path) -> None:
    here, _ = hosting(state, tmp_path / "logs")
    wanted = commands(a='echo "$GREETING"; exec sleep 100')
    wanted[0].environment["GREETING"] = "hello; $(id)"
    joined = here.converge(wanted, ())
    assert not joined.containers[0].running
    assert here.containers["a"].group.pids() == set()
    here.carry_out(first_limits(container.name for container in joined.containers), Report())
    until(lambda: here.containers["a"].group.pids(), "it runs")
    assert here.containers["a"].group.quota_cores == 0.5
    until(lambda: (tmp_path / "logs" / "a.log").read_text() == "hello; $(id)\n", "its output")
    (pid,) = here.containers["a"].group.pids()
    assert os.getsid(pid) != os.getsid(0)
    here.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not state.exists()


def test_what_an_agent_left_is_adopted_with_its_processes_and_limits(state: Path) -> None:
    first, place = hosting(state)
    joined = first.converge(commands(a="exec sleep 100", b="exec sleep 100"), ())
    first.carry_out(first_limits(container.name for container in joined.containers), Report())
    until(lambda: all(container.group.pids() for container in first.containers.values()), "both run")
    before = {name: each.group.pids() for name, each in first.containers.items()}
    place.close()  # as kill -9 would

    second, _ = hosting(state)
    again = second.converge(commands(a="exec sleep 100", c="exec sleep 100"), ())
    adopted, fresh = again.containers
    assert (adopted.name, adopted.running, adopted.quota_cores) == ("a", True, 0.5)
    assert adopted.incarnation == joined.containers[0].incarnation
    assert adopted.limit_bytes == 64 * MIB
    assert not fresh.running
    assert second.containers["a"].group.pids() == before["a"]
    # A command that is no longer deployed is ended, and its group is removed.
    bury(first, "b")
    (pid,) = before["a"]
    os.kill(pid, signal.SIGKILL)
    bury(first, "a")
    until(
        lambda: (second.supervise(time.monotonic()), second.containers["a"].group.pids() - before["a"])[1],
        "it is started again",
    )
    second.close()


def test_a_recorders_clean_up_leaves_the_containers_of_a_dead_agent_alone(state: Path) -> None:
    here, place = hosting(state)
    here.converge(commands(a="exec sleep 100"), ())
    here.carry_out(first_limits(["a"]), Report())
    until(lambda: here.containers["a"].group.pids(), "it runs")
    before = here.containers["a"].group.pids()
    place.close()
    detect().sweep()
    assert here.containers["a"].group.pids() == before
    assert sweep(detect(), state) == [AGENT]
    bury(here, "a")


def test_a_failing_command_is_started_again_and_one_that_is_done_leaves(state: Path, tmp_path: Path) -> None:
    here, _ = hosting(state)
    marks = tmp_path / "marks"
    joined = here.converge(commands(bad=f"echo x >> {marks}; exit 3", done="true"), ())
    here.carry_out(first_limits(each.name for each in joined.containers), Report())
    gone: list[str] = []
    here.on_gone = lambda container, _why: gone.append(container.name)
    until(lambda: (here.supervise(time.monotonic()), gone == ["done"])[1], "done left")
    until(
        lambda: (here.supervise(time.monotonic()), marks.exists() and marks.read_text().count("x") >= 2)[1],
        "started again",
    )
    here.close()


def test_a_command_that_is_done_does_not_start_again_when_the_controller_calls_again(
    state: Path, tmp_path: Path
) -> None:
    here, _ = hosting(state)
    marks = tmp_path / "marks"
    wanted = commands(done=f"echo x >> {marks}")
    here.converge(wanted, ())
    here.carry_out(first_limits(["done"]), Report())
    until(lambda: (here.supervise(time.monotonic()), not here.containers)[1], "it left")
    assert here.converge(wanted, ()).complete
    assert not here.containers
    # Another command of this name, or the same one after it was not deployed, is a new one.
    here.converge(commands(done=f"echo y >> {marks}"), ())
    assert list(here.containers) == ["done"]
    here.converge(wanted, ())
    assert list(here.containers) == ["done"]
    here.close()
    assert marks.read_text() == "x\n"


def test_a_command_that_fails_is_logged_with_its_exit_code(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, _ = hosting(state)
    here.converge(commands(bad="exit 3"), ())
    here.carry_out(first_limits(["bad"]), Report())
    said = "container bad: its command ended with exit code 3; it starts again in 0 s"
    until(lambda: (here.supervise(time.monotonic()), said in caplog.messages)[1], "it is logged")
    here.close()


def test_an_ordered_restart_is_no_failure(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    here, _ = hosting(state)
    here.converge(commands(a="exec sleep 100"), ())
    here.carry_out(first_limits(["a"]), Report())
    until(lambda: here.containers["a"].group.pids(), "it runs")
    before = here.containers["a"].group.pids()
    here.carry_out(Order(number=2, restart=[1]), Report())
    until(
        lambda: (here.supervise(time.monotonic()), here.containers["a"].group.pids() - before)[1],
        "runs again",
    )
    assert caplog.messages == []
    here.close()


@pytest.fixture
def theirs() -> Iterator[tuple[Path, list[Wanted]]]:
    """A group that somebody else made, with a process in it: its directory, and a wish to attach to it."""
    driver, run = detect(), ownership.new_run()
    group = driver.create(run, "theirs")
    path = path_of(group, driver)
    with subprocess.Popen(["sleep", "100"], preexec_fn=group.enter) as command:
        yield group.directories[0], [Wanted(name="x", attach={"": path} if isinstance(path, str) else path)]
        assert command.poll() is None
        group.remove()
    driver.finish(run)


def test_an_attached_group_is_limited_and_gets_its_limits_back(state: Path, theirs) -> None:
    directory, wanted = theirs
    crashed, place = hosting(state)
    joined = crashed.converge(wanted, ())
    assert joined.containers[0].running
    crashed.carry_out(first_limits(["x"]), Report())
    assert quota_of(directory) == 0.5
    place.close()

    here, _ = hosting(state)
    again = here.converge(wanted, ())
    assert again.containers[0].incarnation == joined.containers[0].incarnation
    assert again.containers[0].quota_cores == 0.5
    here.carry_out(first_limits(["x"], cores=0.25), Report())
    assert quota_of(directory) == 0.25
    here.close()
    assert quota_of(directory) == float("inf")


def test_limits_of_an_attached_group_that_another_system_changed_are_set_again(
    state: Path, theirs, caplog: pytest.LogCaptureFixture
) -> None:
    directory, wanted = theirs
    here, _ = hosting(state)
    here.converge(wanted, ())
    here.carry_out(first_limits(["x"]), Report())
    group = here.containers["x"].group
    size = group.limit_bytes
    here.supervise(time.monotonic())
    assert caplog.messages == []
    unified = (directory / "cpu.max").exists()
    name, text = ("cpu.max", "70000 100000") if unified else ("cpu.cfs_quota_us", "70000")
    (directory / name).write_text(text)
    assert quota_of(directory) == 0.7
    here.supervise(time.monotonic())
    assert quota_of(directory) == 0.5
    assert caplog.messages == [
        f"container x: another system changed its limits; 0.5 cores and {size} bytes are set again"
    ]
    here.supervise(time.monotonic())
    assert len(caplog.messages) == 1
    here.close()
    assert quota_of(directory) == float("inf")


def test_an_attached_group_that_is_not_wanted_after_a_crash_gets_its_limits_back(state: Path, theirs) -> None:
    directory, wanted = theirs
    crashed, place = hosting(state)
    crashed.converge(wanted, ())
    crashed.carry_out(first_limits(["x"]), Report())
    assert quota_of(directory) == 0.5
    place.close()

    here, _ = hosting(state)
    here.converge([], ())
    assert quota_of(directory) == float("inf")
    here.close()


def test_paths_that_lead_elsewhere_are_refused_in_one_line(state: Path) -> None:
    here, _ = hosting(state)
    bad = ["/../etc", "/nothing-there", "/", "x/../../..", ""]
    joined = here.converge([Wanted(name=f"x{n}", attach={"": each}) for n, each in enumerate(bad)], ())
    assert len(joined.failed) == len(bad)
    assert not any("\n" in failed.problem for failed in joined.failed)
    assert not here.containers
    here.close()


def test_what_cannot_run_is_said_and_the_others_run(state: Path) -> None:
    here, _ = hosting(state)
    wanted = [Wanted(name="ok", command=["sleep", "100"]), Wanted(name="../x", command=["true"])]
    wanted.append(Wanted(name="no", command=["/no/such/program"]))
    joined = here.converge(wanted, ())
    assert [failed.name for failed in joined.failed] == ["../x"]
    here.carry_out(first_limits(container.name for container in joined.containers), Report())
    until(lambda: here.containers["ok"].group.pids(), "it runs")
    assert set(here.containers) == {"ok"}
    here.close()


def test_without_room_for_notes_containers_go_on_and_notes_are_made_later(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host, place = hosting(state)
    real = place.remember

    def refuse(origins: object) -> None:
        raise BackendError("notes: cannot be written (No space left on device)")

    monkeypatch.setattr(place, "remember", refuse)
    joined = host.converge([Wanted(name="web", command=["sleep", "60"])], [])
    host.carry_out(first_limits(container.name for container in joined.containers), Report())
    until(lambda: host.containers["web"].group.pids(), "it runs")
    host.supervise(time.monotonic())
    assert len(caplog.records) == 1
    assert place.recall() == {}

    monkeypatch.setattr(place, "remember", real)
    host.supervise(time.monotonic())
    assert list(place.recall()) == ["web"]
    host.close()
    host.close()


def test_an_agent_killed_while_it_wrote_notes_leaves_no_folder(state: Path) -> None:
    _, place = hosting(state)
    (state / AGENT / ".containers.json.1.part").touch()
    place.close()
    assert sweep(detect(), state) == [AGENT]
    assert not state.exists()
