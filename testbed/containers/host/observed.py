"""The record of the real control loop, in the form of the twin's record.

For: the series, events and counters of a run on real containers; lab makes the same tables from them as from
the twin's. Not for: recording (records.py). Row t is period [t·P, (t+1)·P) of the run's time line, column i
is a container. A container's own period fills the row in which it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(slots=True)
class ObservedSeries:
    """[T, N] arrays. Names, types and meanings are those of twin.containers.model.Series, without quantities
    that a kernel does not report (demand, backlog). reported: bool, a record of the kernel filled the row."""

    usage_cores: NDArray[np.float32]
    quota_cores: NDArray[np.float32]
    throttled: NDArray[np.bool_]
    throttled_s: NDArray[np.float32]
    memory_bytes: NDArray[np.int64]
    limit_bytes: NDArray[np.int64]
    request_cores: NDArray[np.float32]
    cpu_reason: NDArray[np.uint8]
    up: NDArray[np.bool_]
    reported: NDArray[np.bool_]


@dataclass(slots=True)
class ObservedEvents:
    """Events, one element per event in all lists. at_s: time, s; container: column of the container; kind:
    one of twin.containers.model.EVENT_KINDS; limit_bytes: the memory limit after it."""

    at_s: list[float]
    container: list[int]
    kind: list[str]
    limit_bytes: list[int]


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """Timeliness of the loop.

    lateness_s: float64[ticks], time from when a tick was due until it was served, s.
    write_s: float64[writes], time of each quota write, s.
    grant_s: float64[grants], time from reading a trap's event to writing the limit, s.
    own_cores: CPU that the loop itself used, cores.
    skipped: number of quotas not written because nothing changed.
    lost: number of records that the source knows to be lost.
    """

    lateness_s: Floats
    write_s: Floats
    grant_s: Floats
    own_cores: float
    skipped: int
    lost: int


@dataclass(frozen=True, slots=True)
class Observed:
    """A finished run on real containers.

    began_s: Unix time of row 0's start; the counters as in twin.containers.model.Outcome (nr_*: growth of
    cpu.stat over the run); telemetry: `polling` or `hooks`; facts: kernel, CPU, cgroup version and more for
    the manifest; exit_codes: per container, as in record.recorder.Recording.
    """

    names: tuple[str, ...]
    app: NDArray[np.int64]
    period_s: float
    began_s: float
    series: ObservedSeries
    events: ObservedEvents
    limit_changes: int
    done_s: Floats
    nr_periods: NDArray[np.int64]
    nr_throttled: NDArray[np.int64]
    reports: int
    decide_s: float
    times: LoopTimes
    telemetry: str
    facts: Mapping[str, str]
    exit_codes: tuple[int | None, ...]
