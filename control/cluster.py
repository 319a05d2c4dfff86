"""Input and output of the backends that carry out a scheduler's decisions, shared by twin and testbed.

For: twin.cluster, testbed.cluster and their callers. Not for: a scheduler's input and output
(control.scheduler.model), nor the bookkeeping (control.scheduler.books).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.scheduler.model import NO_SHARING, NOT_ELASTIC, Elastic, Flags, Real, Sharing, Whole


@dataclass(frozen=True, slots=True)
class Workload:
    """n jobs in the order of their submission; a job's id is its index.

    submit_s: time of submission, s, non-decreasing, float64[n]. gpus: GPUs of the gang, int64[n]. steps:
    work, steps, float64[n]. throughput: steps per second of the gang by type, together and spread, float64[n,
    r, 2]; 0: cannot run. queue: its queue, int64[n]. weight: its weight in fair shares, float64[n].
    deadline_s: time by which the job should finish, s, inf without a deadline, float64[n]. together: whether
    the job may only run on as few servers as possible, bool[n]. sharing: speeds of two jobs on the same GPUs;
    without classes, no GPU is shared. elastic: speeds of jobs with other numbers of GPUs; without classes,
    all jobs are gangs. per_s: steps per second at speed 1, float64[n], or one number for all.
    """

    submit_s: Real
    gpus: Whole
    steps: Real
    throughput: Real
    queue: Whole
    weight: Real
    deadline_s: Real
    together: Flags
    sharing: Sharing = NO_SHARING
    elastic: Elastic = NOT_ELASTIC
    per_s: Real | float = 1.0

    def __len__(self) -> int:
        return int(self.submit_s.size)

    def of(self, jobs: Whole) -> Workload:
        """Return these jobs only, with new ids in this order."""
        sharing, elastic = self.sharing, self.elastic
        return Workload(
            self.submit_s[jobs],
            self.gpus[jobs],
            self.steps[jobs],
            self.throughput[jobs],
            self.queue[jobs],
            self.weight[jobs],
            self.deadline_s[jobs],
            self.together[jobs],
            Sharing(sharing.kind[jobs], sharing.kept) if sharing.kind.size else sharing,
            Elastic(elastic.kind[jobs], elastic.speed) if elastic.kind.size else elastic,
            np.full(len(self), self.per_s)[jobs],
        )


@dataclass(frozen=True, slots=True)
class Downtime:
    """m times during which a server is down. server: int64[m]. begin_s, end_s: s, float64[m]."""

    server: Whole
    begin_s: Real
    end_s: Real

    def changes(self) -> list[tuple[float, int, int]]:
        """Return (time in s, +1 if it fails or −1 if it returns, server), sorted by time."""
        fails = [(float(at), 1, int(server)) for at, server in zip(self.begin_s, self.server, strict=True)]
        backs = [(float(at), -1, int(server)) for at, server in zip(self.end_s, self.server, strict=True)]
        return sorted(fails + backs)


NEVER_DOWN = Downtime(np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of the simulation.

    round_s: length of a round, s. at_events: schedulers that support it also decide at arrivals, ends and
    faults; False: in rounds only. restart_s: time without progress after a job's servers changed, s: one
    number, or one for gangs of 1, 2, … GPUs, of which larger gangs take the last.
    checkpoint_s: work at speed 1 between two saves, s. A fault loses the work since the last one; a
    preemption saves.
    start_s: time without progress after a job's first start, s, in the form of restart_s. spread: standard
    deviation of the logarithm of a start or restart, which is drawn; 0: all are alike. leave_s: time until
    the processes of a job that lost its GPUs have ended, s, in the same form; whoever gets these GPUs waits
    for it before its start. end_s: time for which a job holds its GPUs after its work, s. sync_s: time of
    each round in which the copies of a forked job exchange what they learned, s.
    step_s: time of a training step at speed 1, s, float64[n], or one number for all. A start ends with a
    first step, and a job that is preempted finishes the step that it is in, which on average is half done:
    this work takes no time of its GPUs.
    cores: CPU cores of one machine that emulates all servers. Every process that starts or ends takes a core
    if it can, so they slow each other; infinite: they do not. gpu_cores: CPU quota of each process of a
    running job at speed 1, cores; starts and ends get what the running jobs leave. beside_starts: speed of
    running jobs while a process starts or ends, relative to their speed otherwise.
    """

    round_s: float = 360.0
    at_events: bool = True
    restart_s: float | tuple[float, ...] = 30.0
    checkpoint_s: float = 600.0
    start_s: float | tuple[float, ...] = 0.0
    sync_s: float = 10.0
    cores: float = np.inf
    gpu_cores: float = 0.0
    beside_starts: float = 1.0
    end_s: float = 0.0
    spread: float = 0.0
    leave_s: float | tuple[float, ...] = 0.0
    step_s: Real | float = 0.0

    def starts_s(self, again: Flags, gpus: Whole) -> Real:
        """Return the median time of each start, s, float64[n]. again: whether it is a restart; gpus: GPUs of
        each gang."""
        return np.where(again, of_gangs(self.restart_s, gpus), of_gangs(self.start_s, gpus))


def of_gangs(times_s: float | tuple[float, ...], gpus: Whole) -> Real:
    """Return the time of each gang, s, float64[n]. times_s: in the form of Timing.restart_s."""
    known = np.atleast_1d(times_s)
    own_s: Real = known[np.minimum(gpus, known.size) - 1]
    return own_s


@dataclass(frozen=True, slots=True)
class Series:
    """The queue at k moments.

    at_s: the moment, s, float64[k].
    waiting, running: number of jobs, int64[k].
    busy_gpus: GPUs that are held, int64[k].
    """

    at_s: Real
    waiting: Whole
    running: Whole
    busy_gpus: Whole


@dataclass(frozen=True, slots=True)
class Spans:
    """GPUs that jobs held over time. job, server, gpus: int64[k]. begin_s, end_s: s, float64[k]."""

    job: Whole
    server: Whole
    gpus: Whole
    begin_s: Real
    end_s: Real


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of n jobs on r types.

    end_s: end of the run, s.
    first_start_s, finish_s: s, NaN if it never happened, float64[n].
    held_s: time with GPUs, s, float64[n].
    held_gpu_s: GPU-seconds that the job had, float64[n]; a shared GPU counts half for each of its two jobs.
    preemptions: number of times that a job lost its GPUs before its end, faults included, int64[n].
    faulted: how often a fault took the job's GPUs, int64[n].
    restart_s: time with GPUs but without progress, s, float64[n].
    undone_s: time of work that faults undid, s, float64[n].
    undone_gpu_s: GPU-seconds of that work, float64[n]; a shared GPU counts half for each of its two jobs.
    left_steps: work that was not done, steps, float64[n].
    busy_gpu_s, restart_gpu_s, capacity_gpu_s: GPU-seconds of jobs that had their GPUs (restarts included), of
        restarts, and of servers that were up, by type, float64[r]. A shared GPU counts once.
    series: the queue over time.
    spans: GPUs that jobs held over time; None if there were too many jobs to keep them.
    remarks: the scheduler's remarks on its decisions.
    """

    end_s: float
    first_start_s: Real
    finish_s: Real
    held_s: Real
    held_gpu_s: Real
    preemptions: Whole
    faulted: Whole
    restart_s: Real
    undone_s: Real
    undone_gpu_s: Real
    left_steps: Real
    busy_gpu_s: Real
    restart_gpu_s: Real
    capacity_gpu_s: Real
    series: Series
    spans: Spans | None
    remarks: tuple[str, ...]
