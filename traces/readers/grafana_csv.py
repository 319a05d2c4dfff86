"""Read a CSV that Grafana exports: one time column, and a column for each series of a panel.

For: "Inspect > Data > Download CSV" with "Series joined by time". Not for: values that Grafana formatted
("1.2 GB"): switch "Formatted data" off. A column whose name is the whole series
(`container_cpu_usage_seconds_total{pod="…"}`) is read as that. Any other name is a legend without a unit, so
the option `quantity` must be given. Times are ISO 8601, Grafana's `2024-05-01 10:00:00` (UTC), or numbers:
milliseconds since 1970.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from traces.prometheus import files
from traces.prometheus.history import HOLD_S, ClusterHistory
from traces.prometheus.series import Series, series_of
from traces.readers import table
from traces.readers.openmetrics import labels_of
from traces.readers.plain_csv import COLUMNS as UNITS
from traces.readers.plain_csv import is_long
from traces.readers.regular import onto_grid
from traces.schema import MOST_READ_CELLS, Floats, UsageTrace
from twinbed import TraceError
from twinbed.text import counted

TIME = "Time"
"""Grafana's name of the time column."""

Quantity = Literal["cpu_cores", "cpu_millicores", "cpu_percent"]

_EMPTY = ("undefined", "null", "NaN", "-")
"""Texts that Grafana writes where a series has no value."""


def recognises(columns: list[str]) -> bool:
    """Return whether this header is Grafana's. A header with a container column is that of a plain CSV."""
    return bool(columns) and columns[0] == TIME and not is_long(columns)


def read(
    path: Path,
    *,
    quantity: Quantity | None = None,
    step_s: float | None = None,
    replica_label: str | None = None,
    hold_s: float = HOLD_S,
    max_cells: int = MOST_READ_CELLS,
) -> UsageTrace | ClusterHistory:
    """Return the trace in such a CSV.

    quantity: quantity of the columns with legends. The other options are those of traces.readers.query_range.
    Raises TraceError, which names the line and column.
    """
    times_s, columns = _columns(path, max_cells)
    if quantity is None:
        order = np.argsort(times_s, kind="stable")
        series = [_series(path, name, times_s[order], values[order]) for name, values in columns.items()]
        return files.history(path, series, max_cells, step_s, replica_label, hold_s, repeats=True)
    rows, count = len(times_s), len(columns)
    container = pd.Series(np.repeat(list(columns), rows))
    cpu = np.concatenate([*columns.values()]) * UNITS[quantity][1]
    steps = np.diff(np.unique(times_s))
    if step_s is None and not steps.size:
        raise TraceError(
            f"{path}: a single time does not show the interval; give --trace-option step_s=SECONDS"
        )
    step_s = files.usual(steps) if step_s is None else step_s
    if not (np.isfinite(step_s) and step_s >= 1e-3):
        raise TraceError(f"{path}: a step of {step_s:g} s, expected a millisecond or more")
    grid = onto_grid(
        path, container, np.tile(times_s, count), {"cpu_cores": cpu}, interval_s=step_s, max_hold_s=hold_s
    )
    return grid.trace(
        "app",
        {"source": path.name, "format": "Grafana CSV"},
        f"Read {path.name}: {counted(count, 'legend')} as {quantity}; each value is taken for the interval "
        "after it.",
        "The source has no memory: memory is 0 throughout.",
    )


def _columns(path: Path, max_cells: int) -> tuple[Floats, dict[str, Floats]]:
    """Return the times, s, and column name → values; NaN if there is no value."""
    frame = table.read_text(path, max_rows=max_cells)
    if not recognises(list(map(str, frame.columns))) or len(frame.columns) < 2:
        raise TraceError(f"{path}: expected Grafana's column {TIME!r} first, and a column per series")
    stamps_ns = table.iso_ns(path, frame[TIME])
    if stamps_ns is None:
        times_ms = table.numbers(path, frame[TIME])
        table.refuse_seconds(path, times_ms, "multiply them by 1000, as Grafana does")
        times_s = times_ms / 1e3
    else:
        times_s = np.asarray(stamps_ns // 1000, np.float64) / 1e6
    columns = {}
    for name in frame.columns[1:]:
        cells = frame[name].str.strip()
        cells = cells.where(~cells.isin(_EMPTY), "")
        try:
            values = table.numbers(path, cells, blank_is_nan=True)
        except TraceError as error:
            raise TraceError(f"{error}; in Grafana, switch 'Formatted data' off") from None
        table.refuse(path, cells, values < 0, "zero or above")
        columns[str(name)] = values
    return times_s, columns


def _series(path: Path, name: str, times_s: Floats, values: Floats) -> Series:
    if "{" not in name or not name.rstrip().endswith("}"):
        raise TraceError(
            f"{path}: column {name[:120]!r} is a legend, which has no unit; "
            "give --trace-option quantity=cpu_cores (or cpu_millicores, cpu_percent)"
        )
    # A cell is empty where only other series have a sample.
    there = ~np.isnan(values)
    return series_of(str(path), labels_of(path, name), times_s[there], values[there])
