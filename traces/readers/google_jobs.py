"""Read Google's cluster jobs of 2011: CPU and memory of 1,600 jobs as VM-like series, every 5 minutes.

Source: github.com/HiPro-IT/CPU-and-Memory-resource-usage-from-Google-Cluster-Data, derived from
google/cluster-data (CC-BY). It has ten days of 24 hours with about 110 jobs each. One day is one trace.
Caveats: values are percent of a reservation that is not in the data set, so the reader's capacity_cores and
capacity_bytes set the scale. The authors kept only series between 5 and 90 % CPU. Memory sometimes exceeds
100 %, and is kept. Nothing is missing and nothing is filled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import UsageTrace
from twinbed import TraceError
from twinbed.text import counted

FILES = ("gcd_job_cpu_mem_5min.csv.gz",)
COLUMNS = ("job", "day", "t_s", "cpu_pct", "mem_pct")
_INTERVAL_S = 300.0


def read(
    path: Path, *, day: int = 1, capacity_cores: float = 1.0, capacity_bytes: float = 2.0**30
) -> UsageTrace:
    """Return all jobs of one day (1 to 10). capacity_cores, capacity_bytes: CPU, cores, and memory, bytes,
    that 100 % stands for in each job."""
    if not (capacity_cores > 0 and capacity_bytes > 0):
        raise TraceError(f"{path}: capacity_cores and capacity_bytes must be above zero")
    frame = table.read_known(path, COLUMNS, ("t_s", "day"), job="str")
    table.one_of(path, "day", day, frame["day"])
    frame = frame[frame["day"] == day]
    values = {
        "cpu_cores": frame["cpu_pct"].to_numpy(np.float64) / 100 * capacity_cores,
        "memory_bytes": frame["mem_pct"].to_numpy(np.float64) / 100 * capacity_bytes,
    }
    time_s = frame["t_s"].to_numpy(np.float64)
    grid = onto_grid(path, frame["job"], time_s, values, interval_s=_INTERVAL_S, max_hold_s=_INTERVAL_S)
    return grid.trace(
        "google",
        {"source": "Google cluster data 2011, jobs", "day": str(day)},
        f"Google 2011 jobs, day {day}. The reservation is unknown: 100 % is taken as "
        f"{counted(capacity_cores, 'core')} and {capacity_bytes / 2**20:g} MiB for every job.",
        prefix="job-",
    )
