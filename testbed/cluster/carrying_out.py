"""Carry out a scheduler's decisions on real training jobs, in compressed time.

For: `carry_out`, which runs on real jobs what twin.cluster simulates, with the same scheduler object and the
same records. Not for: the processes (gangs.py). A second of this machine stands for `compression` seconds of
the cluster: submissions, rounds, faults and all reported times are in the cluster's time. A job's work is
shorter by this factor. Starts and preemptions are not shorter, so their times count multiplied by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from control.cluster import NEVER_DOWN, Downtime, Outcome, Timing, Workload
from control.scheduler.books import Books, refuse_impossible
from control.scheduler.model import Cluster
from control.scheduler.ports import Scheduler
from testbed.cluster.gangs import Seen
from twinbed import InvariantError

_TICK_S = 0.02
"""Time between two checks of the jobs, s of this machine."""

_IDLE_ROUNDS = 1_000
"""Number of rounds in which jobs wait, none runs and none will come, after which the scheduler is at
fault."""

Servers = Mapping[int, int]
"""Server → number of the job's GPUs there."""


class Executor(Protocol):
    """The object that starts and stops jobs; see testbed.cluster.gangs.Gangs."""

    def start(self, job: int, servers: Servers, quota_cores: float) -> None: ...  # noqa: D102
    def limit(self, job: int, quota_cores: float) -> None: ...  # noqa: D102
    def stop(self, job: int) -> None: ...  # noqa: D102
    def kill(self, job: int) -> None: ...  # noqa: D102
    def look(self, job: int, *, release: bool = True) -> Seen: ...  # noqa: D102


def carry_out(
    cluster: Cluster,
    jobs: Workload,
    total: Sequence[int],
    scheduler: Scheduler,
    timing: Timing,
    executor: Executor,
    *,
    compression: float,
    quota_cores: Callable[[int, float], float],
    downtime: Downtime = NEVER_DOWN,
    until: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Return the results of the jobs. `timing` sets the scheduler's times; all other times are measured.

    total: training steps that stand for all steps of a job, one number per job.
    quota_cores: function: job, its steps per second on its GPUs → CPU quota of each of its processes,
        cores. The quota follows the speed when jobs share GPUs or a job gets more or fewer.
    until: the run ends when jobs 0 to until − 1 have ended; None: when all have.

    Raises ScenarioError for a job that can never run, BackendError for a job that fails.
    """
    refuse_impossible(cluster, jobs)
    real = Carrying(cluster, jobs, total, scheduler, timing, executor, downtime, quota_cores, until)
    began, last_s, told = time.monotonic(), 0.0, 0.0
    while real.books.unfinished:
        now_s = (time.monotonic() - began) * compression
        real.tick(now_s, now_s - last_s)
        last_s = now_s
        share = 1 - float(real.books.left @ jobs.gpus) / float(jobs.steps @ jobs.gpus)
        if progress is not None and share >= told + 0.01:
            told = share
            progress(share)
        time.sleep(_TICK_S)
    return real.books.outcome(last_s, scheduler.remarks())


class Carrying:
    """A run of jobs on an executor, which `tick` advances. The arguments are those of `carry_out`."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Workload,
        total: Sequence[int],
        scheduler: Scheduler,
        timing: Timing,
        executor: Executor,
        downtime: Downtime,
        quota_cores: Callable[[int, float], float],
        until: int | None = None,
    ) -> None:
        self.books = Books(cluster, jobs, len(jobs) if until is None else until, elastic=scheduler.elastic)
        self.jobs, self.total, self.scheduler, self.executor = jobs, total, scheduler, executor
        self.timing, self.quota_cores = timing, quota_cores
        self.by_events = timing.at_events and scheduler.at_events
        self.room = cluster.server_gpus
        self.changes = downtime.changes()
        self.there: dict[int, Servers] = {}
        """Job → servers that its processes occupy, until they have ended."""
        self.leaving: set[int] = set()
        self.due: dict[int, Servers] = {}
        """Job → servers given to it, until there is room to start it."""
        self.rate = np.zeros(len(jobs))
        """Speed that each job's quota emulates, steps/s."""
        self.ask_s, self.idle = -np.inf, 0

    def tick(self, now_s: float, passed_s: float) -> None:
        """Check all jobs, call the scheduler if it is time, and start and stop jobs."""
        books = self.books
        happened = self._look(now_s, passed_s)
        happened |= self._fail(now_s)
        happened |= books.arrive(now_s)
        if not books.active.size:
            self.ask_s = -np.inf
        elif now_s >= self.ask_s or (happened and self.by_events):
            self._ask(now_s)
        self._start()
        self._set_quotas()

    def _look(self, now_s: float, passed_s: float) -> bool:
        """Account for the time since the last check. Returns whether a job has ended."""
        books, waits = self.books, np.zeros(self.books.running.size)
        seen: dict[int, Seen] = {}
        for job in list(self.there):
            seen[job] = self.executor.look(job)
            books.left[job] = self.jobs.steps[job] * (1 - seen[job].done / self.total[job])
            if not seen[job].alive:
                del self.there[job]
        for place, job in enumerate(books.running.tolist()):
            works = job in seen and job not in self.leaving and seen[job].begun
            works = works and seen[job].done < self.total[job]
            waits[place] = 0.0 if works else passed_s
        books.spend(passed_s, np.full(books.running.size, passed_s), waits)
        gone = [job for job in seen if not seen[job].alive]
        self.leaving.difference_update(gone)
        # A job that was told to leave may have ended before it received the signal.
        ended = np.array([job for job in gone if seen[job].done >= self.total[job]], np.int64)
        for job in ended.tolist():
            self.due.pop(job, None)
        books.end(ended, np.full(ended.size, now_s), now_s)
        return bool(gone)

    def _fail(self, now_s: float) -> bool:
        """Let the servers that are due fail or return."""
        happened = False
        while self.changes and self.changes[0][0] <= now_s:
            _, step, server = self.changes.pop(0)
            happened = True
            for job in (self.books.fail(server, now_s) if step > 0 else self.books.repair(server)).tolist():
                self.due.pop(job, None)
                # A preemption saves, so a life that was told to leave may go on until it has saved.
                if job in self.there and job not in self.leaving:
                    self.executor.kill(job)
                    self.there.pop(job)
                    done = self.executor.look(job).done / self.total[job]
                    self.books.undo(job, self.jobs.steps[job] * (1 - done))
        return happened

    def _ask(self, now_s: float) -> None:
        books = self.books
        state = books.state(now_s)
        given = self.scheduler.on_round(state)
        wake_s = self.scheduler.wake_s(state, given)
        stopped, moved, _ = books.give(state, given)
        for job in (*stopped.tolist(), *moved.tolist()):
            self.due.pop(job, None)
            if job in self.there and job not in self.leaving:
                self.leaving.add(job)
                self.executor.stop(job)
        for job in moved.tolist():
            lines, own = books.lines, books.lines.job == job
            self.due[job] = dict(zip(lines.server[own].tolist(), lines.gpus[own].tolist(), strict=True))
        self.ask_s = wake_s if self.by_events else now_s + self.timing.round_s
        nothing = not (books.running.size or self.there or self.changes or np.isfinite(books.arrival_s()))
        self.idle = self.idle + 1 if nothing else 0
        if nothing and (self.idle > _IDLE_ROUNDS or np.isinf(self.ask_s)):
            raise InvariantError(f"{type(self.scheduler).__name__}: {books.active.size} jobs never run")

    def _start(self) -> None:
        """Start jobs whose GPUs are no longer used by their former holders."""
        for job, servers in list(self.due.items()):
            if job in self.there or any(gpus > self._free(server, job) for server, gpus in servers.items()):
                continue
            self.rate[job] = self.books.rate[job]
            self.executor.start(job, servers, self.quota_cores(job, float(self.rate[job])))
            self.there[job] = self.due.pop(job)

    def _set_quotas(self) -> None:
        """Adapt quotas to speeds, which change when a job on the same GPUs comes or goes."""
        for job in self.there:
            if job not in self.leaving and self.rate[job] != self.books.rate[job]:
                self.rate[job] = self.books.rate[job]
                self.executor.limit(job, self.quota_cores(job, float(self.rate[job])))

    def _free(self, server: int, job: int) -> int:
        """Return the GPUs of a server that this job may take, including those of its partner."""
        return int(self.room[server]) - sum(
            servers.get(server, 0) for other, servers in self.there.items() if self._counts(other, job)
        )

    def _counts(self, other: int, job: int) -> bool:
        """Return whether another job's GPUs count as taken. Of two jobs that share GPUs, only one counts."""
        partner = int(self.books.partner[other])
        twice = partner in self.there and partner < other and other not in self.leaving
        return other in self.leaving or not (partner == job or twice)
