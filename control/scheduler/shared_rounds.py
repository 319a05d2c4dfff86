"""Carries out shares of GPU time in rounds: the unit that is furthest behind its share goes first.

For: the policies of space sharing (pairs). It is Gavel's mechanism of rounds (Narayanan et al., OSDI 2020,
section 5 and code). A unit is one job, or two that share GPUs. A job runs at most once in a round. GPUs
that no share takes go to jobs that wait, each alone. When one job of a unit ends, the other job continues
alone. Not for: the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from control.scheduler.gavel import GavelSettings
from control.scheduler.model import Assignment, Cluster, State, Whole
from control.scheduler.pairs import UnitShares
from control.scheduler.placement import Lines, Room, held_lines, held_type, together_throughput
from control.scheduler.ports import Scheduler


class SharedRounds(Scheduler):
    """Carries out a policy's shares of time in rounds, as `gavel.Rounds` does, with units for jobs."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        settings: GavelSettings,
        policy: Callable[[Cluster, int], UnitShares],
    ) -> None:
        self._cluster, self._settings, self._policy = cluster, settings, policy(cluster, seed)
        self._jobs, self._up = np.empty(0, np.int64), np.empty(0, np.bool_)
        self._reset_s, self._asked_s = -np.inf, 0.0
        self._pairs = np.empty((0, 2), np.int64)
        """Ids of the jobs of each unit, −1 for none."""
        self._x, self._deficit, self._received_s = (np.zeros((0, len(cluster.types))) for _ in range(3))
        self._on = np.empty(0, np.int64)
        """Type on which each unit was given GPUs in the last answer, −1 for none."""

    def on_round(self, state: State) -> Assignment:
        """Return the next round's units. After an arrival, an end or a fault, shares are computed again."""
        self._account(state)
        present = np.sort(state.job)
        changed = not (np.array_equal(state.up, self._up) and np.array_equal(present, self._jobs))
        if changed and state.now_s - self._reset_s >= self._settings.least_between_s:
            self._solve(state, present)
        self._add_single(state.job)
        rows = self._rows(state)
        chosen = self._chosen(state, rows)
        self._on = np.full(len(self._x), -1)
        return self._placed(state, rows, chosen)

    def _add_single(self, jobs: Whole) -> None:
        """Add a unit without a share for each job that is no unit by itself."""
        more = np.setdiff1d(jobs, self._pairs[self._pairs[:, 1] < 0, 0])
        none = np.zeros((more.size, self._x.shape[1]))
        self._pairs = np.concatenate((self._pairs, np.column_stack((more, np.full(more.size, -1)))))
        self._x, self._deficit = np.concatenate((self._x, none)), np.concatenate((self._deficit, none))
        self._received_s = np.concatenate((self._received_s, none + self._settings.round_s / 2))

    def _rows(self, state: State) -> Whole:
        """Return the rows of each unit's jobs, int64[u, 2]; −1 for a job that has ended. If only one job is
        left, its row comes first."""
        row_of = np.full(max(int(state.job.max(initial=-1)), int(self._pairs.max(initial=-1))) + 2, -1)
        row_of[state.job] = np.arange(len(state))
        rows = row_of[self._pairs]
        return np.where((rows[:, :1] < 0), rows[:, ::-1], rows)

    def _chosen(self, state: State, rows: Whole) -> list[tuple[int, int]]:
        """Return the units that run and their types, chosen by counting GPUs."""
        taken = np.zeros(len(state) + 1, np.bool_)
        capacity = self._cluster.capacity(state.up)
        found: list[tuple[int, int]] = []
        for kind, order in self._orders(state, rows):
            for unit in order.tolist():
                if not capacity[kind]:
                    break
                first, second = rows[unit].tolist()
                gpus = int(state.gpus[first])
                if gpus > capacity[kind] or taken[first] or (second >= 0 and taken[second]):
                    continue
                taken[first] = True
                taken[second] = second >= 0
                capacity[kind] -= gpus
                found.append((unit, kind))
        return found

    def _orders(self, state: State, rows: Whole) -> Iterator[tuple[int, Whole]]:
        """Yield the types, fastest first, each with the units that have a share of it, the one furthest
        behind first. After them, yield the types again with all jobs alone that can run there.
        """
        given = self._received_s.sum(axis=0)
        priority = self._x / np.maximum(self._received_s / np.maximum(given, 1e-12), 1e-12)
        speed = together_throughput(state)
        best = np.maximum(speed.max(axis=1, keepdims=True), 1e-300)
        there, alone = rows[:, 0] >= 0, rows[:, 1] < 0
        able: list[tuple[int, Whole]] = []
        for kind in np.argsort(-(speed / best).sum(axis=0), kind="stable").tolist():
            x = self._x[:, kind]
            keys = (self._pairs[:, 1], self._pairs[:, 0], -x, -self._deficit[:, kind], -priority[:, kind])
            order = np.lexsort(keys)
            order = order[there[order]]
            able.append((kind, order[alone[order] & (speed[rows[order, 0], kind] > 0)]))
            yield kind, order[x[order] > 1e-9]
        yield from able

    def _placed(self, state: State, rows: Whole, chosen: list[tuple[int, int]]) -> Assignment:
        """Return GPUs for the chosen units. A unit keeps the servers that one of its jobs has on the type."""
        room, held, on = Room(self._cluster, state), held_lines(state), held_type(self._cluster, state)
        pairs: list[tuple[int, int]] = []
        fresh: list[tuple[int, int]] = []

        def take(unit: int, kind: int, lines: Lines) -> None:
            first, second = rows[unit].tolist()
            room.take(first, lines)
            self._on[unit] = kind
            if second >= 0:
                room.share(second, lines)
                pairs.append((first, second))

        for unit, kind in chosen:
            asks = [row for row in rows[unit].tolist() if row >= 0]
            # A gang that must stay together decides where both jobs can run.
            asks = [row for row in asks if state.together[row]] or asks
            options = [held[row] for row in asks if on[row] == kind]
            stays = next((lines for lines in options if (room.free[lines[0]] >= lines[1]).all()), None)
            if stays is None:
                fresh.append((unit, kind))
            else:
                take(unit, kind, stays)
        for unit, kind in sorted(
            fresh, key=lambda one: (-int(state.gpus[rows[one[0], 0]]), *self._pairs[one[0]])
        ):
            asks = [row for row in rows[unit].tolist() if row >= 0]
            lines = room.find(next((row for row in asks if state.together[row]), asks[0]), kind)
            if lines is not None:
                take(unit, kind, lines)
        plan = room.plan()
        return Assignment(plan.row, plan.server, plan.gpus, np.array(pairs, np.int64).reshape(-1, 2))

    def _account(self, state: State) -> None:
        """Add the time since the last answer to the service that the chosen units have received."""
        gave = np.flatnonzero(self._on >= 0)
        self._received_s[gave, self._on[gave]] += state.now_s - self._asked_s
        self._asked_s = state.now_s

    def _solve(self, state: State, present: Whole) -> None:
        half_s = self._settings.round_s / 2
        passed_s = state.now_s - self._reset_s if np.isfinite(self._reset_s) else 0.0
        behind = self._deficit + self._x * passed_s - (self._received_s - half_s)
        known = {tuple(pair): place for place, pair in enumerate(self._pairs.tolist())}
        units = self._policy.units(state) if present.size else None
        if units is None:
            self._pairs, self._x = np.empty((0, 2), np.int64), np.zeros((0, len(self._cluster.types)))
        else:
            ids = np.append(state.job, -1)
            self._pairs = np.column_stack((ids[units.first], ids[units.second]))
            self._x = units.x
        places = [known.get(tuple(pair), -1) for pair in self._pairs.tolist()]
        self._deficit = np.vstack((behind, np.zeros((1, behind.shape[1]))))[places]
        self._received_s = np.full_like(self._x, half_s)
        self._on = np.full(len(self._x), -1)
        self._jobs, self._up, self._reset_s = present, state.up.copy(), state.now_s
