"""Pollux: it chooses GPUs and batch of all jobs together for the largest power mean of goodput.

For: jobs whose number of GPUs may change, as in `State.elastic`; other jobs get their gang or nothing. Not
for: jobs on several types at once. Source: Pollux (Qiao et al., OSDI 2021) §4.2, in our reading: the power
mean (p = −1) of goodput over goodput at an equal share, by a seeded genetic search every 60 s, and a restart
factor on jobs that move. Readings of ours: the search chooses a type and a number of GPUs for each job, and
they are then placed on as few servers as possible; a job without GPUs counts with a small speed-up; the equal
share of a gang that cannot change is a share of time on its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from control.scheduler.model import Assignment, Cluster, Flags, Real, State, Whole
from control.scheduler.placement import Room, held_type
from control.scheduler.ports import Scheduler
from control.settings import check, parameter

Fit = Callable[[Whole, Whole, Whole, Whole, Flags, Whole], None]


@dataclass(frozen=True, slots=True)
class PolluxSettings:
    """Parameters of Pollux."""

    every_s: float = parameter(60.0, unit="s", why="time between two searches in the source", low=1)
    restart_s: float = parameter(30.0, unit="s", why="delay of a job that moves, in the source", low=0)
    population: int = parameter(64, unit="1", why="plans that are kept; a reading", low=4, high=1000)
    generations: int = parameter(60, unit="1", why="rounds of the search; a reading", low=1, high=10_000)
    least: float = parameter(
        0.01,
        unit="1",
        why="speed-up of a job without GPUs, so that the mean is not 0; a reading",
        low=1e-6,
        high=1,
    )

    def __post_init__(self) -> None:
        check("pollux", self)


class Pollux(Scheduler):
    """Searches for the best numbers of GPUs every minute. Between searches, jobs keep their GPUs."""

    at_events = True
    elastic = True

    def __init__(self, cluster: Cluster, seed: int, settings: PolluxSettings) -> None:
        self._cluster, self._settings = cluster, settings
        self._random = np.random.default_rng(seed)
        self._restarts: dict[int, int] = {}
        self._searched_s = -np.inf
        self._fit: Fit | None = None

    def compile(self, compiler: Callable[[Any], Any]) -> None:
        """Let a backend compile the loop over jobs."""
        self._fit = compiler(fit)

    def on_round(self, state: State) -> Assignment:
        """Return the plan of a new search, or the present GPUs until the next search is due."""
        idle = not state.held.row.size
        if not idle and state.now_s < self._searched_s + self._settings.every_s - 1e-6:
            return state.held
        room = Room(self._cluster, state)
        if not len(state):
            return room.plan()
        self._searched_s = state.now_s
        order = np.argsort(state.job, kind="stable")
        kind, gpus = _held(self._cluster, state)
        factor = self._factor(state)[order]
        search = _Search(self._cluster, state, order, kind[order], gpus[order], factor, self._fit)
        chosen = search.run(self._random, self._settings)
        wanted_kind, wanted = np.full(len(state), -1), np.zeros(len(state), np.int64)
        wanted_kind[order], wanted[order] = chosen
        plan = self._place(state, wanted_kind, wanted, (wanted_kind == kind) & (wanted == gpus))
        got = np.bincount(plan.row, plan.gpus, len(state))
        for job in state.job[(gpus > 0) & ((got != gpus) | (wanted_kind != kind))].tolist():
            self._restarts[job] = self._restarts.get(job, 0) + 1
        return plan

    def wake_s(self, state: State, given: Assignment) -> float:
        """Return when the next search is due, s."""
        del given
        return max(self._searched_s + self._settings.every_s, state.now_s + 1e-3)

    def _factor(self, state: State) -> Real:
        """Return the factor of each job's speed-up if it moves, float64[n]; 1 for jobs without GPUs."""
        delay = self._settings.restart_s
        restarts = np.array([self._restarts.get(job, 0) for job in state.job.tolist()], float)
        age = np.maximum(state.now_s - state.submit_s, 0.0)
        factor = np.maximum((age - restarts * delay) / np.maximum(age + delay, 1e-9), 0.0)
        return np.where(state.running(), factor, 1.0)

    def _place(self, state: State, kind: Whole, gpus: Whole, stays: Flags) -> Assignment:
        """Return GPUs for the jobs. A job whose type and number do not change keeps its servers. Larger jobs
        choose first."""
        sized = replace(state, gpus=np.where(gpus > 0, gpus, state.gpus))
        room = Room(self._cluster, sized)
        room.keep(state.held.of(stays & (gpus > 0)))
        fresh = np.flatnonzero((gpus > 0) & ~stays)
        for row in fresh[np.lexsort((state.job[fresh], state.submit_s[fresh], -gpus[fresh]))].tolist():
            room.place(row, (int(kind[row]),))
        return room.plan()


def fit(kind: Whole, gpus: Whole, order: Whole, gang: Whole, flexible: Flags, capacity: Whole) -> None:
    """Reduce the GPUs of p plans, int64[p, n], to those that there are: a loop for a backend to compile.

    kind: type of each job's GPUs, int64[p, n]. order: order in which a plan's jobs take GPUs, int64[p, n].
    gang: GPUs of a job that is not flexible, which gets all or none, int64[n]. flexible: bool[n]. capacity:
    GPUs by type, int64[r].
    """
    for plan in range(gpus.shape[0]):
        left = capacity.copy()
        for job in order[plan]:
            of = kind[plan, job]
            takes = min(gpus[plan, job], left[of])
            if not flexible[job] and takes != gang[job]:
                takes = 0
            gpus[plan, job] = takes
            left[of] -= takes


def _held(cluster: Cluster, state: State) -> tuple[Whole, Whole]:
    """Return the type and the number of GPUs that each job has now, −1 and 0 for none, int64[n]."""
    gpus = np.bincount(state.held.row, state.held.gpus, len(state)).astype(np.int64)
    return held_type(cluster, state), gpus


class _Search:
    """A genetic search over p plans: a type and a number of GPUs for each of n jobs, in the order of ids."""

    def __init__(
        self,
        cluster: Cluster,
        state: State,
        order: Whole,
        kind: Whole,
        gpus: Whole,
        factor: Real,
        fit: Fit | None,
    ) -> None:
        self._kind, self._gpus, self._factor, self._fit = kind, gpus, factor, fit
        self._capacity = cluster.capacity(state.up)
        self._gang, self._weight = state.gpus[order], state.weight[order]
        self._able = (state.throughput[order, :, 0] > 0) & (self._capacity > 0)
        self._most = int(min(self._capacity.max(initial=1), state.elastic.most))
        largest = [
            int(cluster.server_gpus[cluster.server_type == one].max(initial=1))
            for one in range(len(cluster.types))
        ]
        self._value = self._speed_ups(state, order, np.array(largest))
        self._flexible = state.elastic.of(state.job[order]) >= 0
        # A gang that is larger than all working servers together cannot run now.
        self._able &= self._flexible[:, None] | (self._gang[:, None] <= self._capacity)

    def _speed_ups(self, state: State, order: Whole, largest: Whole) -> Real:
        """Return the speed-up by type and GPUs over an equal share of the best type, float64[n, r, ·]."""
        n, kinds = len(state), self._capacity.size
        width = max(self._most, int(np.maximum(self._gang, self._gpus).max(initial=1)))
        share = max(int(self._capacity.sum()) // max(n, 1), 1)
        count = np.arange(width + 1)
        value = np.zeros((n, kinds, width + 1))
        jobs, rates = state.job[order], state.throughput[order, :, 0]
        rigid = (state.elastic.of(jobs) < 0)[:, None]
        for kind in range(kinds):
            spread = (count > largest[kind]).astype(np.int64)
            speed = state.elastic.speed_up(jobs[:, None], self._gang[:, None], count, spread)
            value[:, kind] = speed * rates[:, kind, None]
        part = rates * np.minimum(share / self._gang, 1.0)[:, None]
        at_share = np.where(rigid, part, value[:, :, min(share, width)]).max(axis=1)
        value /= np.maximum(at_share, 1e-300)[:, None, None]
        return value

    def run(self, random: np.random.Generator, settings: PolluxSettings) -> tuple[Whole, Whole]:
        """Return the best plan: type and number of GPUs of each job, int64[n]."""
        size, n = settings.population, self._gang.size
        kind, gpus = self._first(random, size)
        cost = self._cost(kind, gpus, settings.least)
        for _ in range(settings.generations):
            parents = random.integers(0, size, (2, size))
            takes = random.random((size, n)) < 0.5
            child_kind = np.where(takes, kind[parents[0]], kind[parents[1]])
            child_gpus = np.where(takes, gpus[parents[0]], gpus[parents[1]])
            self._mutate(child_kind, child_gpus, random)
            self._repair(child_kind, child_gpus, random)
            kind, gpus = np.concatenate((kind, child_kind)), np.concatenate((gpus, child_gpus))
            cost = np.concatenate((cost, self._cost(child_kind, child_gpus, settings.least)))
            best = np.argsort(cost, kind="stable")[:size]
            kind, gpus, cost = kind[best], gpus[best], cost[best]
        return np.where(gpus[0] > 0, kind[0], -1), gpus[0]

    def _first(self, random: np.random.Generator, size: int) -> tuple[Whole, Whole]:
        """Return the first plans, int64[p, n]: the present GPUs, equal shares, and mutations of both."""
        own = np.where(self._able.any(axis=1), self._able.argmax(axis=1), 0)
        kind = np.tile(np.where(self._kind >= 0, self._kind, own), (size, 1))
        gpus = np.tile(self._gpus, (size, 1))
        share = max(int(self._capacity.sum()) // self._gang.size, 1)
        gpus[1::2] = np.where(self._flexible, min(share, self._most), self._gang)
        self._mutate(kind[2:], gpus[2:], random)
        self._repair(kind[1:], gpus[1:], random)
        return kind, gpus

    def _mutate(self, kind: Whole, gpus: Whole, random: np.random.Generator) -> None:
        """Change about two jobs of each plan: to any number, or by one GPU more or less."""
        n = self._gang.size
        hit = random.random(gpus.shape) < min(2.0 / n, 0.5)
        anew = random.integers(0, self._most + 1, gpus.shape)
        near = np.clip(gpus + random.integers(-1, 2, gpus.shape), 0, self._most)
        drawn = np.where(random.random(gpus.shape) < 0.5, anew, near)
        drawn = np.where(self._flexible, drawn, np.where(random.random(gpus.shape) < 0.7, self._gang, 0))
        gpus[hit] = drawn[hit]
        if self._capacity.size > 1:
            other = random.integers(0, self._capacity.size, kind.shape)
            kind[hit] = other[hit]

    def _repair(self, kind: Whole, gpus: Whole, random: np.random.Generator) -> None:
        """Take GPUs from jobs until each plan fits, the jobs of each plan in a random order."""
        gpus *= self._able[np.arange(self._gang.size), kind]
        order = random.permuted(np.tile(np.arange(self._gang.size), (gpus.shape[0], 1)), axis=1)
        if self._fit is not None:
            self._fit(kind, gpus, order, self._gang, self._flexible, self._capacity)
            return
        if self._flexible.all():
            of, asks = (np.take_along_axis(values, order, axis=1) for values in (kind, gpus))
            takes = np.zeros_like(asks)
            for one, most in enumerate(self._capacity.tolist()):
                reached = np.minimum(np.where(of == one, asks, 0).cumsum(axis=1), most)
                takes += np.diff(reached, axis=1, prepend=0)
            np.put_along_axis(gpus, order, takes, axis=1)
            return
        plans = np.arange(gpus.shape[0])
        left = np.tile(self._capacity, (gpus.shape[0], 1))
        for place in range(self._gang.size):
            job = order[:, place]
            of = kind[plans, job]
            takes = np.minimum(gpus[plans, job], left[plans, of])
            takes = np.where(self._flexible[job] | (takes == self._gang[job]), takes, 0)
            gpus[plans, job] = takes
            left[plans, of] -= takes

    def _cost(self, kind: Whole, gpus: Whole, least: float) -> Real:
        """Return the weighted mean of 1 / speed-up of each plan, float64[p]. The least is best for p = −1."""
        value = self._value[np.arange(self._gang.size), kind, gpus]
        moves = (self._gpus > 0) & ((gpus != self._gpus) | (kind != self._kind))
        value = np.maximum(value * np.where(moves, self._factor, 1.0), least)
        cost: Real = (self._weight / value).sum(axis=1) / self._weight.sum()
        return cost
