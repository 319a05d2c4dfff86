"""Data that advice is made from, and the advice itself, as structures of arrays.

For: data shared by candidates, choice and rehearsal. Not for: deciding. A row is one container of a workload.
Its members are the containers of the trace that are its replicas and share its settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats
from twinbed import InvariantError

MIB = 1 << 20
DAY_S = 86_400.0
MILLICORE = 0.001
"""Unit in which all forms of an advice can express CPU, cores."""
LEAST_CORES = 0.01
"""Least CPU request and limit, cores: a quota of 1 ms in 100 ms, the kernel's minimum."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Requests and limits of R rows, float64[R] each. NaN: no opinion or unknown. inf: no limit.

    cpu_request, cpu_limit: cores. memory_request, memory_limit: bytes.
    """

    cpu_request: Floats
    cpu_limit: Floats
    memory_request: Floats
    memory_limit: Floats

    @property
    def reserved_cores(self) -> Floats:
        """Reserved CPU, cores: the request, else the limit, as in Kubernetes; NaN: neither is set."""
        return _reserved(self.cpu_request, self.cpu_limit)

    @property
    def reserved_bytes(self) -> Floats:
        """Memory reserved, bytes, by the rule of reserved_cores."""
        return _reserved(self.memory_request, self.memory_limit)


@dataclass(frozen=True, slots=True)
class Kills:
    """OOM events of a history, [K] arrays.

    row: int64, row of the killed member. interval: int64, interval of the kill. count: float64, number of
    kills. limit_bytes: float64, memory limit at the kill; 0: none or unknown.
    """

    row: NDArray[np.int64]
    interval: NDArray[np.int64]
    count: Floats
    limit_bytes: Floats


@dataclass(frozen=True, slots=True)
class Usage:
    """The history of N members over T intervals.

    cores: float64[N, T], mean CPU use. memory_bytes: float64[N, T], memory at the interval's end. present:
    bool[N, T]. interval_s: length of an interval, s. row: int64[N], ascending, each member's row. current:
    the present settings. memory_known: bool[R]. kills: the OOM events in these intervals.
    """

    cores: Floats
    memory_bytes: Floats
    present: Flags
    interval_s: float
    row: NDArray[np.int64]
    current: Sizes
    memory_known: Flags
    kills: Kills

    def __post_init__(self) -> None:
        if not (self.cores.shape == self.memory_bytes.shape == self.present.shape):
            raise InvariantError("a usage of arrays of different shapes")
        if len(self.row) != len(self.cores) or (np.diff(self.row) < 0).any():
            raise InvariantError("the rows of a usage do not ascend")

    @property
    def rows(self) -> int:
        """Number of rows, R."""
        return len(self.memory_known)

    def by_row(self, values: NDArray[np.generic], how: np.ufunc = np.add) -> Floats:
        """Return values of members (float64[N]) combined into rows, float64[R]. Every row has a member."""
        first = np.searchsorted(self.row, np.arange(self.rows))
        return np.asarray(how.reduceat(np.asarray(values, np.float64), first), np.float64)

    def peak_bytes(self, begin: int = 0, end: int | None = None) -> Floats:
        """Return the largest memory of each row in the intervals [begin, end), float64[R]; 0 if absent."""
        part = self.memory_bytes[:, begin:end]
        return self.by_row(part.max(axis=1, initial=0.0), np.maximum)

    def peak_cores(self) -> Floats:
        """Return each row's largest CPU use in an interval, float64[R]."""
        return self.by_row(self.cores.max(axis=1, initial=0.0), np.maximum)

    def oom_events(self) -> Floats:
        """Return how often members of each row were killed, float64[R]."""
        return np.asarray(np.bincount(self.kills.row, self.kills.count, self.rows), np.float64)

    def oom_limit_bytes(self) -> Floats:
        """Return the largest memory limit under which a member of each row was killed, bytes, float64[R]; 0:
        none was."""
        limits = np.zeros(self.rows)
        np.maximum.at(limits, self.kills.row, self.kills.limit_bytes)
        return limits

    def samples(self) -> Floats:
        """Return the number of samples of each row, over all its members, float64[R]."""
        return self.by_row(self.present.sum(axis=1))

    def part(self, begin: int, end: int) -> Usage:
        """Return the history restricted to the intervals [begin, end)."""
        window, kills = slice(begin, end), self.kills
        within = (kills.interval >= begin) & (kills.interval < end)
        return Usage(
            self.cores[:, window],
            self.memory_bytes[:, window],
            self.present[:, window],
            self.interval_s,
            self.row,
            self.current,
            self.memory_known,
            Kills(
                kills.row[within],
                kills.interval[within] - begin,
                kills.count[within],
                kills.limit_bytes[within],
            ),
        )


def _reserved(request: Floats, limit: Floats) -> Floats:
    return np.where(~(request > 0) & np.isfinite(limit), limit, request)
