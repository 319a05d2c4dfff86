"""Escra's memory rule: a pool that is withheld, grants to held containers, and reclaims.

For: memory limits at deployment, on joins, leaves, OOM events and reclaim reports. Not for: CPU
(escra_cpu.py), nor choosing what to shrink (`ports.shrink`, the agents). Source: Escra (ICDCS 2022).

All amounts are whole bytes (int64): Σ limits + pool = M holds exactly after every call.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.escra_memory_settle import MemoryBooks
from control.allocator.escra_settings import EscraSettings
from control.allocator.model import (
    PAGE_BYTES,
    Bytes,
    Ids,
    MemoryLimits,
    OomEvents,
    Reason,
    Shrunk,
    Slots,
    reasons,
    slot,
)
from control.allocator.roster import Roster
from twinbed import ScenarioError

Apps = NDArray[np.int64]


class MemoryRule:
    """Memory limits of all members of a roster, and each application's pool."""

    def __init__(self, roster: Roster, settings: EscraSettings) -> None:
        self._roster = roster
        self._settings = settings
        self._limit = roster.column(0, np.int64)
        self._waiting = roster.column(0, np.int64)  # bytes needed by a held container; 0: not waiting
        self._pool: Bytes = roster.memory_limit_bytes.copy()

    @property
    def limit_bytes(self) -> Bytes:
        """Limit of each slot, int64[size]; 0 where the slot is free. Do not write to it."""
        return self._limit.values[: self._roster.size]

    @property
    def pool_bytes(self) -> Bytes:
        """Bytes that are in no container's limit, int64[apps]. Do not write to it."""
        return self._pool

    @property
    def waiting(self) -> Ids:
        """Ids of the held containers that wait for a reclaim, by slot."""
        return self._roster.ids[self._waiting_slots()]

    def books(self) -> MemoryBooks | None:
        """Return what the functions of escra_memory_settle work on; None while a container waits."""
        if self._waiting.values.any():
            return None
        return MemoryBooks(self._limit.values, self._pool, self._roster.app, self._settings.grant_bytes)

    def check_room(self, apps: Apps) -> None:
        """Raise ScenarioError if M is less than a page per member with newcomers in `apps` (int64[k])."""
        members = self._roster.members + np.bincount(apps, minlength=len(self._pool))
        short = np.flatnonzero(members * PAGE_BYTES > self._roster.memory_limit_bytes)
        if short.size:
            application = self._roster.applications[int(short[0])]
            raise ScenarioError(
                f"application {application.name!r}: {members[short[0]]} containers need at least one page "
                f"({PAGE_BYTES} bytes) each, its memory limit is {application.memory_limit_bytes} bytes"
            )

    def admit(self, slots: Slots) -> tuple[Bytes, Apps]:
        """Give newcomers M·σ/k, where k counts them, as far as the pool allows.

        Returns (limits, short applications). Limits are whole pages. If the pool is short, the newcomers get
        equal parts, possibly 0. Their first page is then held until the reclaim of the short applications is
        reported.
        """
        app = self._roster.app[slots]
        total = self._roster.memory_limit_bytes
        initial = (total * self._settings.initial_memory).astype(np.int64)
        share = np.maximum(_whole(initial // np.maximum(self._roster.members, 1), PAGE_BYTES), PAGE_BYTES)
        newcomers = np.bincount(app, minlength=len(total))
        given = np.minimum(share, _whole(self._pool // np.maximum(newcomers, 1), PAGE_BYTES))
        self._limit.values[slots] = given[app]
        self._pool -= given * newcomers
        return given[app], np.flatnonzero((newcomers > 0) & (given < share))

    def release(self, slots: Slots) -> None:
        """Take back the limits of members that left. They are no longer waited for."""
        np.add.at(self._pool, self._roster.app[slots], self._limit.values[slots])
        self._limit.values[slots] = 0
        self._waiting.values[slots] = 0

    def on_oom(self, event: OomEvents) -> tuple[MemoryLimits, Apps]:
        """Grant whole steps. Return (grants, applications to reclaim).

        If a pool is short, smaller requests go first (equal ones by slot). The others wait for a reclaim, so
        that the pool is not spent in pieces too small to help. A container that already waits keeps waiting.
        """
        rows, _ = self._roster.find(event.ids)
        slots = slot(event.ids[rows])
        needed = np.maximum(event.needed_bytes[rows], 1)
        fresh = self._waiting.values[slots] == 0
        slots, needed = slots[fresh], needed[fresh]
        amount = -_whole(-needed, self._settings.grant_bytes)
        fits = self._smallest_first(slots, amount)
        granted = self._grant(slots[fits], amount[fits])
        self._waiting.values[slots[~fits]] = needed[~fits]
        return granted, np.unique(self._roster.app[slots[~fits]])

    def on_reclaimed(self, shrunk: Shrunk) -> tuple[MemoryLimits, Ids]:
        """Book the freed bytes and answer the containers that wait in `shrunk.apps`.

        Returns (grants, ids left to the OOM killer). Needs are served first, smaller ones before larger ones.
        The rest raises the grants towards whole steps, in proportion to what each lacks.
        """
        self._credit(shrunk)
        asked = np.zeros(len(self._pool), np.bool_)
        asked[shrunk.apps] = True
        slots = self._waiting_slots()
        slots = slots[asked[self._roster.app[slots]]]
        needed = self._waiting.values[slots]
        self._waiting.values[slots] = 0
        amount = -_whole(-needed, PAGE_BYTES)
        fits = self._smallest_first(slots, amount)
        killed = self._roster.ids[slots[~fits]]
        slots, amount = slots[fits], amount[fits]
        amount += self._top_up(self._roster.app[slots], amount)
        return self._grant(slots, amount), killed

    def _credit(self, shrunk: Shrunk) -> None:
        rows, _ = self._roster.find(shrunk.ids)
        slots = slot(shrunk.ids[rows])
        # A report above the booked limit is outdated and frees nothing.
        limit = np.minimum(shrunk.limit_bytes[rows], self._limit.values[slots])
        np.add.at(self._pool, self._roster.app[slots], self._limit.values[slots] - limit)
        self._limit.values[slots] = limit

    def _grant(self, slots: Slots, amount: Bytes) -> MemoryLimits:
        np.subtract.at(self._pool, self._roster.app[slots], amount)
        limit = self._limit.values[slots] + amount
        self._limit.values[slots] = limit
        return MemoryLimits(self._roster.ids[slots], limit, reasons(len(slots), Reason.OOM_GRANT))

    def _smallest_first(self, slots: Slots, amount: Bytes) -> NDArray[np.bool_]:
        """Return the requests that fit their application's pool when served from the smallest up, bool[m]."""
        app = self._roster.app[slots]
        order = np.lexsort((slots, amount, app))
        app = app[order]
        running = np.cumsum(amount[order])
        first = np.searchsorted(app, app)
        before = np.concatenate((np.zeros(1, np.int64), running))[first]
        fits = np.empty(len(slots), np.bool_)
        fits[order] = running - before <= self._pool[app]
        return fits

    def _top_up(self, app: Apps, amount: Bytes) -> Bytes:
        """Return what each grant gets beyond its need (whole pages), out of what the needs leave in the
        pool.
        """
        lacking = -_whole(-amount, self._settings.grant_bytes) - amount
        left = self._pool - np.bincount(app, amount, minlength=len(self._pool)).astype(np.int64)
        wanted = np.bincount(app, lacking, minlength=len(self._pool))
        rate = np.minimum(left / np.maximum(wanted, 1.0), 1.0)
        return _whole((lacking * rate[app]).astype(np.int64), PAGE_BYTES)

    def _waiting_slots(self) -> Slots:
        return np.flatnonzero(self._waiting.values[: self._roster.size])


def _whole(amount: Bytes, unit: int) -> Bytes:
    """Return `amount` rounded down to whole units. −_whole(−amount) rounds up."""
    return amount // unit * unit
