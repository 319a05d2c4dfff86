"""spotDNN's provisioner: the cheapest cluster of unequal spot machines that trains to a loss in time.

For: choosing a cluster, choosing again after a revocation, and the choices that the source compares itself
with. Not for: predicting (spotdnn.py), nor starting machines. Source: spotDNN (IWQoS 2023), §IV. Readings,
where the source is silent: survivors of a revocation count among the workers; machines on demand help where
spot machines cannot keep the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, isfinite

import numpy as np

from control.jobs import Flags, Whole
from control.recommender.spotdnn import Goal, Predicted, Training, WorkerKind, iteration_s, predict
from twinbed import ScenarioError

OVER_PREDICTION = 0.03
"""Share by which contention is over-predicted, so that a promise is kept: the source says 1 to 5 % (§IV)."""
CHANGE_S = 30.0
"""Longest time that a takeover adds to a training, s (§IV: below 30 s)."""
_H = 3600.0


class Search(StrEnum):
    """Which clusters are looked at: windows of neighbours in the order of speed (the source's heuristic), or
    every one (its baseline)."""

    WINDOWS = "windows"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class Plan:
    """The cluster to take.

    workers: how many of each type, with the running ones; types without any are left out.
    added: how many of them are to be started.
    time_s, cost_usd: predicted time and cost of the workers until the loss is reached, s and US$.
    server_usd: cost of the parameter server in that time, US$, which the source leaves out of its costs.
    iterations: pushes until then.
    on_demand: whether those that are added are on demand.
    """

    workers: Mapping[str, int]
    added: Mapping[str, int]
    time_s: float
    cost_usd: float
    server_usd: float
    iterations: int
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """Clusters that were not taken. workers: of each; clusters: how many; reason: why, in words."""

    workers: int
    clusters: int
    reason: str


@dataclass(frozen=True, slots=True)
class Provision:
    """The answer to a goal.

    plan: the cluster to take; None if there is none.
    reason: why, in one sentence.
    fewest, most: bounds on the number of workers.
    rejected: the clusters that were looked at and not taken, by number of workers.
    """

    plan: Plan | None
    reason: str
    fewest: int = 0
    most: int = 0
    rejected: tuple[Rejected, ...] = field(default=())


def provision(
    training: Training,
    kinds: Sequence[WorkerKind],
    goal: Goal,
    *,
    running: Mapping[str, int] | None = None,
    search: Search = Search.WINDOWS,
    over: float = OVER_PREDICTION,
    on_demand: bool = False,
    server_usd_h: float = 0.0,
) -> Provision:
    """Return the cheapest cluster that reaches the goal; of equals the faster, then the one of fewer workers.

    running: workers that stay, by type. on_demand: whether workers are added on demand instead of on the spot
    market. server_usd_h: price of the parameter server, US$/h. A goal that cannot be reached is an answer
    without a plan. Raises ScenarioError for running workers of an unknown type or beyond the quota.
    """
    kinds = sorted(kinds, key=lambda kind: kind.name)
    here = _counted(kinds, running or {})
    quota = np.array([kind.quota for kind in kinds], dtype=np.int64)
    free = quota * [isfinite(kind.on_demand_usd_h) for kind in kinds] if on_demand else quota - here
    if goal.loss <= training.gamma[4]:
        return Provision(None, f"infeasible: loss ≤ γ5: {goal.loss:g} is not above {training.gamma[4]:g}")
    if not (free.any() or here.any()):
        return Provision(None, "infeasible: no instance can be had")
    fewest, most = _bounds(training, kinds, free + here > 0, int(free.sum() + here.sum()), goal)
    if fewest > max(most, here.sum()):
        return Provision(
            None, f"infeasible: {fewest} workers are needed, and {most} are useful", fewest, most
        )
    least, last = max(fewest, int(here.sum())), max(most, int(here.sum()))
    room = last - int(here.sum())
    added = _windows(training, kinds, free, room) if search is Search.WINDOWS else _every(free, room)
    counts = added + here
    kept = counts.sum(axis=1) >= max(least, 1)
    counts, added = counts[kept], added[kept]
    predicted = predict(training, kinds, counts, goal, over=over)
    price = np.array([kind.on_demand_usd_h if on_demand else kind.price_usd_h for kind in kinds])
    usd_h = added @ np.where(free > 0, price, 0.0) + here @ np.array([kind.price_usd_h for kind in kinds])
    cost = predicted.time_s / _H * usd_h
    kept = predicted.time_s <= goal.time_s
    ranked = np.lexsort((*counts.T[::-1], predicted.workers, predicted.time_s, np.where(kept, cost, np.inf)))
    best = int(ranked[0]) if kept.any() else -1
    rejected = _rejected(predicted, kept, best)
    if best < 0:
        reason = (
            "infeasible: a larger batch than γ2 and γ3 allow"
            if np.isnan(predicted.time_s).all()
            else f"infeasible: the fastest cluster needs {np.nanmin(predicted.time_s):.0f} of "
            f"{goal.time_s:.0f} s"
        )
        return Provision(None, reason, fewest, most, rejected)
    time_s = float(predicted.time_s[best])
    plan = Plan(
        _named(kinds, counts[best]),
        _named(kinds, added[best]),
        time_s,
        float(cost[best]),
        time_s / _H * server_usd_h,
        int(predicted.iterations[best]),
        on_demand,
    )
    reason = f"cheapest of {int(kept.sum())} clusters in time, of {kept.size} looked at"
    return Provision(plan, reason, fewest, most, rejected)


def provision_again(
    training: Training,
    kinds: Sequence[WorkerKind],
    goal: Goal,
    survivors: Mapping[str, int],
    *,
    over: float = OVER_PREDICTION,
    server_usd_h: float = 0.0,
) -> Provision:
    """Return whom to start beside the survivors of a revocation.

    goal: with the present loss, the time that is left and the overhead of a takeover. kinds: what can be had
    now. If spot machines cannot keep the time, machines on demand are added, and the reason says so (a
    reading). Errors are those of `provision`.
    """
    spot = provision(training, kinds, goal, running=survivors, over=over, server_usd_h=server_usd_h)
    if spot.plan is not None or not any(isfinite(kind.on_demand_usd_h) for kind in kinds):
        return spot
    other = provision(
        training, kinds, goal, running=survivors, over=over, on_demand=True, server_usd_h=server_usd_h
    )
    return replace(other, reason=f"on spot machines {spot.reason}; on demand: {other.reason}")


def fastest(training: Training, kinds: Sequence[WorkerKind]) -> WorkerKind:
    """Return the type with the shortest iteration, which Homo-fast takes; `slowest` is Homo-slow's."""
    return _by_speed(training, kinds)[-1]


def slowest(training: Training, kinds: Sequence[WorkerKind]) -> WorkerKind:
    """Return the type with the longest iteration."""
    return _by_speed(training, kinds)[0]


def cm_dare(training: Training) -> Training:
    """Return the training as CM-DARE+ sees it: no contention, and unequal workers converge like equal ones.

    A reading: the source gives the name and results only.
    """
    return replace(training, contended=False, unequal=False)


def srifty(training: Training) -> Training:
    """Return the training as Srifty+ sees it, which searches exhaustively; a reading as that of `cm_dare`."""
    return replace(training, unequal=False)


def _by_speed(training: Training, kinds: Sequence[WorkerKind]) -> list[WorkerKind]:
    """Return the types, slowest first, those of equal speed by name."""
    times = iteration_s(training, kinds)
    order = sorted(range(len(kinds)), key=lambda index: (-times[index], kinds[index].name))
    return [kinds[index] for index in order]


def _counted(kinds: Sequence[WorkerKind], running: Mapping[str, int]) -> Whole:
    quotas = {kind.name: kind.quota for kind in kinds}
    for name, count in running.items():
        if not 0 <= count <= quotas.get(name, -1):
            raise ScenarioError(f"{count} × {name} are running; expected at most {quotas.get(name, 0)}")
    return np.array([running.get(kind.name, 0) for kind in kinds], dtype=np.int64)


def _bounds(
    training: Training, kinds: Sequence[WorkerKind], there: Flags, limit: int, goal: Goal
) -> tuple[int, int]:
    """Return the fewest workers that could keep the time, and the most that the server can serve."""
    mine = [kind for kind, use in zip(kinds, there, strict=True) if use]
    smallest = np.array([min(kind.samples for kind in mine)])
    speed = max(np.array([kind.samples for kind in mine]) / iteration_s(training, mine))
    pushes = float(training.updates(smallest, np.zeros(1), np.ones(1, np.int64), goal)[0])
    needed = smallest[0] * pushes / (speed * goal.time_s)
    fewest = max(ceil(needed), 1) if isfinite(needed) else 1
    return fewest, max(1, int(min(training.server_limit(), limit)))


def _windows(training: Training, kinds: Sequence[WorkerKind], free: Whole, most: int) -> Whole:
    """Return every window of at most `most` neighbours among the free instances, slowest first, int64[k, m].

    The empty window is the first.
    """
    place = {kind.name: index for index, kind in enumerate(kinds)}
    line = [place[kind.name] for kind in _by_speed(training, kinds) for _ in range(free[place[kind.name]])]
    before = np.zeros((len(line) + 1, len(kinds)), dtype=np.int64)
    before[1:] = np.eye(len(kinds), dtype=np.int64)[np.array(line, dtype=np.int64)].cumsum(axis=0)
    windows = [before[size:] - before[: len(line) + 1 - size] for size in range(1, min(most, len(line)) + 1)]
    return np.concatenate([before[:1], *windows])


def _every(free: Whole, most: int) -> Whole:
    """Return every choice of at most `most` free instances, int64[k, m]."""
    chosen = np.zeros((1, 0), dtype=np.int64)
    for count in free:
        taken = np.arange(count + 1)
        chosen = np.column_stack((np.repeat(chosen, taken.size, axis=0), np.tile(taken, len(chosen))))
        chosen = chosen[chosen.sum(axis=1) <= most]
    return chosen


def _rejected(predicted: Predicted, kept: Flags, best: int) -> tuple[Rejected, ...]:
    """Return why clusters were not taken, by number of workers."""
    others = np.arange(kept.size) != best
    classes = (
        (kept & others, "dearer"),
        (~kept & ~np.isnan(predicted.time_s), "late"),
        (np.isnan(predicted.time_s), "the loss would not fall: γ2·b + γ3 ≤ 0"),
    )
    return tuple(
        Rejected(int(workers), int(count), reason)
        for among, reason in classes
        for workers, count in zip(*np.unique(predicted.workers[among], return_counts=True), strict=True)
    )


def _named(kinds: Sequence[WorkerKind], counts: Whole) -> dict[str, int]:
    return {kind.name: int(count) for kind, count in zip(kinds, counts, strict=True) if count}
