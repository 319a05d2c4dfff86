"""Runs all events of a cluster under Tiresias in one compiled pass, for queues of many jobs.

For: `run`, which `simulate` calls if `can_run` says so. Not for: rounds, machines whose cores are shared,
jobs that must stay together, or records of who held which GPU; simulation.py does these. The result equals
that of simulation.py to the bit: instants are summed as SimPy does, the books' loops are the same, and sums
have the same order. Between decisions, queues stay sorted, so a decision costs time for running jobs and few
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from control.cluster import Downtime, Timing
from control.scheduler import loops
from control.scheduler.books import Books
from control.scheduler.loops import Ledger
from control.scheduler.model import Real, Whole
from control.scheduler.ports import Scheduler
from control.scheduler.tiresias import Tiresias
from twin.cluster.passes import (
    ACTIVE,
    ARRIVED,
    CHANGE,
    CLOSE_S,
    ENDED,
    FIRST_END_S,
    IDLE,
    IDLE_DECISIONS,
    IDLE_ROUNDS,
    LINES,
    RUNS,
    SAMPLES,
    STUCK,
    UNFINISHED,
    WORKED,
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
from twin.cluster.tiresias_queues import Jobs, Queues, enter, leave, promote, sink, wait
from twin.containers.compiled import compiled, package_kernel

_SAVED = compiled(loops.saved)


def can_run(scheduler: Scheduler, books: Books, timing: Timing) -> TypeGuard[Tiresias]:
    """Return whether `run` does the same as the simulation of single events."""
    return type(scheduler) is Tiresias and plain(books, timing)


def run(
    scheduler: Tiresias,
    books: Books,
    timing: Timing,
    downtime: Downtime,
    progress: Callable[[float], None] | None,
) -> tuple[int, float]:
    """Run until the watched jobs have finished, or nothing more happens. Return what ended it, and when, s.

    The books are then as after the last event.
    """
    by, n, limits = books.by, len(books.jobs), scheduler.limits
    jobs, servers, held, costs = tables(books, timing, downtime)
    queues = Queues(
        np.zeros(n, np.int64), np.zeros((limits.size, n), np.int64), np.zeros(limits.size, np.int64),
        np.full(n, np.inf), np.zeros((n, 2)), limits, scheduler.knob, np.full(1, np.inf),
    )  # fmt: skip

    def events(now_s: float, counts: Whole, samples: Real, stop: int) -> tuple[float, int]:
        return _events(
            now_s, jobs, by, queues, servers, held, costs, counts, samples, books.sums, books.until, stop
        )

    return passes(books, held, events, progress)


@package_kernel
def _events(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: Servers,
    held: Held,
    costs: Costs,
    counts: Whole,
    samples: Real,
    sums: tuple[Real, Real, Real],
    until: int,
    stop: int,
) -> tuple[float, int]:
    """Run until `stop` watched jobs are unfinished, or the samples are full. Return the time and what ended
    it. The steps are those of `_World.life`."""
    busy_s, restart_s = np.empty(held.runs.size), np.empty(held.runs.size)
    while counts[UNFINISHED] > stop and counts[SAMPLES] + 2 <= len(samples):
        while counts[ARRIVED] < jobs.gpus.size and jobs.submit_s[counts[ARRIVED]] <= now_s + CLOSE_S:
            enter(jobs, queues, counts[ARRIVED])
            counts[ARRIVED] += 1
            counts[ACTIVE] += 1
        until_s = jobs.submit_s[counts[ARRIVED]] if counts[ARRIVED] < jobs.gpus.size else np.inf
        change_s = np.inf
        if counts[CHANGE] < servers.change_s.size:
            change_s = servers.change_s[counts[CHANGE]]
        if counts[ACTIVE]:
            wake_s = _decide(now_s, jobs, by, queues, servers, held, costs, counts)
            sample(now_s, servers, counts, samples)
            idles = not counts[WORKED] and np.isinf(min(until_s, change_s))
            counts[IDLE_DECISIONS] = counts[IDLE_DECISIONS] + 1 if idles else 0
            counts[WORKED] = 0
            if counts[IDLE_DECISIONS] > IDLE_ROUNDS:
                return now_s, IDLE
            until_s = min(until_s, now_s + FIRST_END_S(held.runs[: counts[RUNS]], by, 1.0, 1.0), wake_s)
            if np.isinf(until_s) and np.isinf(change_s):
                return now_s, STUCK
        passed_s = max(min(until_s, change_s) - now_s, 0.0)
        now_s += passed_s
        began_s = now_s - passed_s
        if advance(began_s, passed_s, jobs, by, servers, held, counts, sums, until, busy_s, restart_s):
            for job in held.runs[: counts[RUNS]]:
                if held.goes[job]:
                    leave(jobs, queues, job)
            release(jobs, servers, held, counts)
            if counts[ACTIVE] == 0:
                sample(began_s + passed_s, servers, counts, samples)
        while counts[CHANGE] < servers.change_s.size and servers.change_s[counts[CHANGE]] <= now_s + CLOSE_S:
            _change(now_s, jobs, by, queues, servers, held, counts)
            counts[CHANGE] += 1
    return now_s, ENDED


@package_kernel
def _change(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: Servers,
    held: Held,
    counts: Whole,
) -> None:
    """Let the next server fail or return."""
    step, server = servers.change[counts[CHANGE], 0], servers.change[counts[CHANGE], 1]
    before = servers.down[server]
    servers.down[server] += step
    if (before == 0) == (servers.down[server] == 0):
        return
    if before:
        servers.free[server] = servers.gpus[server]
        servers.up[servers.kind[server]] += servers.gpus[server]
        return
    for line in range(counts[LINES]):
        job = held.lines.job[line]
        if held.lines.server[line] == server:
            held.goes[job] = True
            jobs.faulted[job] += 1
            wait(now_s, jobs, by, queues, job)
            steps = by.steps[job]
            left = steps - _SAVED(steps - by.left[job], by.begun[job], by.every[job])
            lost_s = (left - by.left[job]) / by.rate[job]
            by.left[job] = left
            jobs.undone_s[job] += lost_s
            jobs.undone_gpu_s[job] += lost_s * by.width[job]
    release(jobs, servers, held, counts)
    servers.free[server] = 0
    servers.up[servers.kind[server]] -= servers.gpus[server]


@package_kernel
def _decide(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: Servers,
    held: Held,
    costs: Costs,
    counts: Whole,
) -> float:
    """Do the scheduler's decision, and return the latest time of the next one, s: `Tiresias.on_round`,
    `wake_s` and `Books.give`."""
    for job in held.runs[: counts[RUNS]]:
        # A call for every job would cost more than all else.
        if by.attained[job] - queues.base[job, 0] >= queues.limits[queues.level[job]]:
            sink(jobs, by, queues, job)
    if queues.next_s[0] <= now_s + 1e-6:
        promote(now_s, jobs, by, queues)
    fresh, drop_s = _choose(jobs, by, queues, servers, held)
    stops = False
    for job in held.runs[: counts[RUNS]]:
        if held.wanted[job] != held.on[job]:
            held.goes[job] = stops = True
            if held.wanted[job] < 0:
                wait(now_s, jobs, by, queues, job)
    if stops:
        release(jobs, servers, held, counts)
    stale = False
    for place in range(fresh):
        job = held.fresh[place]
        again = np.isfinite(jobs.first_start_s[job])
        if not again:
            leave(jobs, queues, job)
            jobs.first_start_s[job] = now_s
            enter(jobs, queues, job)
        start(jobs, by, servers, held, counts, job)
        by.starts[job] = costs.restart_s if again else costs.start_s
        by.ends[job], by.begun[job] = costs.end_s, by.steps[job] - by.left[job]
        stale = stale or queues.promoted_s[job] <= queues.next_s[0]
        queues.promoted_s[job] = np.inf
    for job in held.runs[: counts[RUNS]]:
        held.wanted[job] = -1
    if stale and not np.isinf(queues.next_s[0]):
        promote(-np.inf, jobs, by, queues)
    wake_s: float = min(now_s + drop_s, queues.next_s[0])
    return wake_s


@package_kernel
def _choose(jobs: Jobs, by: Ledger, queues: Queues, servers: Servers, held: Held) -> tuple[int, float]:
    """Choose the types as `tiresias.chosen`. Return the number of jobs that start or move, larger ones first
    in `held.fresh`, and the time until the next one drops a queue, s."""
    left, idle, total = servers.up.copy(), servers.up - servers.used, servers.up.sum()
    fresh, drop_s = 0, np.inf
    for level in range(queues.size.size):
        members = queues.members[level]
        for place in range(queues.size[level]):
            if total <= 0:
                return fresh, drop_s
            job = members[place]
            asks, own = jobs.gpus[job], held.on[job]
            if own < 0 or jobs.throughput[job, own, 0] <= 0 or left[own] < asks:
                if own >= 0:
                    idle[own] += asks
                own = -1
                for kind in range(left.size):
                    if left[kind] >= asks and jobs.throughput[job, kind, 0] > 0:
                        if idle[kind] >= asks:
                            own = kind
                            break
                        if own < 0:
                            own = kind
                if own < 0:
                    continue
                idle[own] -= asks
            held.wanted[job] = own
            left[own] -= asks
            total -= asks
            attained = by.attained[job] - queues.base[job, 0]
            drop_s = min(drop_s, by.starts[job] + (queues.limits[level] - attained) / asks + 1e-5)
            if own != held.on[job]:
                at = fresh
                while at and (jobs.gpus[held.fresh[at - 1]], -held.fresh[at - 1]) < (asks, -job):
                    held.fresh[at] = held.fresh[at - 1]
                    at -= 1
                held.fresh[at] = job
                fresh += 1
    return fresh, drop_s
