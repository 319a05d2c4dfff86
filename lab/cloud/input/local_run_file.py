"""A local run as a Parquet file: a row per interval and process, and all else in the file's metadata.

For: what `twinbed profile` writes and predictors read. Not for: making one (testbed.cloud.local_run).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from control.jobs import LocalRun, Real
from lab.ask import guard
from lab.runs.files import write_whole
from twinbed import ScenarioError
from twinbed.files import MIB, open_regular

VERSION = 1
_KEY = b"twinbed.local_run"
_MOST_BYTES = 256 * MIB
"""Largest file. Ten minutes of dozens of processes stay below 1 MiB."""
_SERIES = ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")


def write(run: LocalRun, processes: Sequence[str], facts: Mapping[str, str], path: Path) -> int:
    """Write the file whole or not at all, and return its bytes; facts: about the machine and the day."""
    intervals, count = run.cpu_cores.shape
    table = pa.table(
        {
            "at_s": np.repeat(np.arange(intervals) * run.interval_s, count),
            "process": pa.array(list(processes) * intervals),
            **{name: getattr(run, name).ravel() for name in _SERIES},
        }
    )
    stated = {
        "version": VERSION,
        "interval_s": run.interval_s,
        "processes": list(processes),
        "batch": run.batch,
        "parameters": run.parameters,
        "layers": list(run.layers),
        "step_s": run.step_s.tolist(),
        "facts": dict(facts),
    }
    table = table.replace_schema_metadata({_KEY: json.dumps(stated).encode()})
    return write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))


def read(path: Path) -> LocalRun:
    """Return a local run. Raises ScenarioError, naming the file, for other files and other versions."""
    if not path.exists():
        raise ScenarioError(f"{path}: no such file; twinbed profile makes it")
    try:
        with open_regular(path, _MOST_BYTES) as file:
            table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise ScenarioError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error
    content = (table.schema.metadata or {}).get(_KEY)
    if content is None:
        raise ScenarioError(f"{path}: not a local run; twinbed profile makes one")
    try:
        stated = guard.parse_json(content, str(path))
    except ScenarioError as error:
        raise ScenarioError(f"{error}; profile the job again") from None
    if not isinstance(stated, dict) or stated.get("version") != VERSION:
        stated = stated if isinstance(stated, dict) else {}
        raise ScenarioError(
            f"{path}: a local run of version {stated.get('version')}, and this twinbed reads {VERSION}; "
            "profile the job again"
        )
    try:
        return LocalRun(
            interval_s=float(stated["interval_s"]),
            batch=int(stated["batch"]),
            parameters=int(stated["parameters"]),
            layers=tuple(stated["layers"]),
            step_s=np.array(stated["step_s"], dtype=np.float64),
            **{name: _series(table, name, len(stated["processes"])) for name in _SERIES},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ScenarioError(f"{path}: incomplete: {error}; profile the job again") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _series(table: pa.Table, name: str, processes: int) -> Real:
    values: Real = table[name].to_numpy().astype(np.float64).reshape(-1, processes)
    return values
