"""Placement of gangs on servers: which gangs fit, and which GPUs they get.

For: every policy, after it has decided an order. Not for: the order. Choosing by counting GPUs works on whole
arrays; only a job that gets new GPUs costs a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from control.scheduler.model import Assignment, Cluster, Flags, Real, State, Whole

Lines = tuple[Whole, Whole]
"""The servers of a job and the number of its GPUs on each."""


class Room:
    """The free GPUs while a plan is made. free: GPUs by server, int64[h]."""

    def __init__(self, cluster: Cluster, state: State) -> None:
        self.free = np.where(state.up, cluster.server_gpus, 0)
        self._cluster = cluster
        self._state = state
        self._servers = cluster.of_type
        self._rows: list[Whole] = []
        self._lines: list[Lines] = []

    def keep(self, kept: Assignment) -> None:
        """Leave these GPUs to the jobs that hold them."""
        once = kept.counted() if kept.shared.size else slice(None)
        self.free -= np.bincount(kept.server[once], kept.gpus[once], self.free.size).astype(np.int64)
        self._rows.append(kept.row)
        self._lines.append((kept.server, kept.gpus))

    def free_of(self, kind: int) -> int:
        """Return the number of free GPUs of a type."""
        return int(self.free[self._servers[kind]].sum())

    def find(self, row: int, kind: int) -> Lines | None:
        """Return the GPUs on which the job would run on this type, None if it does not fit now.

        It is the fullest server that holds the whole gang, or else the emptiest servers. A job that must stay
        together takes one server, or servers of one rack if no server of the type is large enough.
        """
        servers, wanted = self._servers[kind], int(self._state.gpus[row])
        free = self.free[servers]
        whole = np.flatnonzero(free >= wanted)
        if whole.size:
            best = whole[free[whole].argmin()]
            return servers[best : best + 1], np.array([wanted])
        if not self._state.together[row]:
            return _emptiest(servers, free, wanted)
        if not servers.size or wanted <= self._cluster.server_gpus[servers].max():
            return None
        racks = self._cluster.rack[servers]
        inside = np.bincount(racks, free)
        inside = np.where(inside >= wanted, inside, np.inf)
        if np.isinf(inside).all():
            return None
        rack = racks == int(inside.argmin())
        return _emptiest(servers[rack], free[rack], wanted)

    def take(self, row: int, lines: Lines) -> None:
        """Give the job in row `row` of the state these GPUs, which are free."""
        self.free[lines[0]] -= lines[1]
        self._rows.append(np.full(lines[0].size, row))
        self._lines.append(lines)

    def share(self, row: int, lines: Lines) -> None:
        """Give the job in row `row` of the state these GPUs, which another job holds."""
        self._rows.append(np.full(lines[0].size, row))
        self._lines.append(lines)

    def place(self, row: int, kinds: Iterable[int]) -> bool:
        """Give the job GPUs of the first of these types where it fits. Return whether there was one."""
        for kind in kinds:
            lines = self.find(row, kind)
            if lines is not None:
                self.take(row, lines)
                return True
        return False

    def plan(self) -> Assignment:
        """Return the GPUs of all jobs, sorted by job and server."""
        if not self._rows:
            empty = np.empty(0, np.int64)
            return Assignment(empty, empty, empty)
        row = np.concatenate(self._rows)
        server = np.concatenate([lines[0] for lines in self._lines])
        gpus = np.concatenate([lines[1] for lines in self._lines])
        order = np.argsort(row * self.free.size + server, kind="stable")
        return Assignment(row[order], server[order], gpus[order])


def _emptiest(servers: Whole, free: Whole, wanted: int) -> Lines | None:
    order = np.argsort(-free, kind="stable")
    return first_gpus(servers[order], free[order], wanted)


def first_gpus(servers: Whole, free: Whole, wanted: int) -> Lines | None:
    """Return `wanted` GPUs on the first of these servers, None if they have too few. free: GPUs of each."""
    reached = np.cumsum(free)
    if not reached.size or reached[-1] < wanted:
        return None
    last = int(np.searchsorted(reached, wanted))
    gpus = free[: last + 1].copy()
    gpus[-1] -= reached[last] - wanted
    return servers[: last + 1], gpus


def greedy(sizes: Whole, capacity: int) -> Flags:
    """Return the gangs that get GPUs, bool[n]: in their order, skipping those that no longer fit."""
    taken = np.zeros(sizes.size, np.bool_)
    rows = np.flatnonzero(sizes <= capacity)
    while rows.size:
        reached = np.cumsum(sizes[rows])
        count = int(np.searchsorted(reached, capacity, side="right"))
        taken[rows[:count]] = True
        capacity -= int(reached[count - 1])
        rows = rows[count:]
        rows = rows[sizes[rows] <= capacity]
    return taken


def held_type(cluster: Cluster, state: State) -> Whole:
    """Return the type on which each job has its GPUs, −1 for none, int64[n]."""
    kinds = np.full(len(state), -1)
    kinds[state.held.row] = cluster.server_type[state.held.server]
    return kinds


def held_lines(state: State) -> dict[int, Lines]:
    """Return each job's present GPUs, by row."""
    held = state.held
    order = np.argsort(held.row, kind="stable")
    rows, first = np.unique(held.row[order], return_index=True)
    parts = zip(np.split(held.server[order], first[1:]), np.split(held.gpus[order], first[1:]), strict=True)
    return dict(zip(rows.tolist(), parts, strict=False))


def settle(
    cluster: Cluster, state: State, wanted: Whole, settled: Callable[..., tuple[Whole, Whole, Whole, bool]]
) -> Assignment:
    """Return GPUs for the jobs that were chosen by counting.

    wanted: type for each job, −1 for none, int64[n]. settled: the function below, perhaps compiled. If a gang
    that must stay together finds no place among the jobs that keep theirs, smaller jobs make room for it.
    Even then it may find none.
    """
    held = state.held
    row, server, gpus, whole = settled(
        wanted, np.lexsort((state.job, state.submit_s, -state.gpus)), held.row, held.server, held.gpus,
        state.gpus, state.together, state.up, cluster.server_gpus, cluster.server_type, cluster.rack,
    )  # fmt: skip
    order = np.lexsort((server, row))
    plan = Assignment(row[order], server[order], gpus[order])
    if whole:
        return plan
    moved = _larger_first(cluster, state, wanted, held_type(cluster, state) == wanted)
    return moved if moved.gpus.sum() > plan.gpus.sum() else plan


def settled(
    wanted: Whole,
    larger_first: Whole,
    held_row: Whole,
    held_server: Whole,
    held_gpus: Whole,
    gpus: Whole,
    together: Flags,
    up: Flags,
    server_gpus: Whole,
    server_type: Whole,
    rack: Whole,
) -> tuple[Whole, Whole, Whole, bool]:
    """Return the row, the server and the GPUs of each line, and whether all wanted jobs have GPUs.

    A job that already runs on its type keeps its servers. The others are placed as by `Room.find`, in the
    order of `larger_first`, which has all rows. The other arguments are those of `settle`, and fields of
    State and Cluster. Sorting inside would take a compiler several seconds.
    """
    on = np.full(wanted.size, -1)
    for line in range(held_row.size):
        on[held_row[line]] = server_type[held_server[line]]
    free = server_gpus * up
    made = np.empty((3, held_row.size + free.sum()), np.int64)
    count, complete = 0, True
    for line in range(held_row.size):
        row, server, taken = held_row[line], held_server[line], held_gpus[line]
        if 0 <= wanted[row] == on[row]:
            made[0, count], made[1, count], made[2, count] = row, server, taken
            free[server] -= taken
            count += 1
    for row in larger_first:
        if wanted[row] < 0 or wanted[row] == on[row]:
            continue
        left, kind, best, largest, most = gpus[row], wanted[row], -1, 0, 0
        for server in range(free.size):
            if server_type[server] == kind:
                largest = max(largest, server_gpus[server])
                most += free[server]
                if free[server] >= left and (best < 0 or free[server] < free[best]):
                    best = server
        inside = -1
        if best < 0 and together[row]:
            # The gang takes servers of the rack with the least GPUs that are enough.
            sums = np.zeros(rack.max() + 1, np.int64)
            for server in range(free.size):
                if server_type[server] == kind:
                    sums[rack[server]] += free[server]
            most = 0
            for place in range(sums.size):
                if largest < left <= sums[place] and (inside < 0 or sums[place] < sums[inside]):
                    inside, most = place, sums[place]
        if best < 0 and most < left:
            complete = False
            continue
        if best >= 0:
            made[0, count], made[1, count], made[2, count] = row, best, left
            free[best] -= left
            left = 0
            count += 1
        while left > 0:
            # The emptiest servers, in their order: a pass for each number of free GPUs, not for each server.
            emptiest = 0
            for server in range(free.size):
                if server_type[server] == kind and (inside < 0 or rack[server] == inside):
                    emptiest = max(emptiest, free[server])
            for server in range(free.size):
                there = server_type[server] == kind and (inside < 0 or rack[server] == inside)
                if left > 0 and there and free[server] == emptiest:
                    taken = min(emptiest, left)
                    made[0, count], made[1, count], made[2, count] = row, server, taken
                    free[server] -= taken
                    left -= taken
                    count += 1
    return made[0, :count], made[1, :count], made[2, :count], complete


def _larger_first(cluster: Cluster, state: State, wanted: Whole, stays: Flags) -> Assignment:
    """Return GPUs for the wanted jobs, larger gangs first. Jobs that stay keep their servers if they still
    can, and choose before others of their size. wanted: type, −1 for none, int64[n]; stays: bool[n]."""
    room, held = Room(cluster, state), held_lines(state)
    order = np.lexsort((state.job, state.submit_s, ~stays, -state.gpus))
    for row in order[wanted[order] >= 0].tolist():
        lines = held[row] if stays[row] else None
        if lines is not None and (room.free[lines[0]] >= lines[1]).all():
            room.take(row, lines)
        else:
            room.place(row, (int(wanted[row]),))
    return room.plan()


def fill(cluster: Cluster, state: State, orders: Iterator[tuple[int, Whole]]) -> Whole:
    """Return the type for each job, −1 for none, int64[n].

    orders: types in turn, each with the rows that want it, the most urgent row first. A type may have several
    turns.
    """
    wanted = np.full(len(state), -1)
    capacity = cluster.capacity(state.up)
    for kind, order in orders:
        rows = order[wanted[order] < 0]
        rows = rows[greedy(state.gpus[rows], int(capacity[kind]))]
        wanted[rows] = kind
        capacity[kind] -= int(state.gpus[rows].sum())
    return wanted


def together_throughput(state: State) -> Real:
    """Return steps per second on as few servers as possible, float64[n, r]."""
    rates: Real = state.throughput[:, :, 0]
    return rates
