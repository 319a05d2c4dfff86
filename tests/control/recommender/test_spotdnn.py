"""Invariants of spotDNN's predictor and provisioner, over made-up clusters."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from control.recommender.spotdnn import Goal, Training, WorkerKind, iteration_s, predict
from control.recommender.spotdnn_plans import Search, by_speed, provision, provision_again
from twinbed import ScenarioError


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False).map(lambda value: float(f"{value:.4g}"))


TRAININGS = st.builds(
    Training,
    push_mb=numbers(1, 600),
    server_mb_s=numbers(200, 3000),
    worker_mb_s=numbers(50, 700),
    pcie_mb_s=numbers(2000, 20000),
    contention=st.tuples(numbers(0.1, 1), numbers(-2, 0.5)),
    gamma=st.tuples(
        numbers(1, 1000), numbers(-0.3, 0), numbers(500, 3000), numbers(0.01, 1), numbers(0.05, 0.5)
    ),
    unequal=st.booleans(),
)
KINDS = st.lists(
    st.tuples(
        numbers(0.1, 5),
        st.integers(0, 3),
        st.sampled_from([256, 512, 1024]),
        st.integers(1, 4),
        numbers(0.1, 4),
    ),
    min_size=1,
    max_size=4,
).map(
    lambda rows: [
        WorkerKind(f"type-{index}", price, quota, samples * gpus, gpus, compute, 2 * price)
        for index, (price, quota, samples, gpus, compute) in enumerate(rows)
    ]
)
GOALS = st.builds(Goal, loss=numbers(0.55, 2), time_s=numbers(50, 50_000))


def by_hand(training: Training, workers: list[WorkerKind], goal: Goal) -> dict[str, float]:
    """The source's equations for one cluster, worker by worker."""
    n, (alpha, beta), (g1, g2, g3, g4, g5) = len(workers), training.contention, training.gamma
    share = min(1.0, max(0.0, alpha * math.sqrt(n) + beta))
    alone, equal = training.worker_mb_s, training.server_mb_s / n
    bandwidth = share * equal + (1 - share) * alone if alone > equal else alone
    size = training.push_mb
    times = [
        kind.compute_s + 2 * size / bandwidth + 2 * kind.gpus * size / training.pcie_mb_s for kind in workers
    ]
    speed = sum(kind.samples / time for kind, time in zip(workers, times, strict=True))
    step = 1 / sum(1 / time for time in times)
    weights = sorted(
        (kind.samples / time / speed for kind, time in zip(workers, times, strict=True)), reverse=True
    )
    spread = math.sqrt((weights[0] - 1) ** 2 + sum(weight**2 for weight in weights[1:]))
    scale = (g2 * speed * step + g3) * math.sqrt(((spread if training.unequal else 0) + g4) * n)
    pushes = max(1, math.ceil(scale / (goal.loss - g5) - g1)) if scale > 0 else math.nan
    return {
        "share": share,
        "bandwidth_mb_s": bandwidth,
        "step_s": step,
        "samples": speed * step,
        "convergence": spread,
        "iterations": pushes,
        "time_s": pushes * step,
    }


@given(TRAININGS, KINDS, GOALS, st.data())
def test_the_prediction_is_that_of_the_equations_worker_by_worker(training, kinds, goal, data) -> None:
    counts = np.array([[data.draw(st.integers(0, 4)) for _ in kinds]])
    assume(counts.any())
    cluster = [kind for kind, count in zip(kinds, counts[0], strict=True) for _ in range(count)]
    expected = by_hand(training, cluster, goal)
    got = predict(training, kinds, counts, goal)
    for name in ("share", "bandwidth_mb_s", "step_s", "samples"):
        assert getattr(got, name)[0] == pytest.approx(expected[name], rel=1e-9), name
    assert got.convergence[0] == pytest.approx(expected["convergence"], abs=1e-6)
    assert np.isnan(got.iterations[0]) == math.isnan(expected["iterations"])
    if not math.isnan(expected["iterations"]):  # rounding up may fall to either side
        assert abs(got.iterations[0] - expected["iterations"]) <= 1 + 1e-5 * expected["iterations"]
    assert 0 <= got.share[0] <= 1
    low = min(training.server_mb_s / len(cluster), training.worker_mb_s)
    assert low * (1 - 1e-12) <= got.bandwidth_mb_s[0] <= training.worker_mb_s
    assert 0 <= got.convergence[0] < 1
    assert (got.convergence[0] == 0) == (len(cluster) == 1)


@given(TRAININGS, numbers(100, 3000), st.integers(1, 12), numbers(0, 0.99), GOALS)
def test_the_loss_falls_with_every_push_and_reaches_the_goal_when_it_should(
    training, samples, workers, spread, goal
) -> None:
    place = np.array([samples]), np.array([spread]), np.array([workers])
    pushes = training.updates(*place, goal)[0]
    if np.isnan(pushes):
        assert training.gamma[1] * samples + training.gamma[2] <= 0
        return
    assume(pushes >= 0)
    assert training.loss(*place, np.array([pushes]))[0] == pytest.approx(goal.loss)
    assert training.loss(*place, np.array([pushes + 10]))[0] < goal.loss
    begun = replace(goal, from_loss=goal.loss * 1.5)  # the same curve, entered where it has the loss
    entered = training.updates(*place, replace(goal, loss=begun.from_loss))[0]
    assert training.updates(*place, begun)[0] == pytest.approx(pushes - entered, rel=1e-6, abs=1e-6)


def cost_of(training, kinds, goal, workers, over=0.03) -> tuple[float, float]:
    counts = np.array([[workers.get(kind.name, 0) for kind in kinds]])
    time_s = predict(training, kinds, counts, goal, over=over).time_s[0]
    return time_s, time_s / 3600 * sum(counts[0] * [kind.price_usd_h for kind in kinds])


@given(TRAININGS, KINDS, GOALS)
def test_a_plan_keeps_its_bounds_and_is_the_cheapest_window(training, kinds, goal) -> None:
    answer = provision(training, kinds, goal)
    times = dict(zip((kind.name for kind in kinds), iteration_s(training, kinds), strict=True))
    line = sorted(
        (kind for kind in kinds for _ in range(kind.quota)), key=lambda kind: (-times[kind.name], kind.name)
    )
    windows = [
        line[begin : begin + size]
        for size in range(max(answer.fewest, 1), answer.most + 1)
        for begin in range(len(line) - size + 1)
    ]
    known = []
    for window in windows:
        workers = {kind.name: window.count(kind) for kind in window}
        time_s, cost = cost_of(training, kinds, goal, workers)
        if time_s <= goal.time_s:
            known.append((cost, time_s, len(window)))
    every = provision(training, kinds, goal, search=Search.EXHAUSTIVE)
    if answer.plan is None:
        assert answer.reason.startswith("infeasible: ")
        assert not known
        return
    plan = answer.plan
    quotas = {kind.name: kind.quota for kind in kinds}
    assert all(0 < count <= quotas[name] for name, count in plan.workers.items())
    assert answer.fewest <= sum(plan.workers.values()) <= answer.most
    assert plan.time_s <= goal.time_s
    time_s, cost = cost_of(training, kinds, goal, plan.workers)
    assert (plan.time_s, plan.cost_usd) == pytest.approx((time_s, cost))
    assert plan.cost_usd == pytest.approx(min(known)[0])
    assert every.plan is not None
    assert every.plan.cost_usd <= plan.cost_usd * (1 + 1e-12)
    sizes = [sum(counts) for counts in product(*(range(kind.quota + 1) for kind in kinds))]
    assert 1 + sum(every.rejected.values()) == sum(answer.fewest <= size <= answer.most for size in sizes)
    assert 1 + sum(answer.rejected.values()) == len(windows)


def test_a_dearer_and_faster_cluster_is_taken_if_only_that_pays_for_its_server_too() -> None:
    even = replace(TRAINING, unequal=False)
    kinds, goal = [SMALL, LARGE], Goal(0.8, 1e5, server_usd_h=10.0)
    cheapest = provision(even, kinds, goal).plan
    assert cheapest is not None
    assert cheapest == provision(even, kinds, replace(goal, server_usd_h=0.0)).plan
    paid = cheapest.cost_usd + cheapest.time_s / 3600 * 10.0
    within = provision(even, kinds, replace(goal, budget_usd=0.9 * paid))
    assert within.plan is not None
    assert within.plan.cost_usd > cheapest.cost_usd
    assert within.plan.cost_usd + within.plan.time_s / 3600 * 10.0 <= 0.9 * paid
    assert within.rejected["over the budget"] > 0
    none = provision(even, kinds, replace(goal, budget_usd=1.0))
    assert none.plan is None
    assert re.fullmatch(
        r"infeasible: the cheapest cluster in time costs \S+ \$ of 1.00 \$ with its server", none.reason
    )


def test_more_clusters_than_can_be_compared_are_refused() -> None:
    endless = replace(TRAINING, contention=(0.0, 0.0))
    with pytest.raises(ScenarioError, match="of 1,000,003 instances allow 500,003,500,006 clusters"):
        provision(endless, [replace(SMALL, quota=10**6), LARGE], Goal(0.8, 1e5))


@given(TRAININGS, KINDS, GOALS, numbers(1, 3), st.randoms(use_true_random=False))
def test_more_time_never_costs_more_and_neither_order_nor_currency_changes_the_plan(
    training, kinds, goal, factor, random
) -> None:
    answer = provision(training, kinds, goal)
    shuffled = random.sample(kinds, len(kinds))
    assert provision(training, shuffled, goal) == answer
    if answer.plan is None:
        return
    later = provision(training, kinds, replace(goal, time_s=goal.time_s * factor)).plan
    assert later is not None
    assert later.cost_usd <= answer.plan.cost_usd
    doubled = provision(
        training, [replace(kind, price_usd_h=2 * kind.price_usd_h) for kind in kinds], goal
    ).plan
    assert doubled is not None
    assert doubled.workers == answer.plan.workers


@given(TRAININGS, KINDS, GOALS, st.data())
def test_after_a_revocation_the_survivors_stay(training, kinds, goal, data) -> None:
    survivors = {kind.name: data.draw(st.integers(0, kind.quota)) for kind in kinds}
    left = replace(goal, from_loss=goal.loss + 1, overhead_s=20.0)
    answer = provision_again(training, kinds, left, survivors)
    if answer.plan is None:
        return
    plan = answer.plan
    assert plan.time_s <= goal.time_s
    for name, count in survivors.items():
        assert plan.workers.get(name, 0) == count + plan.added.get(name, 0)
    if plan.on_demand:
        assert provision(training, kinds, left, running=survivors).plan is None
        assert answer.reason.startswith("on spot machines infeasible")


TRAINING = Training(10, 1200, 140, 10_000, (0.8, -1.92), (800, -0.2, 2500, 0.3, 0.5))
SMALL = WorkerKind("small", 0.3, 3, 512, 1, 1.0, 0.9)
LARGE = WorkerKind("large", 1.5, 3, 2048, 4, 1.2, 4.0)


def test_what_cannot_be_planned_says_why() -> None:
    kinds = [SMALL, LARGE]
    assert provision(TRAINING, kinds, Goal(0.5, 1000)).reason == "infeasible: loss ≤ γ5: 0.5 is not above 0.5"
    none = [replace(kind, quota=0) for kind in kinds]
    assert provision(TRAINING, none, Goal(0.8, 1000)).reason == "infeasible: no instance can be had"
    assert "workers are needed, and 6 are useful" in provision(TRAINING, kinds, Goal(0.8, 10)).reason
    huge = [replace(kind, samples=50_000) for kind in kinds]
    assert "the loss would not fall" in provision(TRAINING, huge, Goal(0.8, 1e5)).reason
    late = provision(TRAINING, kinds, Goal(0.8, 1400))
    assert "infeasible: the fastest cluster needs" in late.reason
    assert late.rejected["late"] > 0 == late.rejected["the loss would not fall: γ2·b + γ3 ≤ 0"]
    with pytest.raises(ScenarioError, match="4 × small are running; expected at most 3"):
        provision(TRAINING, kinds, Goal(0.8, 1e4), running={"small": 4})
    with pytest.raises(ScenarioError, match="worker type x: quota is -1"):
        replace(SMALL, name="x", quota=-1)
    for value in (0.0, -1.0, math.inf):
        with pytest.raises(ScenarioError, match=rf"push_mb is {value}; it must be above 0"):
            replace(TRAINING, push_mb=value)
    with pytest.raises(ScenarioError, match="gamma"):
        replace(TRAINING, gamma=(1, 0.1, 1, 1, 1))


def test_machines_on_demand_help_where_the_spot_market_is_empty() -> None:
    even = replace(TRAINING, unequal=False)  # two workers are then 1.4 times as fast as one
    goal, only = Goal(0.8, 9000, from_loss=2.0, overhead_s=30), [replace(LARGE, quota=1)]
    answer = provision_again(even, only, goal, {"large": 1})
    assert answer.plan is not None
    assert (answer.plan.added, answer.plan.on_demand) == ({}, False)
    hurried = replace(goal, time_s=0.8 * answer.plan.time_s)
    answer = provision_again(even, only, hurried, {"large": 1})
    assert answer.plan is not None
    assert answer.plan.on_demand
    assert answer.plan.workers == {"large": 2}
    assert answer.plan.cost_usd == pytest.approx(answer.plan.time_s / 3600 * (1.5 + 4.0))
    assert "on demand: cheapest of 1 clusters" in answer.reason


def test_the_others_think_less_of_contention_and_of_unequal_speeds() -> None:
    kinds, counts, goal = [LARGE, SMALL], np.array([[3, 9]]), Goal(0.8, 1e5)
    ours, dare, other = (
        predict(replace(TRAINING, contended=contended, unequal=unequal), kinds, counts, goal)
        for contended, unequal in ((True, True), (False, False), (True, False))
    )
    assert dare.share[0] == 0 < other.share[0] == ours.share[0]
    assert dare.time_s[0] < other.time_s[0] < ours.time_s[0]
    assert by_speed(TRAINING, kinds) == [LARGE, SMALL]
