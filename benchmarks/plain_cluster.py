"""A cluster of equal GPUs as a plain event loop over Python objects: FIFO and Tiresias.

For: the baseline of bench_cluster.py. It has the order of the queue, thresholds, promotion and the restarts
of control.scheduler and twin.cluster. It has no servers, types, rounds, faults or records of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

THRESHOLD_GPU_S, KNOB, RESTART_S, CLOSE_S = 3600.0, 8.0, 30.0, 1e-6


@dataclass(slots=True)
class Job:
    """A job. Times in s; work is seconds at full speed."""

    submit_s: float
    gpus: int
    left_s: float
    wait_s: float = 0.0
    attained: float = 0.0
    ran_s: float = 0.0
    first_s: float = math.inf
    idle_since_s: float = 0.0
    runs: bool = False
    finish_s: float = math.nan


def run(jobs: Sequence[Job], gpus: int, *, tiresias: bool) -> None:
    """Simulate until all jobs, sorted by submission, have ended."""
    now_s, come, present = 0.0, 0, list[Job]()
    while True:
        while come < len(jobs) and jobs[come].submit_s <= now_s + CLOSE_S:
            jobs[come].idle_since_s = jobs[come].submit_s
            present.append(jobs[come])
            come += 1
        _decide(present, gpus, now_s, tiresias=tiresias)
        next_s = jobs[come].submit_s if come < len(jobs) else math.inf
        for job in present:
            if job.runs:
                next_s = min(next_s, now_s + job.wait_s + job.left_s)
                if tiresias and job.attained < THRESHOLD_GPU_S:
                    drops_s = job.wait_s + (THRESHOLD_GPU_S - job.attained) / job.gpus + 1e-5
                    next_s = min(next_s, now_s + drops_s)
            elif tiresias and job.attained >= THRESHOLD_GPU_S:
                next_s = min(next_s, job.idle_since_s + KNOB * job.ran_s)
        if math.isinf(next_s):
            return
        passed_s, now_s = max(next_s - now_s, 0.0), max(next_s, now_s)
        for job in present:
            if job.runs:
                works_s = max(passed_s - job.wait_s, 0.0)
                job.wait_s = max(job.wait_s - passed_s, 0.0)
                job.left_s -= works_s
                job.attained += works_s * job.gpus
                job.ran_s += works_s
                if job.wait_s == 0 and job.left_s <= CLOSE_S:
                    job.finish_s = now_s
        present = [job for job in present if math.isnan(job.finish_s)]


def _decide(present: Sequence[Job], gpus: int, now_s: float, *, tiresias: bool) -> None:
    """Start jobs, and preempt jobs under Tiresias."""
    if not tiresias:
        gpus -= sum(job.gpus for job in present if job.runs)
        for job in present:
            if not job.runs:
                if job.gpus > gpus:
                    return
                gpus, job.runs = gpus - job.gpus, True
        return
    for job in present:
        starved = now_s + CLOSE_S >= job.idle_since_s + KNOB * job.ran_s
        if not job.runs and job.attained >= THRESHOLD_GPU_S and starved:
            job.attained = job.ran_s = 0.0
    for job in sorted(present, key=lambda job: (job.attained >= THRESHOLD_GPU_S, job.first_s)):
        fits = job.gpus <= gpus
        gpus -= job.gpus * fits
        if fits and not job.runs:
            job.wait_s = 0.0 if math.isinf(job.first_s) else RESTART_S
            job.first_s = min(job.first_s, now_s)
        elif job.runs and not fits:
            job.idle_since_s = now_s
        job.runs = fits
