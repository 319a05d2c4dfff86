"""The backends of the contract of clusters, behind the same line: run these jobs under this scheduler."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

from control.cluster import NEVER_DOWN, Downtime, Outcome, Timing, Workload
from control.scheduler.model import Cluster
from control.scheduler.ports import Scheduler
from testbed.cluster.carrying_out import carry_out
from testbed.cluster.gangs import Gangs, Training
from tests.testbed.cluster import trainee
from twin.cluster.simulation import simulate

TRAINEE = Path(trainee.__file__)
COMPRESSION = 10.0
GPU_CORES = 0.2
STEPS_PER_S = GPU_CORES / trainee.STEP_CPU_S / COMPRESSION
"""Steps of training that stand for a second of the cluster at speed 1."""


def trainings(jobs: Workload, timing: Timing = Timing()) -> list[Training]:  # noqa: B008 - it is frozen
    """Return each job as a program."""
    every = round(timing.checkpoint_s * STEPS_PER_S)
    return [
        Training(
            (sys.executable, str(TRAINEE), "--steps", str(round(steps * STEPS_PER_S))),
            TRAINEE.parent,
            gpus,
            round(steps * STEPS_PER_S),
            every,
        )
        for steps, gpus in zip(jobs.steps.tolist(), jobs.gpus.tolist(), strict=True)
    ]


class Backend(Protocol):
    """A backend. taken: steps that each job took in all its lives in the last run, float64[n]."""

    name: str
    taken: np.ndarray

    def run(
        self,
        cluster: Cluster,
        jobs: Workload,
        scheduler: Scheduler,
        timing: Timing,
        downtime: Downtime = NEVER_DOWN,
    ) -> Outcome: ...


class Twin:
    name = "twin"

    def run(self, cluster, jobs, scheduler, timing, downtime=NEVER_DOWN) -> Outcome:
        done = simulate(cluster, jobs, scheduler, timing, downtime=downtime)
        # At speed 1, a second of work is a step.
        self.taken = done.held_s - done.restart_s
        return done


class Testbed:
    name = "testbed"

    def run(self, cluster, jobs, scheduler, timing, downtime=NEVER_DOWN) -> Outcome:
        with TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o777)  # the jobs' user writes there
            counts = [folder / f"{job}" for job in range(len(jobs.gpus))]
            programs = [
                replace(program, command=(*program.command, "--counts", str(count)))
                for program, count in zip(trainings(jobs, timing), counts, strict=True)
            ]
            with Gangs(programs) as gangs:
                done = carry_out(
                    cluster,
                    jobs,
                    [program.steps for program in programs],
                    scheduler,
                    timing,
                    gangs,
                    compression=COMPRESSION,
                    quota_cores=lambda _, rate: GPU_CORES * rate,
                    downtime=downtime,
                )
            self.taken = np.array([count.stat().st_size for count in counts]) / STEPS_PER_S
        return done


def workload(submit_s, gpus, steps, speeds=(1.0,)) -> Workload:
    """Return a workload. speeds: speeds by type, the same for all jobs."""
    n = len(gpus)
    return Workload(
        np.asarray(submit_s, float),
        np.asarray(gpus, np.int64),
        np.asarray(steps, float),
        np.tile(np.asarray(speeds, float)[None, :, None], (n, 1, 2)),
        np.zeros(n, np.int64),
        np.ones(n),
        np.full(n, np.inf),
        np.zeros(n, np.bool_),
    )
