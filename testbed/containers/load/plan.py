"""The load generator's plan and its result, both as files.

For: data that pass between the process that requests load and the generator. Not for: sending (main.py).
Times are seconds since the schedule's beginning.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import ServiceStats
from control.paths import Spans
from twinbed import BackendError, ScenarioError
from twinbed.writing import whole

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Requests to send. Raises ScenarioError for arrays that do not match.

    at_s: float64[A] ascending, time at which each request is due, s. kind: int64[A], index into entries.
    entries: the URLs to which a kind may be sent, in turn (`http://host:port/path`).
    duration_s: time at which the run ends, s, even if requests are pending.
    connections, queue, timeout_s: as in twin.containers.requests.model.Client (0: no limit; inf: never).
    service_interval_s: interval of the service level, s (0: none).
    spans_wanted: number of requests per interval whose spans are enough (0: none are traced).
    """

    at_s: Floats
    kind: NDArray[np.int64]
    entries: tuple[tuple[str, ...], ...]
    duration_s: float
    connections: int = 0
    queue: int = 1_000_000
    timeout_s: float = float("inf")
    service_interval_s: float = 0.0
    spans_wanted: int = 0

    def __post_init__(self) -> None:
        count = len(self.at_s)
        if self.kind.shape != (count,) or not np.isfinite(self.at_s).all() or (np.diff(self.at_s) < 0).any():
            raise ScenarioError("load plan: at_s must ascend and have a kind for each")
        if count and not (self.kind.min() >= 0 and self.kind.max() < len(self.entries)):
            raise ScenarioError(f"load plan: kinds must be 0 to {len(self.entries) - 1}, as entries has them")
        if not all(self.entries):
            raise ScenarioError("load plan: entries has a kind without a URL")
        if (
            self.connections < 0
            or self.queue < 0
            or not self.timeout_s > 0
            or not 0 < self.duration_s < np.inf
        ):
            raise ScenarioError(
                "load plan: connections and queue must be at least 0, timeout_s and duration_s more than 0"
            )


_NUMBERS = ("duration_s", "connections", "queue", "timeout_s", "service_interval_s", "spans_wanted")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Results of A requests, in the order in which they were due. Requests due after the end are left out.

    at_s: float64[A], time at which each request was due, s. kind: int64[A], index into the plan's entries.
    end_s: float64[A], time at which it ended, s (NaN: pending). status: uint8[A], its `RequestStatus`.
    late_s: float64[A], delay until the generator handled it, s.
    cpu_s: CPU time that the generator used, s.
    complete: whether the generator reached the plan's end.
    """

    at_s: Floats
    kind: NDArray[np.int64]
    end_s: Floats
    status: NDArray[np.uint8]
    late_s: Floats
    cpu_s: float
    complete: bool

    @property
    def latency_s(self) -> Floats:
        """float64[A]: time from when a request was due to its end, s; NaN while it is pending."""
        return np.asarray(self.end_s - self.at_s, np.float64)


def write_plan(plan: LoadPlan, path: Path) -> None:
    """Write the plan. Raises BackendError if that is not possible."""
    numbers = [float(getattr(plan, name)) for name in _NUMBERS]
    arrays = {"at_s": plan.at_s, "kind": plan.kind, "numbers": np.array(numbers)}
    _write(path, arrays | {"entries": np.array(json.dumps(plan.entries))})


def read_plan(path: Path) -> LoadPlan:
    """Return the plan in a file. Raises ScenarioError if the file has none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            numbers = file["numbers"].tolist()
            entries = tuple(tuple(urls) for urls in json.loads(str(file["entries"])))
            at_s, kind = file["at_s"].astype(np.float64), file["kind"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ScenarioError(f"{path}: not a load plan ({error})") from None
    return LoadPlan(at_s, kind, entries, **dict(zip(_NUMBERS, numbers, strict=True)))


def write_result(result: LoadResult, path: Path) -> None:
    """Write the result, completely or not at all. Raises BackendError if that is not possible."""
    arrays = {name: np.asarray(getattr(result, name)) for name in LoadResult.__slots__}
    _write(path, arrays)


def read_result(path: Path) -> LoadResult:
    """Return the result in a file. Raises BackendError if the file has none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in LoadResult.__slots__}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BackendError(f"{path}: no result of a load generator ({error}); repeat the run") from None
    cpu_s, complete = float(arrays.pop("cpu_s")), bool(arrays.pop("complete"))
    return LoadResult(**arrays, cpu_s=cpu_s, complete=complete)


def write_level(level: ServiceStats, path: Path) -> None:
    """Write the service level of an interval. Raises BackendError if that is not possible."""
    told = {name: np.asarray(getattr(level, name)) for name in _LEVEL}
    if level.spans is not None:
        told |= {f"span_{name}": getattr(level.spans, name) for name in Spans.__slots__}
    _write(path, told)


def read_level(file: BufferedReader) -> ServiceStats:
    """Return the service level of an interval. Raises BackendError if the file has none."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            told: dict[str, Any] = {name: arrays[name] for name in _LEVEL}
            if "span_request" in arrays:
                told["spans"] = Spans(*(arrays[f"span_{name}"] for name in Spans.__slots__))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BackendError(f"{file.name}: no service level of a load generator ({error})") from None
    return ServiceStats(**told | {"at_s": float(told["at_s"])})


_LEVEL = ("rate_rps", "latency_p99_s", "at_s", "mix", "failed")


def _write(path: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    try:
        with whole(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); make room there") from None
