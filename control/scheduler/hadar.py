"""Hadar: prices of GPUs that rise with use, and the placement with the best payoff for each job.

For: scheduling jobs that may run on several GPU types in one round. The whole file is our reading of an
abstract (Hadar, IPDPS 2024; arXiv 2503.10918): task-level placement, dual prices, and a dual subroutine that
compares the best placement on one server with the best spread one. A mixed gang is as fast as its slowest
member, and a spread gang has 0.9 of that speed. The dynamic programme over subsets of a few jobs is left out;
jobs are admitted in the order of their utility.

HadarE forks jobs over idle servers as copies that train side by side and exchange results in each round
(arXiv 2503.10918). Our readings: a copy is a whole gang on one server, and jobs take turns in the order of
their utility.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.scheduler.model import Assignment, Cluster, Real, State, Whole
from control.scheduler.placement import Lines, Room, first_gpus, held_lines, together_throughput
from control.scheduler.ports import Scheduler
from control.settings import check, parameter


@dataclass(frozen=True, slots=True)
class HadarSettings:
    """Parameters of Hadar."""

    spread: float = parameter(
        0.9, unit="1", why="speed of a gang on several servers beside one on one; a reading", low=0, high=1
    )

    def __post_init__(self) -> None:
        check("hadar", self)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU. least, most: price without use and at full use, by type, float64[r]."""

    least: Real
    most: Real

    def of(self, kind: Whole, used_share: Real) -> Real:
        """Return the prices of GPUs of these types on servers with these used shares, float64[n]."""
        least = self.least[kind]
        price: Real = least * (self.most[kind] / least) ** used_share
        return price


class Hadar(Scheduler):
    """Admits jobs by utility, each at the placement with the best payoff, then fills the free GPUs."""

    mixes_types = True

    def __init__(self, cluster: Cluster, settings: HadarSettings) -> None:
        self._cluster, self._spread = cluster, settings.spread

    def on_round(self, state: State) -> Assignment:
        """Return the jobs whose payoff is above 0, then the jobs that fit into the free GPUs."""
        room = Room(self._cluster, state)
        if not len(state):
            return room.plan()
        rate = together_throughput(state) / state.gpus[:, None]
        work = state.total_steps / np.maximum(together_throughput(state).max(axis=1), 1e-300) * state.gpus
        prices = self._prices(state, rate, work)
        fastest = rate.max(axis=1) * state.gpus
        utility = self._utility(state, work, fastest)
        order = np.lexsort((state.job, state.submit_s, -utility))
        held = held_lines(state)
        later: list[int] = []
        for row in order.tolist():
            if not room.free.any():
                break
            found = self._best(room, state, row, rate[row], work, prices, held.get(row))
            if found is not None and found[1] > 0:
                room.take(row, found[0])
            elif found is not None:
                later.append(row)
        for row in later:
            found = self._best(room, state, row, rate[row], work, prices, held.get(row))
            if found is not None:
                room.take(row, found[0])
        self._fork(room, state, order, rate)
        return room.plan()

    def _fork(self, room: Room, state: State, order: Whole, rate: Real) -> None:
        """Give the free GPUs to copies of running jobs. Hadar does not fork jobs."""

    def _utility(self, state: State, work: Real, speed: Real) -> Real:
        """Return weight · work / time from submission to the end at this speed, float64[n]."""
        ends_s = state.now_s + state.left_steps / np.maximum(speed, 1e-300) - state.submit_s
        utility: Real = state.weight * work / np.maximum(ends_s, 1e-9)
        return utility

    def _prices(self, state: State, rate: Real, work: Real) -> Prices:
        able = rate > 0
        per_gpu = [
            np.where(
                able[:, kind], self._utility(state, work, rate[:, kind] * state.gpus) / state.gpus, np.nan
            )
            for kind in range(rate.shape[1])
        ]
        most = np.array([np.nanmax(values, initial=1e-12) for values in per_gpu])
        slowest = np.where(able, rate, np.inf).min(axis=1)
        worst = self._utility(state, work, np.where(np.isfinite(slowest), slowest, 1e-12) * state.gpus)
        least = float((worst / (4 * state.gpus)).min())
        return Prices(np.minimum(np.full_like(most, max(least, 1e-12)), most), most)

    def _best(
        self,
        room: Room,
        state: State,
        row: int,
        rate: Real,
        work: Real,
        prices: Prices,
        held: Lines | None,
    ) -> tuple[Lines, float] | None:
        """Return the placement with the best payoff, and the payoff. The placement is None if the gang does
        not fit.

        If payoffs are equal, the job keeps its servers.
        """
        kind, gpus = self._cluster.server_type, self._cluster.server_gpus
        price = prices.of(kind, (gpus - room.free) / np.maximum(gpus, 1))
        usable = (room.free > 0) & (rate[kind] > 0)
        wanted = int(state.gpus[row])
        options: list[Lines] = []
        if held is not None and held[1].sum() > wanted:
            # The copy of a forked job on its fastest server stays first in the list.
            first = int(np.argmax(rate[kind[held[0]]]))
            held = held[0][first : first + 1], held[1][first : first + 1]
        if held is not None and usable[held[0]].all() and (room.free[held[0]] >= held[1]).all():
            options.append(held)
        per_work = np.where(usable, price / np.where(rate[kind] > 0, rate[kind], 1.0), np.inf)
        whole = usable & (room.free >= wanted)
        # The best placement on one server, by payoff: the cheapest on each type.
        for type_ in range(rate.size):
            fits = whole & (kind == type_)
            if fits.any():
                server = int(np.where(fits, price, np.inf).argmin())
                options.append((np.array([server]), np.array([wanted])))
            elif state.together[row] and rate[type_] > 0 and (lines := room.find(row, type_)) is not None:
                options.append(lines)
        if not state.together[row] and wanted > 1:
            spread = _cheapest(room.free, per_work, wanted)
            if spread is not None:
                options.append(spread)
        best: tuple[Lines, float] | None = None
        for lines in options:
            slowest = float(rate[kind[lines[0]]].min())
            speed = wanted * slowest * (1.0 if lines[0].size == 1 else self._spread)
            ends_s = state.now_s + state.left_steps[row] / speed - state.submit_s[row]
            utility = float(state.weight[row] * work[row] / max(ends_s, 1e-9))
            payoff = utility - float((price[lines[0]] * lines[1]).sum())
            if best is None or payoff > best[1] + 1e-12:
                best = (lines, payoff)
        return best


class HadarE(Hadar):
    """Hadar with forked jobs: each may put a copy of its gang on further servers as long as one is free."""

    forks = True

    def _fork(self, room: Room, state: State, order: Whole, rate: Real) -> None:
        kind, given = self._cluster.server_type, room.plan()
        servers = {row: set(given.server[given.row == row].tolist()) for row in np.unique(given.row).tolist()}
        # Only a gang that is on a single server is copied.
        able = [row for row in order.tolist() if len(servers.get(row, ())) == 1]
        held = held_lines(state)
        while able and room.free.any():
            again = []
            for row in able:
                wanted, there = int(state.gpus[row]), list(servers[row])
                speed = np.where(room.free >= wanted, rate[row][kind], 0.0)
                speed[there] = 0.0
                if not (speed > 0).any():
                    continue
                had = np.zeros(speed.size, np.bool_)
                had[held[row][0] if row in held else []] = True
                # The fastest server; among equals, one that already has a copy.
                server = int(np.lexsort((np.arange(speed.size), ~had, -speed))[0])
                room.take(row, (np.array([server]), np.array([wanted])))
                servers[row].add(server)
                again.append(row)
            able = again


def _cheapest(free: Whole, per_work: Real, wanted: int) -> Lines | None:
    """Return the GPUs with the least price per work, None if there are too few."""
    order = np.argsort(per_work, kind="stable")
    order = order[np.isfinite(per_work[order])]
    return first_gpus(order, free[order], wanted)
