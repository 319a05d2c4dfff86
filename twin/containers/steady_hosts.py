"""Replays containers under steady settings on hosts that they share, from a history coarser than a period.

For: the effect of CPU requests on hosts that are short of CPUs. History, outcome and skipping are those of
steady.py, but the containers of a host compete for its CPUs by weight, as in cfs.py. Not for: containers that
are alone on their hosts (steady.py), nor settings that change (simulation.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.backoff import RESET_S, wait_s
from twin.containers.cfs import ABSENT, DOWN, NANOSECOND, UP, Fleet, Report, new_fleet, new_report
from twin.containers.compiled import compiled, package_kernel
from twin.containers.ending import end_period
from twin.containers.model import Floats, Machine
from twin.containers.sharing import Hosts, crowded_hosts
from twin.containers.steady import Lived, Load, most_cores, nothing_yet
from twinbed import InvariantError

Whole = NDArray[np.int64]

_wait_s = compiled(wait_s)


class Crowd(NamedTuple):
    """The hosts of containers. host: int64[N], index of each container's host. cores: CPUs of a host. weight:
    float64[N] > 0, the containers' cpu.weight."""

    host: Whole
    cores: float
    weight: Floats


class _Told(NamedTuple):
    """Demand of the M members of a host, as in steady.Load, and a buffer for one period's demand, [1, M]."""

    cores: Floats
    memory: Whole
    present: NDArray[np.bool_]
    shape: NDArray[np.uint8]
    bursts: Floats
    peaks: Floats
    demand: Floats
    want: Whole


def live_on_hosts(
    load: Load, quota_cores: Floats, limit_bytes: Whole, machine: Machine, crowd: Crowd
) -> Lived:
    """Return the results of containers on shared hosts, with quotas and limits as in steady.live.

    Raises InvariantError as steady.live does, and for a demand that is negative or not finite.
    """
    lived = nothing_yet(load, quota_cores, limit_bytes)
    peaks = load.bursts.max(axis=1)
    cap = most_cores(load, peaks)
    for number in np.unique(crowd.host):
        members = np.flatnonzero(crowd.host == number)
        count = len(members)
        room = np.full(count, crowd.cores)
        fleet = new_fleet(count, cap[members], room)
        fleet.quota[:], fleet.limit_bytes[:] = quota_cores[members], limit_bytes[members]
        hosts = crowded_hosts(np.zeros(count, np.int64), room, fleet.cap, crowd.weight[members])
        told = _Told(
            load.cores[members],
            load.memory_bytes[members],
            load.present[members],
            load.shape[members],
            load.bursts,
            peaks,
            np.zeros((1, count)),
            np.zeros((1, count), np.int64),
        )
        late_s, events = np.zeros(count), np.zeros((2, count), np.int64)
        times = load.period_s, machine.restart_s, machine.burst_s
        if not _live(fleet, hosts, told, crowd.cores, *times, late_s, events, new_report(count)):
            raise InvariantError("a rehearsal of a demand that is negative or not finite")
        ended = fleet.nr_periods, fleet.nr_throttled, fleet.arrived_s, late_s, *events
        for whole, part in zip(lived, ended, strict=True):
            whole[members] = part
    return lived


@package_kernel
def _live(
    fleet: Fleet,
    hosts: Hosts,
    told: _Told,
    host_cores: float,
    period_s: float,
    restart_s: float,
    burst_s: float,
    late_s: Floats,
    events: Whole,
    report: Report,
) -> bool:
    """Move a host's members through the history. events: int64[2, M], OOM events and restarts."""
    count, length = told.cores.shape
    parts = told.bursts.shape[1]
    down_until, began = np.zeros(count), np.zeros(count)
    failures, over = np.zeros(count, np.int64), np.empty(count, np.int64)
    for t in range(length):
        for i in range(count):
            if not told.present[i, t]:
                fleet.status[i], fleet.backlog[i] = ABSENT, 0.0
            elif fleet.status[i] == ABSENT:
                fleet.status[i], fleet.pool[i] = UP, fleet.quota[i] * period_s
                began[i], failures[i] = t * parts * period_s, 0
        if _is_calm(fleet, told, t, host_cores):
            _skip(fleet, told, t, period_s)
            continue
        for k in range(parts):
            now_s = (t * parts + k) * period_s
            for i in range(count):
                if fleet.status[i] == DOWN and now_s >= down_until[i]:
                    fleet.status[i] = UP
                    events[1, i] += 1
                held = told.memory[i, t]
                start = told.memory[i, t - 1] if t > 0 and told.present[i, t - 1] else held
                told.want[0, i] = start + (held - start) * (k + 1) / parts
                told.demand[0, i] = told.cores[i, t] * told.bursts[told.shape[i, t], k]
            killed = end_period(
                fleet, hosts, told.demand, told.want, 0, period_s, burst_s, report, over
            )  # fmt: skip
            if killed < 0:
                return False
            for i in range(count):
                if fleet.backlog[i] <= NANOSECOND:
                    fleet.backlog[i] = 0.0
                late_s[i] += min(fleet.backlog[i], told.demand[0, i] * period_s)
            for i in over[:killed]:
                end_s = now_s + period_s
                failures[i] = 0 if end_s - began[i] >= RESET_S else failures[i]
                began[i] = end_s + _wait_s(failures[i])
                down_until[i] = began[i] + restart_s - NANOSECOND
                fleet.status[i] = DOWN
                failures[i] += 1
                events[0, i] += 1
    return True


@package_kernel
def _is_calm(fleet: Fleet, told: _Told, t: int, host_cores: float) -> bool:
    """Return whether interval t is calm: enough CPU in every period, and enough memory."""
    wanted = 0.0
    for i in range(len(fleet.status)):
        if fleet.status[i] == ABSENT:
            continue
        held = told.memory[i, t]
        start = told.memory[i, t - 1] if t > 0 and told.present[i, t - 1] else held
        highest = told.cores[i, t] * told.peaks[told.shape[i, t]]
        wanted += highest
        busy = fleet.status[i] != UP or fleet.backlog[i] > 0.0 or max(start, held) > fleet.limit_bytes[i]
        if busy or highest > min(fleet.quota[i], fleet.cap[i]):
            return False
    return wanted <= host_cores


@package_kernel
def _skip(fleet: Fleet, told: _Told, t: int, period_s: float) -> None:
    """Account for a calm interval t."""
    parts = told.bursts.shape[1]
    for i in range(len(fleet.status)):
        if fleet.status[i] != ABSENT:
            fleet.arrived_s[i] += told.cores[i, t] * parts * period_s
            if told.cores[i, t] > 0.0 and fleet.quota[i] < np.inf:
                fleet.nr_periods[i] += parts
            fleet.pool[i] = fleet.quota[i] * period_s
