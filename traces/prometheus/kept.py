"""Stores a cluster's history in two Parquet files: the trace, and beside it the settings and events.

For: `twinbed traces import`, and reading the files that it writes. Not for: the trace's own form
(traces/parquet.py).

`shop.parquet` is an ordinary trace. `shop.in-force.parquet` has a row per entry: container, fact, interval
(from 0), value. The owners are JSON in its metadata under the key `twinbed`. Any program that reads traces
may ignore the second file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from traces import parquet, parquet_file
from traces.prometheus.history import ClusterHistory
from traces.prometheus.in_force import FACTS, Entries
from traces.prometheus.workloads import Owner
from traces.schema import LARGEST, MOST_READ_CELLS, UsageTrace
from twinbed import TraceError
from twinbed.text import continued
from twinbed.writing import write_whole

SUFFIX = ".in-force.parquet"

_KEY = b"twinbed"
_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [("container", _TEXT), ("fact", _TEXT), ("interval", pa.int32()), ("value", pa.float64())]
)


@dataclass(frozen=True, slots=True)
class _Head:
    """Facts that rows cannot hold.

    start_s, interval_s, intervals: those of the trace
    owners: for each container, the fields of its Owner
    """

    start_s: float
    interval_s: float
    intervals: int
    containers: tuple[str, ...]
    owners: tuple[Owner, ...]


def beside(path: Path) -> Path:
    """Return the path of the file with settings and events beside a trace's path."""
    return path.with_name(path.stem + SUFFIX)


def write(history: ClusterHistory, path: Path) -> None:
    """Write the trace to `path` and the settings and events beside it, each file whole or not at all.

    If one cannot be written, or the program is interrupted, older files stay. A crash between the two may
    leave new settings beside an older trace or none, which `read` refuses. Raises BackendError.
    """
    side = _table(history)
    parquet.write(
        history.trace, path, lambda: write_whole(beside(path), lambda file: parquet.encode(side, file))
    )


def read(path: Path, max_cells: int = MOST_READ_CELLS) -> ClusterHistory:
    """Return the history that `write` wrote. Raise TraceError if one of the files is missing or invalid."""
    trace = parquet.read(path, max_cells=max_cells)
    owners, facts = read_beside(beside(path), trace)
    return ClusterHistory(trace, owners, facts)


def read_beside(path: Path, trace: UsageTrace) -> tuple[tuple[Owner, ...], dict[str, Entries]]:
    """Return the owners and facts of a trace. Raises TraceError if they are another's."""
    with parquet_file.opened(path, ("container", "fact"), ("interval", "value")) as file:
        if not set(_SCHEMA.names) <= set(file.schema_arrow.names):
            raise TraceError(f"{path}: not what `twinbed traces import` writes beside a trace")
        head = _head(path, file.schema_arrow)
        own = head.containers, len(head.owners), head.start_s, head.interval_s, head.intervals
        count, length = len(trace.containers), len(trace.present)
        if own != (trace.containers, count, trace.start_s, trace.interval_s, length):
            raise TraceError(
                f"{path}: its containers or intervals are not those of the trace beside it; import the "
                "history again, or remove this file"
            )
        table = file.read(list(_SCHEMA.names)).cast(_SCHEMA)
        table.validate(full=True)
        if any(column.null_count for column in table.columns):
            raise TraceError(f"{path}: has missing values; import the history again")
        container = _codes(path, table, "container", trace.containers)
        fact = _codes(path, table, "fact", FACTS)
        interval = table.column("interval").to_numpy()
        value = table.column("value").to_numpy()
    if not ((interval >= 0) & (interval < length) & (value >= 0) & (value <= LARGEST)).all():
        raise TraceError(f"{path}: an interval or a value is out of range; import the history again")
    order = np.argsort(fact, kind="stable")
    ends = np.searchsorted(fact[order], np.arange(len(FACTS) + 1))
    facts = {}
    for number, name in enumerate(FACTS):
        rows = order[ends[number] : ends[number + 1]]
        if rows.size:
            facts[name] = Entries(interval[rows], container[rows], value[rows])
    return head.owners, facts


def _table(history: ClusterHistory) -> pa.Table:
    names = [name for name in FACTS if name in history.facts]
    columns = [history.facts[name].columns() for name in names]
    sizes = [len(interval) for interval, _, _ in columns]
    empty = np.zeros(0, np.int32)
    interval = np.concatenate([empty, *(part for part, _, _ in columns)])
    container = np.concatenate([empty, *(part for _, part, _ in columns)])
    value = np.concatenate([empty.astype(np.float64), *(part for _, _, part in columns)])
    fact = np.repeat(np.arange(len(names), dtype=np.int32), sizes)
    trace = history.trace
    head = {
        "start_s": trace.start_s,
        "interval_s": trace.interval_s,
        "intervals": len(trace.present),
        "containers": list(trace.containers),
        "owners": [asdict(owner) for owner in history.owners],
    }
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array(container), pa.array(trace.containers, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(fact), pa.array(names, pa.string())),
        pa.array(interval),
        pa.array(value),
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA.with_metadata({_KEY: json.dumps(head).encode()}))


def _head(path: Path, schema: pa.Schema) -> _Head:
    try:
        return TypeAdapter(_Head).validate_json((schema.metadata or {}).get(_KEY, b""))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise TraceError(
            f"{path}: its 'twinbed' metadata: {continued(first['msg'])}; import the history again"
        ) from None


def _codes(path: Path, table: pa.Table, name: str, known: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the number of each row's text in `known`, int32[rows]."""
    column = table.column(name).combine_chunks()
    number = {text: index for index, text in enumerate(known)}
    codes = [number.get(text, -1) for text in column.dictionary.to_pylist()]
    numbers = np.append(codes, -1).astype(np.int32)[column.indices.to_numpy(zero_copy_only=False)]
    if (numbers < 0).any():
        raise TraceError(f"{path}: row {int(np.argmax(numbers < 0)) + 1}: unknown {name}; import it again")
    return np.asarray(numbers, np.int32)
