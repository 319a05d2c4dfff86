"""The state of a cluster over time: jobs, the GPUs that they hold, and the result of each job.

For: both backends, so that times and figures mean the same. Not for: simulating or waiting for time, which a
backend does, nor deciding. All times come from the caller.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from control.cluster import Outcome, Series, Spans, Workload
from control.scheduler import loops
from control.scheduler.loops import Ledger, Lines
from control.scheduler.model import NOTHING, Assignment, Cluster, Flags, Real, State, Whole
from twinbed import ScenarioError

_NONE: Whole = np.empty(0, np.int64)
_GIVEN = ("now_s", "up", "job", "held", "sharing", "elastic", "_books")

MOST_WITH_SPANS = 2_000
"""Largest number of jobs for which spans are kept."""


def refuse_impossible(cluster: Cluster, jobs: Workload) -> None:
    """Raise ScenarioError for a job that can never run."""
    most = most_gpus(cluster, jobs)
    if (jobs.gpus > most).any():
        job = int(np.argmax(jobs.gpus > most))
        raise ScenarioError(
            f"job {job} asks for {jobs.gpus[job]} GPUs and can have {int(most[job])} at most: "
            "add servers, raise its queue's most, or let jobs be smaller "
            "(jobs count from 0, in the order of submission)"
        )


def most_gpus(cluster: Cluster, jobs: Workload) -> Whole:
    """Return the most GPUs that each job can have on one type within its queue's quota, int64[n]."""
    quota = np.floor(cluster.queue_most[jobs.queue] * cluster.server_gpus.sum() + 1e-9)
    most: Whole = np.minimum(_most_gpus(cluster, jobs).max(axis=1, initial=0), quota.astype(np.int64))
    return most


def _most_gpus(cluster: Cluster, jobs: Workload) -> Whole:
    """Return the most GPUs of each type that a job can have while all servers work, int64[n, r]."""
    racks = int(cluster.rack.max(initial=0)) + 1
    place = cluster.server_type * racks + cluster.rack
    by_rack = np.bincount(place, cluster.server_gpus, len(cluster.types) * racks).reshape(-1, racks)
    most = np.where(jobs.together[:, None], by_rack.max(axis=1), by_rack.sum(axis=1)).astype(np.int64)
    return np.where(jobs.throughput[:, :, 0] > 0, most, 0)


def _without_small_racks(cluster: Cluster, jobs: Workload, rigid: Flags) -> Workload:
    """Return the jobs without the types of which no rack holds a gang that must stay together. rigid: jobs
    that are gangs, bool[n]."""
    small = (jobs.gpus[:, None] > _most_gpus(cluster, jobs)) & (jobs.together & rigid)[:, None]
    throughput = np.ascontiguousarray(np.where(small[:, :, None], 0.0, jobs.throughput))
    return replace(jobs, throughput=throughput)


class _Present(State):
    """The state of the active jobs. A column is gathered when it is first read, until the books change."""

    __slots__ = ("_books",)
    _books: Books

    def __getattr__(self, name: str) -> Any:
        """Gather a column."""
        value = self._books.column(name)
        object.__setattr__(self, name, value)
        return value

    def by_arrival(self) -> Whole:
        """Return the rows in the order of arrival, int64[n]. Active jobs are in this order."""
        return np.arange(self.job.size)

    def waiting(self) -> Whole:
        """Return the rows of the jobs without GPUs in the order of arrival, int64[·]."""
        return np.flatnonzero(~self.running())


def _without(values: Any, row: int) -> Any:
    return np.concatenate((values[:row], values[row + 1 :]))


class Books:
    """n jobs on h servers. A job's id is its index in the workload.

    active: jobs that were submitted and have not finished; running: those that hold GPUs, int64[·], sorted.
    lines: the holdings. up: whether each server works, bool[h].
    unfinished: number of the first `until` jobs that have not finished.
    by, and left, rate, starts, width and partner: arrays by job, as in Ledger. Without a simulation `starts`
    is 0.
    undone, undone_gpu: work that faults undid, s and GPU-s, float64[n].
    sums: GPU-seconds that were busy, spent on restarts, and there, by type, float64[r] each.
    largest: GPUs of the largest server of each type, int64[r].

    fork_speed: share of their speed that the copies of a forked job keep when they exchange results. elastic:
    whether the scheduler may give jobs other numbers of GPUs than those of their gangs. compiler: returns a
    function of control.scheduler.loops compiled.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Workload,
        until: int,
        *,
        fork_speed: float = 1.0,
        elastic: bool = False,
        compiler: Callable[[Any], Any] = lambda function: function,
    ) -> None:
        n, kinds = len(jobs), len(cluster.types)
        rigid = jobs.elastic.of(np.arange(n)) < 0 if elastic else np.ones(n, np.bool_)
        self.cluster, self.jobs = cluster, _without_small_racks(cluster, jobs, rigid)
        self.until, self.unfinished = until, until
        made: dict[str, Any] = {"steps": jobs.steps, "left": jobs.steps.astype(float)}
        made |= {"width": np.zeros(n, np.int64), "partner": np.full(n, -1)}
        self.by = Ledger(**{name: made.get(name, np.zeros(n)) for name in Ledger._fields})
        self.left, self.rate, self.starts = self.by.left, self.by.rate, self.by.starts
        self.width, self.partner = self.by.width, self.by.partner
        self.first_start, self.finish = np.full(n, np.inf), np.full(n, np.nan)
        self.undone, self.undone_gpu, self._own = np.zeros(n), np.zeros(n), np.zeros(n)
        self._sharing, self._elastic, self._fork_speed = jobs.sharing.kept.size > 0, elastic, fork_speed
        self.idle_since = jobs.submit_s.copy()
        self.preemptions, self.faulted = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.active, self.running, self.arrived = _NONE, _NONE, 0
        self.lines = Lines(_NONE, _NONE, _NONE)
        self._spend, self._changed, self._speeds = map(compiler, (loops.spend, loops.changed, loops.speeds))
        self._changing = {
            "left_steps": self.left,
            "attained_gpu_s": self.by.attained,
            "first_start_s": self.first_start,
            "idle_since_s": self.idle_since,
            "starts_s": self.starts,
        }
        """Columns of the state that change, for all jobs."""
        self._fixed: dict[str, Any] = {}
        """Columns of the active jobs that do not change, as far as they were read."""
        self._row_of = np.zeros(n, np.int64)
        self.sums = np.zeros(kinds), np.zeros(kinds), np.zeros(kinds)
        self._down = np.zeros(cluster.server_gpus.size, np.int64)
        self._add_down(0, 0)
        self._samples = array("d")
        """Samples of the queue, four numbers each. A list of tuples would take several times their space."""
        self._sampled: list[Real] = []
        self._spans: list[tuple[int, int, int, float, float]] | None = [] if n <= MOST_WITH_SPANS else None
        self._since: dict[int, dict[tuple[int, int], float]] = {}
        """Job → its present lines (server, GPUs) → their begin, s."""
        self.largest = np.array(
            [cluster.server_gpus[cluster.server_type == kind].max(initial=1) for kind in range(kinds)]
        )

    def arrival_s(self) -> float:
        """Return the time of the next submission, s; inf if there is none."""
        return float(self.jobs.submit_s[self.arrived]) if self.arrived < len(self.jobs) else np.inf

    def arrive(self, now_s: float) -> bool:
        """Add the jobs that were submitted by now. Return whether there were any."""
        if self.arrival_s() > now_s:
            return False
        last = int(np.searchsorted(self.jobs.submit_s, now_s, side="right"))
        come = np.arange(self.arrived, last)
        self._row_of[come] = np.arange(self.active.size, self.active.size + come.size)
        self.active = np.concatenate((self.active, come))
        for name, values in self._fixed.items():
            self._fixed[name] = np.concatenate((values, self._of_jobs(name)[come]))
        self.arrived = last
        return True

    def _leave(self, jobs: Whole) -> None:
        """Remove jobs from the active ones. States keep their columns, so these are copied."""
        for row in sorted(self._row_of[jobs].tolist(), reverse=True):
            self.active = _without(self.active, row)
            self._row_of[self.active[row:]] = np.arange(row, self.active.size)
            for name, values in self._fixed.items():
                self._fixed[name] = _without(values, row)

    def _of_jobs(self, name: str) -> Any:
        """Return a column of the state that does not change, for all jobs."""
        return getattr(self.jobs, "steps" if name == "total_steps" else name)

    def state(self, now_s: float) -> State:
        """Return the state that a scheduler sees. It holds until the books change."""
        state = object.__new__(_Present)
        lines = self.lines
        held = Assignment(self._row_of[lines.job], lines.server, lines.gpus, self._pairs())
        values = (now_s, self.up, self.active, held, self.jobs.sharing, self.jobs.elastic, self)
        for name, value in zip(_GIVEN, values, strict=True):
            object.__setattr__(state, name, value)
        return state

    def column(self, name: str) -> Any:
        """Return the column of the state that has this name."""
        here, by = self.active, self.by
        if name in self._changing:
            return self._changing[name][here]
        if name == "ran_s":
            return by.held[here] - by.restart[here]
        if name not in self._fixed:
            self._fixed[name] = self._of_jobs(name)[here]
        return self._fixed[name]

    def _pairs(self) -> Whole:
        """Return the rows of each pair of jobs that share their GPUs, int64[p, 2]."""
        if not self._sharing:
            return NOTHING.shared
        first = self.running[self.partner[self.running] > self.running]
        rows: Whole = self._row_of[np.column_stack((first, self.partner[first]))]
        return rows

    def give(self, state: State, given: Assignment) -> tuple[Whole, Whole, Flags]:
        """Apply an answer to `state`, sorted by job and server.

        Returns (jobs that lost their GPUs, jobs that hold other GPUs than before the answer, whether each of
        those ever held GPUs), int64[k], int64[m] and bool[m].
        """
        now_s = state.now_s
        if given is state.held:
            self._sample(now_s)
            return _NONE, _NONE, np.empty(0, np.bool_)
        lines = (state.job[given.row], given.server, given.gpus)
        new = Lines(*(np.ascontiguousarray(values, np.int64) for values in lines))
        stopped, moved, runs = self._changed(self.lines, new)
        if stopped.size:
            self.preemptions[stopped] += 1
            self.idle_since[stopped], self.starts[stopped] = now_s, 0.0
        self.by.begun[moved] = self.by.steps[moved] - self.left[moved]
        again = np.isfinite(self.first_start[moved])
        self.first_start[moved] = np.minimum(self.first_start[moved], now_s)
        repaired = self._sharing and self._pair(state, given)
        if stopped.size or moved.size or repaired:
            self._log(now_s, np.concatenate((stopped, moved)), new)
            self.lines, self.running = new, runs
            self._run(runs if repaired else moved)
        self._sample(now_s)
        return stopped, moved, again

    def _sample(self, now_s: float) -> None:
        runs = self.running.size
        self._samples.extend((now_s, self.active.size - runs, runs, int(self._counted_gpus().sum())))

    def _pair(self, state: State, given: Assignment) -> bool:
        """Record which jobs share GPUs. Return whether that changed."""
        partner = np.full(self.partner.size, -1)
        partner[state.job[given.shared]] = state.job[given.shared[:, ::-1]]
        changed = not np.array_equal(partner, self.partner)
        self.partner[:] = partner
        return changed

    def _counted_gpus(self) -> Whole:
        """Return the GPUs of each holding, without those of the second job of each pair."""
        if not self._sharing:
            return self.lines.gpus
        partner = self.partner[self.lines.job]
        return self.lines.gpus[(partner < 0) | (self.lines.job < partner)]

    def _run(self, jobs: Whole) -> None:
        """Record how fast these running jobs are. A job needs no restart when its partner comes or leaves."""
        if not jobs.size:
            return
        own, types = self.jobs, self.cluster.server_type
        kind, lines = self._speeds(jobs, self.lines, types, own.throughput, own.gpus, self.largest, self.by)
        width, gang = self.width[jobs], own.gpus[jobs]
        self._own[jobs] = width
        if self._elastic:
            grown = own.elastic.speed_up(jobs, gang, width, (lines > 1).astype(np.int64))
            able = own.elastic.of(jobs) >= 0
            self.rate[jobs] = np.where(able, own.throughput[jobs, kind, 0] * grown, self.rate[jobs])
        else:
            for job in jobs[width > gang].tolist():
                servers = self.lines.server[self.lines.job == job]
                copies = np.add.reduceat(own.throughput[job, types[servers], 0], [0])
                self.rate[job] = copies[0] * self._fork_speed
        paired = np.flatnonzero(self.partner[jobs] >= 0) if self._sharing else _NONE
        if paired.size:
            of = jobs[paired]
            self._own[of] /= 2
            kept = own.sharing.of(of, self.partner[of])
            self.rate[of] *= kept[np.arange(paired.size), kind[paired]]

    def spend(self, passed_s: float, busy_s: Real, restart_s: Real) -> None:
        """Account for a time in which no job's GPUs changed.

        passed_s: its length, s. busy_s: time for which each running job needed its GPUs. restart_s: the part
        of it without progress. Both s, float64[running].
        """
        busy, restarts, capacity = self.sums
        capacity += self._capacity_up * passed_s
        types = self.cluster.server_type
        self._spend(self.running, self.by, self.lines, types, busy_s, restart_s, busy, restarts)

    def end(self, jobs: Whole, finish_s: Real, now_s: float) -> None:
        """Record running jobs that finished, at finish_s (s, float64[jobs]), and free their GPUs."""
        self.finish[jobs] = finish_s
        self.unfinished -= int((jobs < self.until).sum())
        self._leave(jobs)
        self._drop(jobs, now_s)
        if jobs.size and not self.active.size:
            self._samples.extend((now_s, 0, 0, 0))

    def fail(self, server: int, now_s: float) -> Whole:
        """Take a server down. Return the jobs that ran on it; they lose all their GPUs."""
        self._add_down(server, 1)
        hit = np.unique(self.lines.job[self.lines.server == server])
        self.preemptions[hit] += 1
        self.faulted[hit] += 1
        self.idle_since[hit], self.starts[hit] = now_s, 0.0
        self._drop(hit, now_s)
        return hit

    def undo(self, job: int, left: float) -> None:
        """Account for the work of a job that a fault has undone. left: steps to do after the fault."""
        lost_s = (left - self.left[job]) / self.rate[job]
        self.left[job] = left
        self.undone[job] += lost_s
        self.undone_gpu[job] += lost_s * self._own[job]

    def repair(self, server: int) -> Whole:
        """Take a server back. Return the jobs that this affects: none."""
        self._add_down(server, -1)
        return _NONE

    def _add_down(self, server: int, step: int) -> None:
        self._down[server] += step
        self.up = np.equal(self._down, 0)
        self._capacity_up = self.cluster.capacity(self.up)

    def _drop(self, jobs: Whole, now_s: float) -> None:
        goes = np.zeros(self.left.size, np.bool_)
        goes[jobs] = True
        kept = ~goes[self.lines.job]
        self.lines = Lines(*(values[kept] for values in self.lines))
        self._log(now_s, jobs, self.lines)
        self.running = self.running[~goes[self.running]]
        left_alone = self.partner[jobs] if self._sharing else _NONE
        left_alone = left_alone[left_alone >= 0]
        if left_alone.size:
            self.partner[jobs] = self.partner[left_alone] = -1
            self._run(self.running)

    def _log(self, now_s: float, jobs: Whole, held: Lines) -> None:
        """Record the holdings of these jobs that end and those that begin. held: all holdings from now on."""
        if self._spans is None:
            return
        begins = np.searchsorted(held.job, jobs).tolist()
        ends = np.searchsorted(held.job, jobs, side="right").tolist()
        for job, begin, end in zip(jobs.tolist(), begins, ends, strict=True):
            lines = set(zip(held.server[begin:end].tolist(), held.gpus[begin:end].tolist(), strict=True))
            since = self._since.setdefault(job, {})
            end_s = float(np.fmin(self.finish[job], now_s))
            for line in since.keys() - lines:
                self._spans.append((job, *line, since.pop(line), end_s))
            for line in lines:
                since.setdefault(line, now_s)

    @property
    def keeps_spans(self) -> bool:
        """Whether there are few enough jobs to record who held which GPU."""
        return self._spans is not None

    def sampled(self, samples: Real) -> None:
        """Record samples of the queue: time in s, waiting jobs, running jobs and held GPUs, float64[k, 4]."""
        self._sampled.append(samples)

    def outcome(self, end_s: float, remarks: Sequence[str]) -> Outcome:
        """Return the results of the jobs."""
        self._log(end_s, np.array(list(self._since), np.int64), Lines(_NONE, _NONE, _NONE))
        busy, restarts, capacity = self.sums
        samples = np.concatenate((*self._sampled, np.array(self._samples).reshape(-1, 4)))
        counts = samples[:, 1:].astype(np.int64).T
        spans: Spans | None = None
        if self._spans is not None:
            rows = np.array(sorted(self._spans), float).reshape(-1, 5)
            whole = rows[:, :3].astype(np.int64)
            spans = Spans(whole[:, 0], whole[:, 1], whole[:, 2], rows[:, 3], rows[:, 4])
        return Outcome(
            end_s=end_s,
            first_start_s=np.where(np.isfinite(self.first_start), self.first_start, np.nan),
            finish_s=self.finish,
            held_s=self.by.held,
            held_gpu_s=self.by.held_gpu,
            preemptions=self.preemptions,
            faulted=self.faulted,
            restart_s=self.by.restart,
            undone_s=self.undone,
            undone_gpu_s=self.undone_gpu,
            left_steps=self.left,
            busy_gpu_s=busy,
            restart_gpu_s=restarts,
            capacity_gpu_s=capacity,
            series=Series(samples[:, 0], counts[0], counts[1], counts[2]),
            spans=spans,
            remarks=tuple(remarks),
        )
