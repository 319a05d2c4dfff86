"""Gavel: shares of time on each GPU type from a linear programme, carried out in rounds by priorities.

For: the policies that are programmes (max-min with water-filling, finish-time fairness, makespan, cost),
their type-blind form, the division into equal parts that is the reference of fairness, and their common
mechanism of rounds. Not for: the programmes (control.scheduler.programmes). Source: Narayanan et al., OSDI
2020, and Gavel's code (MIT).

Our readings: what the worst finish-time ratio leaves over raises the least relative speed, where the source
takes what its interior-point solver finds; the cost policy adds the speeds of different models in jobs per
second, not in steps; gangs larger than a type are excluded; GPUs that no share takes go to jobs that wait,
also to those that came after the last programme. The source gives them to the jobs of the programme only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from control.scheduler import programmes
from control.scheduler.model import Assignment, Cluster, Flags, Real, State, Whole
from control.scheduler.placement import fill, held_type, settle, settled, together_throughput
from control.scheduler.ports import Scheduler
from control.scheduler.programmes import Demand
from control.settings import check, parameter


@dataclass(frozen=True, slots=True)
class GavelSettings:
    """Parameters of the mechanism of rounds."""

    round_s: float = parameter(360.0, unit="s", why="length of a round in the source", low=1e-9)
    least_between_s: float = parameter(
        1920.0, unit="s", why="least time between two programmes in the source's simulator", low=0
    )

    def __post_init__(self) -> None:
        check("gavel", self)


class Shares(ABC):
    """A policy that computes shares of time from the state. It may keep memory between calls. blind: whether
    it ignores the types."""

    blind = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @abstractmethod
    def shares(self, state: State) -> Real:
        """Return each job's share of time on each type, float64[n, r]."""

    def remarks(self) -> Sequence[str]:
        """Return remarks for the reader, each once."""
        return ()

    def _demand(self, state: State) -> Demand:
        return Demand(
            state.gpus,
            np.ones(len(state), np.int64),
            self._cluster.capacity(state.up),
            together_throughput(state) > 0,
        )


class Isolated(Shares):
    """Gives every job an equal part of every type, as if the cluster were divided."""

    blind = True

    def shares(self, state: State) -> Real:
        """Return the equal parts, float64[n, r]."""
        return programmes.isolated(self._demand(state))


class MaxMin(Shares):
    """Max-min fairness over speeds, each relative to the job's speed on an equal mix of the types.

    blind: treat all types as equally fast, which gives least attained service.
    """

    def __init__(self, cluster: Cluster, *, blind: bool = False) -> None:
        super().__init__(cluster)
        self.blind = blind

    def shares(self, state: State) -> Real:
        """Return the water-filled shares. Equal jobs share one row of the programme."""
        demand = self._demand(state)
        speed = together_throughput(state)
        rate = _relative(state, demand, (speed > 0).astype(float) if self.blind else speed)
        key = np.column_stack((np.round(rate, 12), state.gpus))
        _, first, of, count = np.unique(
            key, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        alike = Demand(state.gpus[first], count, demand.capacity, demand.able[first])
        return programmes.water_filled(alike, rate[first])[of.ravel()]


def _relative(state: State, demand: Demand, speed: Real) -> Real:
    """Return speeds relative to the job's speed on an equal mix of the types, by gang and weight."""
    mix = speed @ demand.capacity / max(int(demand.capacity.sum()), 1)
    relative: Real = speed * (state.gpus / (state.weight * np.where(mix > 0, mix, 1.0)))[:, None]
    return relative


class FinishTimeFair(Shares):
    """Minimises the worst ratio of a job's time to the time that it would take in its equal part.

    What the worst ratio leaves over raises the least relative speed, as in MaxMin.
    """

    _CLOSE = 1.001
    """Factor to which the ratio is known when bisection ends."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._alone_s = np.zeros(0)
        self._left = np.zeros(0)
        self._speed = np.zeros(0)

    def shares(self, state: State) -> Real:
        """Return the shares with the least worst ratio."""
        demand, speed = self._demand(state), together_throughput(state)
        alone = np.maximum((speed * programmes.isolated(demand)).sum(axis=1), 1e-12)
        since_s = state.now_s - state.submit_s
        whole_s = np.maximum(self._passed_alone_s(state, alone) + state.left_steps / alone, 1e-9)
        # A job that only has to end has no speed that it needs.
        placeable = demand.fits().any(axis=1) & (state.left_steps > 0)
        low = float((since_s / whole_s)[placeable].max(initial=0.0))
        high, best = np.inf, programmes.isolated(demand) * demand.fits()
        trial = max(2 * low, 1.0)
        while high > low * self._CLOSE + 1e-9:
            needed = state.left_steps / np.maximum(trial * whole_s - since_s, 1e-9)
            level = programmes.max_min(demand, speed / np.maximum(needed, 1e-12)[:, None])
            got = np.maximum((speed * level.x).sum(axis=1), 1e-12)
            reached = float(((since_s + state.left_steps / got) / whole_s)[placeable].max(initial=0.0))
            if reached < high:
                high, best = reached, level.x
            if level.z < 1.0:
                low = max(low, trial)
            else:
                high = min(high, trial)
            trial = (low + high) / 2
        if not np.isfinite(high) or not placeable.any():
            return best
        needed = state.left_steps / np.maximum(high * whole_s - since_s, 1e-9)
        needs = np.where(placeable & (needed > 0), 1.0 / np.maximum(needed, 1e-300), 0.0)[:, None] * speed
        return programmes.max_min(demand, _relative(state, demand, speed), needs=needs).x

    def _passed_alone_s(self, state: State, alone: Real) -> Real:
        """Return the time that each job's steps so far would have taken in its equal part, s, float64[n]."""
        self._alone_s = state.grown(self._alone_s)
        self._left, self._speed = state.grown(self._left, np.nan), state.grown(self._speed, 1.0)
        known = ~np.isnan(self._left[state.job])
        done = np.where(known, self._left[state.job] - state.left_steps, 0.0)
        # Work that a fault undid and that was repeated counts only once.
        self._alone_s[state.job] += np.maximum(done, 0.0) / self._speed[state.job]
        self._left[state.job] = np.fmin(self._left[state.job], state.left_steps)
        self._speed[state.job] = alone
        passed: Real = self._alone_s[state.job]
        return passed


class Makespan(Shares):
    """The shares with which the last job would end soonest if they were kept."""

    def shares(self, state: State) -> Real:
        """Return the shares with which all jobs end together, as early as possible."""
        left = np.maximum(state.left_steps, 1e-9)[:, None]
        return programmes.max_min(self._demand(state), together_throughput(state) / left).x


class Cost(Shares):
    """Maximises the work per money, and keeps all deadlines if it can. A passed deadline asks for nothing. So
    does the deadline of a gang that no type can hold now."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._missed = 0

    def shares(self, state: State) -> Real:
        """Return the shares. If the deadlines cannot all be kept, none of them is required."""
        demand, speed = self._demand(state), together_throughput(state)
        price = np.maximum(self._cluster.price_usd_h, 1e-9) * state.gpus[:, None]
        worth = speed / np.maximum(state.total_steps, 1e-9)[:, None] / price
        time_s = state.deadline_s - state.now_s
        asks = (time_s > 0) & demand.fits().any(axis=1)
        least = np.where(asks, state.left_steps / np.where(asks, time_s, 1.0), 0.0)
        x = programmes.least_worth(demand, worth, speed, least)
        if x is not None:
            return x
        self._missed += 1
        x = programmes.least_worth(demand, worth, speed, np.zeros(len(state)))
        return programmes.isolated(demand) if x is None else x

    def remarks(self) -> Sequence[str]:
        """Return how often the deadlines were dropped."""
        if not self._missed:
            return ()
        times = "once" if self._missed == 1 else f"{self._missed} times"
        return (f"not all deadlines could be kept together, {times}; the shares were then set without them",)


class Rounds(Scheduler):
    """Carries out shares of time in rounds: the job furthest behind its share of a type goes first."""

    def __init__(
        self, cluster: Cluster, seed: int, settings: GavelSettings, policy: Callable[[Cluster], Shares]
    ) -> None:
        self._cluster, self._settings, self._policy = cluster, settings, policy(cluster)
        self._random, self._settled = np.random.default_rng(seed), settled
        self._jobs = np.empty(0, np.int64)
        self._up: Flags | None = None
        self._reset_s, self._asked_s = -np.inf, 0.0
        kinds = len(cluster.types)
        self._x, self._deficit, self._received_s = (np.zeros((0, kinds)) for _ in range(3))

    def on_round(self, state: State) -> Assignment:
        """Return the next round's jobs. After an arrival, an end or a fault, shares are computed again."""
        self._x, self._deficit = state.grown(self._x), state.grown(self._deficit)
        self._received_s = state.grown(self._received_s, self._settings.round_s / 2)
        self._account(state)
        present = np.sort(state.job)
        changed = self._up is None or not np.array_equal(state.up, self._up)
        changed = changed or not np.array_equal(present, self._jobs)
        if changed and state.now_s - self._reset_s >= self._settings.least_between_s:
            self._solve(state, present)
        job = state.job
        given = self._received_s[job].sum(axis=0)
        share = self._received_s[job] / np.maximum(given, 1e-12)
        priority = self._x[job] / np.maximum(share, 1e-12)
        wanted = fill(self._cluster, state, self._orders(state, priority))
        return settle(self._cluster, state, wanted, self._settled)

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let a backend compile the loop over jobs."""
        self._settled = compiler(settled)

    def remarks(self) -> Sequence[str]:
        """Return the policy's remarks."""
        return self._policy.remarks()

    def _orders(self, state: State, priority: Real) -> Iterator[tuple[int, Whole]]:
        """Yield the types, fastest first or shuffled, each with the rows that have a share of it. After them,
        yield the types again with all rows that can run there.
        """
        speed = together_throughput(state)
        best = np.maximum(speed.max(axis=1, keepdims=True), 1e-300)
        kinds = np.argsort(-(speed / best).sum(axis=0), kind="stable")
        if self._policy.blind:
            kinds = self._random.permutation(len(kinds))
        able: list[tuple[int, Whole]] = []
        for kind in kinds.tolist():
            x, deficit = self._x[state.job, kind], self._deficit[state.job, kind]
            order = np.lexsort((state.job, -x, -deficit, -priority[:, kind]))
            order = order[speed[order, kind] > 0]
            able.append((kind, order))
            yield kind, order[x[order] > 1e-9]
        yield from able

    def _account(self, state: State) -> None:
        """Add the time since the last call to the service that the running jobs have received, by type."""
        on = held_type(self._cluster, state)
        runs = on >= 0
        self._received_s[state.job[runs], on[runs]] += state.now_s - self._asked_s
        self._asked_s = state.now_s

    def _solve(self, state: State, present: Whole) -> None:
        half_s = self._settings.round_s / 2
        if np.isfinite(self._reset_s):
            passed_s = state.now_s - self._reset_s
            self._deficit += self._x * passed_s - (self._received_s - half_s)
        self._received_s[:] = half_s
        self._x[:] = 0.0
        if present.size:
            self._x[state.job] = self._policy.shares(state)
        self._jobs, self._up, self._reset_s = present, state.up.copy(), state.now_s
