"""Read the SURF HPC cluster data set: CPU of batch jobs every 30 s for a week.

Source: surf_week of github.com/atlarge-research/opendc (MIT). It has two files in one folder:
surf_fragments.parquet (the use of each job, piece by piece, in order) and surf_tasks.csv.gz (its submission,
cores and MHz). Fragments follow each other from the job's submission, which is rounded to the 30 s grid of
the week's first submission. Cores are MHz divided by the job's MHz per core. One day of the week is one
trace, in which jobs come and go.
Caveats: a submission counts as the start, because the data set has no queueing times. Every job has 16 cores.
The source has no memory use (memory is 0) and no network.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from traces import parquet_file
from traces.readers import table
from traces.schema import MOST_READ_CELLS, UsageTrace
from twinbed import TraceError

FILES = ("surf_fragments.parquet",)
TASKS = "surf_tasks.csv.gz"
COLUMNS = ("id", "duration_ms", "cpu_usage_mhz")
_TASK_COLUMNS = ("id", "submission_time_ms", "cpu_count", "cpu_capacity_mhz")
_INTERVAL_MS = 30_000
_DAY = 86_400_000 // _INTERVAL_MS
_DAYS = 7


def read(path: Path, *, day: int = 1) -> UsageTrace:
    """Return all jobs that run on this day of the week (1 to 7). path: fragments file, beside the tasks."""
    table.one_of(path, "day", day, range(1, _DAYS + 1))
    fragments = _fragments(path)
    tasks = _tasks(path.with_name(TASKS))
    unknown = ~fragments["id"].isin(tasks.index)
    if unknown.any():
        raise TraceError(
            f"{path}: row {int(np.argmax(unknown)) + 1}: job {fragments['id'][np.argmax(unknown)]} is not in "
            f"{TASKS}"
        )
    first_ms = int(tasks["submission_time_ms"].min())
    start = np.rint((tasks["submission_time_ms"] - first_ms) / _INTERVAL_MS).astype("int64")
    begin = (day - 1) * _DAY
    slot = fragments["id"].map(start) + fragments.groupby("id").cumcount() - begin
    today = fragments[slot.between(0, _DAY - 1)]
    if today.empty:
        raise TraceError(f"{path}: no job runs on day {day}")
    code, jobs = pd.factorize(today["id"], sort=True)
    if _DAY * len(jobs) > MOST_READ_CELLS:
        raise TraceError(f"{path}: {_DAY} intervals × {len(jobs)} jobs are more than {MOST_READ_CELLS} cells")
    row = slot[today.index].to_numpy()
    core_mhz = (tasks["cpu_capacity_mhz"] / tasks["cpu_count"]).loc[jobs].to_numpy(np.float64)
    cpu = np.zeros((_DAY, len(jobs)))
    cpu[row, code] = today["cpu_usage_mhz"].to_numpy(np.float64) / core_mhz[code]
    present = np.zeros(cpu.shape, np.bool_)
    present[row, code] = True
    return UsageTrace(
        containers=tuple(f"job-{job}" for job in jobs),
        apps=("surf",) * len(jobs),
        start_s=(first_ms + begin * _INTERVAL_MS) / 1000,
        interval_s=_INTERVAL_MS / 1000,
        cpu_cores=cpu,
        memory_bytes=np.zeros(cpu.shape),
        present=present,
        metadata={"source": "SURF HPC week by way of OpenDC", "licence": "MIT", "day": str(day)},
        notes=(
            f"SURF HPC jobs on day {day} of 7; each starts at its submission, rounded to 30 s.",
            "The source has no memory use: memory is 0 throughout.",
        ),
    )


def _tasks(path: Path) -> pd.DataFrame:
    frame = table.read_known(path, _TASK_COLUMNS, _TASK_COLUMNS)
    for name, twice in (("id", frame["id"].duplicated()), *((n, frame[n] <= 0) for n in _TASK_COLUMNS[2:])):
        table.refuse(path, frame[name].astype("str"), twice.to_numpy(), "a number above zero, and an id once")
    return frame.set_index("id")


def _fragments(path: Path) -> pd.DataFrame:
    with parquet_file.opened(path, numbers=COLUMNS) as file:
        lacking = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if lacking:
            raise TraceError(f"{path}: no column {lacking[0]!r}, expected {', '.join(COLUMNS)}")
        frame: pd.DataFrame = file.read(list(COLUMNS)).to_pandas()
    empty = frame.isna().any(axis=1).to_numpy()
    if empty.any():
        raise TraceError(f"{path}: row {int(np.argmax(empty)) + 1}: a missing value, expected a number")
    uneven = frame["duration_ms"] != _INTERVAL_MS
    if uneven.any():
        at = int(np.argmax(uneven))
        raise TraceError(
            f"{path}: row {at + 1}: a fragment of {frame['duration_ms'][at]} ms, expected {_INTERVAL_MS}"
        )
    return frame
