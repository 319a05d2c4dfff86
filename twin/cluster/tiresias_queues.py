"""The queues of Tiresias between decisions, sorted by first start and arrival, for leap.py.

For: jobs that enter and leave their queues, sink to later ones and are promoted. Not for: deciding who runs.
The rules are those of control.scheduler.tiresias.queued. That function sees all jobs at each decision; these
kernels see only those whose service or waiting changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from control.scheduler.loops import Ledger
from control.scheduler.model import Real, Whole
from twin.containers.compiled import package_kernel


class Jobs(NamedTuple):
    """Arrays by job, as in Workload and Books."""

    submit_s: Real
    gpus: Whole
    throughput: Real
    first_start_s: Real
    idle_since_s: Real
    finish_s: Real
    preemptions: Whole
    faulted: Whole
    undone_s: Real
    undone_gpu_s: Real


class Queues(NamedTuple):
    """The queues of Tiresias.

    level: queue of each job, int64[n]. members, size: jobs of each queue by first start and arrival, int64[q,
    n], and their number, int64[q]. promoted_s: time at which a waiting job of a later queue is promoted, else
    inf, float64[n]. base: service (GPU-s) and run time (s) at the last promotion, float64[n, 2]. limits:
    thresholds and inf, GPU-s, float64[q]. knob: as in TiresiasSettings. next_s: time of the next promotion,
    float64[1].
    """

    level: Whole
    members: Whole
    size: Whole
    promoted_s: Real
    base: Real
    limits: Real
    knob: float
    next_s: Real


@package_kernel
def _place(jobs: Jobs, queues: Queues, job: int) -> int:
    """Return the place of a job in its queue, or the one that it would have."""
    members, low, high = queues.members[queues.level[job]], 0, queues.size[queues.level[job]]
    while low < high:
        middle = (low + high) // 2
        other = members[middle]
        other_s, first_s = jobs.first_start_s[other], jobs.first_start_s[job]
        if other_s < first_s or (other_s == first_s and other < job):
            low = middle + 1
        else:
            high = middle
    return low


@package_kernel
def enter(jobs: Jobs, queues: Queues, job: int) -> None:
    """Add a job to its queue."""
    level, place = queues.level[job], _place(jobs, queues, job)
    members = queues.members[level]
    for at in range(queues.size[level], place, -1):
        members[at] = members[at - 1]
    members[place] = job
    queues.size[level] += 1


@package_kernel
def leave(jobs: Jobs, queues: Queues, job: int) -> None:
    """Remove a job from its queue."""
    level, place = queues.level[job], _place(jobs, queues, job)
    members = queues.members[level]
    queues.size[level] -= 1
    for at in range(place, queues.size[level]):
        members[at] = members[at + 1]


@package_kernel
def sink(jobs: Jobs, by: Ledger, queues: Queues, job: int) -> None:
    """Move a job to the queue of its service, if this has grown."""
    attained, level = by.attained[job] - queues.base[job, 0], queues.level[job]
    if attained >= queues.limits[level]:
        leave(jobs, queues, job)
        while attained >= queues.limits[level]:
            level += 1
        queues.level[job] = level
        enter(jobs, queues, job)


@package_kernel
def wait(now_s: float, jobs: Jobs, by: Ledger, queues: Queues, job: int) -> None:
    """Let a job wait from now on."""
    jobs.idle_since_s[job], by.starts[job] = now_s, 0.0
    jobs.preemptions[job] += 1
    sink(jobs, by, queues, job)
    if queues.knob > 0 and queues.level[job] > 0:
        ran_s = by.held[job] - by.restart[job]
        queues.promoted_s[job] = now_s + queues.knob * (ran_s - queues.base[job, 1])
        queues.next_s[0] = min(queues.next_s[0], queues.promoted_s[job])


@package_kernel
def promote(now_s: float, jobs: Jobs, by: Ledger, queues: Queues) -> None:
    """Move the starved jobs to the first queue, and note when the next one starves."""
    next_s = np.inf
    for level in range(1, queues.size.size):
        members, kept = queues.members[level], 0
        for place in range(queues.size[level]):
            job = members[place]
            if queues.promoted_s[job] <= now_s + 1e-6:
                queues.base[job, 0] = by.attained[job]
                queues.base[job, 1] = by.held[job] - by.restart[job]
                queues.level[job], queues.promoted_s[job] = 0, np.inf
                enter(jobs, queues, job)
            else:
                next_s = min(next_s, queues.promoted_s[job])
                members[kept] = job
                kept += 1
        queues.size[level] = kept
    queues.next_s[0] = next_s
