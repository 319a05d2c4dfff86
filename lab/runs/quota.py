"""The largest size of a store.

For: refusing a run that exceeds the quota before it is stored. Not for: removing runs (lab.runs.upkeep). Each
writer sums its own bytes and measures the whole store every LOOK_S. So several writers together may exceed
the quota by the bytes that they write in that time.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from twinbed import StoreError

if TYPE_CHECKING:
    from lab.runs.store import RunStore

LOOK_S = 30.0
"""Time after which the store's size is measured again, s: this lists the whole store."""

_SHELF, _FILE = ".quota", "bytes"


class Quota:
    """The quota of a store, kept in the store."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._looked_s, self._most, self._used = -math.inf, math.inf, 0

    def get(self) -> int | None:
        """Return the quota in bytes, None if there is none. Raises StoreError if it cannot be understood."""
        shelf = self._store.shelf(_SHELF)
        if _FILE not in shelf.names():
            return None
        try:
            return int(shelf.read(_FILE))
        except ValueError:
            where = f"{self._store.location}/{_SHELF}/{_FILE}"
            raise StoreError(f"{where}: not a number; set it again: twinbed runs quota SIZE") from None

    def set(self, most: int | None) -> None:
        """Set the quota in bytes; None: no quota."""
        shelf = self._store.shelf(_SHELF)
        if most is None:
            shelf.remove(_FILE)
        else:
            shelf.write(_FILE, str(most).encode())

    def claim(self, more: int) -> None:
        """Count bytes that are about to be written. Raises StoreError if they exceed the quota."""
        if time.monotonic() - self._looked_s > LOOK_S or self._used + more > self._most:
            # Before a refusal, too: runs that were replaced or removed have made room.
            most = self.get()
            self._most = math.inf if most is None else most
            self._used = 0 if most is None else int(self._store.list()["bytes"].sum())
            self._looked_s = time.monotonic()
        if self._used + more > self._most:
            raise StoreError(
                f"{self._store.location}: full: {self._used + more:,} bytes would exceed its quota of "
                f"{self._most:,.0f}; twinbed runs prune makes room"
            )
        self._used += more
