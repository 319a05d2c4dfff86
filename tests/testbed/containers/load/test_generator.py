"""The generator's process: a whole run, an early stop, and its death, after which nothing hangs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from control.allocator.model import ServiceStats
from control.services import Call, Handler, Service, ServiceApp
from control.services import RequestStatus as Status
from testbed.containers.load import generator as generating
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.main import level_path
from testbed.containers.load.plan import (
    LoadPlan,
    read_level,
    read_plan,
    read_result,
    write_level,
    write_plan,
)
from tests.testbed.containers.running_services import Running, running
from tests.testbed.containers.waiting import is_gone, until
from twinbed import BackendError, ScenarioError

APP = ServiceApp(
    "app",
    {
        "a": Service({"x": Handler(0.0005, stages=((Call("b.y"),),)), "z": Handler(0.0)}),
        "b": Service({"y": Handler(0.0005)}),
    },
    {"x": "a.x", "z": "a.z"},
)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(APP, tmp_path_factory.mktemp("services")) as started:
        yield started


def plan_for(services: Running, count: int, *, every_s: float = 0.01, duration_s: float = 60.0) -> LoadPlan:
    at_s = np.arange(count) * every_s
    return LoadPlan(at_s, np.arange(count) % 2, services.deployment.entries, duration_s)


@pytest.mark.slow
def test_every_request_of_a_run_ends_in_one_status(services: Running, tmp_path: Path) -> None:
    plan = plan_for(services, 130)
    with LoadGenerator(plan, tmp_path) as generator:
        generator.start()
        until(lambda: not generator.running(), "the load")
        result, progress = generator.result(), generator.progress()
    assert result.complete
    assert (result.status == Status.OK).all()
    assert np.array_equal(result.at_s, plan.at_s)
    assert np.array_equal(result.kind, plan.kind)
    # A visit to a and one to b burn half a millisecond each.
    assert (result.latency_s[result.kind == 0] >= 0.00095).all()
    assert (result.latency_s >= result.late_s).all()
    assert result.cpu_s > 0
    assert progress is not None
    assert set(progress.latency_s) == {"p50", "p90", "p99", "p99.9"}


@pytest.mark.slow
def test_a_load_that_is_stopped_says_what_became_of_it_so_far(services: Running, tmp_path: Path) -> None:
    with LoadGenerator(plan_for(services, 100_000), tmp_path) as generator:
        generator.start()
        until(lambda: generator.progress() is not None, "progress")
        assert generator.running()
        generator.stop()
        generator.stop()
        result = generator.result()
    assert not result.complete
    assert 0 < len(result.at_s) < 100_000
    assert Status.OK in result.status


def test_a_killed_generator_is_said(services: Running, tmp_path: Path) -> None:
    with LoadGenerator(plan_for(services, 100_000), tmp_path) as generator:
        generator.start()
        assert generator.pid is not None
        os.kill(generator.pid, signal.SIGKILL)
        until(lambda: not generator.running(), "its end")
        with pytest.raises(BackendError, match="killed by signal 9"):
            generator.result()


@pytest.mark.slow
def test_a_process_with_many_open_files_starts_a_generator(services: Running, tmp_path: Path) -> None:
    """The control loop of sixty containers is such a process. select(2) takes descriptors below 1,024
    only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as undo:
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            undo.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with LoadGenerator(plan_for(services, 1), tmp_path) as generator:
            assert generator.start() > 0


ORPHANED = """
import pathlib, sys, time
import numpy as np
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan
at_s = np.arange(100_000) * 0.01
plan = LoadPlan(at_s, np.zeros(100_000, np.int64), ((sys.argv[1],),), 1000.0)
generator = LoadGenerator(plan, pathlib.Path(sys.argv[2]))
generator.start()
print(generator.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.slow
def test_a_generator_ends_when_who_started_it_is_killed(services: Running, tmp_path: Path) -> None:
    url = services.deployment.entries[0][0]
    command = [sys.executable, "-c", ORPHANED, url, os.fspath(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: is_gone(pid), "its end")


def test_no_result_is_given_before_the_end(services: Running, tmp_path: Path) -> None:
    with (
        LoadGenerator(plan_for(services, 1), tmp_path) as generator,
        pytest.raises(BackendError, match="not ended"),
    ):
        generator.result()


def test_a_folder_that_is_not_there_is_said(services: Running, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be written"):
        LoadGenerator(plan_for(services, 1), tmp_path / "missing")


def test_plans_come_back_from_their_files(tmp_path: Path) -> None:
    plan = LoadPlan(np.array([0.0, 0.5]), np.array([1, 0]), (("http://h:1/x",), ("u", "v")), 3.0, 5, 7, 0.25)
    write_plan(plan, tmp_path / "plan.npz")
    back = read_plan(tmp_path / "plan.npz")
    assert np.array_equal(back.at_s, plan.at_s)
    assert np.array_equal(back.kind, plan.kind)
    assert (back.entries, back.duration_s, back.connections, back.queue, back.timeout_s) == (
        plan.entries,
        3.0,
        5,
        7,
        0.25,
    )


def test_what_is_no_plan_or_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(ScenarioError, match="not a load plan"):
        read_plan(path)
    with pytest.raises(BackendError, match="no result"):
        read_result(path)
    with pytest.raises(ScenarioError, match="at_s must ascend"):
        LoadPlan(np.array([1.0, 0.0]), np.array([0, 0]), (("u",),), 1.0)
    with pytest.raises(ScenarioError, match="kinds must be 0 to 0"):
        LoadPlan(np.array([0.0]), np.array([1]), (("u",),), 1.0)


def test_a_level_that_is_replaced_while_it_is_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def level(at_s: float) -> ServiceStats:
        return ServiceStats(np.ones(1), np.ones(1), at_s, None, np.ones((1, 3)), np.zeros(1))

    def replaced(file: object) -> ServiceStats:
        write_level(level(2.0), path)
        return read_level(file)

    generator = LoadGenerator(LoadPlan(np.zeros(1), np.zeros(1, np.int64), (("u",),), 1.0), tmp_path)
    path = level_path(generator._path)
    assert generator.service_level() is None
    write_level(level(1.0), path)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(generating, "read_level", replaced)
        told = [generator.service_level()]
    told += [generator.service_level() for _ in range(2)]
    assert [stats and stats.at_s for stats in told] == [1.0, 2.0, None]
