"""The record that the control loop writes while it runs: rows per period, events, and its own lateness.

For: filling observed.Observed without disturbing the loop: arrays grow in blocks, and one row is copied per
period. Not for: deciding or measuring. Row t is period [t·P, (t+1)·P) of the run's time line.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from testbed.containers.host.fleet import Columns, Fleet
from testbed.containers.host.life import NS
from testbed.containers.host.observed import ObservedEvents, ObservedSeries
from testbed.containers.ports import Records

_BLOCK_ROWS = 1024
_TYPES = {name: get_args(get_args(kind)[1])[0] for name, kind in get_type_hints(ObservedSeries).items()}
"""The type of an element of each array, from `NDArray[type]`."""

_REPORTED = ("usage_cores", "quota_cores", "throttled", "throttled_s", "memory_bytes")
"""Arrays that a row gets from a record, by the same names."""


class RunRecord:
    """The record of one run of `fleet`. begin() starts the time line. Before that, only events are kept, with
    time 0 s.

    period_s: length of a row, s. interval_s: time that a record covers, s, 0 = a row. lateness_ns, write_ns,
    grant_ns: as in LoopTimes, in ns. reports: how many records were taken.
    """

    def __init__(self, fleet: Fleet, period_s: float, interval_s: float = 0.0) -> None:
        self._fleet = fleet
        self.period_ns = round(period_s * NS)
        self.interval_s = interval_s or period_s
        # What a record shorter than a row adds to the row's mean.
        self._share = min(self.interval_s / period_s, 1.0)
        self.start_ns: int | None = None
        self.events = ObservedEvents([], [], [], [])
        self.lateness_ns, self.write_ns, self.grant_ns = array("q"), array("q"), array("q")
        self.reports = 0
        self._rows = 0
        self._last_row = np.zeros(len(fleet.containers), np.int64)
        self._memory_bytes = np.zeros(len(fleet.containers), np.int64)
        self._arrays = self._block()
        self._taken: list[tuple[Records, Columns]] = []
        self._reasons: list[tuple[int, int]] = []

    def begin(self, start_ns: int) -> None:
        """Start row 0 at `start_ns` (CLOCK_MONOTONIC). Earlier counts are dropped."""
        self.start_ns = start_ns
        for times in (self.lateness_ns, self.write_ns, self.grant_ns):
            del times[:]

    def at_s(self, now_ns: int) -> float:
        """Return a moment on the time line, s; 0 before the time line began."""
        return 0.0 if self.start_ns is None else max(now_ns - self.start_ns, 0) / NS

    def row_ends_ns(self) -> int:
        """Return the time at which the present row ends, ns."""
        return (self.start_ns or 0) + (self._rows + 1) * self.period_ns

    @property
    def rows(self) -> int:
        """Number of rows that have ended."""
        return self._rows

    def advance(self, now_ns: int) -> bool:
        """Close the rows that ended by `now_ns`; return whether there were any. Call it before anything
        changes. Rows get the limits in force, and the memory last seen where no record has come."""
        if self.start_ns is None:
            return False
        ended = max((now_ns - self.start_ns) // self.period_ns, self._rows)
        fleet, first = self._fleet, self._rows
        if ended == first:
            return False
        self._write_down()
        self._fit(ended)
        rows = slice(first, ended)
        self._arrays["limit_bytes"][rows] = fleet.limit_bytes
        self._arrays["up"][rows] = fleet.up
        self._arrays["request_cores"][rows] = fleet.request_cores
        # A record that came already describes the container's own period, so it stays.
        unknown = ~self._arrays["reported"][rows]
        if not unknown.any():
            self._rows = int(ended)
            return True
        held_bytes = np.where(fleet.up, self._memory_bytes, 0)
        for name, known in (("quota_cores", fleet.quota_cores), ("memory_bytes", held_bytes)):
            self._arrays[name][rows][unknown] = np.broadcast_to(known, unknown.shape)[unknown]
        self._rows = int(ended)
        return True

    def take(self, records: Records, columns: Columns) -> None:
        """Fill the row in which each container's own period ended. columns: columns of records.ids. A record
        of several periods, because the loop or the kernel was late, fills the rows of all of them. Neither
        argument may change afterwards: they are recorded together when a row ends."""
        if self.start_ns is not None:
            self._taken.append((records, columns))
            self.reports += len(columns)

    def _write_down(self) -> None:
        if self._reasons:
            columns, reasons = zip(*self._reasons, strict=True)
            self._reasons.clear()
            self._fit(self._rows + 1)
            self._arrays["cpu_reason"][self._rows, columns] = reasons
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        if np.bincount(_joined([columns for _, columns in taken])).max() == 1:
            self._put(taken)
        else:
            # A container occurs twice after a late record. Its second row must come after its first.
            for entry in taken:
                self._put([entry])

    def _put(self, taken: Sequence[tuple[Records, Columns]]) -> None:
        """Store records in which each container occurs at most once."""
        assert self.start_ns is not None
        columns = _joined([columns_taken for _, columns_taken in taken])
        end_ns = _joined([records.end_ns for records, _ in taken])
        last = (end_ns - (self.start_ns + 1)) // self.period_ns
        self._fit(int(last.max()) + 1)
        found = {name: _joined([getattr(records, name) for records, _ in taken]) for name in _REPORTED}
        if self._share < 1.0:
            found["usage_cores"] = found["usage_cores"] * self._share
            for name in ("usage_cores", "throttled", "throttled_s"):
                found[name] = found[name] + self._arrays[name][last, columns]
        for name, values in found.items():
            self._arrays[name][last, columns] = values
        self._arrays["reported"][last, columns] = True
        self._fill(last, columns)
        self._memory_bytes[columns] = self._arrays["memory_bytes"][last, columns]

    def joined(self, column: int) -> None:
        """Forget the container's rows so far: it has joined again."""
        self._write_down()
        self._last_row[column] = self._rows
        self._memory_bytes[column] = 0

    def _fill(self, last: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Fill all periods that a late record covers with its values, which are their mean."""
        late = np.flatnonzero(last - self._last_row[columns] > 1)
        for row, column in zip(last[late].tolist(), columns[late].tolist(), strict=True):
            missed = slice(self._last_row[column] + 1, row)
            for name in ("usage_cores", "quota_cores", "throttled", "memory_bytes"):
                self._arrays[name][missed, column] = self._arrays[name][row, column]
        self._last_row[columns] = last

    def note(self, kind: str, column: int, now_ns: int) -> None:
        """Note an event, with the memory limit after it."""
        events = self.events
        events.at_s.append(self.at_s(now_ns))
        events.container.append(column)
        events.kind.append(kind)
        events.limit_bytes.append(int(self._fleet.limit_bytes[column]))

    def give_reason(self, column: int, reason: int) -> None:
        """Note the reason of the last change of a CPU limit in the present row."""
        self._reasons.append((column, reason))

    def series(self) -> ObservedSeries:
        """Return all rows that have ended."""
        self._write_down()
        kept: dict[str, Any] = {name: values[: self._rows].copy() for name, values in self._arrays.items()}
        return ObservedSeries(**kept)

    def _fit(self, rows: int) -> None:
        while rows > len(self._arrays["up"]):
            grown = self._block()
            for name, values in self._arrays.items():
                self._arrays[name] = np.concatenate((values, grown[name]))

    def _block(self) -> dict[str, NDArray[Any]]:
        shape = (_BLOCK_ROWS, len(self._fleet.containers))
        return {name: np.zeros(shape, kind) for name, kind in _TYPES.items()}


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
