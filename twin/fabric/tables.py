"""A host kernel's forwarding tables and tunnel rules, as netlink shows and changes them.

For: the state that a controller of rules dumps and is notified about, and the rule changes that the kernel
takes or refuses. Not for: time, messages and the agent (forwarding.py). Rows lie in arrays, found by key in
constant time, so that a dump of 100,000 entries is a copy. A dump is in no order, as the kernel's hash tables
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from control.reconciler.model import (
    BridgeFdb,
    EvpnFdb,
    Neighbours,
    Routes,
    Rules,
    Table,
    Whole,
)

Row = tuple[int, ...]
Listener = Callable[[Table, Row, bool], None]
"""Called with a table, the row that was put or removed, and whether it is gone."""

EVERY_ROW = slice(None)

FULL = "ENOSPC: the table of rules is full"

_KIND: dict[Table, tuple[type[Any], tuple[str, ...]]] = {
    Table.BRIDGE_FDB: (BridgeFdb, ("mac", "vlan")),
    # A device takes several VTEPs for one address: that is what makes duplicates possible.
    Table.EVPN_FDB: (EvpnFdb, ("mac", "vni", "remote")),
    Table.ROUTES: (Routes, ("prefix", "length", "gateway", "ifindex")),
    Table.NEIGHBOURS: (Neighbours, ("address", "ifindex")),
    Table.RULES: (Rules, ("handle",)),
}
"""What a dump of each table is, and by which columns the kernel tells its rows apart."""


class _Rows:
    """Rows of whole numbers in one array, dense, each found by its key."""

    def __init__(self, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
        self._rows: Whole = np.empty((16, len(columns)), np.int64)
        self._key = [columns.index(name) for name in key]
        self._slots: dict[Row, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: Row) -> Row | None:
        slot = self._slots.get(key)
        return None if slot is None else tuple(self._rows[slot].tolist())

    def put(self, row: Row) -> bool:
        """True if that changed anything."""
        key = tuple(row[column] for column in self._key)
        slot = self._slots.get(key)
        if slot is None:
            slot = len(self._slots)
            if slot == len(self._rows):
                self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
            self._slots[key] = slot
        elif tuple(self._rows[slot].tolist()) == row:
            return False
        self._rows[slot] = row
        self.version += 1
        return True

    def remove(self, key: Row) -> Row | None:
        """The row that was removed. The last one takes its place."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return None
        row: Row = tuple(self._rows[slot].tolist())
        last = len(self._slots)
        if slot != last:
            self._rows[slot] = self._rows[last]
            self._slots[tuple(self._rows[slot, self._key].tolist())] = slot
        self.version += 1
        return row

    def columns(self, rows: slice) -> list[Whole]:
        """A copy of each column's part."""
        return list(self._rows[: len(self._slots)][rows].T.copy())


class KernelTables:
    """One host's kernel. max_rules: that it takes on all representors together.

    Rows are given as their table's columns (control.reconciler.model), in order. listeners: called after each
    change of a forwarding table, and after each change of rules that is not by the listener's own owner (the
    owner is the last argument of a rule change).
    """

    def __init__(self, max_rules: int = 1_000_000) -> None:
        self.max_rules = max_rules
        self.listeners: list[Listener] = []
        self._tables = {
            table: _Rows(tuple(spec.name for spec in fields(kind)), key)
            for table, (kind, key) in _KIND.items()
        }
        self._last_handle = 0
        self._actions: dict[int, tuple[int, int]] = {}  # index → (VNI, VTEP)
        self._bound: dict[int, int] = {}  # index → rules that use it

    def put(self, table: Table, *row: int) -> None:
        """A forwarding entry, route or neighbour is there from now on, or is changed."""
        if self._tables[table].put(row):
            self._tell(table, row, False)

    def remove(self, table: Table, *key: int) -> None:
        """One is gone: its key's columns, in order. One that was not there is no matter."""
        row = self._tables[table].remove(key)
        if row is not None:
            self._tell(table, row, True)

    def fill(self, table: Table, columns: object) -> None:
        """Puts a whole table's rows."""
        for row in zip(
            *(getattr(columns, spec.name).tolist() for spec in fields(_KIND[table][0])), strict=True
        ):
            self.put(table, *row)

    def version(self, table: Table) -> int:
        """Counts the changes of a table."""
        return self._tables[table].version

    def size(self, table: Table) -> int:
        """Its rows."""
        return len(self._tables[table])

    def dump(self, table: Table, rows: slice = EVERY_ROW) -> Any:
        """A copy of the table, or of a part, as it is now: `BridgeFdb`, `EvpnFdb`, `Routes`, … or `Rules`."""
        return _KIND[table][0](*self._tables[table].columns(rows))

    # --- rules: each returns the error's name, or nothing -------------------------------------------------

    def add_rule(self, row: Row, *, quiet: bool = False) -> str | None:
        """Installs a rule (columns of `Rules`; the handle is given here). quiet: its owner is not told."""
        rules = self._tables[Table.RULES]
        if len(rules) >= self.max_rules:
            return FULL
        device, mac, vni, remote, action, _, cookie = row
        refused = self._bind(action, vni, remote)
        if refused:
            return refused
        self._last_handle += 1
        self._put_rule((device, mac, vni, remote, action, self._last_handle, cookie), quiet)
        return None

    def replace_rule(self, row: Row, *, quiet: bool = False) -> str | None:
        """Gives the rule another VNI, VTEP and action; a handle of 0 is the one of that device, MAC and
        cookie."""
        device, mac, vni, remote, action, handle, cookie = row
        old = self._find(handle, device, mac, cookie)
        if old is None:
            return "ENOENT: no rule with this handle"
        refused = self._bind(action, vni, remote)
        if refused:
            return refused
        self._release(old[4])
        self._put_rule((device, mac, vni, remote, action, old[5], cookie), quiet)
        return None

    def delete_rule(self, row: Row, *, quiet: bool = False) -> str | None:
        """Removes it; one that is gone already is no failure. A handle of 0 as in `replace_rule`."""
        device, mac, _, _, _, handle, cookie = row
        old = self._find(handle, device, mac, cookie)
        if old is not None:
            self._tables[Table.RULES].remove((old[5],))
            self._release(old[4])
            if not quiet:
                self._tell(Table.RULES, old, True)
        return None

    def rules(self) -> Iterable[Row]:
        """All rules, row by row."""
        dump: Rules = self.dump(Table.RULES)
        return zip(*(getattr(dump, spec.name).tolist() for spec in fields(Rules)), strict=True)

    def _find(self, handle: int, device: int, mac: int, cookie: int) -> Row | None:
        if handle:
            return self._tables[Table.RULES].get((handle,))
        same = (row for row in self.rules() if (row[0], row[1], row[6]) == (device, mac, cookie))
        return next(iter(same), None)

    def _put_rule(self, row: Row, quiet: bool) -> None:
        self._tables[Table.RULES].put(row)
        if not quiet:
            self._tell(Table.RULES, row, False)

    def _bind(self, action: int, vni: int, remote: int) -> str | None:
        if self._actions.setdefault(action, (vni, remote)) != (vni, remote):
            return f"EEXIST: action {action} is another tunnel's"
        self._bound[action] = self._bound.get(action, 0) + 1
        return None

    def _release(self, action: int) -> None:
        self._bound[action] -= 1
        if not self._bound[action]:
            del self._bound[action], self._actions[action]

    def _tell(self, table: Table, row: Row, gone: bool) -> None:
        for listener in self.listeners:
            listener(table, row, gone)
