"""Google 2011 cluster: CPU and memory of 1,600 jobs as VM-like series, every 5 minutes.

Source: github.com/HiPro-IT/CPU-and-Memory-resource-usage-from-Google-Cluster-Data, derived from
google/cluster-data (CC-BY). Ten days of 24 hours, about 110 jobs each; one day is one trace. Caveats:
values are percent of a reservation that the data set does not tell, so the reader's capacity_cores and
capacity_bytes set the scale; the authors kept only series between 5 and 90 % CPU; memory exceeds 100 %
here and there and is kept. Nothing is missing, nothing is filled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import UsageTrace
from twinbed import TraceError

FILES = ("gcd_job_cpu_mem_5min.csv.gz",)
COLUMNS = ("job", "day", "t_s", "cpu_pct", "mem_pct")
_INTERVAL_S = 300.0


def recognises(columns: list[str]) -> bool:
    """Whether these are the columns of the data set."""
    return set(COLUMNS) <= set(columns)


def read(
    path: Path, *, day: int = 1, capacity_cores: float = 1.0, capacity_bytes: float = 2.0**30
) -> UsageTrace:
    """All jobs of one day (1 to 10); 100 % is capacity_cores and capacity_bytes for each of them."""
    if not (capacity_cores > 0 and capacity_bytes > 0):
        raise TraceError(f"{path}: capacity_cores and capacity_bytes must be above zero")
    frame = table.read_known(path, COLUMNS)
    table.one_of(path, "day", day, frame["day"])
    frame = frame[frame["day"] == day]
    grid = onto_grid(
        path,
        frame["job"],
        frame["t_s"].to_numpy(np.float64),
        {
            "cpu_cores": frame["cpu_pct"].to_numpy(np.float64) / 100 * capacity_cores,
            "memory_bytes": frame["mem_pct"].to_numpy(np.float64) / 100 * capacity_bytes,
        },
        interval_s=_INTERVAL_S,
        max_hold_s=_INTERVAL_S,
    )
    return UsageTrace(
        containers=tuple(f"job-{name}" for name in grid.containers),
        apps=("google",) * len(grid.containers),
        start_s=grid.start_s,
        interval_s=_INTERVAL_S,
        cpu_cores=grid.values["cpu_cores"],
        memory_bytes=grid.values["memory_bytes"],
        present=grid.present,
        metadata={"source": "Google cluster data 2011, jobs", "day": str(day)},
        notes=(
            f"Google 2011 jobs, day {day}. The reservation is unknown: 100 % is taken as "
            f"{capacity_cores:g} cores and {capacity_bytes / 2**20:g} MiB for every job.",
            *grid.notes,
        ),
    )
