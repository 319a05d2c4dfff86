"""The shipped training jobs as jobs of a cluster, and how much training stands for a job's duration.

For: lab.cluster's Jobs to testbed.cluster.gangs.Training. Not for: running them.
"""

from __future__ import annotations

from lab.ask import shipped
from lab.ask.calibration import Calibration
from lab.cloud.input import job_file
from lab.cluster.calibrate.values import speed
from lab.cluster.input import ClusterInput, EmulationInput
from lab.cluster.run.jobs import Jobs
from testbed.cluster.gangs import Training
from twinbed import BackendError, ScenarioError

LEAST_STEPS = 10
"""Fewest steps of training that may stand for a job."""


def training(job: str, gpus: int, steps: int, every: int) -> Training:
    """Return a shipped job, or a user's job file, as a program of so many steps. Raises ScenarioError."""
    path = shipped.path_of("job", job)
    return Training(job_file.load(path).command_line(steps=steps), path.parent, gpus, steps, every)


def trainings(
    asked: ClusterInput, emulation: EmulationInput, jobs: Jobs, calibration: Calibration
) -> list[Training]:
    """Return a program for each job: as many steps as its duration at speed 1, compressed, has room for.

    Raises ScenarioError for a model that is no job, or a job too short to be seen; BackendError for input
    whose work has no duration.
    """
    if asked.measured is not None:
        raise BackendError("cluster.measured: its jobs cannot be run here; use --backend twin")
    made = []
    for number, (model, gpus) in enumerate(zip(jobs.models, jobs.workload.gpus.tolist(), strict=True)):
        if not model:
            known = ", ".join(shipped.names("job"))
            raise ScenarioError(f"cluster.models: name jobs that train, for the testbed; shipped are {known}")
        per_s = emulation.gpu_cores * speed(calibration, model, gpus)
        steps = round(float(jobs.workload.steps[number]) / emulation.compression * per_s)
        if steps < LEAST_STEPS:
            raise ScenarioError(
                f"cluster.emulation.compression: job {number} would train {steps} steps; at least "
                f"{LEAST_STEPS} can be seen: make it smaller, or jobs longer"
            )
        every = max(round(asked.checkpoint_s / emulation.compression * per_s), 1)
        made.append(training(model, gpus, steps, every))
    return made
