"""Faults of a cluster's servers as a public trace tells them.

For: a stretch of StepFun's trace as times in which servers are down. Not for: random faults
(twin.cluster.simulation), nor what a fault does to a job.
"""

from __future__ import annotations

import numpy as np

from control.cluster import Downtime
from lab.cluster.input import FaultsInput
from traces.fault_rates import read_downtimes
from twinbed import ScenarioError

DAY_S = 86_400.0


def traced_downtime(given: FaultsInput, servers: int, seed: int) -> Downtime:
    """Return the faults of so many servers between begin_s and end_s, each those of a server of the trace.

    A server that is out of order on the trace's first day that is used is down from begin_s on. A fault that
    begins before end_s lasts as long as in the trace. Raises ScenarioError for more servers than the trace
    has, or days after its last one.
    """
    assert given.trace is not None, "the caller asks for a trace"
    traced = read_downtimes(given.trace)
    if servers > len(traced):
        raise ScenarioError(
            f"cluster.faults.trace: it has {len(traced)} servers, the cluster {servers}; take fewer, or "
            "per_server_day"
        )
    until = given.from_day + (given.end_s - given.begin_s) / DAY_S
    last = max(float(days.max(initial=0.0)) for days in traced)
    if given.from_day >= last:
        raise ScenarioError(f"cluster.faults.from_day: the trace ends on day {last:g}; begin before it")
    found: list[tuple[int, float, float]] = []
    chosen = np.random.default_rng(seed).permutation(len(traced))[:servers]
    for server, place in enumerate(chosen.tolist()):
        for begin, end in traced[place].tolist():
            if end > given.from_day and begin < until:
                shifted = np.array([max(begin, given.from_day), end]) - given.from_day
                found.append((server, *(given.begin_s + shifted * DAY_S).tolist()))
    rows = np.array(sorted(found, key=lambda row: (row[1], row[0])), float).reshape(-1, 3)
    return Downtime(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2])
