"""Schedulers that keep an order of arrival and never preempt: FIFO and capacity queues.

For: baselines. FIFO blind to types and FIFO that takes the fastest type are those of Gavel's simulator
(Narayanan et al., OSDI 2020, code). Capacity queues are a reading of Hadoop YARN's capacity scheduler: a
queue is guaranteed a share of the GPUs, borrows idle ones up to a limit, and the queue with the least use
relative to its share is next. Without queues it is YARN-CS, the baseline of Tiresias (Gu et al., NSDI 2019,
its simulator): a gang waits until it fits together.
"""

from __future__ import annotations

import numpy as np

from control.scheduler.model import Assignment, Cluster, State
from control.scheduler.placement import Room
from control.scheduler.ports import Scheduler


class Fifo(Scheduler):
    """First come, first served. fastest: take the fastest type that has room, not a random one. backfill:
    later jobs may pass one that does not fit."""

    at_events = True

    def __init__(self, cluster: Cluster, seed: int, *, fastest: bool = False, backfill: bool = False) -> None:
        self._cluster, self._fastest, self._backfill = cluster, fastest, backfill
        self._random = np.random.default_rng(seed)

    def on_round(self, state: State) -> Assignment:
        """Return the running jobs and the jobs that fit now, in the order of arrival."""
        running = state.running()
        room = Room(self._cluster, state)
        room.keep(running)
        order = state.by_arrival()
        waiting = order[~running[order]]
        while waiting.size:
            if not room.free.any():
                break
            row = int(waiting[0])
            if _place(room, state, row, self._random, fastest=self._fastest):
                waiting = waiting[1:]
            elif self._backfill:
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
        return room.plan()


class Yarn(Scheduler):
    """Capacity queues, first come, first served inside each. The head of a queue blocks the queue."""

    at_events = True

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = np.random.default_rng(seed)

    def on_round(self, state: State) -> Assignment:
        """Return the running jobs and the heads of queues that fit now."""
        running = state.running()
        room = Room(self._cluster, state)
        room.keep(running)
        queues = self._cluster.queue_share.size
        used = np.bincount(state.queue[running], state.gpus[running], queues)
        most = self._cluster.queue_most * self._cluster.capacity(state.up).sum()
        share = np.maximum(self._cluster.queue_share, 1e-9).tolist()
        order = state.by_arrival()
        waiting = order[~running[order]]
        heads = {queue: waiting[state.queue[waiting] == queue] for queue in range(queues)}
        heads = {queue: rows for queue, rows in heads.items() if rows.size}
        while heads and room.free.any():
            queue = min(heads, key=lambda one: (float(used[one]) / share[one], one))
            row = int(heads[queue][0])
            allowed = used[queue] + state.gpus[row] <= most[queue] + 1e-9
            if not (allowed and _place(room, state, row, self._random, fastest=False)):
                del heads[queue]
                continue
            used[queue] += state.gpus[row]
            heads[queue] = heads[queue][1:]
            if not heads[queue].size:
                del heads[queue]
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
