"""Turns statistics of single periods into the samples that a recommender uses.

For: per-container means of CPU and peaks of memory over sample intervals, and the fleet's interval
boundaries. Not for: histograms. The policies that use it run every period, so `add` is a handful of vector
operations and everything else waits for the end of an interval.
"""

from __future__ import annotations

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
        """Return which of the coming periods `over` is True for, and go on to the last. at_s: as in
        `before`."""
        found: list[int] = []
        last = 0
        while last < len(at_s):
            # The first period ever may begin the time line.
            last += self.before(at_s[last:], period_s)
            if last < len(at_s) and self.over(float(at_s[last]), period_s):
                found.append(last)
            last += 1
        return found


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

    def add_all(self, ids: Ids, used: History, ends: list[int]) -> Taken:
        """Add the usage of the containers `ids` period by period, and take the samples that end with the
        periods `ends`, as `add` and `take` do one by one."""
        own, index = self._roster.find(ids)
        slots = np.arange(self._roster.size)[index]
        usage, memory = used.usage_cores[:, own], used.memory_bytes[:, own]
        if (np.diff(slots) < 0).any():
            order = np.argsort(slots)
            slots, usage, memory = slots[order], usage[:, order], memory[:, order]
        cpu_s = usage * used.period_s
        first = np.array([0, *(end + 1 for end in ends)])
        length = np.diff(np.append(first, len(cpu_s)))
        # The last sample is the running one.
        sums, peaks = np.zeros((2, len(first), len(slots))), np.zeros((len(first), len(slots)), np.int64)
        sums[0, 0], sums[1, 0] = self._cpu_s.values[slots], self._seconds.values[slots]
        peaks[0] = self._peak.values[slots]
        if length.max() > len(first):
            for sample, (begin, count) in enumerate(zip(first.tolist(), length.tolist(), strict=True)):
                rows = slice(begin, begin + count)
                sums[0, sample] = _in_order(sums[0, sample], cpu_s[rows])
                starts, index = np.unique(sums[1, sample], return_inverse=True)
                seconds = np.full((count, len(starts)), used.period_s)
                sums[1, sample] = _in_order(starts, seconds)[index]
                np.maximum(peaks[sample], memory[rows].max(axis=0, initial=0), out=peaks[sample])
        else:
            # All samples at once, period by period.
            for number in range(length.max()):
                live = np.flatnonzero(length > number)
                at = first[live] + number
                sums[0, live] += cpu_s[at]
                sums[1, live] += used.period_s
                peaks[live] = np.maximum(peaks[live], memory[at])
        if ends:
            for column in (self._cpu_s, self._seconds, self._peak):
                column.values[: self._roster.size] = 0
        self._cpu_s.values[slots], self._seconds.values[slots] = sums[:, -1]
        self._peak.values[slots] = peaks[-1]
        self._last.values[slots] = memory[-1]
        return slots, sums[0, :-1] / sums[1, :-1], peaks[:-1].astype(np.float64)

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


def _in_order(start: Floats, rows: Floats) -> Floats:
    """Return start + rows[0] + rows[1] + …, float64[n], added one after the other."""
    # NumPy adds row by row along the first axis of a C-ordered table, but a single column in pairs.
    table = np.empty((len(rows) + 1, len(start)))
    table[0], table[1:] = start, rows
    added = np.cumsum(table, axis=0)[-1] if len(start) == 1 else table.sum(axis=0)
    return np.asarray(added, np.float64)
