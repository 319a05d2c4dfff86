"""The roster: container ids, their slots, their application, and columns of per-slot state.

For: every allocator's membership. Slots are dense and reused (smallest first), so state stays in compact
arrays however many containers come and go. An id carries the slot's occupancy count, so no decision ever
applies to a container that left. Not for: limits or decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import SLOT_BITS, Application, Ids, Join, slot
from twinbed import InvariantError, ScenarioError

Index = slice | NDArray[np.int64]
"""Rows or slots as an array index: a slice if all are selected in order (no copy), else int64[m]."""

_FIRST_CAPACITY = 64
_MOST_LOOK_UPS = 64
"""Number of id arrays whose look-up is cached. Usually fewer groups of containers than this report
together."""


class Column:
    """One quantity over all slots: `values`, shape (capacity, *shape), reset to `fill` on a join.

    cells: the same memory for access to one number at a time, which takes a third of NumPy's time. order: "C"
    stores a slot's numbers side by side, "F" the same number of all slots.
    """

    def __init__(
        self, capacity: int, fill: float, dtype: type, shape: tuple[int, ...], order: Literal["C", "F"] = "C"
    ) -> None:
        self._fill: float = fill
        self._order: Literal["C", "F"] = order
        self.values: NDArray[Any] = np.full((capacity, *shape), fill, dtype, order)
        self.cells: memoryview[Any] = self.values.data

    def _grow(self, capacity: int) -> None:
        grown = np.full((capacity, *self.values.shape[1:]), self._fill, self.values.dtype, self._order)
        grown[: len(self.values)] = self.values
        self.values = grown
        self.cells = grown.data

    def _reset(self, slots: NDArray[np.int64]) -> None:
        self.values[slots] = self._fill


class Roster:
    """Members of all applications of one allocator.

    `size` is the number of slots ever used; columns are meaningful in [0, size). `alive`, `app`, `ids` and
    `host_cores` are views of that length.
    """

    def __init__(self, applications: Sequence[Application]) -> None:
        self.applications = tuple(applications)
        for application in self.applications:
            if not (application.cpu_limit_cores > 0 and application.memory_limit_bytes > 0):
                raise ScenarioError(
                    f"application {application.name!r}: both global limits must be above zero"
                )
        self.cpu_limit_cores = np.array([a.cpu_limit_cores for a in applications], np.float64)
        self.memory_limit_bytes = np.array([a.memory_limit_bytes for a in applications], np.int64)
        self.members = np.zeros(len(self.applications), np.int64)
        self.size = 0
        self._free: list[int] = []
        self._columns: list[Column] = []
        self._capacity = _FIRST_CAPACITY
        self._alive = self.column(False, np.bool_)
        self._app = self.column(0, np.int64)
        self._host_cores = self.column(0.0, np.float64)
        self._ids = np.full(self._capacity, -1, np.int64)
        self._last_row = self.column(0, np.int64)
        self._all: Ids | None = None
        self._look_ups: dict[int, tuple[Ids, Index, Index]] = {}

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Whether a member holds the slot, bool[size]."""
        return self._alive.values[: self.size]

    @property
    def app(self) -> NDArray[np.int64]:
        """Index of the slot's application, int64[size]; stale if the slot is not alive."""
        return self._app.values[: self.size]

    @property
    def host_cores(self) -> NDArray[np.float64]:
        """Cores of the container's host, float64[size]."""
        return self._host_cores.values[: self.size]

    @property
    def ids(self) -> Ids:
        """Latest id of each slot, int64[size]."""
        return self._ids[: self.size]

    def living(self) -> Ids:
        """Return the ids of all members, by slot. Do not write to the array.

        It is the same array until membership changes. Passing it back in telemetry takes the fast path of
        `find`.
        """
        if self._all is None:
            self._all = self.ids[self.alive].copy()
            self._all.setflags(write=False)
        return self._all

    def column(self, fill: float, dtype: type, *shape: int, order: Literal["C", "F"] = "C") -> Column:
        """Return a new per-slot state column that grows and resets with the membership."""
        column = Column(self._capacity, fill, dtype, shape, order)
        self._columns.append(column)
        return column

    def join(self, containers: Join) -> Ids:
        """Issue ids (int64[k], in the order of `containers`) and reset all columns at their slots."""
        count = len(containers.app)
        if count and not (containers.app.min() >= 0 and containers.app.max() < len(self.applications)):
            raise InvariantError("a container joins an application that does not exist")
        reused = self._free[:count]
        del self._free[:count]
        fresh = np.arange(self.size, self.size + count - len(reused), dtype=np.int64)
        slots = np.concatenate([np.array(reused, np.int64), fresh])
        self.size += len(fresh)
        self._fit()
        for column in self._columns:
            column._reset(slots)
        occupants = np.where(self._ids[slots] < 0, 0, (self._ids[slots] >> SLOT_BITS) + 1)
        new: Ids = (occupants << SLOT_BITS) | slots
        self._ids[slots] = new
        self._alive.values[slots] = True
        self._app.values[slots] = containers.app
        self._host_cores.values[slots] = containers.host_cores
        self.members += np.bincount(containers.app, minlength=len(self.members))
        self._all = None
        self._look_ups.clear()
        return new

    def leave(self, ids: Ids) -> NDArray[np.int64]:
        """Remove members and return their slots (int64[m]). Other ids are ignored."""
        slots = slot(ids[self.member(ids)])
        slots = np.unique(slots)
        self._alive.values[slots] = False
        self.members -= np.bincount(self.app[slots], minlength=len(self.members))
        self._free = sorted([*self._free, *slots.tolist()])
        self._all = None
        self._look_ups.clear()
        return slots

    def member(self, ids: Ids) -> NDArray[np.bool_]:
        """Return bool[n]: whether each id is a present member."""
        slots = slot(ids)
        known = slots < self.size
        safe = np.where(known, slots, 0)
        if self.size == 0:
            return np.zeros(len(ids), np.bool_)
        present: NDArray[np.bool_] = known & (self._ids[safe] == ids) & self.alive[safe]
        return present

    def find(self, ids: Ids) -> tuple[Index, Index]:
        """Return (rows, slots): the rows of arrays parallel to `ids` that belong to members, and their slots.

        If an id occurs more than once, only its last row counts. `rows` is a slice if every row counts.
        `slots` is a slice if, in addition, `ids` are all members by slot (`living`) and no slot is vacant.
        """
        everyone = self.living()
        # Comparing costs much less than looking up each id. So a backend may also keep its own array of
        # ids. If that array is not writeable, it replaces the array of `living` and is not compared again.
        if len(ids) == len(everyone) and (ids is everyone or np.array_equal(ids, everyone)):
            if not ids.flags.writeable:
                self._all = ids
            whole = slice(0, len(ids))
            return whole, whole if len(ids) == self.size else slot(everyone)
        if ids.flags.writeable:
            return self._look_up(ids)
        # Keeping a reference to the array ensures that no other array gets its address.
        entry = self._look_ups.get(id(ids))
        if entry is None:
            if len(self._look_ups) >= _MOST_LOOK_UPS:
                self._look_ups.clear()
            entry = self._look_ups[id(ids)] = (ids, *self._look_up(ids))
        return entry[1:]

    def _look_up(self, ids: Ids) -> tuple[Index, Index]:
        rows = np.flatnonzero(self.member(ids))
        slots = slot(ids[rows])
        self._last_row.values[slots] = rows
        last = self._last_row.values[slots] == rows
        if not last.all():
            rows, slots = rows[last], slots[last]
        return slice(0, len(ids)) if len(rows) == len(ids) else rows, slots

    def _fit(self) -> None:
        if self.size <= self._capacity:
            return
        while self._capacity < self.size:
            self._capacity *= 2
        for column in self._columns:
            column._grow(self._capacity)
        grown = np.full(self._capacity, -1, np.int64)
        grown[: len(self._ids)] = self._ids
        self._ids = grown
