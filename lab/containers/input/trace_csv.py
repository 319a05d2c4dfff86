"""Writes a trace as the long CSV that `traces` reads back: one line per container and interval.

For: `twinbed traces convert … .csv`. Not for: reading (traces/readers/plain_csv.py), nor for metadata and
notes, which have no place in CSV.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from traces.schema import QUANTITIES, UsageTrace

_ROWS_AT_ONCE = 1 << 20


def write_long(trace: UsageTrace, file: BinaryIO) -> None:
    """Write container, app, time_s and the quantities that the trace has, container by container.

    Memory that is always zero was not in the source and is left out. Every number reads back to the same
    bits.
    """
    rows = len(trace.present)
    cells = np.flatnonzero(trace.present.T)
    columns = {name: getattr(trace, name) for name in QUANTITIES}
    if not trace.memory_bytes.any():
        del columns["memory_bytes"]
    present = {
        name: np.ascontiguousarray(values.T).ravel() for name, values in columns.items() if values is not None
    }
    names, apps = np.array(trace.containers, object), np.array(trace.apps, object)
    first = True
    for begin in range(0, len(cells), _ROWS_AT_ONCE):
        part = cells[begin : begin + _ROWS_AT_ONCE]
        code, row = part // rows, part % rows
        table = pa.table(
            {
                "container": names[code],
                "app": apps[code],
                "time_s": trace.start_s + row * trace.interval_s,
                **{name: values[part] for name, values in present.items()},
            }
        )
        pa_csv.write_csv(table, file, pa_csv.WriteOptions(include_header=first, quoting_style="needed"))
        first = False
