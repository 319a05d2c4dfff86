"""A local run as a Parquet file: a row per interval and process, and all else in the file's metadata.

For: what `twinbed profile` writes and predictors read. Not for: making one (testbed.cloud.local_run).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter, ValidationError

from control.jobs import LocalRun, Real
from lab.ask import guard
from traces import parquet_file
from twinbed import ScenarioError, TraceError
from twinbed.text import continued
from twinbed.writing import write_whole

VERSION = 1
_KEY = b"twinbed.local_run"
_SERIES = ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")
_LARGEST = 1e18
"""Largest value, in any unit, so that sums do not overflow."""


@dataclass(frozen=True, slots=True)
class _Stated:
    """The fields of LocalRun that are in the file's metadata, and the processes' names.

    A field is None if the file lacks it: earlier versions of twinbed did not look for it.
    """

    interval_s: Annotated[float, Field(gt=0, le=1e9)]
    processes: Annotated[tuple[str, ...], Field(min_length=1)]
    batch: Annotated[int, Field(ge=1, le=10**12)]
    parameters: Annotated[int, Field(ge=0, le=10**18)]
    layers: tuple[str, ...]
    step_s: tuple[float, ...]
    optimiser: Annotated[str, Field(max_length=200)] = ""
    non_trainable: Annotated[int | None, Field(ge=0, le=10**18)] = None
    input_size: Annotated[int | None, Field(ge=0, le=10**18)] = None
    output_size: Annotated[int | None, Field(ge=0, le=10**18)] = None


_STATED = TypeAdapter(_Stated)


def write(run: LocalRun, processes: Sequence[str], facts: Mapping[str, str], path: Path) -> int:
    """Write the file whole or not at all, and return its size, bytes. facts: the machine and the day."""
    intervals, count = run.cpu_cores.shape
    table = pa.table(
        {
            "at_s": np.repeat(np.arange(intervals) * run.interval_s, count),
            "process": pa.array(list(processes) * intervals),
            **{name: getattr(run, name).ravel() for name in _SERIES},
        }
    )
    stated = {
        "version": VERSION, "interval_s": run.interval_s, "processes": list(processes), "batch": run.batch,
        "parameters": run.parameters, "layers": list(run.layers), "optimiser": run.optimiser,
        "non_trainable": _whole(run.non_trainable), "input_size": _whole(run.input_size),
        "output_size": _whole(run.output_size), "step_s": run.step_s.tolist(), "facts": dict(facts),
    }  # fmt: skip
    table = table.replace_schema_metadata({_KEY: json.dumps(stated).encode()})
    return write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))


def read(path: Path) -> LocalRun:
    """Return a local run. Raises ScenarioError, naming the file, for other files and other versions."""
    if not path.exists():
        raise ScenarioError(f"{path}: no such file; twinbed profile makes it")
    try:
        with parquet_file.opened(path, ("process",), ("at_s", *_SERIES)) as file:
            content = (file.schema_arrow.metadata or {}).get(_KEY)
            if content is None:
                raise ScenarioError(f"{path}: not a local run; twinbed profile makes one")
            table = file.read([name for name in _SERIES if name in file.schema_arrow.names])
    except TraceError as error:
        raise ScenarioError(str(error)) from None
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
    missing = [name for name in _SERIES if name not in table.column_names]
    if missing:
        raise ScenarioError(f"{path}: incomplete: no column {missing[0]!r}; profile the job again")
    try:
        facts = _STATED.validate_python(stated)
        series = {name: _series(table, name, len(facts.processes)) for name in _SERIES}
        return LocalRun(
            interval_s=facts.interval_s,
            batch=facts.batch,
            parameters=facts.parameters,
            layers=facts.layers,
            optimiser=facts.optimiser,
            non_trainable=_number(facts.non_trainable),
            input_size=_number(facts.input_size),
            output_size=_number(facts.output_size),
            step_s=_bounded("step_s", np.array(facts.step_s, np.float64)),
            **series,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        key, *_ = first["loc"]
        raise ScenarioError(
            f"{path}: incomplete: {key!r}: {continued(first['msg'])}; profile it again"
        ) from None
    except ValueError as error:
        raise ScenarioError(f"{path}: incomplete: {error}; profile the job again") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _series(table: pa.Table, name: str, processes: int) -> Real:
    return _bounded(name, table[name].to_numpy().astype(np.float64).reshape(-1, processes))


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _number(value: int | None) -> float:
    return np.nan if value is None else float(value)


def _bounded(name: str, values: Real) -> Real:
    # NaN and negative values are for LocalRun to refuse.
    if (values > _LARGEST).any():
        raise ValueError(f"{name} has a value above {_LARGEST:g}")
    return values
