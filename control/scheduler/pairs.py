"""Space sharing: two jobs run on the same GPUs if together they do more than one after the other.

For: Gavel's max-min programme over pairs (Narayanan et al., OSDI 2020, section 5.2 and code) and Gandiva's
random pairs as in Gavel's code (after Xiao et al., OSDI 2018). Both return units, each a single job or a
pair, with its share of time on each type. Not for: carrying units out (shared_rounds), nor measuring the
speeds of pairs, which are data (model.Sharing). Only gangs of the same size are paired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import scipy

from control.scheduler.model import Cluster, Flags, Real, State, Whole
from control.scheduler.placement import together_throughput
from control.scheduler.programmes import EASIEST, SLACK, Level, filled, raise_level

_ROUNDING = 1e-9
"""Shares and gains below this count as 0."""


@dataclass(frozen=True, slots=True)
class Units:
    """u units of scheduling, each a single job or a pair.

    first, second: rows of the unit's jobs, int64[u]; second is −1 for a single job.
    x: share of time on each type, float64[u, r].
    """

    first: Whole
    second: Whole
    x: Real


class UnitShares(ABC):
    """A policy that computes shares of units. It may have memory."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._random = cluster, np.random.default_rng(seed)

    @abstractmethod
    def units(self, state: State) -> Units:
        """Return the units and their shares."""


class SharedMaxMin(UnitShares):
    """Gavel's max-min fairness, water-filled, with a column for each pair.

    Equal jobs are one class, as in MaxMin. The time of a class or of a pair of classes is divided evenly
    among its jobs.
    """

    def units(self, state: State) -> Units:
        """Return the units of the programme's solution."""
        capacity = self._cluster.capacity(state.up)
        speed = together_throughput(state)
        mix = speed @ capacity / max(int(capacity.sum()), 1)
        rate = speed * (state.gpus / (state.weight * np.where(mix > 0, mix, 1.0)))[:, None]
        rate = np.where(state.gpus[:, None] <= capacity, rate, 0.0)
        shares = state.sharing.kept.size > 0
        kind = state.sharing.kind[state.job] if shares else np.zeros(len(state))
        key = np.column_stack((np.round(rate, 12), state.gpus, kind))
        _, first, of = np.unique(key, axis=0, return_index=True, return_inverse=True)
        arrival = np.argsort(state.by_arrival())
        members = [rows[np.argsort(arrival[rows])] for rows in _members(of.ravel(), first.size)]
        columns = _columns(state, rate, first, [rows.size for rows in members])
        x = _solved(columns, rate[first], np.array([rows.size for rows in members]), capacity)
        return _divided(columns, x, members, len(self._cluster.types))


@dataclass(frozen=True, slots=True)
class _Columns:
    """m columns of the programme.

    one, two: classes of the column, int64[m]; two is −1 for a single class.
    kind: GPU type, int64[m]. gpus: GPUs of the gang, int64[m].
    speed_one, speed_two: rates of the two classes' jobs in the column, float64[m].
    """

    one: Whole
    two: Whole
    kind: Whole
    gpus: Whole
    speed_one: Real
    speed_two: Real


def _columns(state: State, rate: Real, first: Whole, count: list[int]) -> _Columns:
    """Return one column per GPU type for each class, and for each pair of classes that gains by sharing.

    A pair gains if the kept speeds of its two jobs sum to more than 1. Otherwise taking turns is as fast.
    """
    rows: list[tuple[int, int, int, int, float, float]] = []
    for place, row in enumerate(first.tolist()):
        kinds = np.flatnonzero(rate[row] > 0).tolist()
        rows += [(place, -1, kind, int(state.gpus[row]), float(rate[row, kind]), 0.0) for kind in kinds]
    if state.sharing.kept.size:
        for one, two in combinations_with_replacement(range(first.size), 2):
            a, b = int(first[one]), int(first[two])
            if state.gpus[a] != state.gpus[b] or (one == two and count[one] < 2):
                continue
            kept = state.sharing.of(state.job[[a, b]], state.job[[b, a]])
            able = (rate[a] > 0) & (rate[b] > 0) & (kept > 0).all(axis=0)
            for kind in np.flatnonzero(able & (kept.sum(axis=0) > 1 + _ROUNDING)).tolist():
                speeds = float(rate[a, kind] * kept[0, kind]), float(rate[b, kind] * kept[1, kind])
                rows.append((one, two, kind, int(state.gpus[a]), *speeds))
    table = np.array(rows, float).reshape(-1, 6)
    whole = table[:, :4].astype(np.int64)
    return _Columns(whole[:, 0], whole[:, 1], whole[:, 2], whole[:, 3], table[:, 4], table[:, 5])


def _solved(columns: _Columns, rate: Real, count: Whole, capacity: Whole) -> Real:
    """Return the total time of all jobs of each column, as a multiple of one job's time, float64[m]."""
    classes, size = count.size, columns.one.size
    raised: Flags = np.asarray((rate > 0).any(axis=1))
    if not raised.any():
        return np.zeros(size)
    paired = np.flatnonzero(columns.two >= 0)
    column = np.concatenate((np.arange(size), paired))
    of = np.concatenate((columns.one, columns.two[paired]))
    speeds = np.concatenate((columns.speed_one, columns.speed_two[paired])) / count[of]
    times = scipy.sparse.coo_array((np.ones(column.size), (of, column)), shape=(classes, size))
    types = scipy.sparse.coo_array(
        (columns.gpus.astype(float), (columns.kind, np.arange(size))), shape=(capacity.size, size)
    )
    uses = scipy.sparse.vstack((times, types), format="csr")
    most = np.concatenate((count.astype(float), capacity.astype(float)))
    best = rate.max(axis=1)

    def level(reached: Real, rows: Flags) -> Level:
        scale = float((best / count)[rows].min())
        unit = np.maximum(scale, best / count / EASIEST)
        unit = np.where(rows, unit, np.where(reached > 0, reached, np.inf))
        reach = scipy.sparse.coo_array((speeds / unit[of], (of, column)), shape=(classes, size)).tocsr()
        floor = np.where(rows | (reached <= 0), 0.0, SLACK - 1)
        x, z, tight = raise_level(reach, uses, most, np.full(size, np.inf), rows, floor)
        return Level(x.clip(0), z * scale, tight)

    return filled(level, raised, np.zeros(size))


def _divided(columns: _Columns, x: Real, members: list[Whole], kinds: int) -> Units:
    """Return units of jobs. The time of each column is divided evenly among the jobs of its classes."""
    shares: dict[tuple[int, int], Real] = {}
    for place in np.flatnonzero(x > _ROUNDING).tolist():
        one, two, kind = int(columns.one[place]), int(columns.two[place]), int(columns.kind[place])
        for first, second, part in _parts(members[one], None if two < 0 else members[two], float(x[place])):
            shares.setdefault((first, second), np.zeros(kinds))[kind] += part
    pairs = np.array(sorted(shares), np.int64).reshape(-1, 2)
    found = [shares[first, second] for first, second in pairs.tolist()]
    return Units(pairs[:, 0], pairs[:, 1], np.array(found).reshape(-1, kinds))


def _parts(ones: Whole, twos: Whole | None, total: float) -> list[tuple[int, int, float]]:
    """Return (job, other job or −1, share). Each job of a class has the same total time."""
    if twos is None:
        return [(row, -1, total / ones.size) for row in ones.tolist()]
    if ones is twos:
        # Pair each job once with the next one and once with the one before.
        ring = [(int(ones[at]), int(ones[(at + 1) % ones.size])) for at in range(ones.size)]
        return [(min(pair), max(pair), total / ones.size) for pair in ring]
    ends = np.union1d(np.arange(1, ones.size + 1) / ones.size, np.arange(1, twos.size + 1) / twos.size)
    parts = np.diff(ends, prepend=0.0)
    middle = ends - parts / 2
    pairs = zip(
        ones[(middle * ones.size).astype(int)].tolist(),
        twos[(middle * twos.size).astype(int)].tolist(),
        parts.tolist(),
        strict=True,
    )
    return [(min(a, b), max(a, b), total * part) for a, b, part in pairs if part > _ROUNDING]


def _members(of: Whole, classes: int) -> list[Whole]:
    order = np.argsort(of, kind="stable")
    return np.split(order, np.searchsorted(of[order], np.arange(1, classes))) if classes else []


class Gandiva(UnitShares):
    """Random pairs while GPUs are short. A pair is given up if it does less than a single job. All units have
    equal parts.

    As in Gavel's code, the kept speeds of the two jobs are summed over all types.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(cluster, seed)
        self._pairs: list[tuple[int, int]] = []

    def units(self, state: State) -> Units:
        """Return the pairs and the remaining single jobs, each with the same part of every type."""
        capacity = self._cluster.capacity(state.up)
        row_of = {job: row for row, job in enumerate(state.job.tolist())}
        short = int(state.gpus.sum()) > int(capacity.sum())
        self._pairs = [pair for pair in self._pairs if short and all(job in row_of for job in pair)]
        if short and state.sharing.kept.size:
            self._draw(state, row_of)
        paired = {job for pair in self._pairs for job in pair}
        alone = [job for job in sorted(row_of) if job not in paired]
        first = np.array([row_of[one] for one, _ in self._pairs] + [row_of[job] for job in alone], np.int64)
        second = np.array([row_of[two] for _, two in self._pairs] + [-1] * len(alone), np.int64)
        speed = together_throughput(state)
        able = speed[first] > 0
        for place, (one, two) in enumerate(self._pairs):
            able[place] &= self._kept(state, one, two)[1] & (speed[second[place]] > 0)
        x = capacity / np.maximum(first.size * state.gpus[first, None], 1) * able
        x = np.where(state.gpus[first, None] <= capacity, x, 0.0)
        return Units(first, second, x / np.maximum(x.sum(axis=1, keepdims=True), 1.0))

    def _draw(self, state: State, row_of: dict[int, int]) -> None:
        paired = {job for pair in self._pairs for job in pair}
        waiting: dict[int, int] = {}
        free = np.array([job for job in sorted(row_of) if job not in paired], np.int64)
        for job in self._random.permutation(free).tolist():
            size = int(state.gpus[row_of[job]])
            other = waiting.pop(size, None)
            if other is None:
                waiting[size] = job
                continue
            kept, able = self._kept(state, min(job, other), max(job, other))
            speed = together_throughput(state)[[row_of[job], row_of[other]]]
            if (able & (speed > 0).all(axis=0)).any() and kept >= 1:
                self._pairs.append((min(job, other), max(job, other)))

    def _kept(self, state: State, one: int, two: int) -> tuple[float, Flags]:
        """Return both jobs' kept speeds, summed over types, and the types that they can share, bool[r]."""
        kept = state.sharing.of(np.array([one, two]), np.array([two, one]))
        able: Flags = np.asarray((kept > 0).all(axis=0))
        return float(kept.sum()), able
