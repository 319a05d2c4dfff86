"""The containers of one run: which id of the allocator is which column, and the limits in force.

For: what the loop, the decisions and the record all need to know. Not for: changing limits
(decisions.py). A container that comes back gets a new id, because to the allocator it is a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, Floats, Ids, Join
from testbed.containers.host.supervised import Status, Supervised
from testbed.containers.ports import Records
from twinbed import InvariantError

NO_LIMIT_BYTES = (1 << 63) - 1

Columns = NDArray[np.int64]
"""Places of containers in the order given."""

_MOST_FOUND = 64
"""Arrays of ids whose columns are remembered: groups of containers that report together are fewer."""


class Fleet:
    """N containers in the order given. quota_cores (inf = none), limit_bytes (2^63 − 1 = none) and up are
    [N], 0 and False for those that are not there. host_cores: the largest useful quota."""

    def __init__(self, containers: Sequence[Supervised], host_cores: float) -> None:
        self.containers = tuple(containers)
        self.host_cores = host_cores
        count = len(containers)
        self.app = np.array([each.managed.app for each in containers], np.int64)
        self.quota_cores: Floats = np.zeros(count)
        self.limit_bytes: Bytes = np.zeros(count, np.int64)
        self.up: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._column_of: dict[int, int] = {}
        self._id_of: dict[int, int] = {}
        self._found: dict[int, tuple[Ids, Columns, bool]] = {}

    def add(self, columns: Sequence[int], ids: Ids) -> None:
        """Containers that joined with the ids they got; InvariantError if the allocator gave other ids."""
        if len(ids) != len(columns) or len(set(ids.tolist()) - self._column_of.keys()) != len(columns):
            raise InvariantError(f"{len(columns)} containers joined and the allocator gave other ids")
        for column, number in zip(columns, ids.tolist(), strict=True):
            self._column_of[number] = column
            self._id_of[column] = number
        self._found.clear()

    def has(self, column: int) -> bool:
        """Whether it is a member."""
        return column in self._id_of

    def remove(self, column: int) -> int | None:
        """A container left; its id, None if it had none."""
        number = self._id_of.pop(column, None)
        if number is not None:
            del self._column_of[number]
            self._found.clear()
        self.quota_cores[column], self.limit_bytes[column], self.up[column] = 0.0, 0, False
        return number

    def column(self, number: int) -> int | None:
        """The column of an id; None if it left."""
        return self._column_of.get(number)

    def members(self, ids: Ids) -> list[Supervised]:
        """The containers of those ids that are there."""
        columns = map(self._column_of.get, ids.tolist())
        return [self.containers[column] for column in columns if column is not None]

    def ids(self, columns: Iterable[int]) -> Ids:
        """int64[k]; the columns must be members."""
        return np.array([self._id_of[column] for column in columns], np.int64)

    def members_only(self, records: Records, began_ns: int) -> tuple[Records, Columns]:
        """Without periods from before the time line, and without containers that left; their columns."""
        columns, everybody = self._columns(records.ids)
        if everybody and min(records.end_ns.tolist()) > began_ns:
            return records, columns
        kept = (records.end_ns > began_ns) & (columns >= 0)
        some = Records(*(getattr(records, each.name)[kept] for each in fields(Records)))
        return some, columns[kept]

    def _columns(self, ids: Ids) -> tuple[Columns, bool]:
        """−1 for those who are not there, and whether everybody is. Found once for an array that nobody will
        write to."""
        found = self._found.get(id(ids))
        if found is not None:
            return found[1:]
        columns = np.array([self._column_of.get(number, -1) for number in ids.tolist()], np.int64)
        everybody = bool((columns >= 0).all())
        if not ids.flags.writeable:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            # Keeping the array itself keeps its address from being another's.
            self._found[id(ids)] = ids, columns, everybody
        return columns, everybody

    def joining(self, columns: Sequence[int]) -> Join:
        """What an allocator is told of newcomers; a peak counts as profiled when all of them have it."""
        chosen = [self.containers[column].managed for column in columns]
        cores = [each.peak_cores for each in chosen]
        sizes = [each.peak_bytes for each in chosen]
        return Join(
            self.app[list(columns)],
            np.full(len(columns), self.host_cores),
            None if None in cores else np.array(cores, np.float64),
            None if None in sizes else np.array(sizes, np.int64),
        )

    def hold(self, each: Supervised) -> None:
        """Its tasks wait at the memory limit."""
        each.resumes = each.status
        self.set_status(each, Status.HELD)

    def release(self, each: Supervised) -> None:
        """They go on."""
        self.set_status(each, each.resumes)

    def set_status(self, each: Supervised, status: Status) -> None:
        """Held containers are up, as in the twin: they are there and have not been killed."""
        each.status = status
        self.up[each.index] = status in (Status.UP, Status.HELD)
