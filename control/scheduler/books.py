"""The state of a cluster over time: jobs, the GPUs that they hold, and the result of each job.

For: both backends, so that times and figures mean the same. Not for: simulating or waiting for time, which a
backend does, nor deciding. All times come from the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from control.cluster import Outcome, Series, Spans, Workload
from control.scheduler.model import NOTHING, Assignment, Cluster, Flags, Real, State, Whole
from twinbed import ScenarioError

MOST_WITH_SPANS = 2_000
"""Largest number of jobs for which spans are kept."""


def refuse_impossible(cluster: Cluster, jobs: Workload) -> None:
    """Raise ScenarioError for a job that can never run."""
    most = _most_gpus(cluster, jobs).max(axis=1, initial=0)
    most = np.minimum(most, np.floor(cluster.queue_most[jobs.queue] * cluster.server_gpus.sum() + 1e-9))
    if (jobs.gpus > most).any():
        job = int(np.argmax(jobs.gpus > most))
        raise ScenarioError(
            f"job {job} asks for {jobs.gpus[job]} GPUs and can have {int(most[job])} at most: "
            "add servers, raise its queue's most, or leave it out "
            "(jobs count from 0, in the order of submission)"
        )


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
    return replace(jobs, throughput=np.where(small[:, :, None], 0.0, jobs.throughput))


class Books:
    """n jobs on h servers. A job's id is its index in the workload.

    active: jobs that were submitted and have not finished; running: those that hold GPUs, int64[·], sorted.
    line_job, line_server, line_gpus: job, server and GPUs of each holding, int64[k].
    unfinished: number of the first `until` jobs that have not finished.

    Arrays by job:

    left: steps to do. rate: steps per second where the job runs.
    width: GPUs that it holds. partner: the job with which it shares them, −1 for none.
    held, restart: time with GPUs, and the part of it without progress, s. attained: GPU-seconds of progress.
    undone: time of work that faults undid, s; undone_gpu: its GPU-seconds.
    starts: time until it makes progress after its servers changed, s; 0 if the backend does not know it.

    fork_speed: share of their speed that the copies of a forked job keep when they exchange results. elastic:
    whether the scheduler may give jobs other numbers of GPUs than those of their gangs.
    """

    def __init__(
        self, cluster: Cluster, jobs: Workload, until: int, *, fork_speed: float = 1.0, elastic: bool = False
    ) -> None:
        n, kinds = len(jobs), len(cluster.types)
        rigid = jobs.elastic.of(np.arange(n)) < 0 if elastic else np.ones(n, np.bool_)
        self.cluster, self.jobs = cluster, _without_small_racks(cluster, jobs, rigid)
        self.until, self.unfinished = until, until
        self.left = jobs.steps.astype(float).copy()
        self.first_start, self.finish = np.full(n, np.inf), np.full(n, np.nan)
        self.held, self.restart, self.undone, self.attained, self.rate = (np.zeros(n) for _ in range(5))
        self.held_gpu, self.undone_gpu, self._fork_speed = np.zeros(n), np.zeros(n), fork_speed
        self._sharing, self._elastic = jobs.sharing.kept.size > 0, elastic
        self.width, self.partner, self._own = np.zeros(n, np.int64), np.full(n, -1), np.zeros(n)
        self.idle_since, self.starts = jobs.submit_s.copy(), np.zeros(n)
        self.preemptions, self.faulted = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.active, self.arrived = np.empty(0, np.int64), 0
        self.line_job, self.line_server, self.line_gpus = (np.empty(0, np.int64) for _ in range(3))
        self.running = np.empty(0, np.int64)
        self._row_of = np.zeros(n, np.int64)
        self._busy, self._restarts, self._capacity = np.zeros(kinds), np.zeros(kinds), np.zeros(kinds)
        self._down = np.zeros(cluster.server_gpus.size, np.int64)
        self._samples: list[tuple[float, int, int, int]] = []
        self._spans: list[tuple[int, int, int, float, float]] | None = [] if n <= MOST_WITH_SPANS else None
        self._since: dict[tuple[int, int, int], float] = {}
        self._largest = np.array(
            [cluster.server_gpus[cluster.server_type == kind].max(initial=1) for kind in range(kinds)]
        )

    @property
    def up(self) -> Flags:
        """Whether each server works, bool[h]."""
        return np.equal(self._down, 0)

    def arrival_s(self) -> float:
        """Return the time of the next submission, s; inf if there is none."""
        return float(self.jobs.submit_s[self.arrived]) if self.arrived < len(self.jobs) else np.inf

    def arrive(self, now_s: float) -> bool:
        """Add the jobs that were submitted by now. Return whether there were any."""
        last = int(np.searchsorted(self.jobs.submit_s, now_s, side="right"))
        came = last > self.arrived
        if came:
            self.active = np.concatenate((self.active, np.arange(self.arrived, last)))
            self.arrived = last
        return came

    def state(self, now_s: float) -> State:
        """Return the state that a scheduler sees."""
        here, jobs = self.active, self.jobs
        self._row_of[here] = np.arange(here.size)
        return State(
            now_s=now_s,
            up=self.up,
            job=here,
            submit_s=jobs.submit_s[here],
            gpus=jobs.gpus[here],
            queue=jobs.queue[here],
            weight=jobs.weight[here],
            deadline_s=jobs.deadline_s[here],
            left_steps=self.left[here],
            total_steps=jobs.steps[here],
            throughput=jobs.throughput[here],
            together=jobs.together[here],
            attained_gpu_s=self.attained[here],
            ran_s=self.held[here] - self.restart[here],
            first_start_s=self.first_start[here],
            idle_since_s=self.idle_since[here],
            starts_s=self.starts[here],
            held=Assignment(self._row_of[self.line_job], self.line_server, self.line_gpus, self._pairs()),
            sharing=jobs.sharing,
            elastic=jobs.elastic,
        )

    def _pairs(self) -> Whole:
        """Return the rows of each pair of jobs that share their GPUs, int64[p, 2]."""
        if not self._sharing:
            return NOTHING.shared
        first = self.running[self.partner[self.running] > self.running]
        rows: Whole = self._row_of[np.column_stack((first, self.partner[first]))]
        return rows

    def give(self, state: State, given: Assignment) -> tuple[Whole, Whole, Flags]:
        """Apply an answer to `state`, sorted by job and server.

        Returns the jobs that lost their GPUs, the jobs that hold other GPUs than before, and which of the
        latter had GPUs earlier.
        """
        job, now_s = state.job[given.row], state.now_s
        stopped, moved = self._changed(job, given) if not self._same(job, given) else (_NONE, _NONE)
        self.preemptions[stopped] += 1
        self.idle_since[stopped], self.starts[stopped] = now_s, 0.0
        again = np.isfinite(self.first_start[moved])
        self.first_start[moved] = np.minimum(self.first_start[moved], now_s)
        repaired = self._sharing and self._pair(state, given)
        if stopped.size or moved.size or repaired:
            self._log(now_s, job, given.server, given.gpus)
            self.line_job, self.line_server, self.line_gpus = job, given.server, given.gpus
            self._run()
        held = int(self._counted()[2].sum())
        self._samples.append((now_s, self.active.size - self.running.size, self.running.size, held))
        return stopped, moved, again

    def _pair(self, state: State, given: Assignment) -> bool:
        """Record which jobs share GPUs. Return whether that changed."""
        partner = np.full(self.partner.size, -1)
        partner[state.job[given.shared]] = state.job[given.shared[:, ::-1]]
        changed = not np.array_equal(partner, self.partner)
        self.partner = partner
        return changed

    def _same(self, job: Whole, given: Assignment) -> bool:
        return (
            np.array_equal(job, self.line_job)
            and np.array_equal(given.server, self.line_server)
            and np.array_equal(given.gpus, self.line_gpus)
        )

    def _changed(self, job: Whole, given: Assignment) -> tuple[Whole, Whole]:
        servers, most = self.cluster.server_gpus.size, int(self.cluster.server_gpus.max()) + 1
        old = (self.line_job * servers + self.line_server) * most + self.line_gpus
        new = (job * servers + given.server) * most + given.gpus
        # Both arrays are sorted. Sets would take more time than the rest of this function.
        place = np.minimum(np.searchsorted(old, new), max(old.size - 1, 0))
        same = old[place] == new if old.size else np.zeros(new.size, np.bool_)
        ended = np.ones(old.size, np.bool_)
        ended[place[same]] = False
        differs, after = (np.zeros(self.active.size, np.bool_) for _ in range(2))
        after[given.row] = True
        differs[self._row_of[self.line_job[ended]]] = True
        differs[given.row[~same]] = True
        return self.active[differs & ~after], self.active[differs & after]

    def _counted(self) -> tuple[Whole, Whole, Whole]:
        """Return job, server and GPUs of each holding, without those of the second job of each pair."""
        lines = self.line_job, self.line_server, self.line_gpus
        if not self._sharing:
            return lines
        partner = self.partner[self.line_job]
        counts = (partner < 0) | (self.line_job < partner)
        return lines[0][counts], lines[1][counts], lines[2][counts]

    def _run(self) -> None:
        """Record which jobs run, and how fast. A job needs no restart when its partner comes or leaves."""
        job = self.line_job
        first = np.flatnonzero(np.append(True, job[1:] != job[:-1])[: job.size])
        self.running = job[first]
        if not job.size:
            return
        kind = self.cluster.server_type[self.line_server]
        lines = np.diff(np.append(first, job.size))
        mixed = np.maximum.reduceat(kind, first) != np.minimum.reduceat(kind, first)
        gang = self.jobs.gpus[self.running]
        fewest = -(-gang // self._largest[kind[first]])
        spread = np.repeat((mixed | (lines > fewest)).astype(np.int64), lines)
        rate = np.minimum.reduceat(self.jobs.throughput[job, kind, spread], first)
        self.width[self.running] = np.add.reduceat(self.line_gpus, first)
        self._own[self.running] = self.width[self.running] / (1 + (self.partner[self.running] >= 0))
        forked = (self.width[self.running] > gang) & (not self._elastic)
        if forked.any():
            copies = np.add.reduceat(self.jobs.throughput[job, kind, 0], first) * self._fork_speed
            rate = np.where(forked, copies, rate)
        if self._elastic:
            jobs, several = self.running, (lines > 1).astype(np.int64)
            grown = self.jobs.elastic.speed_up(jobs, gang, self.width[jobs], several)
            together = self.jobs.throughput[jobs, kind[first], 0]
            rate = np.where(self.jobs.elastic.of(jobs) >= 0, together * grown, rate)
        paired = np.flatnonzero(self.partner[self.running] >= 0) if self._sharing else _NONE
        if paired.size:
            kept = self.jobs.sharing.of(self.running[paired], self.partner[self.running[paired]])
            rate[paired] *= kept[np.arange(paired.size), kind[first[paired]]]
        self.rate[self.running] = rate

    def spend(self, passed_s: float, busy_s: Real, restart_s: Real) -> None:
        """Account for a time in which no job's GPUs changed.

        passed_s: its length, s. busy_s: time for which each running job needed its GPUs. restart_s: the part
        of it without progress. Both s, float64[running].
        """
        runs, kinds = self.running, len(self.cluster.types)
        self._capacity += self.cluster.capacity(self.up) * passed_s
        self.held[runs] += busy_s
        self.restart[runs] += restart_s
        width = self.width[runs]
        self.attained[runs] += (busy_s - restart_s) * width
        own_s = busy_s
        paired = np.flatnonzero(self.partner[runs] >= 0) if self._sharing else _NONE
        if paired.size:
            # Shared GPUs are busy while one of the two jobs is. They make no progress while neither job does.
            other = np.searchsorted(runs, self.partner[runs[paired]])
            mine_s, its_s = busy_s[paired], busy_s[other]
            both_s = np.minimum(mine_s, its_s)
            twice_s = np.maximum(both_s - np.maximum(restart_s[paired], restart_s[other]), 0.0)
            works_s = (busy_s - restart_s)[paired] + (busy_s - restart_s)[other] - twice_s
            own_s, busy_s, restart_s = busy_s.copy(), busy_s.copy(), restart_s.copy()
            own_s[paired] -= both_s / 2
            busy_s[paired] = np.maximum(mine_s, its_s)
            restart_s[paired] = busy_s[paired] - works_s
        self.held_gpu[runs] += own_s * width
        job, server, gpus = self._counted()
        place = np.searchsorted(runs, job)
        kind = self.cluster.server_type[server]
        self._busy += np.bincount(kind, gpus * busy_s[place], kinds)
        self._restarts += np.bincount(kind, gpus * restart_s[place], kinds)

    def end(self, jobs: Whole, finish_s: Real, now_s: float) -> None:
        """Record running jobs that finished, and free their GPUs. finish_s: finishing times, s,
        float64[jobs].
        """
        self.finish[jobs] = finish_s
        self.unfinished -= int((jobs < self.until).sum())
        self.active = self.active[np.isnan(self.finish[self.active])]
        self._drop(jobs, now_s)
        if jobs.size and not self.active.size:
            self._samples.append((now_s, 0, 0, 0))

    def fail(self, server: int, now_s: float) -> Whole:
        """Take a server down. Return the jobs that ran on it; they lose all their GPUs."""
        self._down[server] += 1
        hit = np.unique(self.line_job[self.line_server == server])
        self.preemptions[hit] += 1
        self.faulted[hit] += 1
        self.idle_since[hit], self.starts[hit] = now_s, 0.0
        self._drop(hit, now_s)
        return hit

    def undo(self, jobs: Whole, lost_s: Real) -> None:
        """Account for work that a fault has undone. lost_s: its time, s, float64[jobs]."""
        self.undone[jobs] += lost_s
        self.undone_gpu[jobs] += lost_s * self._own[jobs]

    def repair(self, server: int) -> Whole:
        """Take a server back. Return the jobs that this affects: none."""
        self._down[server] -= 1
        return _NONE

    def _drop(self, jobs: Whole, now_s: float) -> None:
        goes = np.zeros(self.left.size, np.bool_)
        goes[jobs] = True
        kept = ~goes[self.line_job]
        lines = self.line_job[kept], self.line_server[kept], self.line_gpus[kept]
        self._log(now_s, *lines)
        self.line_job, self.line_server, self.line_gpus = lines
        self.running = self.running[~goes[self.running]]
        left_alone = self.partner[jobs] if self._sharing else _NONE
        left_alone = left_alone[left_alone >= 0]
        if left_alone.size:
            self.partner[jobs] = self.partner[left_alone] = -1
            self._run()

    def _log(self, now_s: float, job: Whole, server: Whole, gpus: Whole) -> None:
        """Record the holdings that end and those that begin."""
        if self._spans is None:
            return
        lines = set(zip(job.tolist(), server.tolist(), gpus.tolist(), strict=True))
        for line in [line for line in self._since if line not in lines]:
            begin_s = self._since.pop(line)
            end_s = float(np.fmin(self.finish[line[0]], now_s))
            self._spans.append((*line, begin_s, end_s))
        for line in lines:
            self._since.setdefault(line, now_s)

    def outcome(self, end_s: float, remarks: Sequence[str]) -> Outcome:
        """Return the results of the jobs."""
        self._log(end_s, _NONE, _NONE, _NONE)
        samples = np.array(self._samples, float).reshape(-1, 4)
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
            held_s=self.held,
            held_gpu_s=self.held_gpu,
            preemptions=self.preemptions,
            faulted=self.faulted,
            restart_s=self.restart,
            undone_s=self.undone,
            undone_gpu_s=self.undone_gpu,
            left_steps=self.left,
            busy_gpu_s=self._busy,
            restart_gpu_s=self._restarts,
            capacity_gpu_s=self._capacity,
            series=Series(samples[:, 0], counts[0], counts[1], counts[2]),
            spans=spans,
            remarks=tuple(remarks),
        )


_NONE: Whole = np.empty(0, np.int64)
