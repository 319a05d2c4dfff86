"""Tiresias: the job with the least service runs first; service is discretised into queues (2D-LAS).

For: preemptive scheduling without knowledge of the jobs' durations. Service is GPUs × seconds run. Source:
the code of Tiresias' simulator (Gu et al., NSDI 2019; SymbioticLab, Apache-2.0): thresholds between queues,
first started first inside a queue, promotion of starved jobs. Readings of ours: the starvation knob's
default, and clusters of several types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import Any

import numpy as np

from control.scheduler.model import Assignment, Cluster, Real, State, Whole
from control.scheduler.placement import settle
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
    """Fills the GPUs queue by queue, skips jobs that do not fit, and preempts jobs of later queues."""

    at_events = True

    def __init__(self, cluster: Cluster, settings: TiresiasSettings) -> None:
        self._cluster, self._kinds, self._knob = cluster, cluster.server_type, settings.knob
        self._limits = np.append(settings.thresholds_gpu_s, np.inf)
        self._base = np.zeros((0, 2))
        """Service (GPU-s) and run time (s) of each job when it was last promoted, by id."""
        self._chosen, self._next_s = chosen, next_s

    def on_round(self, state: State) -> Assignment:
        """Return GPUs for the jobs of the first queues."""
        self._base = state.grown(self._base)
        wanted = self._chosen(
            state.now_s, state.job, state.by_arrival(), state.held.row, self._kinds[state.held.server],
            state.attained_gpu_s, state.ran_s, state.idle_since_s, state.first_start_s, state.gpus,
            state.throughput, self._limits, self._knob, self._base, self._cluster.capacity(state.up),
        )  # fmt: skip
        return settle(self._cluster, state, wanted)

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let a backend compile the loops over jobs."""
        self._chosen, self._next_s = compiler(chosen), compiler(next_s)

    def wake_s(self, state: State, given: Assignment) -> float:
        """Return the time at which the next running job drops a queue, or the next waiting job is promoted,
        s.
        """
        self._base = state.grown(self._base)
        wake_s: float = self._next_s(
            state.now_s, state.job, state.held.row, state.attained_gpu_s, state.ran_s, state.idle_since_s,
            self._limits, self._knob, self._base, given.row, state.starts_s, state.gpus,
        )  # fmt: skip
        return wake_s


def chosen(
    now_s: float,
    job: Whole,
    arrived: Whole,
    held: Whole,
    kinds: Whole,
    attained_gpu_s: Real,
    ran_s: Real,
    idle_since_s: Real,
    first_start_s: Real,
    gpus: Whole,
    throughput: Real,
    limits: Real,
    knob: float,
    base: Real,
    left: Whole,
) -> Whole:
    """Promote the starved jobs, and return the type for each job, −1 for none, int64[n].

    In the order of queues, first starts and arrivals, a job gets GPUs of the type on which it runs, else of
    the first type with enough idle GPUs, else of the first type with enough GPUs that no job before it has.
    So no job is preempted for another one that fits elsewhere, and a preempted job moves to another type if
    it fits there.

    arrived: rows in the order of arrival, int64[n]. held, kinds: rows that have GPUs now, and the types of
    these, int64[k]. limits: the thresholds and inf, GPU-s. base: service (GPU-s) and run time (s) of each job
    when it was last promoted, by id, float64[·, 2]; changed. left: GPUs that work, by type, int64[r];
    changed. The others are as in State.
    """
    n, idle = job.size, left.copy()
    on, wanted, queue = np.full(n, -1), np.full(n, -1), np.zeros(n, np.int64)
    for line in range(held.size):
        on[held[line]] = kinds[line]
    for row in range(n):
        if on[row] >= 0:
            idle[on[row]] -= gpus[row]
        attained = attained_gpu_s[row] - base[job[row], 0]
        if on[row] < 0 and knob > 0 and attained >= limits[0]:
            starved_s = idle_since_s[row] + knob * (ran_s[row] - base[job[row], 1])
            if starved_s <= now_s + 1e-6:
                base[job[row], 0], base[job[row], 1] = attained_gpu_s[row], ran_s[row]
                attained = 0.0
        while attained >= limits[queue[row]]:
            queue[row] += 1
    for level in range(limits.size):
        order = [
            (first_start_s[arrived[place]], place) for place in range(n) if queue[arrived[place]] == level
        ]
        # Only the first few jobs of a long queue get GPUs, so it is not sorted.
        heapify(order)
        while order and left.max() > 0:
            row = arrived[heappop(order)[1]]
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

    given: rows that have GPUs from now on, int64[k]. The others are as in `chosen` and State.
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
