"""Read the Nezha data set: pods of Online Boutique and TrainTicket, once a minute.

Source: FSE 2023, github.com/IntelligentDDS/Nezha (MIT). It has two applications on two days with injected
faults. One application and day is one trace. CPU is in millicores, memory in MiB. Caveats: the load is light
(a few millicores). Stamps have a jitter of a second, and some are shifted by 20–40 s. They are rounded to the
minute. Online Boutique's adservice has a hole of 51 minutes on 2022-08-22. The network columns are not read,
because it is not documented whether they are bytes per second or per minute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import UsageTrace

FILES = ("nezha_pod_metrics_1min.csv.gz",)
COLUMNS = ("app", "day", "TimeStamp", "PodName", "CpuUsage(m)", "MemoryUsage(Mi)")
_INTERVAL_S = 60.0


def read(
    path: Path, *, app: str = "TrainTicket", day: str | None = None, max_hold_s: float = 300.0
) -> UsageTrace:
    """Return one application's pods on one day.

    app: TrainTicket or OnlineBoutique. day: YYYY-MM-DD; None: the application's first day. max_hold_s:
    longest hole that is filled with the sample before it, s.
    """
    frame = table.read_known(path, COLUMNS, ("TimeStamp",), app="str", day="str", PodName="str")
    table.one_of(path, "app", app, frame["app"])
    frame = frame[frame["app"] == app]
    day = min(frame["day"]) if day is None else day
    table.one_of(path, f"day of {app}", day, frame["day"])
    frame = frame[frame["day"] == day]
    values = {
        "cpu_cores": frame["CpuUsage(m)"].to_numpy(np.float64) / 1000,
        "memory_bytes": frame["MemoryUsage(Mi)"].to_numpy(np.float64) * 2**20,
    }
    time_s = frame["TimeStamp"].to_numpy(np.float64)
    grid = onto_grid(path, frame["PodName"], time_s, values, interval_s=_INTERVAL_S, max_hold_s=max_hold_s)
    return grid.trace(
        app,
        {"source": "Nezha", "licence": "MIT", "app": app, "day": day},
        f"Nezha, {app} on {day}; stamps rounded to the minute, network not read.",
    )
