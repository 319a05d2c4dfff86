"""Runs all events of a cluster under FIFO in one compiled pass, for queues of many jobs.

For: `run`, which `simulate` calls if `can_run` says so. Not for: what leap.py is not for, faults, and FIFO
that passes or packs jobs. The result equals that of simulation.py to the bit. Jobs that wait are those from
the first one that has not started on, so a decision costs time for the jobs that start only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from control.cluster import NEVER_DOWN, Downtime, Timing
from control.scheduler.books import Books
from control.scheduler.loops import Ledger
from control.scheduler.model import Real, Whole
from control.scheduler.ports import Scheduler
from control.scheduler.queues import Fifo
from twin.cluster.passes import (
    ACTIVE,
    ARRIVED,
    CLOSE_S,
    ENDED,
    FIRST_END_S,
    RUNS,
    SAMPLES,
    UNFINISHED,
    Costs,
    Held,
    Servers,
    advance,
    passes,
    plain,
    release,
    sample,
    start,
    tables,
)
from twin.cluster.tiresias_queues import Jobs
from twin.containers.compiled import package_kernel

_WAITS, _DRAWN = range(2)
"""Places in `queue`: the first job that has not started, and the number of draws used."""


def can_run(scheduler: Scheduler, books: Books, timing: Timing, downtime: Downtime) -> TypeGuard[Fifo]:
    """Return whether `run` does the same as the simulation of single events."""
    return (
        type(scheduler) is Fifo
        and not (scheduler.backfill or scheduler.packed)
        # A draw of one of more types depends on the number of those that fit.
        and (scheduler.fastest or len(books.cluster.types) <= 2)
        and plain(books, timing)
        and not downtime.server.size
    )


def run(
    scheduler: Fifo, books: Books, timing: Timing, progress: Callable[[float], None] | None
) -> tuple[int, float]:
    """Do the same as leap.run, for first-come schedulers."""
    by, queue = books.by, np.zeros(2, np.int64)
    jobs, servers, held, costs = tables(books, timing, NEVER_DOWN)
    draws = scheduler.random.integers(2, size=len(books.jobs))

    def events(now_s: float, counts: Whole, samples: Real, stop: int) -> tuple[float, int]:
        return _events(
            now_s, jobs, by, queue, draws, scheduler.fastest, servers, held, costs, counts, samples,
            books.sums, books.until, stop,
        )  # fmt: skip

    return passes(books, held, events, progress)


@package_kernel
def _events(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queue: Whole,
    draws: Whole,
    fastest: bool,
    servers: Servers,
    held: Held,
    costs: Costs,
    counts: Whole,
    samples: Real,
    sums: tuple[Real, Real, Real],
    until: int,
    stop: int,
) -> tuple[float, int]:
    """As `_events` of leap.py."""
    busy_s, restart_s = np.empty(held.runs.size), np.empty(held.runs.size)
    while counts[UNFINISHED] > stop and counts[SAMPLES] + 2 <= len(samples):
        while counts[ARRIVED] < jobs.gpus.size and jobs.submit_s[counts[ARRIVED]] <= now_s + CLOSE_S:
            counts[ARRIVED] += 1
            counts[ACTIVE] += 1
        until_s = jobs.submit_s[counts[ARRIVED]] if counts[ARRIVED] < jobs.gpus.size else np.inf
        if counts[ACTIVE]:
            while queue[_WAITS] < counts[ARRIVED]:
                job = queue[_WAITS]
                kind = _kind(jobs, queue, draws, fastest, servers, job)
                if kind < 0:
                    break
                held.wanted[job] = kind
                start(jobs, by, servers, held, counts, job)
                jobs.first_start_s[job] = now_s
                by.starts[job], by.ends[job] = costs.start_s, costs.end_s
                by.begun[job] = by.steps[job] - by.left[job]
                queue[_WAITS] += 1
            sample(now_s, servers, counts, samples)
            until_s = min(until_s, now_s + FIRST_END_S(held.runs[: counts[RUNS]], by, 1.0, 1.0))
        passed_s = max(until_s - now_s, 0.0)
        now_s += passed_s
        began_s = now_s - passed_s
        if advance(began_s, passed_s, jobs, by, servers, held, counts, sums, until, busy_s, restart_s):
            release(jobs, servers, held, counts)
            if counts[ACTIVE] == 0:
                sample(began_s + passed_s, servers, counts, samples)
    return now_s, ENDED


@package_kernel
def _kind(jobs: Jobs, queue: Whole, draws: Whole, fastest: bool, servers: Servers, job: int) -> int:
    """Return the type that a job takes, −1 if it fits nowhere: `queues._place`."""
    first, last, best = -1, -1, -1
    for kind in range(servers.up.size):
        fits = servers.up[kind] - servers.used[kind] >= jobs.gpus[job]
        if fits and jobs.throughput[job, kind, 0] > 0:
            first, last = kind if first < 0 else first, kind
            if best < 0 or jobs.throughput[job, kind, 0] > jobs.throughput[job, best, 0]:
                best = kind
    if fastest or first == last:
        return best
    queue[_DRAWN] += 1
    return last if draws[queue[_DRAWN] - 1] else first
