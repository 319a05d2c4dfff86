"""Writes a UsageTrace to Parquet atomically, and reads it back bit for bit.

For: recordings, converted traces, shipped recordings. Not for: foreign Parquet (traces/readers/surf.py).

The table is in long form, container by container: container, app, time_s, cpu_cores, memory_bytes, rx_bytes,
tx_bytes, throttled_s. The last three are null if the source has none. An interval in which a container is
absent has no row. Facts that rows cannot hold (interval, start, number of intervals, order of containers,
metadata, notes) are JSON in the file's metadata under the key `twinbed`. DuckDB and pandas read the table as
it is.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces.schema import MAX_CELLS, QUANTITIES, Floats, UsageTrace, validate
from twinbed import BackendError, TraceError

SCHEMA_VERSION = 1
MAGIC = b"PAR1"
"""The first and last four bytes of every Parquet file."""

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
"""The columns by which a Parquet file is recognised as ours."""


def write(trace: UsageTrace, path: str | Path) -> None:
    """Writes the trace to `path`, whole or not at all.

    Raises TraceError if the trace is not valid, and BackendError if the file cannot be written (folder
    missing, no permission, disk full). An older file at `path` then stays.
    """
    path = Path(path)
    validate(trace, str(path))
    table = _table(trace)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with hidden.open("xb") as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(
            f"{path}: cannot be written ({reason}), nothing was left behind; "
            "free some space or choose another folder"
        ) from error
    finally:
        hidden.unlink(missing_ok=True)


def read(path: str | Path) -> UsageTrace:
    """Returns the trace in a file written by `write`, equal to what was written, bit for bit.

    Raises TraceError if the file is missing, is not Parquet, is cut short, has a foreign schema or a version
    that this release does not know, or holds values that are not a valid trace.
    """
    path = Path(path)
    head = _head(path, _schema(path))
    try:
        # A flipped bit in a page would otherwise be another plausible number.
        table = pq.read_table(path, columns=list(COLUMNS), page_checksum_verification=True).cast(_SCHEMA)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
    trace = _trace(path, head, table)
    validate(trace, str(path))
    return trace


def columns(path: Path) -> list[str]:
    """Returns the column names of any Parquet file. Raises TraceError if it is missing or not Parquet."""
    return list(_schema(path).names)


def _table(trace: UsageTrace) -> pa.Table:
    rows = len(trace.present)
    # Container by container: each one's values lie together and compress well.
    cells = np.flatnonzero(trace.present.T)
    code, row = (cells // rows).astype(np.int32), cells % rows
    times = trace.start_s + np.arange(rows) * trace.interval_s
    app_names = tuple(dict.fromkeys(trace.apps))
    app_of = np.array([app_names.index(app) for app in trace.apps], np.int32)
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array(code), pa.array(trace.containers, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(app_of[code]), pa.array(app_names, pa.string())),
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


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error


def _head(path: Path, schema: pa.Schema) -> dict[str, Any]:
    raw = (schema.metadata or {}).get(_KEY)
    if raw is None:
        raise TraceError(
            f"{path}: a Parquet file, but not a twinbed trace (no 'twinbed' metadata); "
            f"its columns are {', '.join(schema.names)}"
        )
    try:
        head: dict[str, Any] = json.loads(raw)
        version = head["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise TraceError(f"{path}: its 'twinbed' metadata cannot be read") from error
    if version != SCHEMA_VERSION:
        raise TraceError(f"{path}: trace schema version {version}; this release reads {SCHEMA_VERSION}")
    missing = [name for name in COLUMNS if name not in schema.names]
    if missing:
        raise TraceError(f"{path}: columns missing from the trace: {', '.join(missing)}")
    return head


def _trace(path: Path, head: dict[str, Any], table: pa.Table) -> UsageTrace:
    try:
        containers, rows = tuple(head["containers"]), int(head["intervals"])
        start_s, interval_s = float(head["start_s"]), float(head["interval_s"])
        quantities = set(head["quantities"])
        apps, metadata, notes = tuple(head["apps"]), dict(head["metadata"]), tuple(head["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: its 'twinbed' metadata lacks or garbles {error}") from error
    if not interval_s > 0:
        raise TraceError(f"{path}: interval_s is {interval_s} in its metadata, expected above zero")
    if rows * len(containers) > MAX_CELLS:
        raise TraceError(
            f"{path}: {rows} intervals × {len(containers)} containers are more than {MAX_CELLS} cells"
        )
    row, column = _cells(path, table, containers, rows, start_s, interval_s)
    present = np.zeros((rows, len(containers)), np.bool_)
    present[row, column] = True
    if int(present.sum()) != len(row):
        raise TraceError(f"{path}: a container has two rows for the same time")

    def dense(name: str) -> Floats:
        values = np.zeros(present.shape)
        values[row, column] = table.column(name).to_numpy()
        return values

    return UsageTrace(
        containers=containers,
        apps=apps,
        start_s=start_s,
        interval_s=interval_s,
        cpu_cores=dense("cpu_cores"),
        memory_bytes=dense("memory_bytes"),
        present=present,
        metadata=metadata,
        notes=notes,
        **{name: dense(name) for name in _OPTIONAL if name in quantities},
    )


def _cells(
    path: Path, table: pa.Table, containers: tuple[str, ...], rows: int, start_s: float, interval_s: float
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Returns (row, column) of every line of the table, two int64[lines]."""
    for name in ("container", "time_s", *sorted(set(QUANTITIES) - set(_OPTIONAL))):
        if table.column(name).null_count:
            raise TraceError(f"{path}: column {name} has missing values")
    names = table.column("container").combine_chunks()
    column_of = {name: i for i, name in enumerate(containers)}
    code_of = [column_of.get(name, -1) for name in names.dictionary.to_pylist()]
    column = np.array(code_of, np.int64)[names.indices.to_numpy(zero_copy_only=False)]
    position = (table.column("time_s").to_numpy() - start_s) / interval_s
    nearest = np.rint(position)
    # Written so that a time that is not a number is bad too.
    bad = ~((column >= 0) & (nearest >= 0) & (nearest < rows) & (np.abs(position - nearest) <= 0.01))
    if bad.any():
        line = int(np.argmax(bad))
        raise TraceError(
            f"{path}: row {line + 1}: container {names[line].as_py()!r} at time "
            f"{table.column('time_s')[line].as_py()} s is not of the {rows} intervals of {interval_s:g} s "
            f"from {start_s:.10g} s that the file declares"
        )
    return nearest.astype(np.int64), column


def _sync_folder(folder: Path) -> None:
    """Makes the new name durable: a crash after this cannot bring the old file back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
