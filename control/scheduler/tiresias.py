"""Tiresias: the job with the least service runs first; service is discretised into queues (2D-LAS).

For: preemptive scheduling without knowledge of the jobs' durations. Service is GPUs × seconds run. Source:
the code of Tiresias' simulator (Gu et al., NSDI 2019; SymbioticLab, Apache-2.0): thresholds between queues,
first started first inside a queue, promotion of starved jobs. Readings of ours: the starvation knob's
default, and clusters of several types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from control.scheduler.model import Assignment, Cluster, Flags, Real, State, Whole
from control.scheduler.placement import settle, settled
from control.scheduler.ports import Scheduler
from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class TiresiasSettings:
    """Parameters of Tiresias. Raises ScenarioError for thresholds that do not rise."""

    thresholds_gpu_s: tuple[float, ...] = parameter(
        (3600.0,),
        unit="GPU-s",
        why="two queues with this threshold do nearly as well as more, says the source; without a threshold "
        "there is one queue",
        low=1e-9,
    )
    knob: float = parameter(
        8.0,
        unit="1",
        why="a job is promoted after waiting this multiple of its run time; 0: never. A reading",
        low=0,
    )

    def __post_init__(self) -> None:
        check("tiresias", self)
        if list(self.thresholds_gpu_s) != sorted(set(self.thresholds_gpu_s)):
            raise ScenarioError("tiresias.thresholds_gpu_s: each threshold must be above the one before")


class Tiresias(Scheduler):
    """Fills the GPUs queue by queue, skips jobs that do not fit, and preempts jobs of later queues.

    knob: as in the settings. limits: the thresholds and inf, GPU-s, float64[queues].
    """

    at_events = True

    def __init__(self, cluster: Cluster, settings: TiresiasSettings) -> None:
        self._cluster, self.knob = cluster, settings.knob
        self.limits = np.append(settings.thresholds_gpu_s, np.inf)
        self._base = np.zeros((0, 2))
        """Service (GPU-s) and run time (s) of each job when it was last promoted, by id."""
        self._queued, self._chosen = queued, chosen
        self._next_s, self._settled = next_s, settled

    def on_round(self, state: State) -> Assignment:
        """Return GPUs for the jobs of the first queues."""
        self._base = state.grown(self._base)
        held, where = state.held, self._cluster
        queue = self._queued(
            state.now_s, state.job, held.row, state.attained_gpu_s, state.ran_s, state.idle_since_s,
            self.limits, self.knob, self._base,
        )  # fmt: skip
        wanted = self._chosen(
            queue, self.limits.size, state.by_arrival(), held.row, held.server, state.first_start_s,
            state.gpus, state.throughput, state.up, where.server_gpus, where.server_type, len(where.types),
        )  # fmt: skip
        return settle(self._cluster, state, wanted, self._settled)

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let a backend compile the loops over jobs."""
        self._queued, self._chosen = compiler(queued), compiler(chosen)
        self._next_s, self._settled = compiler(next_s), compiler(settled)

    def wake_s(self, state: State, given: Assignment) -> float:
        """Return when the next running job drops a queue, or the next waiting job is promoted, s."""
        self._base = state.grown(self._base)
        wake_s: float = self._next_s(
            state.now_s, state.job, state.held.row, state.attained_gpu_s, state.ran_s, state.idle_since_s,
            self.limits, self.knob, self._base, given.row, state.starts_s, state.gpus,
        )  # fmt: skip
        return wake_s


def queued(
    now_s: float,
    job: Whole,
    held: Whole,
    attained_gpu_s: Real,
    ran_s: Real,
    idle_since_s: Real,
    limits: Real,
    knob: float,
    base: Real,
) -> Whole:
    """Promote the starved jobs, and return the queue of each job, int64[n].

    held: rows that have GPUs now, int64[k]. limits: the thresholds and inf, GPU-s. base: service (GPU-s) and
    run time (s) of each job when it was last promoted, by id, float64[·, 2]; changed. The others are as in
    State.
    """
    queue, had = np.zeros(job.size, np.int64), np.zeros(job.size, np.bool_)
    had[held] = True
    for row in range(job.size):
        attained = attained_gpu_s[row] - base[job[row], 0]
        if not had[row] and knob > 0 and attained >= limits[0]:
            starved_s = idle_since_s[row] + knob * (ran_s[row] - base[job[row], 1])
            if starved_s <= now_s + 1e-6:
                base[job[row], 0], base[job[row], 1] = attained_gpu_s[row], ran_s[row]
                attained = 0.0
        while attained >= limits[queue[row]]:
            queue[row] += 1
    return queue


def chosen(
    queue: Whole,
    queues: int,
    arrived: Whole,
    held_row: Whole,
    held_server: Whole,
    first_start_s: Real,
    gpus: Whole,
    throughput: Real,
    up: Flags,
    server_gpus: Whole,
    server_type: Whole,
    types: int,
) -> Whole:
    """Return the type for each job, −1 for none, int64[n].

    In the order of queues, first starts and arrivals, a job gets GPUs of the type on which it runs, else of
    the first type with enough idle GPUs, else of the first type with enough GPUs that no job before it has.
    So no job is preempted for another one that fits elsewhere, and a preempted job moves to another type if
    it fits there.

    queue: queue of each job, below `queues`, int64[n]. arrived: rows in the order of arrival, int64[n].
    types: number of types. The others are fields of State and Cluster.
    """
    left, heap = np.zeros(types, np.int64), np.empty(queue.size, np.int64)
    for server in range(up.size):
        if up[server]:
            left[server_type[server]] += server_gpus[server]
    idle, on, wanted = left.copy(), np.full(queue.size, -1), np.full(queue.size, -1)
    for line in range(held_row.size):
        on[held_row[line]] = server_type[held_server[line]]
    for row in range(queue.size):
        if on[row] >= 0:
            idle[on[row]] -= gpus[row]
    for level in range(queues):
        # Only the first few jobs of a long queue get GPUs, so it is a heap, by first start and arrival.
        size = 0
        for place in range(queue.size):
            if queue[arrived[place]] == level:
                heap[size] = place
                size += 1
        unordered = size // 2
        while size and left.max() > 0:
            row = -1
            if unordered:
                unordered -= 1
            else:
                row, size = arrived[heap[0]], size - 1
                heap[0] = heap[size]
            top, down = unordered, 2 * unordered + 1
            while down < size:
                first_s = first_start_s[arrived[heap[down]]]
                if down + 1 < size:
                    other_s = first_start_s[arrived[heap[down + 1]]]
                    if other_s < first_s or (other_s == first_s and heap[down + 1] < heap[down]):
                        down, first_s = down + 1, other_s
                top_s = first_start_s[arrived[heap[top]]]
                if top_s < first_s or (top_s == first_s and heap[top] < heap[down]):
                    break
                heap[top], heap[down] = heap[down], heap[top]
                top, down = down, 2 * down + 1
            if row < 0:
                continue
            asks, own = gpus[row], on[row]
            if own < 0 or throughput[row, own, 0] <= 0 or left[own] < asks:
                if own >= 0:
                    idle[own] += asks
                own = -1
                for kind in range(left.size):
                    if throughput[row, kind, 0] > 0 and left[kind] >= asks:
                        if idle[kind] >= asks:
                            own = kind
                            break
                        if own < 0:
                            own = kind
                if own < 0:
                    continue
                idle[own] -= asks
            wanted[row] = own
            left[own] -= asks
    return wanted


def next_s(
    now_s: float,
    job: Whole,
    held: Whole,
    attained_gpu_s: Real,
    ran_s: Real,
    idle_since_s: Real,
    limits: Real,
    knob: float,
    base: Real,
    given: Whole,
    starts_s: Real,
    gpus: Whole,
) -> float:
    """Return the time at which the next running job drops a queue, or the next waiting job is promoted, s.

    given: rows that have GPUs from now on, int64[k]. The others are as in `queued` and State.
    """
    had, runs = np.zeros(job.size, np.bool_), np.zeros(job.size, np.bool_)
    had[held] = True
    runs[given] = True
    drop_s, promotion_s = np.inf, np.inf
    for row in range(job.size):
        attained = attained_gpu_s[row] - base[job[row], 0]
        if runs[row]:
            queue = 0
            while attained >= limits[queue]:
                queue += 1
            # Slightly later, so that rounding cannot repeat the same moment.
            drop_s = min(drop_s, starts_s[row] + (limits[queue] - attained) / gpus[row] + 1e-5)
        elif knob > 0 and attained >= limits[0]:
            since_s = now_s if had[row] else idle_since_s[row]
            promotion_s = min(promotion_s, since_s + knob * (ran_s[row] - base[job[row], 1]))
    return min(now_s + drop_s, promotion_s)
