from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.scheduler import make
from control.scheduler.hadar import Prices
from control.scheduler.model import Assignment
from tests.control.scheduler.worlds import cluster, lines, state, table


@given(st.floats(0.001, 1.0), st.floats(1.0, 1000.0))
def test_prices_rise_from_least_to_most_with_use(least: float, most: float) -> None:
    prices = Prices(np.array([least]), np.array([most]))
    curve = prices.of(np.zeros(5, np.int64), np.linspace(0, 1, 5))
    assert (np.diff(curve) >= 0).all()
    assert np.allclose(curve[[0, -1]], [least, most])


def test_an_empty_cluster_admits_the_first_job_on_its_fastest_type() -> None:
    where = cluster((0, 1), (1, 1))
    given = make("hadar", where, 0).on_round(state(where, [1], throughput=table((1, 5))))
    assert given.server.tolist() == [1]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({}, 0),
        ({"weight": np.array([1.0, 2.0])}, 1),
        ({"left_steps": np.array([1000.0, 500.0])}, 1),  # it ends sooner
        ({"total_steps": np.array([1000.0, 2000.0])}, 1),  # it has done more work
        ({"submit_s": np.array([0.0, 50.0])}, 1),
        # Twice as fast: 1000 GPU-s in 600 s since its submission, against 2000 in 1100.
        ({"throughput": table((1, 1), (2, 2))}, 0),
        # Its work is counted on the fastest type, here 800 GPU-s in 350 s, also while that type is down.
        ({"throughput": table((1, 1), (1, 4)), "total_steps": np.array([1000.0, 1600.0])}, 1),
        ({"throughput": table((1, 1), (1, 4)), "total_steps": np.array([1000.0, 1000.0])}, 0),
        # 1000 GPU-s in 600 s on two GPUs, against 1000 in 1100.
        ({"gpus": [1, 2], "throughput": table((1, 1), (2, 2))}, 1),
    ],
)
def test_the_job_with_most_weighted_work_per_time_comes_first(changed: dict[str, Any], first: int) -> None:
    where = cluster((0, 2), (1, 2))
    values = {"now_s": 100.0, "submit_s": np.zeros(2), "up": np.array([True, False]), **changed}
    gpus = values.pop("gpus", [2, 2])
    given = make("hadar", where, 0).on_round(state(where, gpus, **values))
    assert given.row.tolist() == [first]


def test_a_gang_that_is_not_worth_its_price_comes_after_a_smaller_job_that_is() -> None:
    # All run on type 0 alone and are 1000 s from their end, so each is worth its weight per GPU. The prices
    # go from 16 / 4 to 100. Half of the server costs 20 per GPU: the gang would pay 40 for 32, and the small
    # job 20 for 25.
    where = cluster((0, 4), (1, 4))

    def taken(gpus: list[int], weight: list[float]) -> list[int]:
        speed = np.array(gpus)[:, None] * np.array([1.0, 0.0])
        zeros = np.zeros(len(gpus))
        jobs = state(where, gpus, now_s=0.0, submit_s=zeros, weight=np.array(weight), throughput=speed)
        return make("hadar", where, 0).on_round(jobs).row.tolist()

    assert taken([2, 2, 1], [100.0, 16.0, 25.0]) == [0, 2]
    # Where nobody pays for it, what is free goes to the gang all the same.
    assert taken([2, 2], [100.0, 16.0]) == [0, 1]


def test_a_gang_may_take_two_types_at_once() -> None:
    where = cluster((0, 1), (1, 1))
    given = make("hadar", where, 0).on_round(state(where, [2], throughput=table((2, 2))))
    assert sorted(given.server.tolist()) == [0, 1]


def test_one_server_is_better_than_two_at_equal_prices() -> None:
    where = cluster((0, 2), (0, 2))
    given = make("hadar", where, 0).on_round(state(where, [2]))
    assert given.gpus.tolist() == [2]
    assert make("hadar", where, 0).on_round(state(where, [3])).gpus.sum() == 3


def test_a_gang_that_must_stay_together_takes_one_rack_and_others_take_the_emptier_server() -> None:
    where = cluster((0, 1), (0, 1), racks=[0, 1])
    before = state(where, [2], together=np.array([True]))
    assert make("hadar", where, 0).on_round(before).row.size == 0
    large = cluster((0, 4), (0, 4))
    assert sorted(make("hadar", large, 0).on_round(state(large, [1, 1])).server.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("policy", "sizes", "row", "server", "gpus"),
    [
        ("hadar", [2] * 4, [0, 1], [3, 1], [2, 2]),
        ("hadar", [1] * 3, [0, 0], [1, 2], [1, 1]),
        # Job 1, which was submitted later, comes first.
        ("hadar-e", [2] * 4, [0, 0, 1, 1], [0, 2, 1, 3], [2] * 4),
    ],
)
def test_gangs_and_copies_stay_where_they_are_among_equal_servers(
    policy: str, sizes: list[int], row: list[int], server: list[int], gpus: list[int]
) -> None:
    where = cluster(*[(0, size) for size in sizes])
    there = Assignment(np.array(row), np.array(server), np.array(gpus))
    before = state(where, [2] * (1 + max(row)), held=there)
    assert lines(before, make(policy, where, 0).on_round(before)) == lines(before, there)


def test_copies_take_idle_servers_and_give_way_to_a_job_that_waits() -> None:
    where = cluster((0, 2), (0, 2), (1, 2))
    alone = state(where, [2], throughput=table((1, 2)))
    scheduler = make("hadar-e", where, 0)
    given = scheduler.on_round(alone)
    assert given.gpus.tolist() == [2, 2, 2]
    two = replace(state(where, [2, 2], throughput=table((1, 2), (1, 2))), held=given)
    shared = scheduler.on_round(two)
    assert set(shared.row.tolist()) == {0, 1}
    assert shared.gpus.tolist() == [2, 2, 2]


def test_a_server_has_one_copy_of_a_job() -> None:
    where = cluster((0, 2), (0, 4))
    assert make("hadar-e", where, 0).on_round(state(where, [2])).gpus.tolist() == [2, 2]


def test_a_gang_on_two_servers_is_not_copied() -> None:
    where = cluster((0, 1), (0, 1), (0, 1))
    given = make("hadar-e", where, 0).on_round(state(where, [2]))
    assert given.gpus.tolist() == [1, 1]
