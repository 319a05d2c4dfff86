"""Facts that the page "Containers" shows about a trace before the replay: its size, and its demand, thinned.

For: the page, which holds these facts in place of the trace, and for passing them from the process that read
an upload. Not for: reading (traces, lab.explorer.reading).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traces.schema import UsageTrace
from twinbed.text import counted

_POINTS = 400
_CONTAINERS = 12


@dataclass(frozen=True)
class TraceFacts:
    """Facts about a trace. containers: names; start_s: time stamp of its first sample; duration_s,
    interval_s: length and distance of samples, s; notes: from its reader; demand: columns at_s, container,
    cpu_cores, at most _POINTS rows and the end per container, small containers summed.
    """

    containers: tuple[str, ...]
    start_s: float
    duration_s: float
    interval_s: float
    notes: tuple[str, ...]
    demand: pd.DataFrame

    def plain(self) -> dict[str, Any]:
        """Return the facts in JSON types."""
        return {**vars(self), "demand": self.demand.to_dict("list")}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> TraceFacts:
        """Return the facts from the result of `plain`."""
        return cls(
            tuple(plain["containers"]),
            plain["start_s"],
            plain["duration_s"],
            plain["interval_s"],
            tuple(plain["notes"]),
            pd.DataFrame(plain["demand"]),
        )


def facts(trace: UsageTrace) -> TraceFacts:
    """Return the facts of a trace."""
    return TraceFacts(
        tuple(trace.containers),
        float(trace.start_s),
        float(trace.duration_s),
        float(trace.interval_s),
        tuple(trace.notes),
        _thin(trace),
    )


def _thin(trace: UsageTrace) -> pd.DataFrame:
    """Return means over at most _POINTS stretches, each at its begin, and the last also at its end."""
    length, count = trace.shape
    width = -(-length // _POINTS)
    starts = np.arange(0, length, width)
    lengths = np.diff(np.append(starts, length))
    cpu = np.add.reduceat(trace.cpu_cores, starts, axis=0) / lengths[:, None]
    largest = np.argsort(-cpu.sum(axis=0), kind="stable")[:_CONTAINERS]
    columns = {trace.containers[i]: cpu[:, i] for i in sorted(largest)}
    if count > len(columns):
        rest = np.setdiff1d(np.arange(count), largest)
        columns[counted(len(rest), "other")] = cpu[:, rest].sum(axis=1)
    at_s = np.append(starts * trace.interval_s, trace.duration_s)
    last = {name: np.append(values, values[-1]) for name, values in columns.items()}
    wide = pd.DataFrame(last, index=pd.Index(at_s, name="at_s"))
    return wide.melt(ignore_index=False, var_name="container", value_name="cpu_cores").reset_index()
