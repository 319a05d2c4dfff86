"""Limits in transit to several hosts. Only limits whose sum stays within the global limit are sent.

For: holding a raise back until the cuts that make room for it are in force elsewhere. Not for: deciding
limits (the allocator), nor sending (controller.py). The allocator's state changes at once; hosts follow
later, each at its own time, and a disconnected host does not follow at all. So each container counts with the
largest limit that may be in force: the largest of the last one that its host confirmed, the one in transit,
and the one cleared for sending. Their sum per application stays within the global limit, or within the
allocator's decisions if they are larger (a policy without a global limit). Source: Escra (ICDCS 2022): the
sum of limits is within the global limit, at run time too.

At most one limit per container is in transit. A later decision replaces the waiting one until the host
answers, so a slow host makes no queue grow. There is one array per quantity, indexed by the slot in the
container's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats, Ids, Reasons, slot
from testbed.containers.remote.columns import Columns

LARGE_CORES = 1e9
LARGE_BYTES = 1 << 62
"""Value of "no limit", cores and bytes. It is finite, so that sums stay numbers."""

_SLACK = 1e-9
"""Relative tolerance, because sums of floats are not exact."""

Slots = NDArray[np.int64]


class Changes(NamedTuple):
    """Limits to be sent. ids: int64[n]. values: float64[n], cores or bytes. reasons: uint8[n], the
    allocator's reasons (control.allocator.model.Reason)."""

    ids: Ids
    values: Floats
    reasons: Reasons


class Ledger(Columns):
    """The limits of one resource on all hosts. caps: global limit of each application. large: value that
    counts as no limit. Amounts are float64, which holds whole bytes exactly up to 2^53."""

    def __init__(self, caps: Sequence[float], large: float) -> None:
        super().__init__()
        self._caps: Floats = np.array(caps, np.float64)
        self._large = float(large)
        self._app = self.column(np.int64)
        self._confirmed = self.column(np.float64)
        self._wanted = self.column(np.float64)
        self._sent = self.column(np.float64)
        self._reason = self.column(np.uint8)
        self._decided = self.column(np.bool_)
        # A limit is open until it is cleared, then cleared until it is sent, and then flying until it is
        # confirmed.
        self._open = self.column(np.bool_)
        self._cleared = self.column(np.bool_)
        self._flying = self.column(np.bool_)
        self._away = self.column(np.bool_)
        self._sendable = False

    def bounds(self) -> Floats:
        """Return the most that each application's limits can add up to at this moment, float64[apps]."""
        of = slice(0, self.size)
        bound = self._confirmed.values[of]
        bound = np.where(self._flying.values[of], np.maximum(bound, self._sent.values[of]), bound)
        bound = np.where(self._cleared.values[of], np.maximum(bound, self._wanted.values[of]), bound)
        return self._per_app(bound)

    def wanted(self, ids: Ids) -> Floats:
        """Return the latest limits decided for members, float64[n]."""
        return self._wanted(ids)

    def waiting(self) -> int:
        """Return the number of limits that are held back."""
        return int(np.count_nonzero(self._candidates()))

    def join(self, ids: Ids, apps: NDArray[np.int64], in_force: Floats) -> None:
        """Add containers. in_force: limit with which each runs already; 0 if it does not run yet."""
        slots = self.add(ids)
        self._app.values[slots] = apps
        self._confirmed.values[slots] = np.minimum(in_force, self._large)

    def decide(self, ids: Ids, values: Floats, reasons: Reasons) -> None:
        """Record decisions. Each replaces an earlier unsent decision. Unknown ids are ignored."""
        rows, slots = self.find(ids)
        self._wanted.values[slots] = np.minimum(values[rows], self._large)
        self._reason.values[slots] = reasons[rows]
        self._decided.values[slots] = self._open.values[slots] = True
        self._cleared.values[slots] = False

    def settle(self) -> Slots:
        """Clear limits for sending: cuts at once, raises if they fit, the smallest first. Returns slots.

        A raise that does not fit stays back. So does a limit for a host that is away, or while another one is
        on its way to the same container."""
        slots = np.flatnonzero(self._candidates())
        # This runs for each agent that is sent an order. Most agents have limits of one resource only.
        self._sendable = slots.size > 0 or bool(self._cleared.values[: self.size].any())
        if slots.size == 0:
            return slots
        need: Floats = self._wanted.values[slots] - self._confirmed.values[slots]
        up = need > 0
        cleared: Slots = slots[~up]
        if up.any():
            # After the smallest raises, no remaining raise would fit.
            raises, need = slots[up], need[up]
            order = np.lexsort((need, self._app.values[raises]))
            raises, need = raises[order], need[order]
            room = self._room()[self._app.values[raises]]
            cleared = np.concatenate((cleared, raises[_running(self._app.values[raises], need) <= room]))
        self._cleared.values[cleared] = True
        self._open.values[cleared] = False
        return cleared

    def send(self, hosts: Sequence[Slots], most: int) -> list[Changes | None]:
        """Return for each host up to `most` of its cleared limits, cuts first; None if there is none. They
        then count as sent. hosts: slots of each host. One call for many hosts costs a third of a call for
        each."""
        if not self._sendable or not hosts:
            return [None] * len(hosts)
        slots = np.concatenate(hosts)
        places = np.flatnonzero(self._cleared.values[slots])
        slots = slots[places]
        ends = [0, *np.searchsorted(places, np.cumsum([len(own) for own in hosts])).tolist()]
        if max(last - first for first, last in pairwise(ends)) > most:
            parts = [self._cuts_first(slots[first:last], most) for first, last in pairwise(ends)]
            slots, ends = np.concatenate(parts), [0, *np.cumsum([len(part) for part in parts]).tolist()]
        wanted, ids, reasons = self._wanted.values[slots], self.ids[slots], self._reason.values[slots]
        self._sent.values[slots] = wanted
        self._flying.values[slots] = True
        self._cleared.values[slots] = False
        return [
            Changes(ids[first:last], wanted[first:last], reasons[first:last]) if first < last else None
            for first, last in pairwise(ends)
        ]

    def _cuts_first(self, slots: Slots, most: int) -> Slots:
        if len(slots) <= most:
            return slots
        up = self._wanted.values[slots] > self._confirmed.values[slots]
        return slots[np.argsort(up, kind="stable")][:most]

    def in_force(self, ids: Ids) -> Flags:
        """Return whether the latest limits decided for members are in force, bool[n]."""
        busy = self._busy(slot(ids))
        return np.logical_not(busy)

    def confirm(self, ids: Ids, values: Floats) -> None:
        """Record that a host wrote the limits in transit, and that `values` are in force now. Each value
        counts at most as the larger of the limit sent and the limit in force before."""
        rows, slots = self.find(ids)
        flying = self._flying.values[slots]
        slots = slots[flying]
        most = np.maximum(self._confirmed.values[slots], self._sent.values[slots])
        self._confirmed.values[slots] = np.minimum(values[rows][flying], most)
        self._flying.values[slots] = False

    def again(self) -> None:
        """Mark for sending again the cuts that hosts could not carry out as decided."""
        of = slice(0, self.size)
        short = self._decided.values[of] & (self._confirmed.values[of] > self._wanted.values[of])
        slots = np.flatnonzero(short)
        self._open.values[slots[~self._busy(slots)]] = True

    def report(self, ids: Ids, values: Floats) -> Flags:
        """Record that a host lowered limits by itself. Returns bool[n]: False if the limit was not lowered,
        or if a decided limit that is not in force yet will override it."""
        rows, slots = self.find(ids)
        values = values[rows]
        taken = ~self._busy(slots) & (values >= 0) & (values <= self._confirmed.values[slots])
        lowered = slots[taken]
        self._confirmed.values[lowered] = values[taken]
        # A limit that the host could not lower far enough is sent again.
        self._open.values[lowered] = self._decided.values[lowered] & (
            self._wanted.values[lowered] < values[taken]
        )
        self._wanted.values[lowered] = np.minimum(self._wanted.values[lowered], values[taken])
        noted = np.zeros(len(ids), np.bool_)
        noted[rows[taken]] = True
        return noted

    def part(self, ids: Ids) -> None:
        """Record that a host is away. Unsent limits of these containers are held back until `resume`."""
        _, slots = self.find(ids)
        self._open.values[slots] |= self._cleared.values[slots]
        self._cleared.values[slots] = False
        self._away.values[slots] = True

    def resume(self, ids: Ids, in_force: Floats) -> None:
        """Accept containers of a host that is back. Messages in transit may be lost, so the latest decision
        is sent again. in_force: limits in force. A container without a limit (`large`) counts with that
        decision, which must be in force there as soon as possible."""
        rows, slots = self.find(ids)
        in_force = in_force[rows]
        wanted = self._wanted.values[slots]
        self._confirmed.values[slots] = np.where(in_force < self._large, in_force, wanted)
        self._open.values[slots] = self._decided.values[slots]
        for column in (self._cleared, self._flying, self._away):
            column.values[slots] = False

    def _busy(self, slots: Slots) -> Flags:
        busy: Flags = self._flying.values[slots] | self._cleared.values[slots] | self._open.values[slots]
        return busy

    def _candidates(self) -> Flags:
        of = slice(0, self.size)
        free: Flags = self._open.values[of] & ~self._flying.values[of] & ~self._away.values[of]
        return free

    def _room(self) -> Floats:
        wanted = self._per_app(self._wanted.values[: self.size])
        return np.maximum(self._caps, wanted) * (1 + _SLACK) - self.bounds()

    def _per_app(self, amounts: Floats) -> Floats:
        sums = np.bincount(self._app.values[: self.size], amounts, len(self._caps))
        return sums.astype(np.float64, copy=False)


def _running(groups: NDArray[np.int64], amounts: Floats) -> Floats:
    """Return the running sums of `amounts` within groups. groups: sorted numbers."""
    total = np.cumsum(amounts, dtype=np.float64)
    first = np.searchsorted(groups, groups)
    return total - (total - amounts)[first]
