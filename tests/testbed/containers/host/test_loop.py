"""The control loop on real cgroups: what the contract does not ask of a twin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from control.allocator import make
from control.allocator.model import NOTHING, Application, Decision, PeriodStats
from testbed.containers.cgroup import tree
from testbed.containers.cgroup.attached import attach, files_of
from testbed.containers.cgroup.drivers import Group, detect
from testbed.containers.host import hosted
from testbed.containers.host.container import Container, ContainerSpec
from testbed.containers.host.identity import identity, own
from testbed.containers.host.loop import AttachedSpec, Managed, Settings, control
from testbed.containers.ownership import RUN_ROOT, end_run, new_run
from testbed.containers.ports import GroupGoneError
from tests.patience import PATIENCE_S
from tests.testbed.containers.real_groups import path_of, quota_of
from twinbed import InvariantError, ScenarioError

MIB = 1 << 20
APP = (Application("app", 1.0, 400 * MIB),)

pytestmark = pytest.mark.root


def escra():
    return make("escra", {})


def shell(name: str, script: str, **more) -> Managed:
    return Managed(ContainerSpec(name, ("sh", "-c", script)), **more)


def kinds(observed) -> list[tuple[str, int]]:
    return list(zip(observed.events.kind, observed.events.container, strict=True))


@pytest.mark.slow
def test_ends_when_all_commands_have_ended(cgroups: None) -> None:
    observed = control([shell("a", "sleep 0.3"), shell("b", "exit 0")], APP, escra(), Settings())

    assert observed.exit_codes == (0, 0)
    assert {("leave", 0), ("leave", 1)} <= set(kinds(observed))
    assert 2 <= len(observed.series.up) < 100
    assert observed.telemetry == "polling"
    assert observed.facts["loop_scheduling"] in ("fifo", "nice", "normal")


@pytest.mark.slow
def test_a_command_that_fails_is_started_again_later_and_later(cgroups: None, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    script = f"echo started; echo x >> {tmp_path}/starts; exit 3"
    observed = control(
        [shell("a", script), shell("b", "sleep 60")], APP, escra(), Settings(duration_s=2.5, logs=logs)
    )

    # At once, after 1 s and after 2 s more, which is too late for this run.
    starts = len((tmp_path / "starts").read_text().split())
    assert 2 <= starts <= 4
    assert 1 <= kinds(observed).count(("restart", 0)) <= 3
    assert ("kill", 0) not in kinds(observed)
    assert (logs / "a.log").read_text().split() == ["started"] * starts
    assert observed.exit_codes == (3, None)


class RestartsOnce:
    """Escra that restarts everybody once, as soon as a file is there."""

    def __init__(self, file: Path) -> None:
        self._inner, self._file, self._done = escra(), file, False

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def on_period(self, stats: PeriodStats) -> Decision:
        if self._done or not self._file.exists():
            return NOTHING
        self._done = True
        return Decision(restart=stats.ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_term", "code"), [("trap 'touch asked; exit 0' TERM", 0), ("trap '' TERM", -9)], ids=["ends", "deaf"]
)
def test_a_command_is_asked_to_end_before_it_is_restarted_for_new_limits(
    cgroups: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_term: str, code: int
) -> None:
    monkeypatch.setattr(hosted, "TERMINATION_GRACE_S", 0.5)
    script = f"{on_term}; [ -e first ] && exit 0; touch first; while :; do sleep 0.02; done"
    spec = ContainerSpec("a", ("sh", "-c", script), directory=tmp_path)
    ends = []
    monkeypatch.setattr(
        Container,
        "note_end",
        lambda self, code, note=Container.note_end: (ends.append(code), note(self, code)),
    )
    observed = control([Managed(spec)], APP, RestartsOnce(tmp_path / "first"), Settings(duration_s=20))

    assert ends == [code, 0]
    assert (tmp_path / "asked").exists() == (code == 0)
    assert [kind for kind, _ in kinds(observed)] == ["join", "restart", "leave"]


@pytest.mark.slow
def test_a_process_that_somebody_kills_is_a_kill_and_comes_back(cgroups: None, tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def kill() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (pid.exists() and pid.read_text().strip()):
            assert time.monotonic() < deadline, "it never began"
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    observed = control(
        [shell("a", f"echo $$ > {pid}; exec sleep 60")], APP, escra(), Settings(duration_s=3.0)
    )
    killer.join()

    assert [kind for kind, _ in kinds(observed)] == ["join", "kill", "restart"]
    assert observed.series.up[-1, 0]
    assert observed.facts["restarts_s"]


def test_a_program_that_is_not_there_is_an_error_with_its_name(cgroups: None, leftovers) -> None:
    nobody = Managed(ContainerSpec("a", ("no-such-program",)))
    with pytest.raises(ScenarioError, match="container a: no-such-program"):
        control([nobody], APP, escra(), Settings(duration_s=1))
    assert leftovers(os.getpid()) == []


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ([], "no container"),
        ([shell("a", "true"), shell("a", "true")], "given twice"),
        ([shell("a", "true", app=1)], "no application 1"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_starts(containers, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        control(containers, APP, escra(), Settings())


def test_a_period_that_cgroups_do_not_have_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"0\.05 s"):
        Settings(period_s=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(cgroups: None, tmp_path: Path, leftovers, number: signal.Signals) -> None:
    program = f"""
        from control.allocator import make
        from control.allocator.model import Application
        from pathlib import Path
        from testbed.containers.host.container import ContainerSpec
        from testbed.containers.host.loop import Managed, Settings, control
        containers = [Managed(ContainerSpec(n, ("sleep", "300"))) for n in ("a", "b")]
        def tick(progress):
            Path({str(tmp_path / "running")!r}).touch()
        control(containers, [Application("app", 1.0, 1 << 28)], make("escra", {{}}), Settings(), on_tick=tick)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "running").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert leftovers(process.pid)
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()

    assert b"KeyboardInterrupt" in said
    assert leftovers(process.pid) == []


@pytest.fixture
def foreign(cgroups: None) -> Iterator[tuple[Group, subprocess.Popen[bytes]]]:
    """A cgroup that is not the run's, with a process in it."""
    driver, run = detect(), new_run()
    group = driver.create(run, "foreign")
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=group.enter)
    try:
        yield group, process
    finally:
        group.remove()
        process.wait()
        driver.finish(run)


@pytest.mark.slow
def test_an_attached_container_is_limited_and_left_alone(foreign) -> None:
    group, process = foreign
    run, driver = new_run(), detect()
    path = path_of(group, driver)
    theirs = AttachedSpec("theirs", lambda: attach(path, driver, run))
    observed = control([Managed(theirs)], APP, escra(), Settings(duration_s=1.0))

    assert process.poll() is None, "it still runs"
    again = attach(path, driver, run)
    assert again.quota_cores == np.inf, "as it was found"
    again.restore()
    assert files_of(run) == []
    end_run(run)
    assert not (RUN_ROOT / run).exists()
    assert group.pids() == {process.pid}
    assert (observed.series.quota_cores[1:] <= 1.0).all()
    assert observed.nr_periods[0] > 0
    assert observed.exit_codes == (None,)


@pytest.mark.slow
def test_limits_of_an_attached_container_that_another_system_changed_are_set_again(foreign) -> None:
    group, _ = foreign
    run, driver = new_run(), detect()
    path = path_of(group, driver)
    seen: list[float] = []

    def tick(progress) -> None:
        if progress.samples == 3:
            group.set_cpu_quota(3.0)
        if progress.samples in (3, 6):
            seen.append(quota_of(group.directories[0]))

    theirs = AttachedSpec("theirs", lambda: attach(path, driver, run))
    control([Managed(theirs)], APP, escra(), Settings(duration_s=1.0), on_tick=tick)

    assert seen[0] == 3.0
    assert seen[1] <= 1.0
    end_run(run)


@pytest.mark.slow
def test_an_attached_container_that_vanishes_leaves_and_joins_again(cgroups: None) -> None:
    driver, run = detect(), new_run()
    made: list[Group] = []
    gone = [False]

    def attach() -> Group:
        if gone[0]:
            raise GroupGoneError("not there")
        made.append(driver.create(run, f"pod{len(made)}"))
        return made[-1]

    def tick(progress) -> None:
        if progress.samples == 5:
            gone[0] = True
            made[0].remove()
        if progress.samples == 9:
            gone[0] = False

    try:
        observed = control(
            [Managed(AttachedSpec("pod", attach)), shell("ours", "sleep 60")],
            APP,
            escra(),
            Settings(duration_s=2.6),
            on_tick=tick,
        )
    finally:
        for group in made:
            group.remove()
        driver.finish(run)

    assert [kind for kind, column in kinds(observed) if column == 0] == ["join", "leave", "join"]
    assert len(observed.series.up) == 26
    assert observed.series.up[:, 1].all()


class Remembering:
    """A driver that keeps the groups it made."""

    def __init__(self) -> None:
        self._driver = detect()
        self.version = self._driver.version
        self.sweep, self.finish = self._driver.sweep, self._driver.finish
        self.groups: list[Group] = []

    def create(self, run: str, name: str) -> Group:
        self.groups.append(self._driver.create(run, name))
        return self.groups[-1]


@pytest.mark.slow
def test_a_cgroup_that_is_removed_under_us_stops_nobody_else(cgroups: None, leftovers) -> None:
    driver = Remembering()

    def tick(progress) -> None:
        if progress.samples == 5:
            tree.remove(driver.groups[0].directories)

    observed = control(
        [shell("a", "while :; do :; done"), shell("b", "sleep 60")],
        APP,
        escra(),
        Settings(duration_s=1.5),
        on_tick=tick,
        driver=driver,
    )

    assert ("leave", 0) in kinds(observed)
    assert not observed.series.up[-1, 0]
    assert observed.series.up[:, 1].all()
    assert len(observed.series.up) == 15
    # What is gone cannot be read at the end, but was recorded.
    assert observed.done_s[0] == pytest.approx(observed.series.usage_cores[:, 0].sum() * 0.1)
    assert observed.done_s[0] > 0
    assert (observed.nr_periods >= 0).all()
    assert leftovers(os.getpid()) == []


@pytest.mark.slow
def test_a_log_that_cannot_be_written_at_a_restart_stops_nobody_else(cgroups: None, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    script = f"sleep 0.3; rm -r {logs}; touch {logs}; exit 1"
    observed = control(
        [shell("a", script), shell("b", "sleep 60")], APP, escra(), Settings(duration_s=1.5, logs=logs)
    )

    assert ("restart", 0) in kinds(observed)
    assert not observed.series.up[-1, 0]
    assert observed.series.up[:, 1].all()


@pytest.mark.slow
def test_memory_that_the_kernel_cannot_shrink_is_tried_again(cgroups: None) -> None:
    hog = "import time; block = bytearray(60 << 20); time.sleep(60)"
    containers = [Managed(ContainerSpec("hog", (sys.executable, "-c", hog)))]
    allocator = make("escra", {"reclaim_interval_s": 0.4, "reclaim_margin_bytes": 0})
    observed = control(containers, APP, allocator, Settings(duration_s=2.0))

    series = observed.series
    assert ("kill", 0) not in kinds(observed)
    assert series.limit_bytes[-1, 0] >= series.memory_bytes[-1, 0]


@pytest.mark.slow
def test_a_hundred_containers_are_served_for_ten_seconds(cgroups: None) -> None:
    count, rows = 100, 100
    work = (
        "while (1) { select(undef, undef, undef, 0.01 + 0.03 * rand()); "
        "$n = rand() < 0.05 ? 200000 : 3000; $x++ for 1..$n }"
    )
    containers = [Managed(ContainerSpec(f"c{number}", ("perl", "-e", work))) for number in range(count)]
    applications = [Application("app", 2.0, count * 30 * MIB)]
    sums: list[float] = []
    allocator = make("escra", {"gamma": 0.005})
    observed = control(
        containers,
        applications,
        allocator,
        Settings(duration_s=rows * 0.1, host_cores=2.0),
        on_tick=lambda progress: sums.append(float(allocator.cpu.allocated_cores.sum())),
    )
    times, series = observed.times, observed.series
    late_ms = times.lateness_s * 1e3
    print(
        f"{count} cgroups, {rows} periods: {100 * (late_ms <= 10).mean():.2f} % of {len(late_ms)} ticks "
        f"within 10 ms, p99 {np.percentile(late_ms, 99):.2f} ms, most {late_ms.max():.1f} ms; "
        f"{times.lost} lost; loop {times.own_cores:.3f} cores, deciding {observed.decide_s:.2f} s; "
        f"{len(times.write_s)} quota writes, p99 {1e3 * np.percentile(times.write_s, 99):.3f} ms"
    )

    assert series.up.shape == (rows, count)
    assert series.up.all()
    assert series.reported[5:].any(0).all()
    assert max(sums) <= 2.0 + 1e-9
    used_s = series.usage_cores.sum(0, dtype=np.float64) * 0.1
    assert used_s == pytest.approx(observed.done_s, abs=0.1)
    assert observed.reports + times.lost >= 0.98 * rows * count
    assert observed.limit_changes > 0


def test_a_command_of_ours_can_be_run_without_capabilities_and_secrets(cgroups, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    script = f"cat /proc/self/status >{tmp_path}/status; env >{tmp_path}/env; sleep 300"
    settings = Settings(duration_s=1.0, identity=own(os.environ))
    observed = control([shell("a", script)], APP, escra(), settings)
    status = dict(line.split(":", 1) for line in (tmp_path / "status").read_text().splitlines())
    sets = ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb")
    assert [int(status[name], 16) for name in sets] == [0] * len(sets)
    assert status["NoNewPrivs"].strip() == "1"
    assert "AWS_SECRET_ACCESS_KEY" not in (tmp_path / "env").read_text()
    assert "PATH=" in (tmp_path / "env").read_text()
    assert observed.series.usage_cores.shape[1] == 1


def test_another_user_is_refused_where_the_command_gets_inside_by_itself(cgroups):
    with pytest.raises(InvariantError, match="only runc can make it user nobody"):
        control([shell("a", "true")], APP, escra(), Settings(identity=identity("nobody", (), os.environ)))
