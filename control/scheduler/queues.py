"""Schedulers that keep an order of arrival: FIFO and capacity queues.

For: baselines. FIFO blind to types, FIFO that moves jobs to faster types and FIFO that packs are those of
Gavel's simulator (Narayanan et al., OSDI 2020, code). Capacity queues are a reading of Hadoop YARN's capacity
scheduler: a queue is guaranteed a share of the GPUs, borrows idle ones up to a limit, and the queue with the
least use relative to its share is next. With one queue, and jobs that must stay together, it is YARN-CS, the
baseline of Tiresias (Gu et al., NSDI 2019, its simulator).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from control.scheduler.model import Assignment, Cluster, State, Whole
from control.scheduler.placement import Room, held_type, settle, settled
from control.scheduler.ports import Scheduler

WORTH_PACKING = 1.5
"""Share of their speeds that two jobs must keep together to be packed: the threshold of Gavel's code."""


class Fifo(Scheduler):
    """First come, first served. fastest: take the fastest type that has room, not a random one. backfill:
    later jobs may pass one that does not fit. packed: the first job that does not fit may share the GPUs of
    another job."""

    at_events = True

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        *,
        fastest: bool = False,
        backfill: bool = False,
        packed: bool = False,
    ) -> None:
        self._cluster, self.fastest, self.backfill, self.packed = cluster, fastest, backfill, packed
        self.random = np.random.default_rng(seed)

    def on_round(self, state: State) -> Assignment:
        """Return the running jobs and the jobs that fit now, in the order of arrival."""
        waiting = state.waiting()
        if not waiting.size and not self.packed:
            return state.held
        room = Room(self._cluster, state)
        room.keep(state.held)
        placed = False
        while waiting.size:
            if not room.free.any():
                break
            row = int(waiting[0])
            if _place(room, state, row, self.random, fastest=self.fastest):
                waiting, placed = waiting[1:], True
            elif self.backfill:
                # A job with the same constraints that is as large does not fit either. A larger one may, if
                # it must stay together: no server may be large enough, and then it takes a rack's servers.
                able = state.throughput[:, :, 0] > 0
                alike = (able[waiting] <= able[row]).all(axis=1)
                if state.together[row]:
                    alike &= state.together[waiting] & (state.gpus[waiting] == state.gpus[row])
                else:
                    alike &= state.gpus[waiting] >= state.gpus[row]
                waiting = waiting[~alike]
            else:
                break
        if self.packed:
            return self._pack(room, state, waiting)
        return room.plan() if placed else state.held

    def _pack(self, room: Room, state: State, waiting: Whole) -> Assignment:
        """Return the plan in which waiting jobs share GPUs of the jobs with which they keep most of their
        speeds, in the order of arrival, until one finds none."""
        plan, pairs = room.plan(), state.held.shared.tolist()
        kind = held_type(self._cluster, replace(state, held=plan))
        alone = np.setdiff1d(plan.row, state.held.shared)
        for row in waiting.tolist() if state.sharing.kept.size else ():
            fits = (state.gpus[alone] == state.gpus[row]) & (state.together[alone] >= state.together[row])
            others = alone[fits & (state.throughput[row, kind[alone], 0] > 0)]
            jobs, on = state.job[others], (np.arange(others.size), kind[others])
            mine = state.sharing.of(np.full_like(jobs, state.job[row]), jobs)[on]
            its = state.sharing.of(jobs, np.full_like(jobs, state.job[row]))[on]
            kept = np.where((mine > 0) & (its > 0), mine + its, 0.0)
            if not (kept >= WORTH_PACKING).any():
                break
            other = int(others[np.lexsort((jobs, -kept))[0]])
            lines = plan.row == other
            room.share(row, (plan.server[lines], plan.gpus[lines]))
            pairs.append([other, row])
            alone = alone[alone != other]
        plan = room.plan()
        return Assignment(plan.row, plan.server, plan.gpus, np.array(pairs, np.int64).reshape(-1, 2))


class FifoMoving(Scheduler):
    """First come, first served, decided anew each time: in the order of arrival, each job gets the fastest
    type that has GPUs left. A running job moves when a faster type becomes free."""

    at_events = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._settled = cluster, settled

    def on_round(self, state: State) -> Assignment:
        """Return the jobs up to the first one for which no type has enough GPUs left."""
        wanted, left = np.full(len(state), -1), self._cluster.capacity(state.up)
        for row in state.by_arrival().tolist():
            rates = np.where(left >= state.gpus[row], state.throughput[row, :, 0], 0.0)
            kind = int(rates.argmax())
            if rates[kind] <= 0:
                break
            wanted[row] = kind
            left[kind] -= state.gpus[row]
        return settle(self._cluster, state, wanted, self._settled)

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let the loop that places jobs be compiled."""
        self._settled = compiler(settled)


class Yarn(Scheduler):
    """Capacity queues, first come, first served inside each. The head of a queue blocks the queue."""

    at_events = True

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = np.random.default_rng(seed)

    def on_round(self, state: State) -> Assignment:
        """Return the running jobs and the heads of queues that fit now."""
        running, waiting = state.running(), state.waiting()
        if not waiting.size:
            return state.held
        room = Room(self._cluster, state)
        room.keep(state.held)
        queues = self._cluster.queue_share.size
        used = np.bincount(state.queue[running], state.gpus[running], queues)
        most = self._cluster.queue_most * self._cluster.capacity(state.up).sum()
        share = np.maximum(self._cluster.queue_share, 1e-9)
        waiting = waiting[np.argsort(state.queue[waiting], kind="stable")]
        names, begins = np.unique(state.queue[waiting], return_index=True)
        ends = dict(zip(names.tolist(), [*begins[1:].tolist(), waiting.size], strict=True))
        free, gpus = int(room.free.sum()), state.gpus
        heads = list(zip((used / share)[names].tolist(), names.tolist(), begins.tolist(), strict=True))
        heapq.heapify(heads)
        while heads and free:
            _, queue, place = heapq.heappop(heads)
            row = int(waiting[place])
            allowed = gpus[row] <= free and used[queue] + gpus[row] <= most[queue] + 1e-9
            if allowed and _place(room, state, row, self._random, fastest=False):
                used[queue] += gpus[row]
                free -= int(gpus[row])
                if place + 1 < ends[queue]:
                    heapq.heappush(heads, (float(used[queue] / share[queue]), queue, place + 1))
        return room.plan()


def _place(room: Room, state: State, row: int, random: np.random.Generator, *, fastest: bool) -> bool:
    """Give the job GPUs of one of the types where it fits now. Return whether there was one."""
    rates = state.throughput[row, :, 0]
    kinds = np.flatnonzero(rates > 0)
    found = {kind: lines for kind in kinds.tolist() if (lines := room.find(row, kind)) is not None}
    if not found:
        return False
    able = list(found)
    kind = max(able, key=lambda one: rates[one]) if fastest else able[int(random.integers(len(able)))]
    room.take(row, found[kind])
    return True
