"""Checks every answer of a scheduler against the cluster: whole gangs, no GPU twice.

For: checks of shipped schedulers and the user's own. Not for: the quality of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from control.scheduler.model import Assignment, Cluster, State
from control.scheduler.ports import Scheduler
from lab.check.driven_fleet import BrokenPromiseError


def require_possible(
    cluster: Cluster,
    state: State,
    given: Assignment,
    *,
    mixes_types: bool,
    forks: bool = False,
    elastic: bool = False,
) -> None:
    """Raise BrokenPromiseError if the cluster cannot carry out an answer to a state."""
    row, server, gpus = given.row, given.server, given.gpus
    if not row.size:
        return
    where = f"at {state.now_s:.0f} s: "
    if min(row.min(), server.min()) < 0 or row.max() >= len(state) or server.max() >= state.up.size:
        raise BrokenPromiseError(f"{where}it names a job or a server that is not there")
    if (gpus <= 0).any():
        raise BrokenPromiseError(f"{where}a line has no GPU")
    _require_pairs(cluster, state, given, where)
    counted = given.counted()
    used = np.bincount(server[counted], gpus[counted], state.up.size)
    there = np.where(state.up, cluster.server_gpus, 0)
    if (used > there).any():
        over = int(np.argmax(used - there))
        raise BrokenPromiseError(f"{where}{used[over]:.0f} GPUs of server {over}, which has {there[over]}")
    got = np.bincount(row, gpus, len(state))
    forked = (got > state.gpus) & forks
    if (gpus != state.gpus[row])[forked[row]].any():
        raise BrokenPromiseError(f"{where}a copy of a gang is not whole on one server")
    got = np.where(forked, state.gpus, got)
    able = (state.elastic.of(state.job) >= 0) & (got <= state.elastic.most) & elastic
    got = np.where(able & (got > 0), state.gpus, got)
    if ((got != 0) & (got != state.gpus)).any():
        raise BrokenPromiseError(f"{where}a gang has too few or too many GPUs")
    types = cluster.server_type[server]
    if (state.throughput[row, types, 0] <= 0).any():
        raise BrokenPromiseError(f"{where}a job has GPUs of a type on which it cannot run")
    if not mixes_types and np.unique(np.stack([row, types]), axis=1).shape[1] > np.unique(row).size:
        raise BrokenPromiseError(f"{where}a gang is on two types, and mixes_types is False")


def _require_pairs(cluster: Cluster, state: State, given: Assignment, where: str) -> None:
    """Raise BrokenPromiseError for two jobs that cannot share their GPUs."""
    if given.shared.size and not state.sharing.kept.size:
        raise BrokenPromiseError(f"{where}two jobs share GPUs, but their shared speed is not known")
    if np.unique(given.shared).size < given.shared.size:
        raise BrokenPromiseError(f"{where}a job shares its GPUs with more than one other")
    for pair in given.shared.tolist():
        first, second = (np.column_stack((given.server, given.gpus))[given.row == row] for row in pair)
        if not first.size or not np.array_equal(first, second):
            raise BrokenPromiseError(f"{where}two jobs that share GPUs do not have the same ones")
        jobs = state.job[pair]
        kept = state.sharing.of(jobs, jobs[::-1])[:, cluster.server_type[first[0, 0]]]
        if (kept <= 0).any():
            raise BrokenPromiseError(f"{where}two jobs share GPUs on which they cannot")


def _in_order(given: Assignment) -> Assignment:
    """Return the answer sorted by job and server, with one line for a job's GPUs on a server."""
    if (given.gpus <= 0).any():  # `require_possible` refuses it.
        return given
    lines, of = np.unique(np.column_stack((given.row, given.server)), axis=0, return_inverse=True)
    gpus = np.bincount(of.ravel(), given.gpus, len(lines)).astype(np.int64)
    return Assignment(lines[:, 0], lines[:, 1], gpus, given.shared)


class WatchedScheduler(Scheduler):
    """A scheduler whose answers are checked before the backend has them."""

    def __init__(self, cluster: Cluster, inner: Scheduler) -> None:
        self._cluster, self._inner = cluster, inner
        self.at_events, self.mixes_types = inner.at_events, inner.mixes_types  # type: ignore[misc]
        self.forks = getattr(inner, "forks", False)  # type: ignore[misc]
        self.elastic = getattr(inner, "elastic", False)  # type: ignore[misc]

    def on_round(self, state: State) -> Assignment:
        """Return the scheduler's answer, sorted as backends need it. Raises BrokenPromiseError."""
        # A user's scheduler may keep its states, whose columns would otherwise be read later.
        state = replace(state)
        given = _in_order(self._inner.on_round(state))
        require_possible(
            self._cluster,
            state,
            given,
            mixes_types=self.mixes_types,
            forks=self.forks,
            elastic=self.elastic,
        )
        return given

    def wake_s(self, state: State, given: Assignment) -> float:
        """Return the scheduler's latest time of its next call, s."""
        return self._inner.wake_s(replace(state), given)

    def remarks(self) -> Sequence[str]:
        """Return the scheduler's remarks."""
        return self._inner.remarks() if hasattr(self._inner, "remarks") else ()
