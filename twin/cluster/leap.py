"""Runs all events of a cluster under Tiresias in one compiled pass, for queues of many jobs.

For: `run`, which `simulate` calls if `can_run` says so. Not for: rounds, machines whose cores are shared,
jobs that must stay together, or records of who held which GPU; simulation.py does these. The result equals
that of simulation.py to the bit: instants are summed as SimPy does, the books' loops are the same, and sums
have the same order. Between decisions, queues stay sorted, so a decision costs time for running jobs and few
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeGuard

import numpy as np

from control.cluster import Downtime, Timing
from control.scheduler import loops
from control.scheduler.books import Books
from control.scheduler.loops import Ledger, Lines
from control.scheduler.model import Flags, Real, Whole
from control.scheduler.ports import Scheduler
from control.scheduler.tiresias import Tiresias
from twin.cluster.tiresias_queues import Jobs, Queues, enter, leave, promote, sink, wait
from twin.containers.compiled import compiled, package_kernel

CLOSE_S = 1e-6
"""Times nearer than this count as equal, s."""

IDLE_ROUNDS = 1_000
"""Number of decisions without any work between them, and with no job to come, that ends the simulation."""

_MOST_SAMPLES = 1 << 16
"""Samples of the queue in one pass: 2 MiB."""

_ADVANCE, _SPEND, _SAVED = compiled(loops.advance), compiled(loops.spend), compiled(loops.saved)

_ARRIVED, _ACTIVE, _UNFINISHED, _RUNS, _LINES, _CHANGE, _IDLE, _WORKED, _SAMPLES = range(9)
"""Places in `counts`: jobs that came, that are present and that are watched and unfinished; those that run
and their lines; the next fault or repair; decisions without work, and whether a job worked since the last
one; samples of this pass."""

ENDED, IDLE, STUCK = range(3)
"""What ended a pass: its number of jobs or samples; too many idle decisions; no event to come."""


class _Servers(NamedTuple):
    """Servers and their types.

    kind, gpus: type and GPUs of each server, int64[h]. free: its free GPUs, int64[h]. down: number of its
    present faults, int64[h]. up: GPUs of each type on servers that are up, int64[r]. used: GPUs of each type
    that jobs hold, int64[r]. largest: as in Books. change_s: time of each fault or repair, s, float64[c].
    change: +1 or −1, and the server, int64[c, 2].
    """

    kind: Whole
    gpus: Whole
    free: Whole
    down: Whole
    up: Whole
    used: Whole
    largest: Whole
    change_s: Real
    change: Whole


class _Held(NamedTuple):
    """runs: running jobs, sorted. lines: their lines. on, wanted: type of each job and the one that it will
    have, −1 for none, int64[n]. goes: jobs that lose their lines, bool[n]. fresh: room for jobs."""

    runs: Whole
    lines: Lines
    on: Whole
    wanted: Whole
    goes: Flags
    fresh: Whole


class _Costs(NamedTuple):
    """As in Timing."""

    restart_s: float
    start_s: float
    end_s: float


def can_run(scheduler: Scheduler, books: Books, timing: Timing) -> TypeGuard[Tiresias]:
    """Return whether `run` does the same as the simulation of single events."""
    return (
        type(scheduler) is Tiresias
        and timing.at_events
        and math.isinf(timing.cores)
        and timing.spread == 0
        and np.ndim(timing.start_s) == np.ndim(timing.restart_s) == 0
        and timing.leave_s == 0
        and not np.any(timing.step_s)
        and not books.keeps_spans
        and not books.jobs.together.any()
    )


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
    own, where, by, n = books.jobs, books.cluster, books.by, len(books.jobs)
    limits, total = scheduler.limits, int(where.server_gpus.sum())
    changes = downtime.changes()
    jobs = Jobs(
        own.submit_s, own.gpus, own.throughput, books.first_start, books.idle_since, books.finish,
        books.preemptions, books.faulted, books.undone, books.undone_gpu,
    )  # fmt: skip
    queues = Queues(
        np.zeros(n, np.int64), np.zeros((limits.size, n), np.int64), np.zeros(limits.size, np.int64),
        np.full(n, np.inf), np.zeros((n, 2)), limits, scheduler.knob, np.full(1, np.inf),
    )  # fmt: skip
    servers = _Servers(
        where.server_type, where.server_gpus, where.server_gpus.copy(),
        np.zeros(where.server_gpus.size, np.int64), where.capacity(books.up),
        np.zeros(len(where.types), np.int64), books.largest, np.array([change[0] for change in changes]),
        np.array([change[1:] for change in changes], np.int64).reshape(-1, 2),
    )  # fmt: skip
    held = _Held(
        np.zeros(total, np.int64), Lines(*np.zeros((3, total), np.int64)), np.full(n, -1), np.full(n, -1),
        np.zeros(n, np.bool_), np.zeros(total, np.int64),
    )  # fmt: skip
    restart_s, start_s = timing.starts_s(np.array([True, False]), np.ones(2, np.int64))
    costs = _Costs(restart_s, start_s, timing.end_s)
    counts = np.zeros(9, np.int64)
    counts[_UNFINISHED] = books.unfinished
    now_s, ended, told = 0.0, ENDED, 0.0
    while books.unfinished and ended == ENDED:
        stop = 0 if progress is None else math.floor(books.until * (1 - told - 0.01))
        samples = np.empty((_MOST_SAMPLES, 4))
        counts[_SAMPLES] = 0
        now_s, ended = _events(
            now_s,
            jobs,
            by,
            queues,
            servers,
            held,
            costs,
            counts,
            samples,
            books.sums,
            books.until,
            max(stop, 0),
        )
        books.sampled(samples[: counts[_SAMPLES]])
        books.unfinished = int(counts[_UNFINISHED])
        share = 1 - books.unfinished / max(books.until, 1)
        if progress is not None and share >= told + 0.01:
            told = share
            progress(share)
    books.active = np.flatnonzero(np.isnan(books.finish[: counts[_ARRIVED]]))
    books.running = held.runs[: counts[_RUNS]]
    return ended, now_s


@package_kernel
def _events(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: _Servers,
    held: _Held,
    costs: _Costs,
    counts: Whole,
    samples: Real,
    sums: tuple[Real, Real, Real],
    until: int,
    stop: int,
) -> tuple[float, int]:
    """Run until `stop` watched jobs are unfinished, or the samples are full. Return the time and what ended
    it. The steps are those of `_World.life`."""
    busy_s, restart_s = np.empty(held.runs.size), np.empty(held.runs.size)
    while counts[_UNFINISHED] > stop and counts[_SAMPLES] + 2 <= len(samples):
        while counts[_ARRIVED] < jobs.gpus.size and jobs.submit_s[counts[_ARRIVED]] <= now_s + CLOSE_S:
            enter(jobs, queues, counts[_ARRIVED])
            counts[_ARRIVED] += 1
            counts[_ACTIVE] += 1
        until_s = jobs.submit_s[counts[_ARRIVED]] if counts[_ARRIVED] < jobs.gpus.size else np.inf
        change_s = np.inf
        if counts[_CHANGE] < servers.change_s.size:
            change_s = servers.change_s[counts[_CHANGE]]
        if counts[_ACTIVE]:
            wake_s = _decide(now_s, jobs, by, queues, servers, held, costs, counts)
            _sample(now_s, servers, counts, samples)
            counts[_IDLE] = 0 if counts[_WORKED] else counts[_IDLE] + 1
            counts[_WORKED] = 0
            if counts[_IDLE] > IDLE_ROUNDS and np.isinf(min(until_s, change_s)):
                return now_s, IDLE
            first_s, last_s, watched = np.inf, 0.0, 0
            for job in held.runs[: counts[_RUNS]]:
                need_s = by.starts[job] + by.left[job] / by.rate[job] + by.ends[job]
                first_s = min(first_s, need_s)
                if job < until:
                    last_s = max(last_s, need_s)
                    watched += 1
            until_s = min(until_s, now_s + first_s, wake_s)
            if np.isinf(until_s) and np.isinf(change_s):
                return now_s, STUCK
            if watched >= counts[_UNFINISHED]:
                until_s = min(until_s, now_s + last_s)
        passed_s = max(min(until_s, change_s) - now_s, 0.0)
        now_s += passed_s
        began_s = now_s - passed_s
        runs, lines = held.runs[: counts[_RUNS]], held.lines
        here = Lines(
            lines.job[: counts[_LINES]], lines.server[: counts[_LINES]], lines.gpus[: counts[_LINES]]
        )
        ended, worked = _ADVANCE(runs, by, 1.0, 1.0, passed_s, CLOSE_S, busy_s, restart_s)
        if worked:
            counts[_WORKED] = 1
        for kind in range(servers.up.size):
            sums[2][kind] += servers.up[kind] * passed_s
        _SPEND(runs, by, here, servers.kind, busy_s, restart_s, sums[0], sums[1])
        if ended:
            for place in range(counts[_RUNS]):
                job = held.runs[place]
                if by.left[job] == 0 and by.ends[job] == 0:
                    jobs.finish_s[job] = began_s + busy_s[place]
                    held.goes[job] = True
                    counts[_UNFINISHED] -= job < until
                    counts[_ACTIVE] -= 1
                    leave(jobs, queues, job)
            _release(jobs, servers, held, counts)
            if counts[_ACTIVE] == 0:
                _sample(began_s + passed_s, servers, counts, samples)
        while (
            counts[_CHANGE] < servers.change_s.size and servers.change_s[counts[_CHANGE]] <= now_s + CLOSE_S
        ):
            _change(now_s, jobs, by, queues, servers, held, counts)
            counts[_CHANGE] += 1
    return now_s, ENDED


@package_kernel
def _sample(at_s: float, servers: _Servers, counts: Whole, samples: Real) -> None:
    row = samples[counts[_SAMPLES]]
    row[0], row[1], row[2] = at_s, counts[_ACTIVE] - counts[_RUNS], counts[_RUNS]
    row[3] = servers.used.sum()
    counts[_SAMPLES] += 1


@package_kernel
def _release(jobs: Jobs, servers: _Servers, held: _Held, counts: Whole) -> None:
    """Free the GPUs of the jobs that go."""
    kept, lines = 0, held.lines
    for line in range(counts[_LINES]):
        job, server, gpus = lines.job[line], lines.server[line], lines.gpus[line]
        if held.goes[job]:
            servers.free[server] += gpus
        else:
            lines.job[kept], lines.server[kept], lines.gpus[kept] = job, server, gpus
            kept += 1
    counts[_LINES] = kept
    kept = 0
    for place in range(counts[_RUNS]):
        job = held.runs[place]
        if held.goes[job]:
            servers.used[held.on[job]] -= jobs.gpus[job]
            held.on[job], held.goes[job] = -1, False
        else:
            held.runs[kept] = job
            kept += 1
    counts[_RUNS] = kept


@package_kernel
def _change(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: _Servers,
    held: _Held,
    counts: Whole,
) -> None:
    """Let the next server fail or return."""
    step, server = servers.change[counts[_CHANGE], 0], servers.change[counts[_CHANGE], 1]
    before = servers.down[server]
    servers.down[server] += step
    if (before == 0) == (servers.down[server] == 0):
        return
    if before:
        servers.free[server] = servers.gpus[server]
        servers.up[servers.kind[server]] += servers.gpus[server]
        return
    for line in range(counts[_LINES]):
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
    _release(jobs, servers, held, counts)
    servers.free[server] = 0
    servers.up[servers.kind[server]] -= servers.gpus[server]


@package_kernel
def _decide(
    now_s: float,
    jobs: Jobs,
    by: Ledger,
    queues: Queues,
    servers: _Servers,
    held: _Held,
    costs: _Costs,
    counts: Whole,
) -> float:
    """Do the scheduler's decision, and return the latest time of the next one, s: `Tiresias.on_round`,
    `wake_s` and `Books.give`."""
    for job in held.runs[: counts[_RUNS]]:
        # A call for every job would cost more than all else.
        if by.attained[job] - queues.base[job, 0] >= queues.limits[queues.level[job]]:
            sink(jobs, by, queues, job)
    if queues.next_s[0] <= now_s + 1e-6:
        promote(now_s, jobs, by, queues)
    fresh, drop_s = _choose(jobs, by, queues, servers, held)
    stops = False
    for job in held.runs[: counts[_RUNS]]:
        if held.wanted[job] != held.on[job]:
            held.goes[job] = stops = True
            if held.wanted[job] < 0:
                wait(now_s, jobs, by, queues, job)
    if stops:
        _release(jobs, servers, held, counts)
    stale = False
    for place in range(fresh):
        job = held.fresh[place]
        again = np.isfinite(jobs.first_start_s[job])
        if not again:
            leave(jobs, queues, job)
            jobs.first_start_s[job] = now_s
            enter(jobs, queues, job)
        _start(jobs, by, servers, held, counts, job)
        by.starts[job] = costs.restart_s if again else costs.start_s
        by.ends[job], by.begun[job] = costs.end_s, by.steps[job] - by.left[job]
        stale = stale or queues.promoted_s[job] <= queues.next_s[0]
        queues.promoted_s[job] = np.inf
    for job in held.runs[: counts[_RUNS]]:
        held.wanted[job] = -1
    if stale and not np.isinf(queues.next_s[0]):
        promote(-np.inf, jobs, by, queues)
    wake_s: float = min(now_s + drop_s, queues.next_s[0])
    return wake_s


@package_kernel
def _choose(jobs: Jobs, by: Ledger, queues: Queues, servers: _Servers, held: _Held) -> tuple[int, float]:
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


@package_kernel
def _start(jobs: Jobs, by: Ledger, servers: _Servers, held: _Held, counts: Whole, job: int) -> None:
    """Give a job GPUs of its type as `placement.settled`, and note its speed."""
    kind, left, best, lines = held.wanted[job], jobs.gpus[job], -1, 0
    free = servers.free
    for server in range(free.size):
        if servers.kind[server] == kind and free[server] >= left and (best < 0 or free[server] < free[best]):
            best = server
    while left > 0:
        if best < 0:
            for server in range(free.size):
                if servers.kind[server] == kind and (best < 0 or free[server] > free[best]):
                    best = server
        taken = min(free[best], left)
        free[best] -= taken
        left -= taken
        at, all_ = counts[_LINES], held.lines
        while at and (all_.job[at - 1], all_.server[at - 1]) > (job, best):
            all_.job[at], all_.server[at] = all_.job[at - 1], all_.server[at - 1]
            all_.gpus[at] = all_.gpus[at - 1]
            at -= 1
        all_.job[at], all_.server[at], all_.gpus[at] = job, best, taken
        counts[_LINES] += 1
        lines += 1
        best = -1
    at = counts[_RUNS]
    while at and held.runs[at - 1] > job:
        held.runs[at] = held.runs[at - 1]
        at -= 1
    held.runs[at] = job
    counts[_RUNS] += 1
    held.on[job] = kind
    servers.used[kind] += jobs.gpus[job]
    by.width[job] = jobs.gpus[job]
    spread = 1 if lines > -(-jobs.gpus[job] // servers.largest[kind]) else 0
    by.rate[job] = jobs.throughput[job, kind, spread]
