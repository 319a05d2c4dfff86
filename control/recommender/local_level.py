"""How long a job will take at all, from its local run: CPU time per sample times samples, shared by vCPUs.

For: the level of transfer.py before the first trial. Not for: how time changes with the cluster.
A local vCPU and one of the cloud are taken to be alike within a factor of about two: the deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.recommender.model import Candidates, Job

DEVIATION = 0.7
"""Of the logarithm of a time that comes from a local run: another CPU, other libraries, no network yet."""


@dataclass(frozen=True, slots=True)
class Level:
    """Mean and deviation of the logarithm of the job's seconds, averaged over the candidates."""

    mean: float
    deviation: float


def level(job: Job, candidates: Candidates) -> Level | None:
    """None without a local run, without the number of samples, or where no CPU time was seen."""
    run = job.local_run
    if run is None or not np.isfinite(job.samples):
        return None
    cores = float(run.cpu_cores.mean(axis=0).sum())
    processes = run.cpu_cores.shape[1]
    vcpus = candidates.vcpus * candidates.count
    if cores <= 0 or not np.isfinite(vcpus).all():
        return None
    core_s_per_sample = cores * float(np.median(run.step_s)) / (run.batch * processes)
    work = np.log(core_s_per_sample * job.samples)
    return Level(float(work - np.log(vcpus).mean()), DEVIATION)
