"""Bitbrains business VMs, CPU every 5 minutes for a month.

Source: GWA-T-12 by way of github.com/atlarge-research/opendc (MIT). Two files: 35 VMs with CPU only
(bitbrains_50vms), and one VM with all columns (bitbrains_1vm_full_metrics), memory and network too.
CPU is MHz of the whole VM. Caveats: in the first file a row carries a duration and holds for that long
*before* its stamp (steps of equal value were merged upstream), so rows are spread over their intervals.
Cores are MHz divided by core_mhz in the first file (it does not give its machines' clocks; some VMs
exceed 2,600 MHz per core by 6 %), by the provisioned MHz per core in the second. GWA's KB is 1,024
bytes; its stamps are seconds although the header says ms.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from traces.readers import table
from traces.readers.regular import Grid, onto_grid
from traces.schema import Floats, UsageTrace
from twinbed import TraceError

FILES = ("bitbrains_50vms.csv.gz", "bitbrains_1vm_full_metrics.csv.gz")
_INTERVAL_S = 300.0
_MANY = ("vm", "timestamp", "duration_ms", "cpu_usage_mhz")
_ONE = {
    "time": "Timestamp [ms]",
    "cores": "CPU cores",
    "capacity": "CPU capacity provisioned [MHZ]",
    "cpu": "CPU usage [MHZ]",
    "memory": "Memory usage [KB]",
    "rx": "Network received throughput [KB/s]",
    "tx": "Network transmitted throughput [KB/s]",
}


def recognises(columns: list[str]) -> bool:
    """Whether these are the columns of one of the two files."""
    return set(_MANY) <= set(columns) or set(_ONE.values()) <= set(columns)


def read(path: Path, *, core_mhz: float = 2600.0, max_hold_s: float = 3600.0) -> UsageTrace:
    """All VMs of the file. core_mhz: what counts as one core where the file does not say (MHz);
    max_hold_s: the longest hole that is filled with the sample before it (seconds)."""
    if not core_mhz > 0:
        raise TraceError(f"{path}: core_mhz is {core_mhz}, expected above zero")
    if set(_ONE.values()) <= set(table.header(path)):
        return _one(path, max_hold_s)
    return _many(path, core_mhz, max_hold_s)


def _many(path: Path, core_mhz: float, max_hold_s: float) -> UsageTrace:
    frame = table.read_known(path, _MANY, timestamp="str")
    stamps = pd.to_datetime(frame["timestamp"], format="ISO8601", errors="coerce")
    if stamps.isna().any():
        line = int(np.argmax(stamps.isna())) + table.FIRST_LINE
        raise TraceError(f"{path}: line {line}, column timestamp: expected an ISO 8601 time")
    end_s = np.asarray((stamps - pd.Timestamp(0)).dt.total_seconds(), np.float64)
    copies = np.maximum(1, np.rint(frame["duration_ms"].to_numpy() / 1000 / _INTERVAL_S)).astype(np.int64)
    row = np.repeat(np.arange(len(frame)), copies)
    back = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
    grid = onto_grid(
        path,
        frame["vm"].iloc[row],
        end_s[row] - (back + 1) * _INTERVAL_S,
        {"cpu_cores": frame["cpu_usage_mhz"].to_numpy(np.float64)[row] / core_mhz},
        interval_s=_INTERVAL_S,
        max_hold_s=max_hold_s,
    )
    notes = (
        f"Bitbrains VMs; one core is taken as {core_mhz:g} MHz; rows are spread over their durations.",
        "The source has no memory: memory is 0 throughout.",
    )
    return _trace(grid, np.zeros(grid.present.shape), notes)


def _one(path: Path, max_hold_s: float) -> UsageTrace:
    frame = table.read_known(path, tuple(_ONE.values()))
    column = {key: frame[name].to_numpy(np.float64) for key, name in _ONE.items()}
    grid = onto_grid(
        path,
        pd.Series(["0"] * len(frame)),
        column["time"],
        {
            "cpu_cores": column["cpu"] / (column["capacity"] / column["cores"]),
            "memory_bytes": column["memory"] * 1024,
            "rx_bytes": column["rx"] * 1024 * _INTERVAL_S,
            "tx_bytes": column["tx"] * 1024 * _INTERVAL_S,
        },
        interval_s=_INTERVAL_S,
        max_hold_s=max_hold_s,
    )
    notes = ("Bitbrains VM; a core is the provisioned MHz per core.",)
    return _trace(grid, grid.values["memory_bytes"], notes)


def _trace(grid: Grid, memory_bytes: Floats, notes: tuple[str, ...]) -> UsageTrace:
    return UsageTrace(
        containers=tuple(f"vm-{name}" for name in grid.containers),
        apps=("bitbrains",) * len(grid.containers),
        start_s=grid.start_s,
        interval_s=_INTERVAL_S,
        cpu_cores=grid.values["cpu_cores"],
        memory_bytes=memory_bytes,
        present=grid.present,
        rx_bytes=grid.values.get("rx_bytes"),
        tx_bytes=grid.values.get("tx_bytes"),
        metadata={"source": "Bitbrains GWA-T-12 by way of OpenDC", "licence": "MIT"},
        notes=(*notes, *grid.notes),
    )
