"""A real Slurm: our scheduler decides and it runs, or it decides itself."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

import numpy as np
import pytest

from control.cluster import Timing
from control.scheduler.ports import Scheduler
from testbed.cluster.carrying_out import carry_out
from testbed.cluster.slurm import Backfill, SlurmGangs, missing
from tests.contract.cluster import cluster_backends
from tests.contract.cluster.cluster_backends import trainings, workload
from tests.contract.cluster.test_carrying_out_a_scheduler import Scripted, check_books, scheduler
from tests.control.scheduler.worlds import cluster
from tests.testbed.cluster.test_gangs import program, until
from tests.testbed.containers.real_groups import CGROUPS
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("cgroups", "slurm")]
TIMING = Timing(checkpoint_s=5.0)


@pytest.fixture(scope="module")
def slurm() -> None:
    if absent := missing():
        pytest.skip(f"{absent[0]} is not installed; see make system")


def run(where, jobs, decides):
    programs = trainings(jobs, TIMING)
    with SlurmGangs(programs, where) as gangs:
        chosen: Scheduler = decides(gangs)
        return carry_out(
            where,
            jobs,
            [program.steps for program in programs],
            chosen,
            TIMING,
            gangs,
            compression=cluster_backends.COMPRESSION,
            quota_cores=lambda _, rate: cluster_backends.GPU_CORES * rate,
        )


def test_slurm_runs_what_our_scheduler_decides_and_what_it_preempts_goes_on() -> None:
    where, jobs = cluster((0, 2), (0, 2)), workload([0, 1, 2, 12], [2, 1, 1, 2], [40, 30, 20, 10])
    done = run(where, jobs, lambda _: scheduler("tiresias", where))
    check_books(where, jobs, done)
    assert done.preemptions.sum() > 0
    assert (done.undone_s == 0).all()


def test_slurm_moves_a_job_to_another_server() -> None:
    where, jobs = cluster((0, 1), (0, 1)), workload([0], [1], [40])
    done = run(where, jobs, lambda _: Scripted((0, 1), 25.0))
    check_books(where, jobs, done)
    assert done.spans.server.tolist() == [0, 1]


def test_slurm_decides_itself_first_come_first_served() -> None:
    where, jobs = cluster((0, 1), (0, 1)), workload([0, 1, 2, 3], [1] * 4, [20, 20, 10, 10])
    done = run(where, jobs, lambda gangs: Backfill(gangs, 2.0))
    check_books(where, jobs, done)
    assert done.preemptions.sum() == 0
    assert np.array_equal(np.argsort(done.first_start_s, kind="stable"), np.arange(4))


def test_a_job_that_slurm_starts_does_no_work_before_its_quota_is_known() -> None:
    with SlurmGangs([program(10**6)], cluster((0, 1))) as gangs:
        gangs.submit(0)
        until(gangs.holders)
        time.sleep(1.0)
        assert not gangs.look(0).begun
        gangs.start(0, {0: 1}, 0.1)
        until(lambda: gangs.look(0).begun)


def test_a_process_that_aborts_after_its_last_step_has_done_its_work() -> None:
    with SlurmGangs([program(60, "--aborts", gpus=2)], cluster((0, 2))) as gangs:
        gangs.start(0, {0: 2}, np.inf)
        until(lambda: not gangs.look(0).alive)
        assert gangs.look(0).done == 60


def test_a_job_that_fails_is_told_with_its_last_words() -> None:
    with SlurmGangs([program(60, "--fails")], cluster((0, 1))) as gangs:
        gangs.start(0, {0: 1}, np.inf)
        with pytest.raises(BackendError, match=r"ended with \[1\] after 0 steps: no data to train on"):
            until(lambda: not gangs.look(0).alive)


def test_a_gang_that_is_stopped_while_it_waits_for_a_server_starts_only_when_asked() -> None:
    with SlurmGangs([program(10**6, gpus=2)] * 2, cluster((0, 2), (0, 1), (0, 1))) as gangs:
        gangs.start(0, {0: 2}, np.inf)
        until(lambda: gangs.look(0).begun)
        gangs.start(1, {0: 2}, np.inf)  # its server is full
        gangs.stop(1)
        until(lambda: not gangs.look(1).alive)
        gangs.stop(0)
        until(lambda: not gangs.look(0).alive)
        time.sleep(3.0)  # Slurm decides every second
        assert 1 not in gangs.holders()
        gangs.start(1, {1: 1, 2: 1}, np.inf)
        until(lambda: gangs.look(1).begun)
        assert gangs.holders() == {1: [1, 2]}


def run_and_kill_the_controller(where, jobs) -> None:
    with SlurmGangs(trainings(jobs, TIMING), where) as gangs:
        gangs.start(0, {0: 1}, np.inf)
        controller = next(CGROUPS.glob(f"**/run-{os.getpid()}-*/slurmctld-*/cgroup.procs"))
        for pid in controller.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        while True:
            gangs.look(0)
            time.sleep(0.1)


def test_a_slurm_that_dies_is_told_at_once_and_leaves_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.cluster.slurm._BUSY_S", 600.0)
    with pytest.raises(BackendError, match="its log"):
        run_and_kill_the_controller(cluster((0, 1)), workload([0], [1], [40]))
    assert not list(CGROUPS.glob(f"**/run-{os.getpid()}-*"))


def test_a_run_that_is_left_while_jobs_run_asks_a_slurm_that_has_ended_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, usual = set(), subprocess.run

    def seen(command: Sequence[str], **options: object) -> object:
        asked.add(command[0])
        return usual(command, **options)

    with SlurmGangs([program(10**6)], cluster((0, 1))) as gangs:
        gangs.start(0, {0: 1}, np.inf)
        until(lambda: gangs.look(0).begun)
        monkeypatch.setattr(subprocess, "run", seen)
    assert not asked & {"scontrol", "squeue"}
