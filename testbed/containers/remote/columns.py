"""Columns of state about containers, indexed by the slot in their ids.

For: the controller's arrays, one per quantity. Not for: issuing ids, which the allocator does
(control/allocator/roster.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Ids, slot

_FIRST_CAPACITY = 64


class Column:
    """One quantity over all slots. values: one number per allocated slot, 0 if the slot is free."""

    def __init__(self, capacity: int, dtype: type) -> None:
        self.values: NDArray[Any] = np.zeros(capacity, dtype)

    def __call__(self, ids: Ids) -> NDArray[Any]:
        """Return the values of members, one for each id."""
        return self.values[slot(ids)]


class Columns:
    """Columns that grow together. size: number of slots ever used. ids: int64[size], present id of each slot;
    −1 if it is free."""

    def __init__(self) -> None:
        self.size = 0
        self.ids: Ids = np.full(_FIRST_CAPACITY, -1, np.int64)
        self._columns: list[Column] = []

    def column(self, dtype: type) -> Column:
        """Return a new column of zeros that grows with the others."""
        column = Column(len(self.ids), dtype)
        self._columns.append(column)
        return column

    def add(self, ids: Ids) -> NDArray[np.int64]:
        """Add containers, set their columns to 0, and return their slots, int64[n]."""
        slots = slot(ids)
        self._fit(int(slots.max(initial=-1)) + 1)
        self._clear(slots)
        self.ids[slots] = ids
        return slots

    def leave(self, ids: Ids) -> None:
        """Remove containers. Unknown ids are ignored."""
        _, slots = self.find(ids)
        self._clear(slots)
        self.ids[slots] = -1

    def find(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (rows, slots), int64[k] each: positions in `ids` that are members, and their slots. Any
        number is allowed as an id."""
        slots = slot(ids)
        # A slot beyond the last one is looked up as the last slot, which has another id.
        rows = np.flatnonzero((self.ids.take(slots, mode="clip") == ids) & (ids >= 0))
        return rows, slots[rows]

    def _clear(self, slots: NDArray[np.int64]) -> None:
        for column in self._columns:
            column.values[slots] = 0

    def _fit(self, size: int) -> None:
        self.size = max(self.size, size)
        capacity = len(self.ids)
        if self.size <= capacity:
            return
        while capacity < self.size:
            capacity *= 2
        for column in self._columns:
            column.values = np.concatenate(
                (column.values, np.zeros(capacity - len(column.values), column.values.dtype))
            )
        self.ids = np.concatenate((self.ids, np.full(capacity - len(self.ids), -1, np.int64)))
