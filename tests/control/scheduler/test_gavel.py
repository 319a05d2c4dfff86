from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler import make
from control.scheduler.gavel import Cost, FinishTimeFair, Isolated, Makespan, MaxMin
from control.scheduler.model import Cluster, State
from tests.control.scheduler.worlds import after, cluster, state, table, worlds


def levels(where: Cluster, before: State, *, blind: bool = False) -> np.ndarray:
    x = MaxMin(where, blind=blind).shares(before)
    speed = before.throughput[:, :, 0]
    return (speed * x).sum(axis=1) / np.maximum(speed.max(axis=1), 1e-12)


@given(worlds(), st.floats(0.01, 100.0))
@settings(max_examples=30, deadline=None)
def test_a_faster_unit_of_work_changes_no_fair_share(world: tuple[Cluster, State], factor: float) -> None:
    where, before = world
    if not len(before):
        return
    scaled = before.throughput.copy()
    scaled[0] *= factor
    assert np.allclose(
        levels(where, before), levels(where, replace(before, throughput=scaled)), rtol=1e-4, atol=1e-5
    )


@given(worlds(kinds=2))
@settings(max_examples=30, deadline=None)
def test_blind_is_aware_where_all_types_are_equal(world: tuple[Cluster, State]) -> None:
    where, before = world
    same = replace(before, throughput=np.ones_like(before.throughput))
    assert np.allclose(levels(where, same), levels(where, same, blind=True), atol=1e-5)


@pytest.mark.parametrize(
    ("gpus", "weight", "x"),
    [
        ([1, 1, 1], [1.0, 1.0, 9.0], [0.5, 0.5, 1.0]),  # what job 2 cannot use goes to the others
        ([1, 2], [1.0, 1.0], [1.0, 0.5]),  # as much GPU time for both
        ([2, 2], [1.0, 3.0], [0.25, 0.75]),
    ],
)
def test_max_min_gives_gpu_time_by_weight(gpus: list[int], weight: list[float], x: list[float]) -> None:
    where = cluster((0, 2))
    speed = np.array([0.3, 7.0, 1.0])[: len(gpus), None]
    before = state(where, gpus, weight=np.array(weight), throughput=speed)
    assert MaxMin(where).shares(before)[:, 0] == pytest.approx(x, abs=1e-5)


def test_each_job_runs_where_it_gains_most() -> None:
    # Job 0 is ten times as fast on type 0, job 1 equally fast on both: each has one type to itself.
    where = cluster((0, 1), (1, 1))
    before = state(where, [1, 1], throughput=table((10, 1), (1, 1)))
    given = make("gavel", where, 0).on_round(before)
    assert where.server_type[given.server].tolist() == [0, 1]


def test_received_shares_tend_to_the_programme() -> None:
    where = cluster((0, 2), (1, 2))
    speeds = table((4, 1), (3, 1), (2, 1), (1, 1), (5, 1), (1.5, 1))
    before = replace(state(where, [1] * 6, throughput=speeds), left_steps=np.full(6, 1e9))
    x = MaxMin(where).shares(before)
    scheduler, had = make("gavel", where, 0), np.zeros_like(x)
    for _ in range(100):
        given = scheduler.on_round(before)
        had[given.row, where.server_type[given.server]] += 1
        before = after(before, given, passes_s=360)
    assert np.abs(had / 100 - x).max() < 0.05


def test_the_makespan_programme_is_no_later_than_any_division() -> None:
    where = cluster((0, 2), (1, 3))
    before = state(where, [1, 2, 1], throughput=table((4, 1), (1, 2), (1, 1)))
    before = replace(before, left_steps=np.array([3000.0, 500.0, 2000.0]))
    speed = before.throughput[:, :, 0]
    ends = {
        shares.__name__: (before.left_steps / (speed * shares(where).shares(before)).sum(axis=1)).max()
        for shares in (Makespan, MaxMin, Isolated)
    }
    assert ends["Makespan"] <= min(ends.values()) * (1 + 1e-6)


def test_finish_time_fairness_prefers_the_job_that_waited() -> None:
    where = cluster((0, 1))
    before = replace(state(where, [1, 1]), now_s=3000.0, submit_s=np.array([0.0, 2999.0]))
    x = FinishTimeFair(where).shares(before)
    assert x[0, 0] > x[1, 0]


def test_finish_time_fairness_goes_on_where_all_do_better_than_in_their_equal_parts() -> None:
    where = cluster((0, 1), (1, 1))
    before = state(where, [1, 1, 1], throughput=table((1, 0), (1, 0), (0, 1)), left_steps=np.full(3, 300.0))
    before = replace(before, now_s=100.0, submit_s=np.array([0.0, 100.0, 100.0]))
    # In thirds each takes 900 s. With a and 1 − a: (100 + 300 / a) / 900 = 300 / (1 − a) / 900, a² + 5a = 3.
    a = (37**0.5 - 5) / 2
    assert FinishTimeFair(where).shares(before)[:2, 0] == pytest.approx([a, 1 - a], rel=0.005)


def test_finish_time_fairness_makes_the_ratios_to_equal_parts_alike() -> None:
    where = cluster((0, 1))
    speed, submit_s = np.array([1.0, 4.0]), np.array([0.0, 2999.0])
    before = state(where, [1, 1], throughput=speed[:, None], now_s=3000.0, submit_s=submit_s)
    # 1000 steps at half the time of the GPU. What is done so far counts, as long as it would have taken so.
    whole_s = np.array([2000.0, 500.0])
    shares = FinishTimeFair(where)
    for now_s, left in ((3000.0, [1000.0, 1000.0]), (4000.0, [500.0, 900.0]), (4100.0, [450.0, 880.0])):
        now = replace(before, now_s=now_s, left_steps=np.array(left))
        got = shares.shares(now)[:, 0]
        ratio = (now_s - submit_s + left / (speed * got)) / whole_s
        assert ratio[0] == pytest.approx(ratio[1], rel=0.005)
        assert got.sum() == pytest.approx(1.0)


def test_what_the_worst_ratio_leaves_over_raises_the_least_relative_speed() -> None:
    where = cluster((0, 2))
    # The others reach the ratio of a job that waited 10⁴ s with a tenth of a GPU each.
    submit_s = np.array([0.0, 9999.0, 9999.0, 9999.0])
    left = np.array([1000.0, 1000.0, 1000.0, 50.0])
    before = replace(state(where, [1, 1, 1, 1]), now_s=1e4, submit_s=submit_s, left_steps=left)
    third = 1 / 3
    assert FinishTimeFair(where).shares(before)[:, 0] == pytest.approx([1.0, third, third, third], rel=0.005)


def test_work_that_a_fault_undid_and_that_was_repeated_counts_once() -> None:
    where = cluster((0, 1))
    before = state(where, [1, 1])
    undisturbed, hit = FinishTimeFair(where), FinishTimeFair(where)

    def seen(by: FinishTimeFair, now_s: float, left: float) -> np.ndarray:
        return by.shares(replace(before, now_s=now_s, left_steps=np.array([left, 1000.0])))

    for shares, left in ((undisturbed, (1000.0, 500.0)), (hit, (1000.0, 500.0, 900.0))):
        for number, steps in enumerate(left):
            seen(shares, 1000.0 * (number + 1), steps)
    assert np.array_equal(seen(hit, 9000.0, 400.0), seen(undisturbed, 9000.0, 400.0))


def test_cost_keeps_a_deadline_and_says_when_it_cannot() -> None:
    where = replace(cluster((0, 1), (1, 1)), price_usd_h=np.array([4.0, 1.0]))
    before = state(where, [1], throughput=table((2, 1)))
    cheap = Cost(where)
    assert np.allclose(cheap.shares(before), [[0, 1]])
    # 1000 steps in 600 s need a speed above 1.
    soon = replace(before, deadline_s=before.now_s + np.array([600.0]))
    assert cheap.shares(soon)[0, 0] > 0.5
    assert not cheap.remarks()
    cheap.shares(replace(before, deadline_s=before.now_s + np.array([100.0])))
    assert cheap.remarks()[0].startswith("not all deadlines could be kept together, once; ")


def test_a_deadline_that_has_passed_takes_none_from_the_others() -> None:
    where = replace(cluster((0, 1), (1, 1)), price_usd_h=np.array([4.0, 1.0]))
    before = state(where, [1, 1], throughput=table((2, 1), (2, 1)))
    # 1000 steps in 600 s need a speed above 1; the other job's deadline has passed.
    due = replace(before, deadline_s=before.now_s + np.array([600.0, -1.0]))
    cost = Cost(where)
    assert (cost.shares(due)[0] * [2, 1]).sum() >= 1000 / 600 - 1e-6
    assert not cost.remarks()


def test_cost_prefers_the_gang_that_does_more_for_its_money() -> None:
    where = cluster((0, 2))
    # The gang of two does half as much again as the other job, for twice the money.
    before = state(where, [1, 2], throughput=table((1,), (1.5,)))
    cost = Cost(where)
    assert cost.shares(before)[:, 0] == pytest.approx([1.0, 0.5])
    # Neither has a deadline that it could miss.
    assert not cost.remarks()


@pytest.mark.parametrize("policy", ["gavel", "gavel-sharing", "gandiva", "gavel-cost", "las"])
def test_a_job_that_came_after_the_last_programme_runs_on_gpus_that_no_share_takes(policy: str) -> None:
    # Job 1 is too large for either type.
    where = cluster((0, 2), (1, 1))
    scheduler = make(policy, where, 0)
    assert scheduler.on_round(state(where, [1], throughput=table((4, 1)))).row.tolist() == [0]
    three = state(where, [1, 3, 1], throughput=table((4, 1), (4, 1), (0, 1)), now_s=360.0)
    assert scheduler.on_round(three).row.tolist() == [0, 2]


@pytest.mark.parametrize("policy", ["gavel", "gavel-sharing"])
def test_who_got_less_than_the_share_before_an_arrival_comes_first_after_it(policy: str) -> None:
    where = cluster((0, 1))
    scheduler, two, turns = make(policy, where, 0), state(where, [1, 1], left_steps=np.full(2, 1e9)), []
    for _ in range(7):
        two = after(two, scheduler.on_round(two), passes_s=360)
        turns += two.held.row.tolist()
    assert turns == [0, 1, 0, 1, 0, 1, 0]
    three = state(where, [1, 1, 1], now_s=two.now_s, held=two.held)
    assert scheduler.on_round(three).row.tolist() == [1]


def test_shares_are_solved_again_at_most_every_so_often() -> None:
    where = cluster((0, 1))
    alone = state(where, [1])
    scheduler = make("gavel", where, 0)
    scheduler.on_round(alone)
    two = state(where, [1, 1], now_s=alone.now_s)
    turns = []
    for _ in range(10):
        two = after(two, scheduler.on_round(two), passes_s=360)
        turns.append(int(two.held.row[0]))
    # The second job has no share before 1920 s have passed, which is at the seventh round.
    assert turns[:6] == [0] * 6
    assert 1 in turns[6:]


def test_the_deadline_of_a_gang_that_no_type_can_hold_now_takes_none_from_the_others() -> None:
    where = replace(cluster((0, 1), (1, 1), (1, 1)), price_usd_h=np.array([4.0, 1.0]))
    before = state(where, [1, 2], throughput=table((2, 1), (2, 1)), up=np.array([True, True, False]))
    due = replace(before, deadline_s=before.now_s + np.array([600.0, 600.0]))
    cost = Cost(where)
    assert (cost.shares(due)[0] * [2, 1]).sum() >= 1000 / 600 - 1e-6
    assert not cost.remarks()


def test_a_job_whose_work_is_done_leaves_finish_time_fairness_to_the_others() -> None:
    where = cluster((0, 1), (1, 1))
    speeds = table((1.0, 1.0), (4.0, 1.0), (1.0, 1.0))
    before = state(where, [1, 1, 1], throughput=speeds, left_steps=np.array([0.0, 1000.0, 1000.0]))
    shares = FinishTimeFair(where).shares(before)
    assert np.isfinite(shares).all()
    assert shares[1, 0] > 0.5 > shares[1, 1]
