"""Combines the replicas of a workload into one container.

For: a trace by workload, from a history by pod. Not for: owners (workloads.py).

A combined container is present where at least one replica is. `sum` is the use of all replicas together.
`mean` is the mean use of a running replica. `largest` is the use of the busiest replica: the figure for
limits that all replicas share, because some replica exceeds a limit that only fits the mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from traces.prometheus.history import ClusterHistory
from traces.schema import Floats, UsageTrace
from twinbed.text import counted

How = Literal["sum", "mean", "largest"]


def by_workload(history: ClusterHistory, how: How) -> UsageTrace:
    """Return the trace with one container per workload's container, named namespace/workload/container."""
    trace = history.trace
    group_of = [
        "/".join(filter(None, (own.namespace, own.workload, own.container))) for own in history.owners
    ]
    groups = sorted(set(group_of))
    number = {name: index for index, name in enumerate(groups)}
    column = np.array([number[name] for name in group_of])
    order = np.argsort(column, kind="stable")
    first = np.searchsorted(column[order], np.arange(len(groups)))
    replicas = np.add.reduceat(trace.present[:, order].astype(np.int32), first, axis=1)

    def combined(values: Floats) -> Floats:
        if how == "largest":
            return np.asarray(np.maximum.reduceat(values[:, order], first, axis=1))
        total = np.add.reduceat(values[:, order], first, axis=1)
        return np.asarray(total if how == "sum" else total / np.maximum(replicas, 1))

    note = (
        f"{counted(len(trace.containers), 'container')} of pods combined into {len(groups)} of workloads: "
        f"{_SAID[how]} at most {counted(int(replicas.max()), 'replica')} at a time."
    )
    return replace(
        trace,
        containers=tuple(groups),
        apps=tuple(trace.apps[index] for index in order[first]),
        present=replicas > 0,
        notes=(*trace.notes, note),
        **trace.each(combined),
    )


_SAID: dict[How, str] = {
    "sum": "the replicas' sum, interval by interval;",
    "mean": "the mean over the replicas that run, interval by interval;",
    "largest": "the replica with the largest value, interval by interval and quantity by quantity;",
}
