from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.scheduler import make
from control.scheduler.hadar import Prices
from tests.control.scheduler.worlds import cluster, state, table


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


def test_a_gang_may_take_two_types_at_once() -> None:
    where = cluster((0, 1), (1, 1))
    given = make("hadar", where, 0).on_round(state(where, [2], throughput=table((2, 2))))
    assert sorted(given.server.tolist()) == [0, 1]


def test_one_server_is_better_than_two_at_equal_prices() -> None:
    where = cluster((0, 2), (0, 2))
    given = make("hadar", where, 0).on_round(state(where, [2]))
    assert given.gpus.tolist() == [2]


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


def test_a_gang_on_two_servers_is_not_copied() -> None:
    where = cluster((0, 1), (0, 1), (0, 1))
    given = make("hadar-e", where, 0).on_round(state(where, [2]))
    assert given.gpus.tolist() == [1, 1]
