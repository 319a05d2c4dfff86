"""Input and output of a scheduler: servers with GPUs of some types, jobs as arrays, and the GPUs that jobs
hold.

For: the terms of control.scheduler and of the backends that carry its answers out. Not for: deciding. Jobs
are structures of arrays: one array per quantity over the n jobs that were submitted and have not finished. A
job is a gang: it runs on all of its GPUs or not at all. Two gangs may share the same GPUs if `Sharing` gives
their speeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The h servers, their r GPU types and the q queues.

    types: names of the types.
    server_type: type of each server, int64[h].
    server_gpus: GPUs of each server, int64[h].
    rack: rack of each server, int64[h].
    price_usd_h: price of a GPU-hour by type, US$, float64[r].
    queue_share: share of all GPUs that each queue is guaranteed, float64[q].
    queue_most: largest share of all GPUs that each queue may use, float64[q]. Copies of forked jobs do not
        count.
    of_type: servers of each type; made from server_type.
    """

    types: tuple[str, ...]
    server_type: Whole
    server_gpus: Whole
    rack: Whole
    price_usd_h: Real
    queue_share: Real
    queue_most: Real
    of_type: tuple[Whole, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        servers = tuple(np.flatnonzero(self.server_type == kind) for kind in range(len(self.types)))
        object.__setattr__(self, "of_type", servers)

    def capacity(self, up: Flags) -> Whole:
        """Return the GPUs of each type on servers that are up, int64[r]. up: bool[h]."""
        gpus = np.where(up, self.server_gpus, 0)
        return np.bincount(self.server_type, gpus, len(self.types)).astype(np.int64)


_EMPTY = np.empty(0, np.int64)
_NO_PAIRS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class Assignment:
    """GPUs of jobs, in k lines, one for each job on each of its servers.

    row: row of the job in the state, int64[k].
    server: the server, int64[k].
    gpus: number of its GPUs, int64[k], above 0.
    shared: rows of the p pairs of jobs that share their GPUs, int64[p, 2]. The two have the same lines, and
        no job is in two pairs.
    """

    row: Whole
    server: Whole
    gpus: Whole
    shared: Whole = field(default_factory=lambda: _NO_PAIRS)

    def of(self, rows: Flags) -> Assignment:
        """Return the lines of these jobs. rows: bool[n]."""
        kept = rows[self.row]
        pairs = self.shared[rows[self.shared].all(axis=1)]
        return Assignment(self.row[kept], self.server[kept], self.gpus[kept], pairs)

    def counted(self) -> Flags:
        """Return a mask of the lines without those of the second job of each pair, bool[k]. Their GPUs are
        then not shared."""
        if not self.shared.size:
            return np.ones(self.row.size, np.bool_)
        return ~np.isin(self.row, self.shared[:, 1])


@dataclass(frozen=True, slots=True)
class Sharing:
    """Speeds of two jobs that share their GPUs, by class of job.

    kind: class of each job by its id, int64[jobs]. kept: share of its own speed that a job of class a keeps
    beside one of class b on type j, float64[a, b, j]; 0: the two cannot share GPUs of the type.
    """

    kind: Whole
    kept: Real

    def of(self, job: Whole, other: Whole) -> Real:
        """Return the share of its speed that each job keeps beside the other, by type, float64[jobs, r]."""
        kept: Real = self.kept[self.kind[job], self.kind[other]]
        return kept


@dataclass(frozen=True, slots=True)
class Elastic:
    """Speeds of jobs whose number of GPUs may change, by class of job.

    kind: class of each job by its id, −1 for a gang that cannot change, int64[jobs]. speed: goodput with 0 to
    m GPUs, on as few servers as possible and on several, in any unit of the class, float64[c, 2, m + 1].
    """

    kind: Whole
    speed: Real

    @property
    def most(self) -> int:
        """Largest number of GPUs for which a speed is known, 0 without a class."""
        return max(int(self.speed.shape[2]) - 1, 0)

    def of(self, jobs: Whole) -> Whole:
        """Return the class of each job, −1 for none, int64[·]."""
        return self.kind[jobs] if self.kind.size else np.full(jobs.shape, -1)

    def speed_up(self, jobs: Whole, gang: Whole, gpus: Whole, spread: Whole) -> Real:
        """Return the speed with these GPUs relative to that of the gang together. The arguments broadcast.

        spread: 1 for several servers. A gang that cannot change has 1 with its GPUs, else 0.
        """
        whole = np.asarray(gpus == gang, np.float64)
        if not self.speed.size:
            return whole
        kind = self.of(jobs)
        own = self.speed[kind, 0, np.minimum(gang, self.most)]
        fast = np.where(gpus <= self.most, self.speed[kind, spread, np.minimum(gpus, self.most)], 0.0)
        return np.where(kind < 0, whole, fast / np.where(own > 0, own, 1.0))


NOT_ELASTIC = Elastic(_EMPTY, np.empty((0, 2, 0)))
NO_SHARING = Sharing(_EMPTY, np.empty((0, 0, 0)))
NOTHING = Assignment(_EMPTY, _EMPTY, _EMPTY)


@dataclass(frozen=True, slots=True)
class State:
    """The n jobs that are present at a moment, and the servers that work.

    now_s: the moment, s since the first submission.
    up: whether each server works, bool[h].
    job: id of each job, a small whole number, int64[n]. Ties in time are broken by it.
    submit_s: time of submission, s, float64[n].
    gpus: GPUs of the gang, int64[n].
    queue: its queue, int64[n].
    weight: its weight in fair shares, float64[n].
    deadline_s: time by which the job should finish, s, inf without a deadline, float64[n].
    left_steps: steps still to do, float64[n].
    total_steps: steps of the whole job, float64[n].
    throughput: steps per second of the gang on each type, float64[n, r, 2]; the last axis is: on as few
        servers as possible, spread over more. 0: the job cannot run on the type.
    together: whether the job may only run on as few servers as possible, bool[n].
    attained_gpu_s: GPU-seconds in which it made progress, float64[n].
    ran_s: seconds in which it made progress, float64[n].
    first_start_s: time at which it first had GPUs, s, inf if never, float64[n].
    idle_since_s: time at which it last lost its GPUs or was submitted, s, float64[n].
    starts_s: time until a job that has GPUs makes progress, as far as it is known, s, float64[n].
    held: the GPUs that jobs have now.
    sharing: speeds of two jobs on the same GPUs, by the jobs' ids; without classes, no GPU is shared.
    elastic: speeds of jobs with other numbers of GPUs, by the jobs' ids; without classes, all jobs are gangs.
    """

    now_s: float
    up: Flags
    job: Whole
    submit_s: Real
    gpus: Whole
    queue: Whole
    weight: Real
    deadline_s: Real
    left_steps: Real
    total_steps: Real
    throughput: Real
    together: Flags
    attained_gpu_s: Real
    ran_s: Real
    first_start_s: Real
    idle_since_s: Real
    starts_s: Real
    held: Assignment
    sharing: Sharing = NO_SHARING
    elastic: Elastic = NOT_ELASTIC

    def __len__(self) -> int:
        return int(self.job.size)

    def running(self) -> Flags:
        """Return the jobs that have GPUs now, bool[n]."""
        flags = np.zeros(len(self), np.bool_)
        flags[self.held.row] = True
        return flags

    def by_arrival(self) -> Whole:
        """Return the rows in the order of arrival, int64[n]."""
        return np.lexsort((self.job, self.submit_s))

    def waiting(self) -> Whole:
        """Return the rows of the jobs without GPUs in the order of arrival, int64[·]."""
        order = self.by_arrival()
        return order[~self.running()[order]]

    def grown(self, values: Real, fill: float = 0.0) -> Real:
        """Return a scheduler's values by job id, with room for all present jobs; new places hold `fill`."""
        missing = int(self.job.max(initial=-1)) + 1 - len(values)
        if missing <= 0:
            return values
        # The array doubles, so that jobs that arrive one by one rarely copy it.
        return np.concatenate((values, np.full((missing + len(values), *values.shape[1:]), fill)))
