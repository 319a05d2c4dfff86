"""Write a UsageTrace to Parquet atomically, and read it back bit for bit.

For: recordings, converted traces, shipped recordings. Not for: foreign Parquet (readers/table.py, surf.py).

The table is in long form, container by container: container, app, time_s, cpu_cores, memory_bytes, rx_bytes,
tx_bytes, throttled_s. The last three are null if the source has none. An interval in which a container is
absent has no row. Facts that rows cannot hold (interval, start, number of intervals, order of containers,
metadata, notes) are JSON in the file's metadata under the key `twinbed`. DuckDB and pandas read the table as
it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from traces import parquet_file
from traces.schema import MOST_READ_CELLS, QUANTITIES, Floats, UsageTrace, validate
from twinbed import BackendError, TraceError
from twinbed.text import continued
from twinbed.writing import whole

SCHEMA_VERSION = 1

_KEY = b"twinbed"
_OPTIONAL = ("rx_bytes", "tx_bytes", "throttled_s")
_SCHEMA = pa.schema(
    [
        ("container", pa.dictionary(pa.int32(), pa.string())),
        ("app", pa.dictionary(pa.int32(), pa.string())),
        ("time_s", pa.float64()),
        *((name, pa.float64()) for name in QUANTITIES),
    ]
)


COLUMNS = tuple(_SCHEMA.names)
"""The columns of a trace's table."""

_TEXT, _NUMBERS = ("container", "app"), ("time_s", *QUANTITIES)
_Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _Version:
    """The metadata that every version has."""

    schema_version: int


@dataclass(frozen=True, slots=True)
class _Head:
    """Facts of a trace that its rows cannot hold, named as in UsageTrace. intervals: number of intervals."""

    intervals: Annotated[int, Field(ge=0)]
    interval_s: Annotated[_Finite, Field(gt=0)]
    start_s: _Finite
    containers: tuple[str, ...]
    apps: tuple[str, ...]
    quantities: frozenset[str]
    metadata: dict[str, str]
    notes: tuple[str, ...]


def write(trace: UsageTrace, path: str | Path, before: Callable[[], object] | None = None) -> None:
    """Write the trace to `path`, completely or not at all.

    before: called when the content is on the disk, before the file takes its place

    Raises TraceError if the trace is not valid, and BackendError if the file cannot be written (folder
    missing, no permission, disk full). An older file at `path` then stays.
    """
    path = Path(path)
    validate(trace, str(path))
    try:
        with whole(path, synced=True) as file:
            encode(_table(trace), file)
            if before is not None:
                file.flush()
                os.fsync(file.fileno())
                before()
        _sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(
            f"{path}: cannot be written ({reason}), nothing was left behind; "
            "free some space or choose another folder"
        ) from error


def encode(table: pa.Table, file: BinaryIO) -> None:
    """Write a table into an open file. Raises OSError."""
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read(path: str | Path, *, max_cells: int = MOST_READ_CELLS) -> UsageTrace:
    """Return the trace in a file written by `write`, bit for bit as it was written.

    max_cells: largest number of intervals × containers that is accepted

    Raises TraceError if the file is missing, is not Parquet, is cut short, has a foreign schema or a version
    that this release does not know, or holds values that are not a valid trace.
    """
    path = Path(path)
    with parquet_file.opened(path, _TEXT, _NUMBERS, max_cells) as file:
        head = _head(path, file.schema_arrow)
        if head.intervals * len(head.containers) > max_cells:
            raise TraceError(
                f"{path}: {head.intervals} intervals × {len(head.containers)} containers are more than "
                f"{max_cells} cells"
            )
        trace = _trace(path, head, file)
    validate(trace, str(path))
    return trace


def is_own(path: Path) -> bool:
    """Return whether `write` made this Parquet file. Raises TraceError if it is missing or not Parquet."""
    with parquet_file.opened(path, most_columns=parquet_file.MOST_USER_COLUMNS) as file:
        return _KEY in (file.schema_arrow.metadata or {})


def _table(trace: UsageTrace) -> pa.Table:
    rows = len(trace.present)
    # The rows are written container by container, because the values of one container compress well together.
    cells = np.flatnonzero(trace.present.T)
    code, row = (cells // rows).astype(np.int32), cells % rows
    times = trace.start_s + np.arange(rows) * trace.interval_s
    apps = pa.array(trace.apps, pa.string()).dictionary_encode()
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array(code), pa.array(trace.containers, pa.string())),
        apps.take(pa.array(code)),
        pa.array(times[row]),
    ]
    for name in QUANTITIES:
        values: Floats | None = getattr(trace, name)
        missing = pa.nulls(len(cells), pa.float64())
        arrays.append(missing if values is None else pa.array(values.T.ravel()[cells]))
    head = {
        "schema_version": SCHEMA_VERSION,
        "interval_s": trace.interval_s,
        "start_s": trace.start_s,
        "intervals": rows,
        "containers": list(trace.containers),
        "apps": list(trace.apps),
        "quantities": [name for name in QUANTITIES if getattr(trace, name) is not None],
        "metadata": trace.metadata,
        "notes": list(trace.notes),
    }
    return pa.Table.from_arrays(arrays, schema=_SCHEMA.with_metadata({_KEY: json.dumps(head).encode()}))


def _head(path: Path, schema: pa.Schema) -> _Head:
    raw = (schema.metadata or {}).get(_KEY)
    if raw is None:
        raise TraceError(
            f"{path}: a Parquet file, but not a twinbed trace (no 'twinbed' metadata); "
            f"its columns are {', '.join(map(repr, schema.names[:12]))}"
        )
    try:
        version = TypeAdapter(_Version).validate_json(raw).schema_version
        if version != SCHEMA_VERSION:
            raise TraceError(f"{path}: trace schema version {version}; this release reads {SCHEMA_VERSION}")
        head = TypeAdapter(_Head).validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        named = f"{key}: " if key else ""
        raise TraceError(f"{path}: its 'twinbed' metadata: {named}{continued(first['msg'])}") from None
    missing = [name for name in COLUMNS if name not in schema.names]
    if missing:
        raise TraceError(f"{path}: columns missing from the trace: {', '.join(missing)}")
    return head


def _trace(path: Path, head: _Head, file: pq.ParquetFile) -> UsageTrace:
    row, column = _cells(path, _columns(file, "container", "app", "time_s"), head)
    present = np.zeros((head.intervals, len(head.containers)), np.bool_)
    present[row, column] = True
    if int(present.sum()) != len(row):
        raise TraceError(f"{path}: a container has two rows for the same time")

    def dense(name: str) -> Floats:
        # One column is read at a time. The whole table would double the memory that reading takes.
        read = _columns(file, name).column(name)
        _refuse_missing(path, name, read)
        values = np.zeros(present.shape)
        values[row, column] = read.to_numpy()
        return values

    return UsageTrace(
        containers=head.containers,
        apps=head.apps,
        start_s=head.start_s,
        interval_s=head.interval_s,
        present=present,
        metadata=head.metadata,
        notes=head.notes,
        **{name: dense(name) for name in QUANTITIES if name in head.quantities or name not in _OPTIONAL},
    )


def _columns(file: pq.ParquetFile, *names: str) -> pa.Table:
    read = file.read(list(names)).cast(pa.schema([_SCHEMA.field(name) for name in names]))
    read.validate(full=True)
    return read


def _refuse_missing(path: Path, name: str, values: pa.ChunkedArray) -> None:
    if values.null_count:
        raise TraceError(f"{path}: column {name} has missing values")


def _cells(path: Path, table: pa.Table, head: _Head) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (row, column) of every line of the table, two int64[lines]."""
    for name in ("container", "time_s"):
        _refuse_missing(path, name, table.column(name))
    names = table.column("container").combine_chunks()
    column_of = {name: i for i, name in enumerate(head.containers)}
    code_of = [column_of.get(name, -1) for name in names.dictionary.to_pylist()]
    column = np.array(code_of, np.int64)[names.indices.to_numpy(zero_copy_only=False)]
    with np.errstate(over="ignore", invalid="ignore"):
        position = (table.column("time_s").to_numpy() - head.start_s) / head.interval_s
        nearest = np.rint(position)
        # The condition is written so that a time that is not a number is bad, too.
        bad = ~(
            (column >= 0) & (nearest >= 0) & (nearest < head.intervals) & (abs(position - nearest) <= 0.01)
        )
    if bad.any():
        line = int(np.argmax(bad))
        raise TraceError(
            f"{path}: row {line + 1}: container {names[line].as_py()!r} at time "
            f"{table.column('time_s')[line].as_py()} s is not of the {head.intervals} intervals of "
            f"{head.interval_s:g} s from {head.start_s:.10g} s that the file declares"
        )
    return nearest.astype(np.int64), column


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, so that the old file does not come back after a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
