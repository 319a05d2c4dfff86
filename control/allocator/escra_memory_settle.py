"""Escra's memory rule, where no container waits for a reclaim, as loops that a backend may compile.

For: `grant` and `credit`, which do what `MemoryRule.on_oom` and `on_reclaimed` do, with the same results.
Not for: pools that are short, nor compiling. Both run uncompiled, too, and call no other function of ours,
because a compiled function is cached as long as its own file does not change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes


class MemoryBooks(NamedTuple):
    """State by slot, and by application. The functions change all but app and step_bytes.

    limit: int64[slots], bytes. pool: int64[apps], bytes in no limit. app: int64[slots]. step_bytes: grants
    are whole steps.
    """

    limit: Bytes
    pool: Bytes
    app: NDArray[np.int64]
    step_bytes: int


def grant(books: MemoryBooks, slots: NDArray[np.int64], needed: Bytes, limits: Bytes) -> bool:
    """Raise the limits of `slots` (int64[m], distinct) by what is needed, in whole steps, and book it.

    needed: int64[m], bytes. limits: int64[m], receives the new limits. Returns False, with nothing changed,
    if a pool is short.
    """
    asked = np.zeros(len(books.pool), np.int64)
    for row in range(len(slots)):
        amount = -(-max(needed[row], 1) // books.step_bytes) * books.step_bytes
        asked[books.app[slots[row]]] += amount
        limits[row] = books.limit[slots[row]] + amount
    for app in range(len(asked)):
        if asked[app] > books.pool[app]:
            return False
    for app in range(len(asked)):
        books.pool[app] -= asked[app]
    for row in range(len(slots)):
        books.limit[slots[row]] = limits[row]
    return True


def credit(books: MemoryBooks, slot: int, limit_bytes: int) -> None:
    """Book that agents have lowered the limit of `slot`. A report above the booked limit frees nothing."""
    limit = min(limit_bytes, books.limit[slot])
    books.pool[books.app[slot]] += books.limit[slot] - limit
    books.limit[slot] = limit
