"""What the real control loop recorded, in the shape in which the twin records a simulation.

For: the series, events and counters of a run on real containers; lab makes of them the tables that it makes
of the twin's. Not for: recording (loop.py). Row t is period [t·P, (t+1)·P) of the run's time line, column i a
container; a container's own period that ended in it fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(slots=True)
class ObservedSeries:
    """[T, N] arrays; the names, types and meanings are those of twin.containers.model.Series, without what
    a kernel does not tell (demand, backlog). reported: bool, a record of the kernel filled the row."""

    usage_cores: NDArray[np.float32]
    quota_cores: NDArray[np.float32]
    throttled: NDArray[np.bool_]
    throttled_s: NDArray[np.float32]
    memory_bytes: NDArray[np.int64]
    limit_bytes: NDArray[np.int64]
    cpu_reason: NDArray[np.uint8]
    up: NDArray[np.bool_]
    reported: NDArray[np.bool_]


@dataclass(slots=True)
class ObservedEvents:
    """One row each: at_s, container (column), kind (as twin.containers.model.EVENT_KINDS), bytes."""

    at_s: list[float]
    container: list[int]
    kind: list[str]
    limit_bytes: list[int]


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """How well the loop kept time. lateness_s: float64[ticks], from when a tick was due until it was served;
    write_s: float64, per quota write; grant_s: float64, per OOM trap from event read to limit written;
    own_cores: CPU that the loop itself used; skipped: quota writes left out because nothing changed;
    lost: records that the source knows to have lost."""

    lateness_s: Floats
    write_s: Floats
    grant_s: Floats
    own_cores: float
    skipped: int
    lost: int


@dataclass(frozen=True, slots=True)
class Observed:
    """A finished run on real containers. began_s: Unix time of row 0's start; the counters as in
    twin.containers.model.Outcome (nr_*: deltas of cpu.stat over the run); telemetry: `polling` or `hooks`;
    facts: kernel, CPU, cgroup version and more for the manifest; exit_codes: per container, as in Recording.
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
