"""Recorders of a run's periods: in one series, or in one block of it at a time.

For: the control loop (simulation.py). Not for: what a row says (cfs.record, asking.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from twin.containers import cfs
from twin.containers.model import Series

Keep = Callable[[Series], None]
"""Function that takes the rows of a block. The arrays are reused after it returns."""


class Recorder:
    """The series of `periods` × `count`, in blocks of block_rows (0: one block of all rows) if there is a
    `keep`.

    series: the present block. rows: its arrays. first: the period of its first row.
    """

    def __init__(self, periods: int, count: int, block_rows: int = 0, keep: Keep | None = None) -> None:
        self._periods, self._keep = periods, keep
        self.series = cfs.new_series(min(block_rows or periods, periods), count)
        self.rows = cfs.rows_of(self.series)
        self.first = 0

    def reach(self, row: int) -> cfs.Rows:
        """Return the rows of the block of period `row`; the block before it is handed over first."""
        length = len(self.series.up)
        if row >= self.first + length:
            self._hand_over(length)
            self.first += length
        return self.rows

    def finish(self) -> Series | None:
        """Hand the last block over; without `keep`, return the series."""
        if self._keep is None:
            return self.series
        self._hand_over(self._periods - self.first)
        return None

    def _hand_over(self, length: int) -> None:
        if self._keep is None:
            return
        made: dict[str, Any] = {}
        for field in fields(Series):
            rows = getattr(self.series, field.name)
            made[field.name] = None if rows is None else rows[:length]
        self._keep(Series(**made))
        if self.series.request_cores is not None:
            self.series.request_cores.fill(np.nan)
