"""Memory events inside a pass over many periods: sweeps of the agents, grants to containers at their limit.

For: leap.py, with policies that have `ports.Tabled.memory_books`. Not for: short pools, kills, containers
that wait for a reclaim, and a network that delays answers. There a pass ends, and the control loop
(simulation.py) continues. Instants are summed as SimPy does, and events are handled in their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from control.allocator.escra_memory_settle import MemoryBooks, credit, grant
from control.allocator.model import PAGE_BYTES, SLOT_MASK, Ids
from twin.containers import cfs
from twin.containers.cfs import Bytes8, Fleet, Whole
from twin.containers.compiled import compiled, inlined, package_kernel
from twin.containers.members import Columns
from twin.containers.model import EVENT_KINDS, Floats
from twin.containers.sharing import Hosts

OOM, GRANT, RECLAIM = (EVENT_KINDS.index(kind) for kind in ("oom", "grant", "reclaim"))

SWEEP_S, RECLAIM_S, GRANT_S = 0, 1, 2
"""Places in Memory.due_s."""

ORDER, CHANGED, NOTED, HELD, GRANT_ORDER = 0, 1, 2, 3, 4
"""Places in Memory.counts."""

_NEVER = np.inf

_grant, _credit = compiled(grant), compiled(credit)


class Memory(NamedTuple):
    """State of the memory events of a pass over N containers.

    handled: whether this module handles the events. margin_bytes, interval_s: as in ReclaimRule. reclaim_s,
    grant_s: delays. due_s: float64[3], times of the next sweep, reclaim and grant, inf: none. counts:
    int64[5], order of the last decision, numbers of limits changed by grants, of notes and of containers that
    wait for a grant, and the grant's order. held, needed, limits: int64[N], of the waiting containers:
    columns, bytes above their limits, and new limits. slots: int64[N]. at_s, column, kind, limit_bytes: the
    notes, as in Events.
    """

    handled: bool
    books: MemoryBooks
    margin_bytes: int
    interval_s: float
    reclaim_s: float
    grant_s: float
    due_s: Floats
    counts: Whole
    held: Columns
    needed: Whole
    limits: Whole
    slots: Whole
    at_s: Floats
    column: Columns
    kind: Bytes8
    limit_bytes: Whole


def new_memory(count: int, reclaim_s: float, grant_s: float) -> Memory:
    """Return room for `count` containers, with no memory events."""
    notes = 8 * count + 1024
    held, needed, limits, slots = np.empty((4, count), np.int64)
    nobody = MemoryBooks(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), 1)
    return Memory(
        False, nobody, 0, 0.0, reclaim_s, grant_s, np.full(3, _NEVER), np.zeros(5, np.int64), held, needed,
        limits, slots,
        np.empty(notes), np.empty(notes, np.int64), np.empty(notes, np.uint8), np.empty(notes, np.int64),
    )  # fmt: skip


@package_kernel
def has_room(memory: Memory) -> bool:
    """Return whether the notes of one more period fit: each container's grant, reclaim and OOM."""
    return bool(memory.counts[NOTED] + 3 * len(memory.slots) <= len(memory.at_s))


@package_kernel
def _note(memory: Memory, at_s: float, column: int, kind: int, limit_bytes: int) -> None:
    place = memory.counts[NOTED]
    memory.at_s[place], memory.column[place] = at_s, column
    memory.kind[place], memory.limit_bytes[place] = kind, limit_bytes
    memory.counts[NOTED] = place + 1


@package_kernel
def hold(
    memory: Memory,
    fleet: Fleet,
    hosts: Hosts,
    over: Columns,
    issued: Ids,
    now_s: float,
    offset: float,
    in_force_s: float,
    end_s: float,
    demand: Floats,
    row: int,
    period_s: float,
) -> bool:
    """Hold containers (columns `over`) that exceed their limit at now_s, and book their grants.

    offset: seconds from the start of period `row` of `demand` to now_s.
    in_force_s, end_s: times at which this period's quotas are written and at which the period ends.
    Returns False, with nothing changed, if the control loop must do this.
    """
    # The next period must run, because a grant is due in it.
    if not memory.handled or memory.counts[NOTED] + 4 * len(memory.slots) > len(memory.at_s):
        return False
    due_s = now_s + max(memory.grant_s, 0.0)
    reclaim_s = min(memory.due_s[RECLAIM_S], memory.due_s[SWEEP_S] + max(memory.reclaim_s, 0.0))
    if not due_s < end_s or due_s in (in_force_s, reclaim_s):
        return False
    count = len(over)
    slots, needed = memory.slots[:count], memory.needed[:count]
    for j in range(count):
        slots[j] = issued[over[j]] & SLOT_MASK
        needed[j] = fleet.wanted_bytes[over[j]] - fleet.limit_bytes[over[j]]
        if memory.books.limit[slots[j]] != fleet.limit_bytes[over[j]]:
            return False
    if not _grant(memory.books, slots, needed, memory.limits[:count]):
        return False
    cfs.advance(fleet, hosts, over, offset, demand, row, period_s)
    for j in range(count):
        i = over[j]
        memory.held[j] = i
        _note(memory, now_s, i, OOM, fleet.limit_bytes[i])
        fleet.status[i] = cfs.HELD
        fleet.stalled[i] = 0.0
    memory.counts[ORDER] += 1
    memory.counts[GRANT_ORDER], memory.counts[HELD] = memory.counts[ORDER], count
    memory.due_s[GRANT_S] = due_s
    return True


@inlined
def is_due(memory: Memory, at_s: float) -> bool:
    """Return whether `go_to` has anything to handle before at_s. Asking costs less than the call."""
    due_s = memory.due_s
    return bool(due_s[SWEEP_S] <= at_s or due_s[RECLAIM_S] < at_s or due_s[GRANT_S] < at_s)


@package_kernel
def go_to(
    memory: Memory,
    at_s: float,
    fleet: Fleet,
    hosts: Hosts,
    columns: Columns,
    issued: Ids,
    demand: Floats,
    row: int,
    start_s: float,
    period_s: float,
) -> None:
    """Handle the events that are due before at_s, in period `row` of `demand`, which began at start_s.

    A sweep at at_s is handled too, because its timer was set before the others.
    """
    due_s = memory.due_s
    while is_due(memory, at_s):
        next_s = min(due_s[SWEEP_S], due_s[RECLAIM_S], due_s[GRANT_S])
        if due_s[SWEEP_S] == next_s:
            due_s[RECLAIM_S] = next_s + max(memory.reclaim_s, 0.0)
            due_s[SWEEP_S] = next_s + memory.interval_s
        elif due_s[RECLAIM_S] == next_s:
            due_s[RECLAIM_S] = _NEVER
            _reclaim(memory, next_s, fleet, columns, issued)
        else:
            due_s[GRANT_S] = _NEVER
            held = memory.held[: memory.counts[HELD]]
            for j in range(len(held)):
                i = held[j]
                memory.counts[CHANGED] += memory.limits[j] != fleet.limit_bytes[i]
                fleet.limit_bytes[i] = memory.limits[j]
                fleet.memory_order[i] = memory.counts[GRANT_ORDER]
                _note(memory, next_s, i, GRANT, memory.limits[j])
            offset = min(max(next_s - start_s, 0.0), period_s)
            cfs.advance(fleet, hosts, held, offset, demand, row, period_s)
            for j in range(len(held)):
                fleet.status[held[j]] = cfs.UP
            memory.counts[HELD] = 0


@package_kernel
def _reclaim(memory: Memory, at_s: float, fleet: Fleet, columns: Columns, issued: Ids) -> None:
    """Shrink running containers, as `memory.shrink_running` does, and book the freed memory."""
    memory.counts[ORDER] += 1
    for i in columns:
        if fleet.status[i] != cfs.UP:
            continue
        wanted = min(fleet.wanted_bytes[i], fleet.limit_bytes[i]) + memory.margin_bytes
        wanted += -wanted % PAGE_BYTES
        if wanted < fleet.limit_bytes[i]:
            fleet.limit_bytes[i] = wanted
            fleet.memory_order[i] = memory.counts[ORDER]
            _credit(memory.books, issued[i] & SLOT_MASK, wanted)
            _note(memory, at_s, i, RECLAIM, wanted)
