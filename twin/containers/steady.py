"""Replays containers under limits that never change, from a history that is coarser than a period.

For: the effect of requests and limits on many containers over many days, without competition for CPUs. Not
for: policies that change limits, nor hosts that containers share (steady_hosts.py). An interval is refined
while it is replayed, with one of a few shapes of bursts whose mean is one, so that memory does not grow with
its length. Intervals without possible events are skipped in one step, and so are those in which a container
cannot catch up. The others are stepped period by period, by the same rules as in cfs.py and memory.py: work
arrives evenly, a killed container waits as in starting.BackOff, and work that arrives meanwhile joins its
backlog.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.backoff import RESET_S, wait_s
from twin.containers.cfs import NANOSECOND
from twin.containers.compiled import compiled, released
from twin.containers.model import Floats, Machine
from twinbed import InvariantError

_PIECES = 8
"""Number of parts into which each worker's containers are divided, so that all workers end at about the same
time."""

NO_BYTES = (1 << 63) - 1
"""No memory limit."""

_wait_s = compiled(wait_s)


@dataclass(frozen=True, slots=True)
class Load:
    """The recorded demand of containers, by interval. Arrays are [N, T], one row per container.

    cores: mean demand, cores. memory_bytes: memory at the interval's end, int64. present: whether it ran.
    interval_s: length of an interval, s. bursts: float64[K, P], shapes of P periods with mean one.
    shape: uint8[N, T], index of each interval's shape.
    """

    cores: Floats
    memory_bytes: NDArray[np.int64]
    present: NDArray[np.bool_]
    interval_s: float
    bursts: Floats
    shape: NDArray[np.uint8]

    @property
    def period_s(self) -> float:
        """The CFS period, s."""
        return self.interval_s / int(self.bursts.shape[1])


class Lived(NamedTuple):
    """Results of the containers, [N] arrays.

    periods: periods with demand, as nr_periods of cpu.stat. throttled: periods in which the quota ran out.
    arrived_s, late_s: CPU work that arrived, and that was not done in its period, s.
    oom_events: times that the container met its memory limit. restarts: number of restarts.
    """

    periods: NDArray[np.int64]
    throttled: NDArray[np.int64]
    arrived_s: Floats
    late_s: Floats
    oom_events: NDArray[np.int64]
    restarts: NDArray[np.int64]


def live(load: Load, quota_cores: Floats, limit_bytes: NDArray[np.int64], machine: Machine) -> Lived:
    """Return the results of containers with quotas (float64[N], cores; inf: none) and limits (int64[N],
    bytes).

    Raises InvariantError for arrays that do not match and for a quota that is not above zero.
    """
    count, lived = len(load.cores), nothing_yet(load, quota_cores, limit_bytes)
    peaks = load.bursts.max(axis=1)
    cap = most_cores(load, peaks)
    workers = min(os.cpu_count() or 1, max(count, 1))

    def some(first: int, last: int) -> None:
        rows = slice(first, last)
        _live(
            load.cores[rows],
            load.memory_bytes[rows],
            load.present[rows],
            load.bursts,
            peaks,
            load.shape[rows],
            load.period_s,
            cap[rows],
            quota_cores[rows],
            limit_bytes[rows],
            machine.restart_s,
            machine.burst_s,
            Lived._make(values[rows] for values in lived),
        )

    edges = np.linspace(0, count, _PIECES * workers + 1).astype(int) if count > 1 else np.array([0, count])
    pool = ThreadPoolExecutor(workers)
    try:
        for _ in pool.map(some, edges[:-1], edges[1:]):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    return lived


def nothing_yet(load: Load, quota_cores: Floats, limit_bytes: NDArray[np.int64]) -> Lived:
    """Return the results before the replay, which are zeros. Raises as `live` does."""
    count = len(load.cores)
    same = {load.cores.shape, load.memory_bytes.shape, load.present.shape, load.shape.shape}
    if len(same) > 1 or quota_cores.shape != (count,) or limit_bytes.shape != (count,):
        raise InvariantError(f"a rehearsal of arrays {sorted(same)} with {quota_cores.shape} quotas")
    if not (quota_cores > 0).all():
        raise InvariantError("a rehearsal with a quota that is not above zero")
    counts, times_s = np.zeros((4, count), np.int64), np.zeros((2, count))
    return Lived(counts[0], counts[1], times_s[0], times_s[1], counts[2], counts[3])


def most_cores(load: Load, peaks: Floats) -> Floats:
    """Return the CPUs that containers can keep busy, float64[N]: their peaks rounded up. peaks: peak of each
    shape."""
    highest = np.where(load.present, load.cores * peaks[load.shape], 0.0)
    return np.asarray(np.maximum(np.ceil(highest.max(axis=1, initial=0.0)), 1.0), np.float64)


@released
def _live(
    cores: Floats,
    memory: NDArray[np.int64],
    present: NDArray[np.bool_],
    bursts: Floats,
    peaks: Floats,
    shape: NDArray[np.uint8],
    period_s: float,
    cap: Floats,
    quota: Floats,
    limit: NDArray[np.int64],
    restart_s: float,
    burst_s: float,
    lived: Lived,
) -> None:
    parts = bursts.shape[1]
    for i in range(len(cores)):
        full = quota[i] * period_s
        most = min(full, cap[i] * period_s)
        pool, backlog = full, 0.0
        down_until = -1.0  # end of its restart; −1: the container is up
        began, failures = 0.0, 0
        before = np.int64(-1)  # memory at the end of the last interval; −1: the container was not there
        for t in range(cores.shape[1]):
            if not present[i, t]:
                pool, backlog, down_until, before = full, 0.0, -1.0, np.int64(-1)
                continue
            mean, held = cores[i, t], memory[i, t]
            start = held if before < 0 else before
            if before < 0:
                began, failures = t * parts * period_s, 0
            before = held
            lived.arrived_s[i] += mean * parts * period_s
            calm = backlog == 0.0 and down_until < 0.0 and max(start, held) <= limit[i]
            if calm and mean * peaks[shape[i, t]] * period_s <= most:
                if mean * period_s > 0.0 and quota[i] < np.inf:
                    lived.periods[i] += parts
                pool = full
                continue
            behind = backlog >= (parts + 1) * full and pool <= full and full + NANOSECOND < cap[i] * period_s
            if behind and down_until < 0.0 and max(start, held) <= limit[i]:
                # The backlog outlasts the interval, so all work that arrives in the interval is late.
                lived.periods[i] += parts
                lived.throttled[i] += parts
                lived.late_s[i] += mean * parts * period_s
                backlog += parts * (mean * period_s - full)
                continue
            for k in range(parts):
                arriving = mean * bursts[shape[i, t], k] * period_s
                offered = backlog + arriving
                if down_until >= 0.0:
                    now = (t * parts + k) * period_s
                    if now >= down_until:
                        down_until = -1.0
                        lived.restarts[i] += 1
                if down_until >= 0.0:
                    lived.late_s[i] += arriving
                    backlog = offered
                    pool = min(pool + full, full + burst_s)
                    continue
                wanted = min(cap[i] * period_s, offered)
                done = min(wanted, pool)
                backlog = offered - done
                if backlog <= NANOSECOND:
                    backlog = 0.0
                if quota[i] < np.inf:
                    if done > 0.0 or offered > 0.0:
                        lived.periods[i] += 1
                    if wanted > pool + NANOSECOND:
                        lived.throttled[i] += 1
                lived.late_s[i] += min(backlog, arriving)
                pool = min(pool - done + full, full + burst_s)
                now_bytes = start + (held - start) * (k + 1) / parts
                if now_bytes > limit[i]:
                    lived.oom_events[i] += 1
                    end = (t * parts + k + 1) * period_s
                    if end - began >= RESET_S:
                        failures = 0
                    began = end + _wait_s(failures)
                    failures += 1
                    down_until = began + restart_s - NANOSECOND
