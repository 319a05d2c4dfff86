"""The mapping between the allocator's containers and the columns of the workload.

For: ids ↔ columns, and the order in which columns report. Not for: the containers' state (cfs.Fleet). The
allocator issues an id when a container joins. A column that comes back is a new container.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Ids, ServiceStats, slot
from twinbed import InvariantError

Columns = NDArray[np.int64]


class Members:
    """The present containers, out of `count` columns.

    issued: int64[N], id of each column (−1: absent). column_of: int64[slots], column of a slot (−1: vacant).
    columns, ids: int64[k] of all members by slot, the order that allocators handle fastest. The arrays stay
        the same until membership changes.
    in_order: columns are 0 … N−1, all present.
    by_group: columns and ids of each group of columns (group: int64[N], 0 … groups − 1) that report together.
    """

    def __init__(self, group: NDArray[np.int64], groups: int) -> None:
        self._group, self._groups = group, groups
        self.issued: Ids = np.full(len(group), -1, np.int64)
        self.column_of: Columns = np.full(len(group), -1, np.int64)
        self._sort()

    def add(self, columns: Columns, ids: Ids) -> None:
        """Add columns that joined, with their ids. Raises InvariantError if an id is not a fresh one."""
        slots = slot(ids)
        if len(ids) != len(columns) or len(np.unique(slots)) != len(slots) or (slots < 0).any():
            raise InvariantError(f"{len(columns)} containers joined, and the allocator gave other ids")
        if slots.size and slots.max() >= len(self.column_of):
            grown = np.full(int(slots.max()) + 1, -1, np.int64)
            grown[: len(self.column_of)] = self.column_of
            self.column_of = grown
        if (self.column_of[slots] >= 0).any():
            raise InvariantError("the allocator gave a container an id whose slot is taken")
        self.issued[columns] = ids
        self.column_of[slots] = columns
        self._sort()

    def remove(self, columns: Columns) -> Ids:
        """Remove columns that left. Return their former ids."""
        ids = self.issued[columns]
        self.column_of[slot(ids)] = -1
        self.issued[columns] = -1
        self._sort()
        return ids

    def find(self, ids: Ids) -> tuple[NDArray[np.int64], Columns]:
        """Return (rows, columns) of the ids (int64[n]) that belong to members."""
        slots = slot(ids)
        columns = self.column_of[np.minimum(slots, len(self.column_of) - 1)]
        rows = np.flatnonzero((slots < len(self.column_of)) & (columns >= 0) & (self.issued[columns] == ids))
        return rows, columns[rows]

    def named(self, stats: ServiceStats) -> ServiceStats:
        """Return `stats` with the ids of its spans' containers in place of their columns."""
        if stats.spans is None:
            return stats
        return replace(stats, spans=replace(stats.spans, owner=self.issued[stats.spans.owner]))

    def _sort(self) -> None:
        self.columns: Columns = self.column_of[self.column_of >= 0]
        self.ids: Ids = self.issued[self.columns]
        self.ids.setflags(write=False)
        self.in_order = np.array_equal(self.columns, np.arange(len(self.issued)))
        self.by_group: list[tuple[Columns, Ids]] = [(self.columns, self.ids)]
        if self._groups > 1:
            group = self._group[self.columns]
            self.by_group = [(self.columns[group == g], self.ids[group == g]) for g in range(self._groups)]
            for _, ids in self.by_group:
                ids.setflags(write=False)
