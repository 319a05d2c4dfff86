"""Read a user's table in long form (one line per container and time) or wide form (one column per container).

It is CSV or Parquet. docs/how-to/bring-your-own-trace.md shows the format with examples. Units come from
column names alone (`COLUMNS` lists them all) and are never guessed. A line's time is the start of its
interval, and all intervals are equally long. A container may begin late or end early (long: no lines; wide:
empty cells). A gap while it runs is an error, unless the option `fill` says how to fill it. Disorder,
duplicates, NaN, infinity and negative numbers are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.parquet_file import is_parquet
from traces.readers import table
from traces.schema import LATEST_S, MOST_READ_CELLS, QUANTITIES, Floats, UsageTrace
from twinbed import TraceError
from twinbed.text import counted

TIME = {"time": 1.0, "time_s": 1.0, "timestamp": 1.0, "time_ms": 1e-3, "Time": 1e-3}
"""Name of the time column → seconds per unit. ISO 8601 text is accepted under all names except time_ms.
`Time` is Grafana's name."""

CONTAINER = ("container", "pod")
NAME = ("namespace", *reversed(CONTAINER))
"""Columns whose texts, joined by `/`, make a container's name."""
APP = ("app", "application")

COLUMNS: Mapping[str, tuple[str, float]] = {
    "cpu": ("cpu_cores", 1.0),
    "cpu_cores": ("cpu_cores", 1.0),
    "cpu_millicores": ("cpu_cores", 1e-3),
    "cpu_percent": ("cpu_cores", 1e-2),
    "memory_bytes": ("memory_bytes", 1.0),
    "memory_kib": ("memory_bytes", 2.0**10),
    "memory_mib": ("memory_bytes", 2.0**20),
    "memory_gib": ("memory_bytes", 2.0**30),
    "memory_mb": ("memory_bytes", 1e6),
    "memory_gb": ("memory_bytes", 1e9),
    "rx_bytes": ("rx_bytes", 1.0),
    "tx_bytes": ("tx_bytes", 1.0),
    "throttled_s": ("throttled_s", 1.0),
}
"""Value column → the trace's quantity, and its amount per unit (cpu_percent: percent of one core)."""

_STEMS = {"mem", "cores", "millicores", "percent"} | {name.partition("_")[0] for name in COLUMNS}

_TOLERANCE = 0.01
"""Share of an interval by which a stamp may miss its place: for rounded decimals, not lost samples."""

_SINCE_1970_S, _CLOCKS_BACK_S = 1e8, 3600.0
"""Times above the first are since 1970, s. Clocks go back by at most the second at a summer's end, s."""

Fill = Literal["hold", "zero", "linear"]
"""How a gap is filled: with the value before it, with 0, or with the line between the values around it."""

_CURE = "--fill hold (or zero, linear) fills gaps"

_EXPECTED_TIME = "seconds, or ISO 8601 such as 2024-05-01T10:00:00Z"

_NO_MEMORY = "The source has no memory column: memory is 0 throughout."


def is_wide(columns: list[str]) -> bool:
    """Return whether this header is the wide form: a time first, and no container column."""
    return bool(columns) and columns[0] in TIME and not set(columns) & set(CONTAINER)


def is_long(columns: list[str]) -> bool:
    """Return whether this header is the long form: a container column and a time column."""
    return bool(set(columns) & set(CONTAINER)) and bool(set(columns) & set(TIME))


def read(
    path: Path,
    *,
    app: str = "app",
    interval_s: float | None = None,
    max_cells: int = MOST_READ_CELLS,
    fill: Fill | None = None,
) -> UsageTrace:
    """Return the trace in a long or wide table, which is CSV (`.gz` too) or Parquet.

    app: application of containers for which the file has none
    interval_s: length of an interval, s; needed only if the file has a single time
    max_cells: largest number of intervals × containers that is accepted
    fill: how a container's gaps are filled; None: a gap is an error

    Raises TraceError, which names the line and column.
    """
    columns = table.header(path)
    if not is_long(columns) and not is_wide(columns):
        raise TraceError(
            f"{path}: not a trace: expected a 'container' and a 'time' column (long form) or 'time' as the "
            f"first column (wide form); the file has {', '.join(columns[:12])}"
        )
    frame = table.read_text(path, max_rows=max_cells)
    reader = _long if is_long(columns) else _wide
    return reader(path, frame, app, interval_s, max_cells, fill)


def _long(
    path: Path, frame: pd.DataFrame, app: str, interval_s: float | None, max_cells: int, fill: Fill | None
) -> UsageTrace:
    time_name = table.only(path, frame, tuple(TIME))
    unknown = [c for c in frame if c not in {*TIME, *NAME, *APP, *COLUMNS}]
    if unknown:
        raise TraceError(f"{path}: unknown column {unknown[0]!r}; expected some of {', '.join(COLUMNS)}, app")
    values_of = _value_columns(path, frame)
    names = _names(path, frame)
    code, containers = pd.factorize(names)
    lines = frame.index.to_numpy()
    times = _times(path, frame[time_name])
    _check_order(path, times, lines, code, list(containers))
    row, interval_s = _rows(path, times, lines, code, interval_s, fill)
    rows = _row_count(path, row, len(containers), max_cells)
    if fill is None:
        _check_gaps(path, row, lines, code, list(containers), interval_s)
    present = np.zeros((rows, len(containers)), np.bool_)
    present[row, code] = True
    arrays: dict[str, Floats] = {}
    for name, quantity, unit in values_of:
        values = np.full(present.shape, 0.0 if fill is None else np.nan)
        values[row, code] = _usage(path, frame[name]) * unit
        arrays[quantity] = values
    apps = _apps(path, frame, code, len(containers), app)
    return _trace(path, tuple(containers), apps, float(times.min()), interval_s, present, arrays, fill)


def _names(path: Path, frame: pd.DataFrame) -> pd.Series[str]:
    """Return each line's container: NAMESPACE/POD/CONTAINER, or those of these columns that exist."""
    parts = [frame[column].str.strip() for column in NAME if column in frame]
    for column in parts:
        if (column == "").any():
            raise TraceError(
                f"{path}: line {column.index[int(np.argmax(column == ''))]}: the {column.name} has no name"
            )
    names = parts[0]
    for column in parts[1:]:
        names = names + "/" + column
    return names


def _wide(
    path: Path, frame: pd.DataFrame, app: str, interval_s: float | None, max_cells: int, fill: Fill | None
) -> UsageTrace:
    time_name = str(frame.columns[0])
    targets = [_target(path, str(name)) for name in frame.columns[1:]]
    containers = tuple(dict.fromkeys(container for container, _, _ in targets))
    if not containers:
        raise TraceError(f"{path}: no container column after {time_name!r}")
    times = _times(path, frame[time_name])
    lines = frame.index.to_numpy()
    code = np.zeros(len(times), np.int64)
    _check_order(path, times, lines, code, None)
    row, interval_s = _rows(path, times, lines, code, interval_s, fill)
    rows = _row_count(path, row, len(containers), max_cells)
    cells: dict[str, Floats] = {}
    column_of = {container: column for column, container in enumerate(containers)}
    for name, (container, quantity, unit) in zip(frame.columns[1:], targets, strict=True):
        if quantity not in cells:
            cells[quantity] = np.full((rows, len(containers)), np.nan)
        values = cells[quantity]
        column = column_of[container]
        if not np.isnan(values[:, column]).all():
            raise TraceError(
                f"{path}: container {container!r} has two columns for {quantity}; one is {name!r}"
            )
        values[row, column] = _usage(path, frame[name], blank_is_nan=True) * unit
    if "cpu_cores" not in cells:
        raise TraceError(f"{path}: no CPU column; expected one column per container, or NAME.cpu_cores")
    present = ~np.isnan(cells["cpu_cores"])
    if not present.any(axis=0).all():
        empty = containers[int(np.argmin(present.any(axis=0)))]
        raise TraceError(f"{path}: container {empty!r} has no CPU value")
    if fill is None:
        _check_presence(path, frame, containers, present, cells)
        cells = {quantity: np.nan_to_num(values, nan=0.0) for quantity, values in cells.items()}
    apps = (app,) * len(containers)
    return _trace(path, containers, apps, float(times[0]), interval_s, present, cells, fill)


def _target(path: Path, column: str) -> tuple[str, str, float]:
    """Return (container, quantity, unit) of a wide column. NAME is CPU in cores; NAME.SUFFIX is what SUFFIX
    says. Raises TraceError for a suffix that is nearly one of COLUMNS."""
    name, dot, suffix = column.rpartition(".")
    if dot and name.strip() and suffix in COLUMNS:
        return (name.strip(), *COLUMNS[suffix])
    if dot and suffix.partition("_")[0].lower() in _STEMS:
        raise TraceError(f"{path}: unknown column {column!r}; expected NAME.UNIT with {', '.join(COLUMNS)}")
    return (column, *COLUMNS["cpu_cores"])


def _check_presence(
    path: Path,
    frame: pd.DataFrame,
    containers: tuple[str, ...],
    present: NDArray[np.bool_],
    cells: dict[str, Floats],
) -> None:
    """Raise TraceError unless each container has all its quantities from its first CPU value to its last."""
    for column, container in enumerate(containers):
        rows = np.flatnonzero(present[:, column])
        inside = slice(rows[0], rows[-1] + 1)
        for quantity, values in cells.items():
            empty = np.isnan(values[:, column])
            if empty.all():
                continue
            gap = np.flatnonzero(empty[inside])
            stray = np.flatnonzero(~empty & ~present[:, column])
            if gap.size:
                line = frame.index[rows[0] + gap[0]]
                raise TraceError(
                    f"{path}: line {line}: {quantity} of container {container!r} is empty, expected a number "
                    f"(only cells before a container starts or after it ends may be empty; {_CURE})"
                )
            if stray.size:
                line = frame.index[stray[0]]
                raise TraceError(f"{path}: line {line}: container {container!r} has {quantity} but no CPU")


def _times(path: Path, cells: pd.Series[str]) -> Floats:
    """Return seconds, float64[n]: numbers in the column's unit, or ISO 8601 to the microsecond."""
    stamps_ns = None if cells.name == "time_ms" else table.iso_ns(path, cells)
    if stamps_ns is None:
        expected = "milliseconds" if cells.name == "time_ms" else _EXPECTED_TIME
        times, unit_s = table.numbers(path, cells, expected=expected), TIME[str(cells.name)]
        if unit_s < 1:
            table.refuse_seconds(path, times, "name the column time")
        times_s = times * unit_s
        table.refuse(
            path, cells, np.abs(times_s) > LATEST_S, f"{expected}; milliseconds are a column time_ms"
        )
        return times_s
    return np.asarray(stamps_ns // 1000, np.float64) / 1e6


def _check_order(
    path: Path,
    times: Floats,
    lines: NDArray[np.int64],
    code: NDArray[np.int64],
    containers: list[str] | None,
) -> None:
    """Raise TraceError unless the times of a container increase from line to line."""
    order = np.argsort(code, kind="stable")
    step, same = np.diff(times[order]), np.diff(code[order]) == 0
    bad = np.flatnonzero(same & (step <= 0))
    if bad.size:
        # The error names the earliest wrong line of the file, whichever container it belongs to.
        at = bad[np.argmin(lines[order][bad + 1])]
        line, before = lines[order][at + 1], lines[order][at]
        whose = "" if containers is None else f" of container {containers[code[order][at]]!r}"
        time, time_before = times[order][at + 1], times[order][at]
        problem = "appears twice" if step[at] == 0 else f"is before the {time_before:.10g} s of line {before}"
        where = f"{path}: line {line}: time {time:.10g} s{whose}"
        again = time > _SINCE_1970_S and 0 < time_before - time <= _CLOCKS_BACK_S
        cure = "; where clocks went back, give times their zone" if again else ""
        raise TraceError(f"{where} {problem}, expected increasing times{cure}")


def _rows(
    path: Path,
    times: Floats,
    lines: NDArray[np.int64],
    code: NDArray[np.int64],
    interval_s: float | None,
    fill: Fill | None,
) -> tuple[NDArray[np.int64], float]:
    """Return (row of each line, interval) on the one regular grid on which all times lie.

    The interval is the most frequent step of a container, made precise over the longest span of one. With
    `fill`, rows may be missing.
    """
    grid, first_row = np.unique(times, return_index=True)
    if interval_s is None:
        if len(grid) < 2:
            raise TraceError(
                f"{path}: a single time does not show the interval; give --trace-option interval_s=SECONDS"
            )
        order = np.argsort(code, kind="stable")
        ordered, changed = times[order], np.diff(code[order], prepend=-1) != 0
        own_steps = np.diff(ordered)[~changed[1:]]
        first = np.flatnonzero(changed)
        span = np.maximum.reduceat(ordered, first) - np.minimum.reduceat(ordered, first)
        single = not own_steps.size
        interval_s = _interval(
            np.diff(grid) if single else own_steps, float(np.ptp(grid) if single else span.max())
        )
    if not interval_s > 0:
        raise TraceError(f"{path}: interval of {interval_s} s, expected a microsecond or more")
    steps = np.diff(grid)
    # The number is bounded, so that a far-off time means too many cells, and not too large an integer.
    ahead = np.ones_like(steps) if fill is None else np.rint(steps / interval_s).clip(1, 2**40)
    bad = np.flatnonzero(np.abs(steps / interval_s - ahead) > 2 * _TOLERANCE)
    if bad.size:
        at = int(bad[0])
        line = lines[first_row[at + 1]]
        raise TraceError(
            f"{path}: line {line}: time {grid[at + 1]:.10g} s comes {steps[at]:.6g} s after "
            f"{grid[at]:.10g} s, expected the interval of {interval_s:g} s; "
            f"{_cure(steps[at] / interval_s)}"
        )
    row_of_time = np.concatenate([[0], np.cumsum(ahead)]).astype(np.int64)
    return row_of_time[np.searchsorted(grid, times)], interval_s


def _cure(intervals: float) -> str:
    """Return the cure for two times of the file that lie this many intervals apart."""
    if abs(intervals - round(intervals)) <= 2 * _TOLERANCE * max(intervals, 1) and round(intervals) > 1:
        return _CURE
    return "round all times to whole intervals, which all containers share"


def _filled(values: Floats, span: NDArray[np.bool_], fill: Fill) -> Floats:
    """Return float64[row, container] with gaps (NaN) within `span` filled, and 0 outside of it."""
    frame = pd.DataFrame(np.where(span, values, np.nan))
    if fill == "hold":
        frame = frame.ffill().bfill()
    elif fill == "linear":
        frame = frame.interpolate(limit_area="inside").ffill().bfill()
    return np.where(span, frame.fillna(0.0).to_numpy(), 0.0)


def _interval(steps: Floats, span: float) -> float:
    values, counts = np.unique(np.round(steps, 6), return_counts=True)
    common = float(values[np.argmax(counts)])
    if common <= 0:
        return common
    # Times rounded to a few decimals have steps of 0.333 and 0.334. The whole span is more precise.
    precise = round(span / max(1, round(span / common)), 6)
    return precise if abs(precise - common) <= _TOLERANCE * common else common


def _check_gaps(
    path: Path,
    row: NDArray[np.int64],
    lines: NDArray[np.int64],
    code: NDArray[np.int64],
    containers: list[str],
    interval_s: float,
) -> None:
    """Raise TraceError unless a container's lines follow each other interval by interval."""
    order = np.argsort(code, kind="stable")
    bad = np.flatnonzero((np.diff(code[order]) == 0) & (np.diff(row[order]) != 1))
    if bad.size:
        at = bad[np.argmin(lines[order][bad + 1])]
        lost = row[order][at + 1] - row[order][at] - 1
        raise TraceError(
            f"{path}: line {lines[order][at + 1]}: a gap of {counted(int(lost), 'interval')} of container "
            f"{containers[code[order][at]]!r} before it, expected a line every {interval_s:g} s; {_CURE}"
        )


def _row_count(path: Path, row: NDArray[np.int64], columns: int, max_cells: int) -> int:
    """Return the number of rows. Raises TraceError if they make more than max_cells cells."""
    rows = int(row.max()) + 1
    if rows * columns > max_cells:
        raise TraceError(
            f"{path}: {counted(rows, 'interval')} × {counted(columns, 'container')} are more than "
            f"max_cells = {max_cells}; cut the file, or give --trace-option max_cells=NUMBER"
        )
    return rows


def _usage(path: Path, cells: pd.Series[str], *, blank_is_nan: bool = False) -> Floats:
    values = table.numbers(path, cells, blank_is_nan=blank_is_nan)
    table.refuse(path, cells, values < 0, "zero or above")
    return values


def _value_columns(path: Path, frame: pd.DataFrame) -> list[tuple[str, str, float]]:
    # Exporters write all columns, also those of which they know nothing.
    given = [str(name) for name in frame if name in COLUMNS and frame[name].ne("").any()]
    columns = [(name, *COLUMNS[name]) for name in given]
    for quantity in QUANTITIES:
        same = [name for name, target, _ in columns if target == quantity]
        if len(same) > 1:
            raise TraceError(f"{path}: columns {' and '.join(same)} both give {quantity}; keep one")
    if "cpu_cores" not in {target for _, target, _ in columns}:
        raise TraceError(
            f"{path}: no CPU column; expected one of cpu, cpu_cores, cpu_millicores, cpu_percent"
        )
    return columns


def _apps(
    path: Path, frame: pd.DataFrame, code: NDArray[np.int64], count: int, default: str
) -> tuple[str, ...]:
    names = [name for name in APP if name in frame]
    if not names:
        return (default,) * count
    cells = frame[table.only(path, frame, APP)].str.strip()
    _, first = np.unique(code, return_index=True)
    of_container = cells.iloc[first].to_numpy()
    different = np.flatnonzero(cells.to_numpy() != of_container[code])
    if different.size:
        at = int(different[0])
        raise TraceError(
            f"{path}: line {cells.index[at]}: app {cells.iloc[at]!r}, but this container's app was "
            f"{of_container[code[at]]!r}"
        )
    return tuple(name or default for name in of_container)


def _trace(
    path: Path,
    containers: tuple[str, ...],
    apps: tuple[str, ...],
    first: float,
    interval_s: float,
    present: NDArray[np.bool_],
    arrays: dict[str, Floats],
    fill: Fill | None,
) -> UsageTrace:
    notes = [f"Read {path.name}: the times are {interval_s:g} s apart, which is taken as the interval."]
    if fill is not None:
        span = np.logical_or.accumulate(present) & np.logical_or.accumulate(present[::-1])[::-1]
        lacking = np.zeros(span.shape, np.bool_)
        for values in arrays.values():
            # A container of which nothing at all is known has no gap.
            lacking |= np.isnan(values) & ~np.isnan(values).all(axis=0)
        missing = int((span & lacking).sum())
        arrays = {name: _filled(values, span, fill) for name, values in arrays.items()}
        share = f", {100 * missing / span.sum():.3g} % of all" if missing else ""
        notes.append(f"Filled {counted(missing, 'missing sample')} (fill={fill}){share}.")
        present = span
    if "memory_bytes" not in arrays:
        notes.append(_NO_MEMORY)
        arrays["memory_bytes"] = np.zeros(present.shape)
    return UsageTrace(
        containers=containers,
        apps=apps,
        start_s=first,
        interval_s=interval_s,
        present=present,
        metadata={"source": path.name, "format": f"plain {'Parquet' if is_parquet(path) else 'CSV'}"},
        notes=tuple(notes),
        **arrays,
    )
