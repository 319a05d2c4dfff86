"""A host kernel's forwarding tables and tunnel rules, as netlink shows and changes them.

For: the state that a controller of rules dumps and is notified of, and the rule changes that the kernel
accepts or refuses. Not for: time, messages and the agent (simulated_agent.py). Rows lie in arrays and are
found by key in constant time, so that a dump of 100,000 entries is a copy. A dump has no order, like the
kernel's hash tables.
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
Listener = Callable[[Table], None]
"""A function called with the table that changed."""

EVERY_ROW = slice(None)

FULL = "ENOSPC: the table of rules is full"

_KIND: dict[Table, tuple[type[Any], tuple[str, ...]]] = {
    Table.BRIDGE_FDB: (BridgeFdb, ("mac", "vlan")),
    # A device accepts several VTEPs for one address, which makes duplicates possible.
    Table.EVPN_FDB: (EvpnFdb, ("mac", "vni", "remote")),
    Table.ROUTES: (Routes, ("prefix", "length", "gateway", "ifindex")),
    Table.NEIGHBOURS: (Neighbours, ("address", "ifindex")),
    Table.RULES: (Rules, ("handle",)),
}
"""Type of each table's dump, and the columns by which the kernel tells its rows apart."""


class _Rows:
    """Rows of whole numbers in one dense array, each found by its key."""

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
        """Put a row and return whether that changed anything."""
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
        """Remove and return the row (None: there is none). The last row takes its place."""
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
        """Return a copy of each column's part."""
        return list(self._rows[: len(self._slots)][rows].T.copy())


class KernelTables:
    """The tables of one host's kernel.

    max_rules: number of rules that it accepts on all representors together.
    listeners: called after each change of a forwarding table, and after each rule change that is not `quiet`.
    Rows are given as their table's columns (control.reconciler.model), in order.
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
        """Add or change a forwarding entry, route or neighbour."""
        if self._tables[table].put(row):
            self._tell(table)

    def remove(self, table: Table, *key: int) -> None:
        """Remove an entry, given the columns of its key in order. A missing entry is no error."""
        if self._tables[table].remove(key) is not None:
            self._tell(table)

    def fill(self, table: Table, columns: object) -> None:
        """Put all rows of a table."""
        for row in zip(
            *(getattr(columns, spec.name).tolist() for spec in fields(_KIND[table][0])), strict=True
        ):
            self.put(table, *row)

    def version(self, table: Table) -> int:
        """Return the number of changes of a table so far."""
        return self._tables[table].version

    def size(self, table: Table) -> int:
        """Return the number of rows of a table."""
        return len(self._tables[table])

    def dump(self, table: Table, rows: slice = EVERY_ROW) -> Any:
        """Return a copy of the table, or of some rows, as it is now: `BridgeFdb`, `EvpnFdb`, … or `Rules`."""
        return _KIND[table][0](*self._tables[table].columns(rows))

    # --- rules: a method returns the error, or None ------- -------------------------------------------------

    def add_rule(self, row: Row, *, quiet: bool = False) -> str | None:
        """Install a rule (columns of `Rules`; the kernel chooses the handle). quiet: do not notify its
        owner."""
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
        """Change a rule's VNI, VTEP and action. Handle 0 stands for the rule with that device, MAC and
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
        """Remove a rule; a missing rule is no error. Handle 0 is as in `replace_rule`."""
        device, mac, _, _, _, handle, cookie = row
        old = self._find(handle, device, mac, cookie)
        if old is not None:
            self._tables[Table.RULES].remove((old[5],))
            self._release(old[4])
            if not quiet:
                self._tell(Table.RULES)
        return None

    def rules(self) -> Iterable[Row]:
        """Return all rules, row by row."""
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
            self._tell(Table.RULES)

    def _bind(self, action: int, vni: int, remote: int) -> str | None:
        if self._actions.setdefault(action, (vni, remote)) != (vni, remote):
            return f"EEXIST: action {action} is another tunnel's"
        self._bound[action] = self._bound.get(action, 0) + 1
        return None

    def _release(self, action: int) -> None:
        self._bound[action] -= 1
        if not self._bound[action]:
            del self._bound[action], self._actions[action]

    def _tell(self, table: Table) -> None:
        for listener in self.listeners:
            listener(table)
