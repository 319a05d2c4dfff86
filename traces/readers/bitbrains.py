"""Read Bitbrains' business VMs: CPU every 5 minutes for a month.

Source: GWA-T-12 by way of github.com/atlarge-research/opendc (MIT). There are two files: 35 VMs with CPU only
(bitbrains_50vms), and one VM with all columns, memory and network too (bitbrains_1vm_full_metrics). CPU is in
MHz of the whole VM. Caveats: a row of the first file has a duration, and holds for that long *before* its
stamp (steps of equal value were merged upstream), so rows are spread over their intervals. Cores are MHz
divided by core_mhz in the first file, which does not have its machines' clocks (some VMs exceed 2,600 MHz per
core by 6 %), and by the provisioned MHz per core in the second. GWA's KB is 1,024 bytes. Its stamps are
seconds although the header says ms.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import MOST_READ_CELLS, UsageTrace
from twinbed import TraceError

FILES = ("bitbrains_50vms.csv.gz", "bitbrains_1vm_full_metrics.csv.gz")
_INTERVAL_S = 300.0
_LEAST = 0.001
"""Least number of cores and of provisioned MHz of a VM, so that MHz per core is a finite number."""

_ORIGIN = ("bitbrains", {"source": "Bitbrains GWA-T-12 by way of OpenDC", "licence": "MIT"})
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
COLUMNS = (_MANY, tuple(_ONE.values()))
"""Columns of the first file, and columns of the second."""


def read(path: Path, *, core_mhz: float = 2600.0, max_hold_s: float = 3600.0) -> UsageTrace:
    """Return all VMs of the file.

    core_mhz: clock that counts as one core if the file does not say, MHz. max_hold_s: longest hole that is
    filled with the sample before it, s.
    """
    if not core_mhz > 0:
        raise TraceError(f"{path}: core_mhz is {core_mhz}, expected above zero")
    if set(COLUMNS[1]) <= set(table.header(path)):
        return _one(path, max_hold_s)
    return _many(path, core_mhz, max_hold_s)


def _many(path: Path, core_mhz: float, max_hold_s: float) -> UsageTrace:
    frame = table.read_known(path, _MANY, ("duration_ms",), vm="str", timestamp="str")
    cells = frame["timestamp"]
    stamps_ns = table.iso_ns(path, cells)
    if stamps_ns is None:
        raise TraceError(
            f"{path}: line {cells.index[0]}, column timestamp: {cells.iloc[0]!r}, expected an ISO 8601 time"
        )
    end_s = stamps_ns / 1e9
    spans = np.maximum(1, np.rint(frame["duration_ms"].to_numpy(np.float64) / 1000 / _INTERVAL_S))
    if spans.sum() > MOST_READ_CELLS:
        raise TraceError(
            f"{path}: durations of {spans.sum():.0f} intervals, more than {MOST_READ_CELLS} cells"
        )
    copies = spans.astype(np.int64)
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
    return grid.trace(
        *_ORIGIN,
        f"Bitbrains VMs; one core is taken as {core_mhz:g} MHz; rows are spread over their durations.",
        "The source has no memory: memory is 0 throughout.",
        prefix="vm-",
    )


def _one(path: Path, max_hold_s: float) -> UsageTrace:
    frame = table.read_known(path, tuple(_ONE.values()), (_ONE["time"], _ONE["capacity"], _ONE["cores"]))
    for key in ("capacity", "cores"):
        cells = frame[_ONE[key]]
        table.refuse(path, cells.astype("str"), (cells < _LEAST).to_numpy(), f"a number of at least {_LEAST}")
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
    return grid.trace(*_ORIGIN, "Bitbrains VM; a core is the provisioned MHz per core.", prefix="vm-")
