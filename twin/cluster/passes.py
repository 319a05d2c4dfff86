"""Arrays and kernels that compiled passes over the events of a cluster share.

For: leap.py and leap_first_come.py, which decide. Not for: deciding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from control.cluster import Downtime, Timing
from control.scheduler import loops
from control.scheduler.books import Books
from control.scheduler.loops import Ledger, Lines
from control.scheduler.model import Flags, Real, Whole
from twin.cluster.tiresias_queues import Jobs
from twin.containers.compiled import compiled, package_kernel

CLOSE_S = 1e-6
"""Times nearer than this count as equal, s."""

IDLE_ROUNDS = 1_000
"""Number of decisions without any work between them, and with no job to come, that ends the simulation."""

_MOST_SAMPLES = 1 << 16
"""Samples of the queue in one pass: 2 MiB."""

_ADVANCE, _SPEND = compiled(loops.advance), compiled(loops.spend)
FIRST_END_S = compiled(loops.first_end_s)

ARRIVED, ACTIVE, UNFINISHED, RUNS, LINES, CHANGE, IDLE_DECISIONS, WORKED, SAMPLES = range(9)
"""Places in `counts`: jobs that came, that are present and that are watched and unfinished; those that run
and their lines; the next fault or repair; decisions without work, and whether a job worked since the last
one; samples of this pass."""

ENDED, IDLE, STUCK = range(3)
"""What ended a pass: its number of jobs or samples; too many idle decisions; no event to come."""


class Servers(NamedTuple):
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


class Held(NamedTuple):
    """runs: running jobs, sorted. lines: their lines. on, wanted: type of each job and the one that it will
    have, −1 for none, int64[n]. goes: jobs that lose their lines, bool[n]. fresh: room for jobs."""

    runs: Whole
    lines: Lines
    on: Whole
    wanted: Whole
    goes: Flags
    fresh: Whole


class Costs(NamedTuple):
    """Times of restarts, starts and ends, s, as in Timing."""

    restart_s: float
    start_s: float
    end_s: float


def plain(books: Books, timing: Timing) -> bool:
    """Return whether passes know all that this run needs."""
    return (
        timing.at_events
        and math.isinf(timing.cores)
        and timing.spread == 0
        and np.ndim(timing.start_s) == np.ndim(timing.restart_s) == 0
        and timing.leave_s == 0
        and not np.any(timing.step_s)
        and not books.keeps_spans
        and not books.jobs.together.any()
    )


def tables(books: Books, timing: Timing, downtime: Downtime) -> tuple[Jobs, Servers, Held, Costs]:
    """Return the arrays of a pass before its first event."""
    own, where, n, changes = books.jobs, books.cluster, len(books.jobs), downtime.changes()
    total = int(where.server_gpus.sum())
    jobs = Jobs(
        own.submit_s, own.gpus, own.throughput, books.first_start, books.idle_since, books.finish,
        books.preemptions, books.faulted, books.undone, books.undone_gpu,
    )  # fmt: skip
    servers = Servers(
        where.server_type, where.server_gpus, where.server_gpus.copy(),
        np.zeros(where.server_gpus.size, np.int64), where.capacity(books.up),
        np.zeros(len(where.types), np.int64), books.largest, np.array([change[0] for change in changes]),
        np.array([change[1:] for change in changes], np.int64).reshape(-1, 2),
    )  # fmt: skip
    held = Held(
        np.zeros(total, np.int64), Lines(*np.zeros((3, total), np.int64)), np.full(n, -1), np.full(n, -1),
        np.zeros(n, np.bool_), np.zeros(total, np.int64),
    )  # fmt: skip
    restart_s, start_s = timing.starts_s(np.array([True, False]), np.ones(2, np.int64))
    return jobs, servers, held, Costs(restart_s, start_s, timing.end_s)


def passes(
    books: Books,
    held: Held,
    events: Callable[[float, Whole, Real, int], tuple[float, int]],
    progress: Callable[[float], None] | None,
) -> tuple[int, float]:
    """Call `events` until the watched jobs have finished, or nothing more happens. Return as leap.run."""
    counts = np.zeros(9, np.int64)
    counts[UNFINISHED] = books.unfinished
    now_s, ended, told = 0.0, ENDED, 0.0
    while books.unfinished and ended == ENDED:
        stop = 0 if progress is None else max(math.floor(books.until * (1 - told - 0.01)), 0)
        samples = np.empty((_MOST_SAMPLES, 4))
        counts[SAMPLES] = 0
        now_s, ended = events(now_s, counts, samples, stop)
        books.sampled(samples[: counts[SAMPLES]])
        books.unfinished = int(counts[UNFINISHED])
        # The number of jobs that ended the pass says that it is time to tell; a share may be rounded below.
        if progress is not None and books.unfinished <= stop:
            told = 1 - books.unfinished / books.until
            progress(told)
    books.active = np.flatnonzero(np.isnan(books.finish[: counts[ARRIVED]]))
    books.running = held.runs[: counts[RUNS]]
    return ended, now_s


@package_kernel
def advance(
    began_s: float,
    passed_s: float,
    jobs: Jobs,
    by: Ledger,
    servers: Servers,
    held: Held,
    counts: Whole,
    sums: tuple[Real, Real, Real],
    until: int,
    busy_s: Real,
    restart_s: Real,
) -> bool:
    """Advance the running jobs. Return whether some ended, which then go. busy_s, restart_s: room."""
    runs, lines = held.runs[: counts[RUNS]], held.lines
    here = Lines(lines.job[: counts[LINES]], lines.server[: counts[LINES]], lines.gpus[: counts[LINES]])
    ended, worked = _ADVANCE(runs, by, 1.0, 1.0, passed_s, CLOSE_S, busy_s, restart_s)
    if worked:
        counts[WORKED] = 1
    for kind in range(servers.up.size):
        sums[2][kind] += servers.up[kind] * passed_s
    _SPEND(runs, by, here, servers.kind, busy_s, restart_s, sums[0], sums[1])
    if ended:
        for place in range(counts[RUNS]):
            job = held.runs[place]
            if by.left[job] == 0 and by.ends[job] == 0:
                jobs.finish_s[job] = began_s + busy_s[place]
                held.goes[job] = True
                counts[UNFINISHED] -= job < until
                counts[ACTIVE] -= 1
    return bool(ended)


@package_kernel
def sample(at_s: float, servers: Servers, counts: Whole, samples: Real) -> None:
    """Add a sample of the queue's length to the records."""
    row = samples[counts[SAMPLES]]
    row[0], row[1], row[2] = at_s, counts[ACTIVE] - counts[RUNS], counts[RUNS]
    row[3] = servers.used.sum()
    counts[SAMPLES] += 1


@package_kernel
def release(jobs: Jobs, servers: Servers, held: Held, counts: Whole) -> None:
    """Free the GPUs of the jobs that go."""
    kept, lines = 0, held.lines
    for line in range(counts[LINES]):
        job, server, gpus = lines.job[line], lines.server[line], lines.gpus[line]
        if held.goes[job]:
            servers.free[server] += gpus
        else:
            lines.job[kept], lines.server[kept], lines.gpus[kept] = job, server, gpus
            kept += 1
    counts[LINES] = kept
    kept = 0
    for place in range(counts[RUNS]):
        job = held.runs[place]
        if held.goes[job]:
            servers.used[held.on[job]] -= jobs.gpus[job]
            held.on[job], held.goes[job] = -1, False
        else:
            held.runs[kept] = job
            kept += 1
    counts[RUNS] = kept


@package_kernel
def start(jobs: Jobs, by: Ledger, servers: Servers, held: Held, counts: Whole, job: int) -> None:
    """Give a job GPUs of its type as `placement.settled`, and note its speed."""
    kind, left, best, lines = held.wanted[job], jobs.gpus[job], -1, 0
    free = servers.free
    for server in range(free.size):
        if servers.kind[server] == kind and free[server] >= left and (best < 0 or free[server] < free[best]):
            best = server
    chosen, taken = np.empty((2, left), np.int64)
    if best >= 0:
        chosen[0], taken[0], lines = best, left, 1
        free[best] -= left
        left = 0
    while left > 0:
        most = 0
        for server in range(free.size):
            if servers.kind[server] == kind:
                most = max(most, free[server])
        for server in range(free.size):
            if left > 0 and servers.kind[server] == kind and free[server] == most:
                chosen[lines], taken[lines] = server, min(most, left)
                free[server] -= taken[lines]
                left -= taken[lines]
                lines += 1
    first, all_ = counts[LINES], held.lines
    while first and all_.job[first - 1] > job:
        first -= 1
        all_.job[first + lines], all_.server[first + lines] = all_.job[first], all_.server[first]
        all_.gpus[first + lines] = all_.gpus[first]
    for line in range(lines):
        at = first + line
        while at > first and all_.server[at - 1] > chosen[line]:
            all_.server[at], all_.gpus[at] = all_.server[at - 1], all_.gpus[at - 1]
            at -= 1
        all_.job[first + line], all_.server[at], all_.gpus[at] = job, chosen[line], taken[line]
    counts[LINES] += lines
    at = counts[RUNS]
    while at and held.runs[at - 1] > job:
        held.runs[at] = held.runs[at - 1]
        at -= 1
    held.runs[at] = job
    counts[RUNS] += 1
    held.on[job] = kind
    servers.used[kind] += jobs.gpus[job]
    by.width[job] = jobs.gpus[job]
    spread = 1 if lines > -(-jobs.gpus[job] // servers.largest[kind]) else 0
    by.rate[job] = jobs.throughput[job, kind, spread]
