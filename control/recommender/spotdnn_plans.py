"""spotDNN's provisioner: the cheapest cluster of unequal spot machines that trains to a loss in time.

For: choosing a cluster, choosing again after a revocation, and the baselines of the source. Not for:
predicting (spotdnn.py), nor starting machines. Source: spotDNN (IWQoS 2023), §IV. Our readings: survivors of
a revocation count as workers; on-demand machines are added if spot machines cannot keep the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, isfinite

import numpy as np

from control.jobs import Whole
from control.recommender.spotdnn import Goal, Training, WorkerKind, iteration_s, predict
from twinbed import ScenarioError

OVER_PREDICTION = 0.03
"""Share by which contention is over-predicted, as a margin: the source uses 1 to 5 % (§IV)."""
DEARER, LATE, OVER = "dearer", "late", "over the budget"
NO_FALL = "the loss would not fall: γ2·b + γ3 ≤ 0"
"""Reasons why clusters are rejected."""
MOST_CLUSTERS = 1_000_000
"""Most clusters that are compared. Of ten types they take 0.5 GB. 1,400 instances have as many windows."""


class Search(StrEnum):
    """The clusters that are considered: windows of neighbours in the order of speed (the source's heuristic),
    or all clusters (its baseline)."""

    WINDOWS = "windows"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class Plan:
    """The cluster to take.

    workers, added: number of workers of each type, including the running ones, and the number to start.
    time_s, cost_usd: predicted time and cost until the loss, s and US$, without the parameter server.
    iterations: pushes until then. on_demand: whether the added workers are on demand.
    """

    workers: Mapping[str, int]
    added: Mapping[str, int]
    time_s: float
    cost_usd: float
    iterations: int
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Provision:
    """The result for a goal. plan: None if no cluster reaches the goal. reason: why this plan, or why none.
    fewest, most: bounds on the number of workers. rejected: number of clusters that were considered and
    rejected, by reason."""

    plan: Plan | None
    reason: str
    fewest: int = 0
    most: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)


def provision(
    training: Training,
    kinds: Sequence[WorkerKind],
    goal: Goal,
    *,
    running: Mapping[str, int] | None = None,
    search: Search = Search.WINDOWS,
    over: float = OVER_PREDICTION,
    on_demand: bool = False,
) -> Provision:
    """Return the cluster with the cheapest workers that reaches the goal within its budget. Equal ones are
    ordered by time, then by number of workers.

    running: workers that stay, by type. on_demand: whether workers are added on demand instead of on the spot
    market. If the goal cannot be reached, the result has no plan. Raises ScenarioError for running workers of
    an unknown type or beyond the quota, and for more than MOST_CLUSTERS windows.
    """
    kinds = sorted(kinds, key=lambda kind: kind.name)
    here = _counted(kinds, running or {})
    quota = np.array([kind.quota for kind in kinds], dtype=np.int64)
    free = quota * [isfinite(kind.on_demand_usd_h) for kind in kinds] if on_demand else quota - here
    limit, stay = int(free.sum() + here.sum()), int(here.sum())
    if goal.loss <= training.gamma[4]:
        return Provision(None, f"infeasible: loss ≤ γ5: {goal.loss:g} is not above {training.gamma[4]:g}")
    if not limit:
        return Provision(None, "infeasible: no instance can be had")
    fewest = _fewest(training, [kind for kind, use in zip(kinds, free + here, strict=True) if use], goal)
    most = max(1, int(min(training.server_limit(), limit)))
    room = max(most, stay) - stay
    if fewest > stay + room:
        reason = f"infeasible: {fewest} workers are needed, and {most} are useful"
        return Provision(None, reason, fewest, most)
    if search is Search.WINDOWS:
        added = _windows(training, kinds, free, max(fewest - stay, 0), room)
    else:
        added = _every(free, room)
        added = added[added.sum(axis=1) + stay >= fewest]
    predicted = predict(training, kinds, added + here, goal, over=over)
    spot = np.array([kind.price_usd_h for kind in kinds])
    demand = np.array([kind.on_demand_usd_h if some else 0.0 for kind, some in zip(kinds, free, strict=True)])
    cost = predicted.time_s / 3600 * (added @ (demand if on_demand else spot) + here @ spot)
    in_time, never = predicted.time_s <= goal.time_s, np.isnan(predicted.time_s)
    paid = cost + predicted.time_s / 3600 * goal.server_usd_h
    kept = in_time & (paid <= goal.budget_usd)
    over_budget = int(in_time.sum() - kept.sum())
    rejected = {LATE: int((~in_time & ~never).sum()), OVER: over_budget, NO_FALL: int(never.sum())}
    if over_budget and not kept.any():
        least = f"{paid[in_time].min():.2f} $ of {goal.budget_usd:.2f} $"
        with_server = " with its server" if goal.server_usd_h else ""
        reason = f"infeasible: the cheapest cluster in time costs {least}{with_server}"
        return Provision(None, reason, fewest, most, rejected)
    if not kept.any():
        reason = f"infeasible: {NO_FALL}"
        if not never.all():
            fastest_s = np.nanmin(predicted.time_s)
            reason = f"infeasible: the fastest cluster needs {fastest_s:.0f} of {goal.time_s:.0f} s"
        return Provision(None, reason, fewest, most, rejected)
    order = (*added.T[::-1], predicted.workers, predicted.time_s, np.where(kept, cost, np.inf))
    best = int(np.lexsort(order)[0])
    plan = Plan(
        _named(kinds, added[best] + here),
        _named(kinds, added[best]),
        float(predicted.time_s[best]),
        float(cost[best]),
        int(predicted.iterations[best]),
        on_demand,
    )
    reason = f"cheapest of {int(kept.sum())} clusters in time, of {kept.size} looked at"
    return Provision(plan, reason, fewest, most, {DEARER: int(kept.sum()) - 1, **rejected})


def provision_again(
    training: Training,
    kinds: Sequence[WorkerKind],
    goal: Goal,
    survivors: Mapping[str, int],
) -> Provision:
    """Return the workers to start in addition to the survivors of a revocation. Errors are those of
    `provision`.

    goal: with the present loss, the remaining time and the overhead of a takeover. kinds: types available
    now. If spot machines cannot keep the time, on-demand machines are added, and the reason says so.
    """
    spot = provision(training, kinds, goal, running=survivors)
    if spot.plan is not None or not any(isfinite(kind.on_demand_usd_h) for kind in kinds):
        return spot
    other = provision(training, kinds, goal, running=survivors, on_demand=True)
    return replace(other, reason=f"on spot machines {spot.reason}; on demand: {other.reason}")


def by_speed(training: Training, kinds: Sequence[WorkerKind]) -> list[WorkerKind]:
    """Return the types, the slowest first. Types of equal speed are ordered by name."""
    times = iteration_s(training, kinds)
    order = sorted(range(len(kinds)), key=lambda index: (-times[index], kinds[index].name))
    return [kinds[index] for index in order]


def _counted(kinds: Sequence[WorkerKind], running: Mapping[str, int]) -> Whole:
    quotas = {kind.name: kind.quota for kind in kinds}
    for name, count in running.items():
        if name not in quotas:
            raise ScenarioError(f"no type {name} runs; types are {', '.join(quotas)}")
        if not 0 <= count <= quotas[name]:
            raise ScenarioError(f"{count} × {name} are running; expected at most {quotas[name]}")
    return np.array([running.get(kind.name, 0) for kind in kinds], dtype=np.int64)


def _fewest(training: Training, kinds: Sequence[WorkerKind], goal: Goal) -> int:
    """Return the number of workers below which no cluster can keep the time."""
    smallest = np.array([min(kind.samples for kind in kinds)])
    speed = max(np.array([kind.samples for kind in kinds]) / iteration_s(training, kinds))
    pushes = float(training.updates(smallest, np.zeros(1), np.ones(1, np.int64), goal)[0])
    needed = smallest[0] * pushes / (speed * goal.time_s)
    return max(ceil(needed), 1) if isfinite(needed) else 1


def _windows(training: Training, kinds: Sequence[WorkerKind], free: Whole, fewest: int, most: int) -> Whole:
    """Return every window of `fewest` to `most` neighbours among the free instances, slowest first, int64[k,
    m]. There is one empty window."""
    length = int(free.sum())
    sizes = range(fewest, min(most, length) + 1)
    count = len(sizes) * (length + 1) - sum(sizes)
    if count > MOST_CLUSTERS:
        raise ScenarioError(
            f"the quotas of {length:,} instances allow {count:,} clusters, and at most {MOST_CLUSTERS:,} are "
            "compared; lower the quotas"
        )
    place = {kind.name: index for index, kind in enumerate(kinds)}
    line = [place[kind.name] for kind in by_speed(training, kinds) for _ in range(free[place[kind.name]])]
    before = np.zeros((length + 1, len(kinds)), dtype=np.int64)
    before[1:] = np.eye(len(kinds), dtype=np.int64)[np.array(line, dtype=np.int64)].cumsum(axis=0)
    windows = [before[size:] - before[: length + 1 - size] for size in sizes if size]
    return np.concatenate([before[: int(not fewest)], *windows])


def _every(free: Whole, most: int) -> Whole:
    """Return every choice of at most `most` free instances, int64[k, m]."""
    chosen = np.zeros((1, 0), dtype=np.int64)
    for count in free:
        taken = np.arange(count + 1)
        chosen = np.column_stack((np.repeat(chosen, taken.size, axis=0), np.tile(taken, len(chosen))))
        chosen = chosen[chosen.sum(axis=1) <= most]
    return chosen


def _named(kinds: Sequence[WorkerKind], counts: Whole) -> dict[str, int]:
    return {kind.name: int(count) for kind, count in zip(kinds, counts, strict=True) if count}
