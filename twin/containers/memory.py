"""Memory limits of the fleet: containers at their limit, effects of new limits, and reclaims.

For: the state changes of a few containers at one instant, as NumPy on subsets. Not for: the time of these
changes and the allocator's part (simulation.py). The check of all containers at a period's end is part of
`ending.end_period`.

A container wants the memory of its trace at each period's end. If that is above its limit, it holds the limit
and is stopped (held) or killed. Lowering a limit below the held memory acts like an attempt to charge it
(cgroup v2's memory.max). A host whose memory is full cannot take pages back, because containers here hold no
page cache: the kernel's OOM killer ends the largest container. Source: the memory rule of Escra (ICDCS 2022);
`control.allocator.ports.shrink`; oom_badness in mm/oom_kill.c of the kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, Ids
from control.allocator.ports import shrink
from twin.containers.cfs import HELD, UP, Fleet
from twin.containers.members import Columns, Members
from twinbed import InvariantError


class Written(NamedTuple):
    """Effects of new limits.

    changed: number of limits that differ from the old ones.
    held: columns that were held and got a limit.
    fitting: held columns that fit now.
    short: columns that want more than their new limit.
    """

    changed: int
    held: Columns
    fitting: Columns
    short: Columns


def excess(fleet: Fleet, columns: Columns) -> Bytes:
    """Return the bytes by which columns want more than their limit, int64[m]; ≤ 0 if they do not."""
    return fleet.wanted_bytes[columns] - fleet.limit_bytes[columns]


def write_limits(fleet: Fleet, columns: Columns, limits: Bytes, order: int, *, answer: bool) -> Written:
    """Set limits (int64[m]) by decision `order`, except where a later decision was already carried out.

    Held containers stay held; the caller releases `fitting`. answer: whether the limits answer a trap. Held
    containers that still do not fit are then `short` again, as are those whose grant was superseded. Limits
    that are no answer leave held containers waiting. Raises InvariantError if a grant raises nothing, because
    the containers would ask for ever.
    """
    if (limits < 0).any():
        raise InvariantError("the allocator decided a negative memory limit")
    current = fleet.memory_order[columns] <= order
    superseded, columns, limits = columns[~current], columns[current], limits[current]
    before = fleet.limit_bytes[columns]
    fleet.limit_bytes[columns] = limits
    fleet.memory_order[columns] = order
    fits = fleet.wanted_bytes[columns] <= limits
    status = fleet.status[columns]
    held = status == HELD
    short = columns[(status == UP) & ~fits]
    if answer:
        again = held & ~fits
        if (limits <= before)[again].any():
            raise InvariantError("the allocator answered a held container with a grant that raises nothing")
        unanswered = superseded[fleet.status[superseded] == HELD]
        short = np.concatenate((short, columns[again], unanswered))
    changed = int(np.count_nonzero(limits != before))
    return Written(changed, columns[held], columns[held & fits], short)


def shrink_running(
    fleet: Fleet, members: Members, chosen: Columns, margin_bytes: int, order: int
) -> tuple[Columns, Ids, Bytes]:
    """Carry out the agents' reclaim: lower the limits of the running containers among `chosen`.

    Returns the shrunk containers as (columns, ids, new limits). Held containers are at their limit, and
    containers that start up have no usage to measure, so neither is shrunk.
    """
    columns = chosen[fleet.status[chosen] == UP]
    usage = np.minimum(fleet.wanted_bytes[columns], fleet.limit_bytes[columns])
    ids, limits = shrink(members.issued[columns], fleet.limit_bytes[columns], usage, margin_bytes)
    _, lowered = members.find(ids)
    fleet.limit_bytes[lowered] = limits
    fleet.memory_order[lowered] = order
    return lowered, ids, limits


def too_much(fleet: Fleet, host: NDArray[np.int64], most_bytes: float) -> Columns:
    """Return the containers that the OOM killer ends: the largest of each host that holds more than
    most_bytes, one after another until the rest fits.

    host: int64[N], index of each container's host.
    """
    held = np.where(fleet.status <= HELD, np.minimum(fleet.wanted_bytes, fleet.limit_bytes), 0)
    ended: list[int] = []
    for full in np.flatnonzero(np.bincount(host, held) > most_bytes):
        members = np.flatnonzero(host == full)
        members = members[np.argsort(-held[members], kind="stable")]
        # Bytes held after the first k containers are gone, k = 0, 1, …
        left = held[members].sum() - np.concatenate(([0], np.cumsum(held[members])))
        ended += members[: int(np.argmax(left <= most_bytes))].tolist()
    return np.array(ended, np.int64)
