"""Quotas of queues, put before a scheduler that has none.

For: limiting the GPUs that the jobs of a queue hold together. Jobs are admitted in the order of their arrival
while the queue's quota has room for them, as in Kubernetes' Kueue. The scheduler sees only admitted jobs. An
admitted job stays admitted until it ends, even while it waits. A job that does not fit blocks those behind it
in its queue. A queue that may use all GPUs has no quota, and its jobs are admitted at once. Not for:
guarantees, which `yarn` has, nor copies of a job on further servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from control.scheduler.model import Assignment, Cluster, State, Whole
from control.scheduler.ports import Scheduler


class Quotas(Scheduler):
    """A scheduler whose queues have quotas."""

    def __init__(self, cluster: Cluster, inner: Scheduler) -> None:
        self._cluster, self._inner = cluster, inner
        self.at_events, self.mixes_types, self.forks = (  # type: ignore[misc]
            inner.at_events,
            inner.mixes_types,
            inner.forks,
        )
        self._admitted = np.zeros(0)
        """1 for each job that was admitted, by id."""

    def on_round(self, state: State) -> Assignment:
        """Return the GPUs of the admitted jobs."""
        rows = self._rows(state)
        given = self._inner.on_round(_of(state, rows))
        return Assignment(rows[given.row], given.server, given.gpus, rows[given.shared])

    def wake_s(self, state: State, given: Assignment) -> float:
        """Return the latest time of the scheduler's next call, s."""
        rows = self._rows(state)
        place = np.full(len(state), -1)
        place[rows] = np.arange(rows.size)
        inside = Assignment(place[given.row], given.server, given.gpus, place[given.shared])
        return self._inner.wake_s(_of(state, rows), inside)

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let a backend compile the scheduler's functions."""
        self._inner.compile(compiler)

    def remarks(self) -> Sequence[str]:
        """Return the scheduler's remarks."""
        return self._inner.remarks()

    def _rows(self, state: State) -> Whole:
        """Admit the jobs that fit the quotas. Return the rows of all admitted jobs, int64[·]."""
        most = self._cluster.queue_most
        self._admitted = state.grown(self._admitted)
        admitted = (self._admitted[state.job] > 0) | (most[state.queue] >= 1)
        used = np.bincount(state.queue[admitted], state.gpus[admitted], most.size)
        room = np.floor(most * self._cluster.server_gpus.sum() + 1e-9) - used
        order = state.by_arrival()
        waiting = order[~admitted[order]]
        waiting = waiting[np.argsort(state.queue[waiting], kind="stable")]
        queue, gpus = state.queue[waiting], state.gpus[waiting]
        reached = np.cumsum(gpus)
        before = (reached - gpus)[np.searchsorted(queue, queue)]
        admitted[waiting[reached - before <= room[queue]]] = True
        self._admitted[state.job[admitted]] = 1.0
        return np.flatnonzero(admitted)


_WHOLE = ("now_s", "up", "held", "sharing", "elastic")
_BY_JOB = tuple(spec.name for spec in fields(State) if spec.name not in _WHOLE)
"""Fields of a state that have one value per job."""


def _of(state: State, rows: Whole) -> State:
    """Return the state restricted to these jobs. All jobs that hold GPUs are among them."""
    place = np.full(len(state), -1)
    place[rows] = np.arange(rows.size)
    held = state.held
    inside = Assignment(place[held.row], held.server, held.gpus, place[held.shared])
    return replace(state, held=inside, **{name: getattr(state, name)[rows] for name in _BY_JOB})
