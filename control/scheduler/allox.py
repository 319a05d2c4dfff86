"""AlloX: an exact assignment of waiting jobs to GPUs and to positions in the GPUs' queues.

For: the least mean completion time if types suit jobs differently. A job in the q-th position from the end of
a GPU's queue delays q jobs, itself included, by its run time. The assignment with the least sum of delays is
a minimum-cost matching, which scipy solves exactly. Only the first job of each GPU's queue starts, and no
running job is preempted. If several types have free GPUs, a matching takes time that grows with the cube of
the jobs that are matched, and memory that grows with the square. Not for: fairness. Source: Le et al.,
EuroSys 2020, as in Gavel's code (Narayanan et al., OSDI 2020), for jobs of one GPU.

Our readings: a gang's time counts once for each of its GPUs, and the gangs that are first in their queues
start in the order of that time, if they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from control.scheduler.model import Assignment, Cluster, Real, State, Whole
from control.scheduler.placement import Room, together_throughput
from control.scheduler.ports import Scheduler
from control.settings import check, parameter


@dataclass(frozen=True, slots=True)
class AlloxSettings:
    """Parameters of AlloX."""

    share: float = parameter(
        1.0,
        unit="1",
        why="share of the waiting jobs, longest waiting first, that is matched; Gavel's code takes all",
        low=0,
        high=1,
    )

    def __post_init__(self) -> None:
        check("allox", self)


class Allox(Scheduler):
    """Matches waiting jobs with free GPUs and starts the jobs that are first in their queues."""

    at_events = True

    def __init__(self, cluster: Cluster, settings: AlloxSettings) -> None:
        self._cluster, self._share = cluster, settings.share

    def on_round(self, state: State) -> Assignment:
        """Return the running jobs and the jobs that start."""
        room = Room(self._cluster, state)
        room.keep(state.held)
        waiting = state.waiting()
        free = np.array([room.free_of(kind) for kind in range(len(self._cluster.types))])
        most = self._cluster.capacity(state.up)
        # A gang that fits no type with working servers is not matched: it would keep a GPU for ever.
        able = ((together_throughput(state)[waiting] > 0) & (state.gpus[waiting, None] <= most)).any(axis=1)
        waiting = waiting[able]
        waiting = waiting[: max(int(self._share * waiting.size), int(free.sum()))]
        if waiting.size and free.any():
            rate = np.where(state.gpus[waiting, None] <= most, together_throughput(state)[waiting], 0.0)
            with np.errstate(divide="ignore"):
                time_s = state.left_steps[waiting, None] / rate * state.gpus[waiting, None]
            for place, kind in zip(*map(np.ndarray.tolist, first_in_line(time_s, free)), strict=True):
                room.place(int(waiting[place]), (kind,))
        return room.plan()


def first_in_line(time_s: Real, free: Whole) -> tuple[Whole, Whole]:
    """Return the jobs that are first in the queue of a GPU, shortest time first, and the types of these GPUs.

    time_s: run time of each job on each type, s, float64[n, r]; inf: cannot run. free: GPUs of each type,
    int64[r]. Equal GPUs have equally long queues in some best assignment, so the first n places of a type are
    enough: f in the last position of its f GPUs' queues, then f in the one before, and so on.
    """
    open_ = np.flatnonzero(free)
    # A job that can run on no free GPU would take the last place of one from a job that can.
    able = np.flatnonzero(np.isfinite(time_s[:, open_]).any(axis=1))
    jobs = able.size
    if open_.size == 1:  # The same as below: the shortest jobs are first.
        row, on, position = able, np.repeat(open_, jobs), np.ones(jobs, np.int64)
    else:
        # The matching is faster with longer jobs first.
        able = able[np.argsort(-time_s[able].take(open_, axis=1).min(axis=1), kind="stable")]
        row, on, position = matched(time_s[able].take(open_, axis=1), free[open_])
        row, on = able[row], open_[on]
    took_s = time_s[row, on]
    # The last position in the queue runs first. As many jobs of a type are first as it has GPUs.
    order = np.lexsort((row, took_s, -position, on))
    begins = np.flatnonzero(np.append(True, on[order][1:] != on[order][:-1])[: order.size])
    rank = np.arange(order.size) - np.repeat(begins, np.diff(np.append(begins, order.size)))
    first = order[rank < free[on[order]]]
    first = first[np.lexsort((row[first], took_s[first]))]
    return row[first], on[first]


def matched(time_s: Real, gpus: Whole) -> tuple[Whole, Whole, Whole]:
    """Return the job, the type and the position of each place in the least sum of delays, int64[n] each.

    time_s: run time of each job on each type, s, float64[n, r]; inf: cannot run, but each job can on some
    type. gpus: GPUs of each type, int64[r], above 0. A type first offers a few places more than its share. If
    a place stays free, dearer ones would, too. A type whose places are all taken offers twice as many.
    """
    jobs = len(time_s)
    most = np.minimum(jobs, 1.25 * jobs * gpus / gpus.sum() + gpus + 1).astype(np.int64)
    while True:
        kind = np.repeat(np.arange(gpus.size), most)
        position = 1 + np.concatenate([np.arange(n) // g for n, g in zip(most, gpus, strict=True)])
        costs = time_s.take(kind, axis=1)
        costs *= position
        try:
            row, column = scipy.optimize.linear_sum_assignment(costs)
        except ValueError:  # Some jobs find no place on the only types on which they run.
            most = np.minimum(jobs, 2 * most)
            continue
        short = (np.bincount(kind[column], minlength=gpus.size) == most) & (most < jobs)
        if not short.any():
            return row, kind[column], position[column]
        most = np.where(short, np.minimum(jobs, 2 * most), most)
