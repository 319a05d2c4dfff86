"""Run jobs on a cluster in virtual time. SimPy keeps the clock, and arrays hold the jobs.

For: `simulate`. Not for: deciding (control.scheduler), nor metrics. Between two events, all running jobs
advance in a few vector operations. A job that ends inside a round frees its GPUs at the round's end, or at
once if the scheduler decides at events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np
import simpy

from control.cluster import NEVER_DOWN, Downtime, Outcome, Timing, Workload, of_gangs
from control.scheduler import loops
from control.scheduler.books import Books, refuse_impossible
from control.scheduler.loops import Lines
from control.scheduler.model import Cluster, Flags, Real, Whole
from control.scheduler.ports import Scheduler
from twin.cluster import leap, leap_first_come
from twin.cluster.passes import CLOSE_S, IDLE, IDLE_ROUNDS, STUCK
from twin.containers.compiled import compiled
from twinbed import InvariantError, ScenarioError

_ADVANCE, _FIRST_END_S = compiled(loops.advance), compiled(loops.first_end_s)

_LEAST_CORES = 0.01
"""Cores that starts get where running jobs leave none."""


def simulate(
    cluster: Cluster,
    jobs: Workload,
    scheduler: Scheduler,
    timing: Timing,
    *,
    downtime: Downtime = NEVER_DOWN,
    until: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Return the results of the jobs.

    until: the simulation ends when jobs 0 to until − 1 have finished; None: when all jobs have finished.
    seed: seed of the times of starts, if they are drawn.
    Raises ScenarioError for a job that can never run, and if jobs lose their GPUs before they have started.
    """
    refuse_impossible(cluster, jobs)
    scheduler.compile(compiled)
    until = len(jobs) if until is None else until
    world = _World(cluster, jobs, scheduler, timing, downtime, until, seed)
    if leap_first_come.can_run(scheduler, world.books, timing, downtime):
        _, end_s = leap_first_come.run(scheduler, world.books, timing, progress)
        return world.books.outcome(end_s, scheduler.remarks())
    if leap.can_run(scheduler, world.books, timing):
        ended, end_s = leap.run(scheduler, world.books, timing, downtime, progress)
        if ended == IDLE:
            raise world.idle()
        if ended == STUCK:
            raise world.stuck()
        return world.books.outcome(end_s, scheduler.remarks())
    environment = simpy.Environment()
    environment.process(world.life(environment, progress))
    environment.run()
    return world.books.outcome(float(environment.now), scheduler.remarks())


class _Speeds(NamedTuple):
    """Speeds between two events. starts: of processes that start or end, relative to one that is alone. work:
    of jobs that make progress, relative to a time without starts and ends."""

    starts: float
    work: float


_FULL = _Speeds(1.0, 1.0)


class _World:
    def __init__(
        self,
        cluster: Cluster,
        jobs: Workload,
        scheduler: Scheduler,
        timing: Timing,
        downtime: Downtime,
        until: int,
        seed: int,
    ) -> None:
        fork_speed = max(1.0 - timing.sync_s / timing.round_s, 0.0)
        self.books = Books(
            cluster, jobs, until, fork_speed=fork_speed, elastic=scheduler.elastic, compiler=compiled
        )
        self.scheduler, self.timing, self.random = scheduler, timing, np.random.default_rng(seed)
        self.books.by.every[:] = timing.checkpoint_s * jobs.per_s
        self.step = np.zeros(len(jobs)) + timing.step_s * jobs.per_s
        """Work of a training step of each job, in steps of the workload, float64[n]."""
        self.phases = not math.isinf(timing.cores) or bool(self.step.any())
        """Whether the ends of starts and of work are events."""
        self.by_events = timing.at_events and scheduler.at_events
        self.worked = False
        """Whether a job has worked since the last decision."""
        self.changes = downtime.changes()
        self.change = 0

    def life(
        self, environment: simpy.Environment, progress: Callable[[float], None] | None
    ) -> Generator[simpy.Event, None, None]:
        """Yield until the watched jobs have finished."""
        told, idle, books = 0.0, 0, self.books
        while books.unfinished:
            now_s = float(environment.now)
            books.arrive(now_s + CLOSE_S)
            if not books.active.size:
                yield from self._pass(environment, min(books.arrival_s(), self._change_s()), _FULL)
                continue
            wake_s = self._decide(now_s)
            comes = np.isfinite(min(books.arrival_s(), self._change_s()))
            idle, self.worked = 0 if self.worked or comes else idle + 1, False
            if idle > IDLE_ROUNDS:
                raise self.idle()
            asks = False
            while books.unfinished and not asks:
                began_s = float(environment.now)
                speeds = self._speeds()
                ask_s = self._ask_s(now_s, began_s, wake_s, speeds)
                step_s = min(ask_s, self._change_s(), began_s + self._end_s(speeds))
                asks = self.by_events or step_s >= ask_s - CLOSE_S
                if self.phases:
                    phase_s = began_s + self._next_phase_s(speeds)
                    if phase_s < step_s - CLOSE_S:
                        step_s, asks = phase_s, False
                yield from self._pass(environment, step_s, speeds)
            share = 1 - books.unfinished / max(books.until, 1)
            if progress is not None and share >= told + 0.01:
                told = share
                progress(share)

    def stuck(self) -> InvariantError:
        """Return the error for jobs that never run."""
        return InvariantError(f"{type(self.scheduler).__name__}: {self.books.active.size} jobs never run")

    def idle(self) -> InvariantError | ScenarioError:
        """Return the error for jobs that do no work."""
        name = type(self.scheduler).__name__
        if not self.books.running.size:
            return self.stuck()
        timing, pace = self.timing, self._speeds().starts
        start_s, restart_s = np.max(timing.start_s), np.max(timing.restart_s)
        slower = f", {1 / pace:.3g} times as long beside other processes" if pace < 1 else ""
        return ScenarioError(
            f"{name}: no job works in {IDLE_ROUNDS} rounds of {timing.round_s:g} s, because each loses its "
            f"GPUs before it has started (a start takes {start_s:g} s and a restart "
            f"{restart_s:g} s{slower}); give it longer rounds"
        )

    def _pass(
        self, environment: simpy.Environment, until_s: float, speeds: _Speeds
    ) -> Generator[simpy.Event, None, None]:
        """Advance to a moment, and then let the servers that are due fail or return."""
        passed_s = max(until_s - float(environment.now), 0.0)
        yield environment.timeout(passed_s)
        self._advance(float(environment.now) - passed_s, passed_s, speeds)
        self._servers(float(environment.now))

    def _ask_s(self, decided_s: float, now_s: float, wake_s: float, speeds: _Speeds) -> float:
        """Return the time at which the scheduler decides next, without regard to faults, s. decided_s: time
        of its last decision."""
        books = self.books
        if not self.by_events:
            return decided_s + self.timing.round_s
        end_s = now_s + float(_FIRST_END_S(books.running, books.by, *speeds))
        ask_s = min(books.arrival_s(), end_s, wake_s)
        if math.isinf(ask_s) and math.isinf(self._change_s()):
            raise self.stuck()
        return ask_s

    def _end_s(self, speeds: _Speeds) -> float:
        """Return the time until the last watched job ends, s; inf unless all watched jobs run. This end stops
        the simulation, even inside a round."""
        books, runs = self.books, self.books.running
        if runs.size < books.unfinished or (runs < books.until).sum() < books.unfinished:
            return np.inf
        watched = runs[runs < books.until]
        needs_s = books.starts[watched] / speeds.starts + books.left[watched] / (
            books.rate[watched] * speeds.work
        )
        return float((needs_s + books.by.ends[watched] / speeds.starts).max())

    def _speeds(self) -> _Speeds:
        """Return the present speeds. The processes that start or end share the cores that running jobs leave
        free, and none has more than one."""
        timing, runs = self.timing, self.books.running
        if math.isinf(timing.cores):
            return _FULL
        starts = (self.books.starts[runs] > CLOSE_S) | (self.books.left[runs] == 0)
        if not starts.any():
            return _FULL
        width = self.books.width[runs]
        used = timing.gpu_cores * float(width[~starts] @ self.books.rate[runs[~starts]])
        left = max(timing.cores - used, _LEAST_CORES)
        return _Speeds(min(left / float(width[starts].sum()), 1.0), timing.beside_starts)

    def _next_phase_s(self, speeds: _Speeds) -> float:
        """Return the time until the next job has started, has done its work or has ended, s."""
        runs, by = self.books.running, self.books.by
        works_s = by.left[runs] / (by.rate[runs] * speeds.work)
        after_s = np.where(works_s > 0, works_s, by.ends[runs] / speeds.starts)
        waits = by.starts[runs]
        return float(np.where(waits > CLOSE_S, waits / speeds.starts, after_s).min(initial=np.inf))

    def _change_s(self) -> float:
        """Return the time at which the next server fails or returns, s."""
        return self.changes[self.change][0] if self.change < len(self.changes) else np.inf

    def _decide(self, now_s: float) -> float:
        """Ask the scheduler, carry out its answer, and return the latest time of its next call, s."""
        state = self.books.state(now_s)
        given = self.scheduler.on_round(state)
        wake_s = self.scheduler.wake_s(state, given)
        before, leaves = self.books.lines, self.timing.leave_s != 0
        # That takes time for all jobs of the run, those that are over, too.
        begun = self.books.by.starts <= CLOSE_S if leaves or self.phases else np.empty(0, np.bool_)
        stopped, moved, again = self.books.give(state, given)
        if moved.size or stopped.size:
            by = self.books.by
            if self.phases:
                goes = np.intersect1d(before.job[begun[before.job]], np.concatenate((stopped, moved)))
                self._take(goes, self.step[goes] / 2)
            drawn = np.exp(self.timing.spread * self.random.standard_normal(moved.size))
            by.starts[moved] = self.timing.starts_s(again, by.width[moved]) * drawn
            if leaves:
                by.starts[moved] += self._leaves_s(before, begun, np.concatenate((stopped, moved)), moved)
            by.ends[moved] = self.timing.end_s
        return wake_s

    def _take(self, jobs: Whole, work: Real) -> None:
        """Let jobs do work that takes no time, but not all that is left. work: steps, float64[jobs]."""
        left = self.books.left
        left[jobs] = np.maximum(left[jobs] - work, np.minimum(left[jobs], CLOSE_S * self.books.rate[jobs]))

    def _leaves_s(self, before: Lines, begun: Flags, leaving: Whole, moved: Whole) -> Real:
        """Return how long each job that moved waits until its own processes and those on its new GPUs have
        ended, s, float64[moved]. before: former holdings; begun: jobs that had started, the others leave at
        once."""
        servers, lines = self.books.cluster.server_gpus, self.books.lines
        leave_s = np.zeros(len(begun))
        held = np.bincount(before.job, before.gpus, len(begun)).astype(np.int64)
        here = leaving[begun[leaving] & (held[leaving] > 0)]
        leave_s[here] = of_gangs(self.timing.leave_s, held[here])
        slowest_s = np.zeros(servers.size)
        np.maximum.at(slowest_s, before.server, leave_s[before.job])
        stays = ~np.isin(before.job, leaving) | (leave_s[before.job] > 0)
        free = servers - np.bincount(before.server[stays], before.gpus[stays], servers.size)
        for job in moved.tolist():
            own = lines.job == job
            for server, gpus in zip(lines.server[own].tolist(), lines.gpus[own].tolist(), strict=True):
                if gpus > free[server]:
                    leave_s[job] = max(leave_s[job], slowest_s[server])
                free[server] -= gpus
        return leave_s[moved]

    def _advance(self, began_s: float, passed_s: float, speeds: _Speeds) -> None:
        """Advance the running jobs. A job that ends in this time ends at its own moment."""
        books, runs = self.books, self.books.running
        busy_s, restart_s = np.empty(runs.size), np.empty(runs.size)
        starts = runs[books.starts[runs] > CLOSE_S] if self.phases else runs[:0]
        ended, worked = _ADVANCE(runs, books.by, *speeds, passed_s, CLOSE_S, busy_s, restart_s)
        if starts.size:
            begun = starts[books.starts[starts] <= CLOSE_S]
            self._take(begun, self.step[begun])
        self.worked |= worked
        books.spend(passed_s, busy_s, restart_s)
        if ended:
            ends = (books.left[runs] == 0) & (books.by.ends[runs] == 0)
            books.end(runs[ends], began_s + busy_s[ends], began_s + passed_s)

    def _servers(self, now_s: float) -> None:
        """Let the servers that are due fail or return."""
        while self.change < len(self.changes) and self.changes[self.change][0] <= now_s + CLOSE_S:
            _, step, server = self.changes[self.change]
            self.change += 1
            hit = self.books.fail(server, now_s) if step > 0 else self.books.repair(server)
            by = self.books.by
            for job in hit.tolist():
                steps = by.steps[job]
                done = loops.saved(steps - by.left[job], by.begun[job], by.every[job])
                self.books.undo(job, steps - done)


def random_downtime(
    servers: int, *, per_day: float, repair_s: float, begin_s: float, end_s: float, seed: int
) -> Downtime:
    """Return Poisson faults of each server between two moments; each is repaired after repair_s.

    per_day: faults per server and day.
    """
    random = np.random.default_rng(seed)
    days = (end_s - begin_s) / 86_400.0
    count = random.poisson(per_day * days, servers)
    server = np.repeat(np.arange(servers), count)
    begins: Real = random.uniform(begin_s, end_s, server.size)
    order = np.argsort(begins, kind="stable")
    return Downtime(server[order], begins[order], begins[order] + repair_s)
