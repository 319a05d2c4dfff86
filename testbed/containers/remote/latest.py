"""The latest record of each container, and its agent.

For: rejecting late records and those of other agents' containers, and the values of metrics. Not for:
deciding (the allocator), nor accepting datagrams (datagrams.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Ids, slot
from testbed.containers.ports import Records
from testbed.containers.remote.columns import Columns


class Latest(Columns):
    """Columns of the last reports. Methods and columns take ids of members.

    end_ns: end of the last record's period, by the agent's clock, ns; −1 before the first record.
    usage_cores: mean CPU use in the last period, cores.
    memory_bytes: memory at the end of the last period, bytes.
    periods, throttled_periods: numbers of periods, and of throttled ones, since the container joined.
    throttled_s: throttled time since the container joined, s.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner, self._app = self.column(np.int64), self.column(np.int64)
        self.end_ns, self.memory_bytes = self.column(np.int64), self.column(np.int64)
        self.periods, self.throttled_periods = self.column(np.int64), self.column(np.int64)
        self.usage_cores, self.throttled_s = self.column(np.float64), self.column(np.float64)

    def join(self, ids: Ids, owners: NDArray[np.int64], apps: NDArray[np.int64]) -> None:
        """Add containers. owners: their agents' numbers; apps: indices of their applications."""
        slots = self.add(ids)
        self._owner.values[slots], self._app.values[slots] = owners, apps
        self.end_ns.values[slots] = -1

    def forget_ends(self, ids: Ids) -> None:
        """Accept the next record whatever its time, because a new process may count anew."""
        self.end_ns.values[slot(ids)] = -1

    def owners(self, slots: NDArray[np.int64]) -> set[int]:
        """Return the agents of the containers in these slots."""
        return set(np.flatnonzero(np.bincount(self._owner.values[slots])).tolist())

    def owners_of_app(self, app: int) -> set[int]:
        """Return the agents that have containers of an application."""
        there = (self.ids[: self.size] >= 0) & (self._app.values[: self.size] == app)
        return self.owners(np.flatnonzero(there))

    def own(self, ids: Ids, speakers: NDArray[np.int64]) -> Flags:
        """Return bool[n]: whether each id is a container of the agent that reports it. Any id is allowed."""
        slots = slot(ids)
        # This is Columns.find without lists of the member positions, because nearly all ids are members.
        own: Flags = self.ids.take(slots, mode="clip") == ids
        own &= ids >= 0
        own &= self._owner.values.take(slots, mode="clip") == speakers
        return own

    def take(self, records: Records, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Store the records in `rows`, and return the rows that are newer than the stored ones. No two rows
        belong to one container."""
        slots = slot(records.ids[rows])
        newer = records.end_ns[rows] > self.end_ns.values[slots]
        rows, slots = rows[newer], slots[newer]
        self.end_ns.values[slots] = records.end_ns[rows]
        self.usage_cores.values[slots] = records.usage_cores[rows]
        self.memory_bytes.values[slots] = records.memory_bytes[rows]
        self.periods.values[slots] += 1
        self.throttled_periods.values[slots] += records.throttled[rows]
        self.throttled_s.values[slots] += records.throttled_s[rows]
        return rows


def rounds(ids: Ids, rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split rows into rounds, in order, so that no round has two rows of one container. size: number above
    all slots."""
    split: list[NDArray[np.int64]] = []
    first = np.empty(size, np.int64)
    while rows.size:
        slots = slot(ids[rows])
        if np.bincount(slots).max() == 1:
            return [*split, rows]
        first[slots[::-1]] = np.arange(len(rows))[::-1]
        alone = first[slots] == np.arange(len(rows))
        split.append(rows[alone])
        rows = rows[~alone]
    return split
