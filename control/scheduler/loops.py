"""The books' work of each event as loops over running jobs, which a backend may compile (decision 0049).

For: control.scheduler.books and twin.cluster. Not for: compiling. They are plain Python over arrays, so they
also run uncompiled, which is fast enough for the few jobs of a testbed. They call no other module of ours,
because a compiled function is cached as long as its own file does not change.

In all of them, `runs` has the ids of the running jobs, sorted. Lines have the job, the server and the GPUs of
each holding, sorted by job and server.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Real = NDArray[np.float64]


class Ledger(NamedTuple):
    """Arrays by job id.

    steps, left: steps of the whole job and those to do, float64[n]. rate: steps per second where the job
    runs, float64[n].
    starts: time until the job makes progress, s, float64[n]. ends: time for which it holds its GPUs after its
    work, s, float64[n].
    begun, every: steps before its last start and between two saves, float64[n].
    width: GPUs that it holds, int64[n]. partner: the job with which it shares them, −1 for none, int64[n].
    held, restart: time with GPUs, and the part of it without progress, s, float64[n].
    attained: GPU-seconds of progress, float64[n].
    held_gpu: GPU-seconds that it had, float64[n]; a shared GPU counts half for each of its two jobs.
    """

    steps: Real
    left: Real
    rate: Real
    starts: Real
    ends: Real
    begun: Real
    every: Real
    width: Whole
    partner: Whole
    held: Real
    restart: Real
    attained: Real
    held_gpu: Real


class Lines(NamedTuple):
    """Holdings. job, server, gpus: int64[k]."""

    job: Whole
    server: Whole
    gpus: Whole


def first_end_s(runs: Whole, by: Ledger, start_speed: float, work_speed: float) -> float:
    """Return the time until the next running job ends if these speeds last, s; inf without jobs."""
    first_s = np.inf
    for job in runs:
        work_s = by.left[job] / (by.rate[job] * work_speed)
        first_s = min(first_s, by.starts[job] / start_speed + work_s + by.ends[job] / start_speed)
    return first_s


def advance(
    runs: Whole,
    by: Ledger,
    start_speed: float,
    work_speed: float,
    passed_s: float,
    close_s: float,
    busy_s: Real,
    restart_s: Real,
) -> tuple[int, bool]:
    """Advance the running jobs. Return the number of jobs that ended, and whether any job made progress.

    close_s: times nearer than this count as equal, s. busy_s, restart_s: results: time for which each running
    job needed its GPUs, and its part without progress, s. A job that ended has neither work nor an end left.
    """
    ended, worked = 0, False
    for place in range(runs.size):
        job = runs[place]
        wait_s = by.starts[job] / start_speed
        work_s = by.left[job] / (by.rate[job] * work_speed)
        need_s = wait_s + work_s + by.ends[job] / start_speed
        ends = need_s <= passed_s + close_s
        busy_s[place] = min(need_s, passed_s) if ends else passed_s
        restart_s[place] = min(wait_s, busy_s[place])
        works_s = (busy_s[place] - restart_s[place]) * work_speed
        worked = worked or works_s > 0
        by.starts[job] = (wait_s - restart_s[place]) * start_speed
        done = ends
        if by.ends[job] > 0 and busy_s[place] - restart_s[place] >= work_s - close_s:
            done = True
            over_s = max(busy_s[place] - restart_s[place] - work_s, 0.0)
            works_s = (busy_s[place] - restart_s[place] - over_s) * work_speed
            restart_s[place] += over_s
            by.ends[job] = 0.0 if ends else by.ends[job] - over_s * start_speed
        ended += ends
        by.left[job] = 0.0 if done else by.left[job] - works_s * by.rate[job]
    return ended, worked


def saved(done: float, begun: float, every: float) -> float:
    """Return the steps of a job that a fault leaves. It saves after every `every` steps, wherever it takes
    them, and when it is preempted. done: its steps. begun: those before its last start.
    """
    return max(begun, done - done % every)


def spend(
    runs: Whole,
    by: Ledger,
    lines: Lines,
    server_type: Whole,
    busy_s: Real,
    restart_s: Real,
    busy_gpu_s: Real,
    restart_gpu_s: Real,
) -> None:
    """Account for a time in which no job's GPUs changed.

    busy_s, restart_s: as in `advance`. busy_gpu_s, restart_gpu_s: sums by type, which are raised. Shared GPUs
    are busy while one of the two jobs is. They make no progress while neither job does.
    """
    busy, idle = np.zeros(busy_gpu_s.size), np.zeros(busy_gpu_s.size)
    line = 0
    for place in range(runs.size):
        job = runs[place]
        mine_s, waits_s = busy_s[place], restart_s[place]
        works_s = mine_s - waits_s
        by.held[job] += mine_s
        by.restart[job] += waits_s
        by.attained[job] += works_s * by.width[job]
        own_s, other = mine_s, by.partner[job]
        if other >= 0:
            there = np.searchsorted(runs, other)
            its_s = busy_s[there]
            both_s = min(mine_s, its_s)
            twice_s = max(both_s - max(waits_s, restart_s[there]), 0.0)
            works_s = works_s + (its_s - restart_s[there]) - twice_s
            own_s = mine_s - both_s / 2
            mine_s = max(mine_s, its_s)
            waits_s = mine_s - works_s
        by.held_gpu[job] += own_s * by.width[job]
        while line < lines.job.size and lines.job[line] == job:
            if other < 0 or job < other:
                kind = server_type[lines.server[line]]
                busy[kind] += lines.gpus[line] * mine_s
                idle[kind] += lines.gpus[line] * waits_s
            line += 1
    busy_gpu_s += busy
    restart_gpu_s += idle


def changed(old: Lines, new: Lines) -> tuple[Whole, Whole, Whole]:
    """Return the jobs that have lost their lines, those whose lines are new or others, and all jobs that have
    lines now. All are sorted."""
    stopped, moved = np.empty(old.job.size, np.int64), np.empty(new.job.size, np.int64)
    runs = np.empty(new.job.size, np.int64)
    stops, moves, jobs, at, line = 0, 0, 0, 0, 0
    while line < new.job.size or at < old.job.size:
        if line == new.job.size or (at < old.job.size and old.job[at] < new.job[line]):
            job = old.job[at]
            while at < old.job.size and old.job[at] == job:
                at += 1
            stopped[stops] = job
            stops += 1
            continue
        job, same = new.job[line], True
        while line < new.job.size and new.job[line] == job:
            if at < old.job.size and old.job[at] == job:
                same = same and old.server[at] == new.server[line] and old.gpus[at] == new.gpus[line]
                at += 1
            else:
                same = False
            line += 1
        while at < old.job.size and old.job[at] == job:
            same = False
            at += 1
        if not same:
            moved[moves] = job
            moves += 1
        runs[jobs] = job
        jobs += 1
    return stopped[:stops], moved[:moves], runs[:jobs]


def speeds(
    jobs: Whole,
    lines: Lines,
    server_type: Whole,
    throughput: Real,
    gangs: Whole,
    largest: Whole,
    by: Ledger,
) -> tuple[Whole, Whole]:
    """Record how many GPUs these jobs have, and how fast they are as gangs. Return the type of each job's
    first line and the number of its lines.

    jobs: sorted ids. throughput, gangs: throughput and GPUs of all jobs, as in Workload. largest: GPUs of the
    largest server of each type, int64[r].
    """
    kinds, counts = np.empty(jobs.size, np.int64), np.empty(jobs.size, np.int64)
    line = 0
    for place in range(jobs.size):
        job = jobs[place]
        line += np.searchsorted(lines.job[line:], job)
        first, kind, mixed, width = line, server_type[lines.server[line]], False, 0
        while line < lines.job.size and lines.job[line] == job:
            mixed = mixed or server_type[lines.server[line]] != kind
            width += lines.gpus[line]
            line += 1
        spread = 1 if mixed or line - first > -(-gangs[job] // largest[kind]) else 0
        slowest = np.inf
        for at in range(first, line):
            slowest = min(slowest, throughput[job, server_type[lines.server[at]], spread])
        by.width[job], by.rate[job] = width, slowest
        kinds[place], counts[place] = kind, line - first
    return kinds, counts
