"""Lives of gangs of real processes."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.cluster.gangs import Gangs, Training
from testbed.cluster.slurm import missing
from testbed.containers import leftovers
from testbed.containers.cgroup.drivers import detect
from tests.patience import PATIENCE_S
from tests.testbed.cluster import trainee
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("cgroups")]
TRAINEE = Path(trainee.__file__)


def program(steps: int, *more: str, gpus: int = 1, every: int = 50) -> Training:
    command = (sys.executable, str(TRAINEE), "--steps", str(steps), *more)
    return Training(command, TRAINEE.parent, gpus, steps, every)


def until(reached, within_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_gang_has_a_process_for_each_gpu_and_none_has_a_capability(tmp_path: Path) -> None:
    with Gangs([program(100, "--tells", str(tmp_path / "status"), gpus=2)]) as gangs:
        gangs.start(0, {0: 2}, 0.5)
        until(lambda: not gangs.look(0).alive)
        assert gangs.look(0).done == 100
    status = dict(
        line.split(":\t") for line in (tmp_path / "status").read_text().splitlines() if ":\t" in line
    )
    assert {int(status[key], 16) for key in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {0}
    assert status["NoNewPrivs"] == "1"


def test_what_was_stopped_goes_on_and_what_was_killed_goes_back_to_its_last_save() -> None:
    with Gangs([program(10**6, every=50)]) as gangs:
        gangs.start(0, {0: 1}, math.inf)
        until(lambda: gangs.look(0).done >= 60)
        gangs.stop(0)
        until(lambda: not gangs.look(0).alive)
        stopped = gangs.look(0).done
        assert stopped >= 60
        gangs.start(0, {1: 1}, math.inf)
        until(lambda: gangs.look(0).done >= stopped + 120)
        gangs.kill(0)
        assert gangs.look(0).done % 50 == 0
        assert gangs.look(0).done >= stopped


def test_a_gang_takes_no_step_beyond_the_first_until_it_is_released() -> None:
    with Gangs([program(10**6, gpus=2)]) as gangs:
        gangs.start(0, {0: 2}, 0.5)
        until(lambda: gangs.look(0, release=False).begun)
        time.sleep(0.2)
        assert gangs.look(0, release=False).done == 1
        until(lambda: gangs.look(0).done > 1)


def test_a_gang_that_waits_for_its_release_saves_and_ends_when_it_is_told_to() -> None:
    with Gangs([program(10**6)]) as gangs:
        gangs.start(0, {0: 1}, 0.5)
        until(lambda: gangs.look(0, release=False).begun)
        gangs.stop(0)
        until(lambda: not gangs.look(0, release=False).alive)
        assert gangs.look(0).done >= 1


def test_a_job_that_fails_is_told_with_its_last_words() -> None:
    with Gangs([program(100, "--fails")]) as gangs:
        gangs.start(0, {0: 1}, 0.5)
        with pytest.raises(BackendError, match="no data to train on"):
            until(lambda: not gangs.look(0).alive)


_ENDLESS = """
import time
from tests.control.scheduler.worlds import cluster
from tests.testbed.cluster.test_gangs import program
from testbed.cluster.gangs import Gangs
from testbed.cluster.slurm import SlurmGangs
jobs = [program(10**6)]
with GANGS as gangs:
    gangs.start(0, {0: 1}, 0.1)
    while not gangs.look(0).begun:
        time.sleep(0.02)
    print(gangs._run, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("gangs", ["Gangs(jobs)", "SlurmGangs(jobs, cluster((0, 1)))"])
def test_kill_9_leaves_nothing(gangs: str) -> None:
    if gangs.startswith("Slurm") and missing():
        pytest.skip(f"{missing()[0]} is not installed; see make system")
    script = _ENDLESS.replace("GANGS", gangs)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        run = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: run not in {there.name for there in leftovers.runs(detect())})
