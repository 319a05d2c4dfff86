"""Turns statistics of single periods into the samples that a recommender uses.

For: per-container means of CPU and peaks of memory over sample intervals, and the fleet's interval
boundaries. Not for: histograms. The policies that use it run every period, so `add` is a handful of vector
operations and everything else waits for the end of an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Floats, History, Ids, PeriodStats
from control.allocator.roster import Roster

_NEARLY_HALF = 0.5 + 1e-6
"""Slightly more than half a period.

A group may end exactly half a period before an interval does; without the excess, rounding could end the
interval twice.
"""


_MISSED = 1e-9
"""Part of an interval by which rounding may miss a whole number of them: 20 // 0.1 is 199.0."""


def whole_intervals(span_s: float, length_s: float) -> int:
    """Return how many intervals of length_s fit into span_s."""
    return int(span_s / length_s + _MISSED)


Taken = tuple[NDArray[np.int64], Floats, Floats]
"""Samples: slots int64[n], ascending; mean CPU, cores, and memory peak, bytes, float64[samples, n]."""


class Interval:
    """Tells when an interval of the fleet's time line is over.

    The time line starts at the beginning of the first reported period and is read from the data alone. So a
    backend may start at any time and skip any number of periods.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._start_s: float | None = None
        self._end_s = 0.0

    def over(self, at_s: float, period_s: float) -> bool:
        """Return True once per interval: for the first period that ends at its end (to half a period) or
        later.

        Periods may be reported in groups, several per period_s, in the order of their ends.
        """
        if self._start_s is None:
            self._start_s = at_s - period_s
            self._end_s = self._start_s + self._length_s
        nearest = at_s + period_s * _NEARLY_HALF
        if nearest < self._end_s:
            return False
        passed = floor((nearest - self._start_s) / self._length_s)
        self._end_s = self._start_s + (passed + 1) * self._length_s
        return True

    def before(self, at_s: Floats, period_s: float) -> int:
        """Return for how many of the coming periods `over` is False. at_s: float64[k], ascending."""
        if self._start_s is None:
            return 0
        return int(np.searchsorted(at_s + period_s * _NEARLY_HALF, self._end_s))

    def ends(self, at_s: Floats, period_s: float) -> list[int]:
        """Return the coming periods for which `over` is True, and advance to the last period. at_s: as in
        `before`."""
        nearest = at_s + period_s * _NEARLY_HALF
        found: list[int] = []
        last = 0
        while True:
            # The first period ever begins the time line.
            if self._start_s is not None:
                last = max(last, int(np.searchsorted(nearest, self._end_s)))
            if last >= len(at_s):
                return found
            if self.over(float(at_s[last]), period_s):
                found.append(last)
            last += 1


class UsageSamples:
    """Running sums of one sample interval: 32 bytes per container."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._cpu_s = roster.column(0.0, np.float64)
        self._seconds = roster.column(0.0, np.float64)
        self._peak = roster.column(0, np.int64)
        self._last = roster.column(0, np.int64)

    @property
    def memory_bytes(self) -> Floats:
        """Last reported memory usage, bytes, float64[size]; 0 before the first report."""
        return self._last.values[: self._roster.size].astype(np.float64)

    def add(self, stats: PeriodStats) -> None:
        """Add one period's usage of the containers that reported it."""
        rows, slots = self._roster.find(stats.ids)
        memory = stats.memory_bytes[rows]
        self._cpu_s.values[slots] += stats.usage_cores[rows] * stats.period_s
        self._seconds.values[slots] += stats.period_s
        self._peak.values[slots] = np.maximum(self._peak.values[slots], memory)
        self._last.values[slots] = memory

    def add_all(self, add_up: Callable[..., None], ids: Ids, used: History, ends: list[int]) -> Taken:
        """Add the usage of the containers `ids` period by period, and take the samples that end with the
        periods `ends`, as `add` and `take` do one by one. add_up: the function below, or it compiled."""
        own, index = self._roster.find(ids)
        rows, slots = np.arange(len(ids))[own], np.arange(self._roster.size)[index]
        order = np.argsort(slots)
        rows, slots = rows[order], slots[order]
        sums = np.array([self._cpu_s.values[slots], self._seconds.values[slots]])
        peak = self._peak.values[slots]
        cores, peaks = np.empty((2, len(ends), len(slots)))
        usage, memory = used.usage_cores, used.memory_bytes
        if len(rows) < usage.shape[1] or (rows[1:] < rows[:-1]).any():
            usage, memory = usage[:, rows], memory[:, rows]
        usage, memory = np.ascontiguousarray(usage), np.ascontiguousarray(memory)
        add_up(usage, memory, used.period_s, np.array(ends, np.int64), sums, peak, cores, peaks)
        if ends:
            for column in (self._cpu_s, self._seconds, self._peak):
                column.values[: self._roster.size] = 0
        self._cpu_s.values[slots], self._seconds.values[slots] = sums
        self._peak.values[slots] = peak
        self._last.values[slots] = memory[-1]
        return slots, cores, peaks

    def take(self) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Return the samples of every member that reported since the last call, and start the next interval.

        Returns (slots int64[n] ascending, mean CPU in cores, memory peak in bytes).
        """
        size = self._roster.size
        seconds = self._seconds.values[:size]
        slots = np.flatnonzero((seconds > 0) & self._roster.alive)
        cores = self._cpu_s.values[slots] / seconds[slots]
        peak = self._peak.values[slots].astype(np.float64)
        for column in (self._cpu_s, self._seconds, self._peak):
            column.values[:size] = 0
        return slots, cores, peak


def add_up(
    usage_cores: Floats,
    memory_bytes: NDArray[np.int64],
    period_s: float,
    ends: NDArray[np.int64],
    sums: Floats,
    peak: NDArray[np.int64],
    cores: Floats,
    peaks: Floats,
) -> None:
    """Add reports ([reports, n]) to running samples, and take those at `ends`.

    sums, peak: the running samples, core-seconds and seconds, float64[2, n], and the largest memory,
    int64[n]. cores, peaks: the samples taken, float64[ends, n]. A backend may compile it.
    """
    taken = 0
    # One quantity at a time, because the compiler then adds several containers at once.
    for report in range(len(usage_cores)):
        for i in range(len(peak)):
            sums[0, i] += usage_cores[report, i] * period_s
        for i in range(len(peak)):
            sums[1, i] += period_s
        for i in range(len(peak)):
            peak[i] = max(peak[i], memory_bytes[report, i])
        if taken < len(ends) and report == ends[taken]:
            for i in range(len(peak)):
                cores[taken, i], peaks[taken, i] = sums[0, i] / sums[1, i], peak[i]
                sums[0, i], sums[1, i], peak[i] = 0.0, 0.0, 0
            taken += 1
