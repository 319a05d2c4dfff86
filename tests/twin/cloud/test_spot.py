from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.cloud import spot
from twin.cloud.spot import Levels
from twinbed import ScenarioError

PRICE = Levels(np.array([0.0, 3600.0, 7200.0]), np.array([1.0, 3.0, 2.0]))
MACHINES = Levels(np.array([0.0, 100.0, 200.0, 300.0, 400.0]), np.array([4.0, 2.0, 5.0, 0.0, 4.0]))


def test_a_price_holds_until_the_next():
    assert PRICE.at(np.array([-1.0, 0.0, 3599.0, 3600.0, 9e9])).tolist() == [1.0, 1.0, 1.0, 3.0, 2.0]


def test_a_cost_is_the_price_over_the_time_held():
    # two machines: half an hour at 1, half an hour at 3
    assert spot.cost_usd(PRICE, 2, 1800, 3600) == pytest.approx(2 * (0.5 * 1 + 0.5 * 3))
    assert spot.cost_usd(PRICE, 2, 1800, 0) == 0


@given(st.floats(0, 1e4), st.floats(1, 1e4), st.floats(1, 1e4))
def test_cost_adds_up_over_time(start: float, first: float, second: float):
    whole = spot.cost_usd(PRICE, 1, start, first + second)
    assert whole == pytest.approx(
        spot.cost_usd(PRICE, 1, start, first) + spot.cost_usd(PRICE, 1, start + first, second)
    )


def test_a_cluster_loses_what_it_can_no_longer_hold():
    assert spot.preemptions(MACHINES, 4).tolist() == [100.0, 300.0]
    assert spot.preemptions(MACHINES, 2).tolist() == [300.0]
    # holds (4, 2, 4, 0) for 100 s each of 4 wanted
    assert spot.share_held(MACHINES, 4) == pytest.approx(10 / 16)
    assert spot.preemptions_per_h(MACHINES, 4) == pytest.approx(2 / 300 * 3600)


def test_losses_cost_time_and_none_costs_only_checkpoints():
    assert spot.expected_s(1000, 0, 10, 100, 60) == pytest.approx(1000 + 10 * 10)
    often, seldom = (spot.expected_s(36000, rate, 10, 600, 60) for rate in (2.0, 0.1))
    assert often > seldom > 36000


def test_expected_time_is_as_drawn():
    draw = np.random.default_rng(5)
    took = []
    for _ in range(4000):
        at = 0.0
        for _ in range(4):
            while True:
                until = draw.exponential(3600 / 6)
                if until >= 260:
                    at += 260
                    break
                at += until + 30
        took.append(at)
    assert spot.expected_s(1000, 6.0, 10, 250, 30) == pytest.approx(np.mean(took), rel=0.03)


@pytest.mark.parametrize(
    ("t_s", "value", "message"),
    [
        ([], [], "at least one"),
        ([0, 0], [1, 1], "ascend"),
        ([0, 1], [1, np.nan], "NaN"),
        ([0], [-1], "negative"),
    ],
)
def test_a_history_that_cannot_be_is_refused(t_s: list[float], value: list[float], message: str):
    with pytest.raises(ScenarioError, match=message):
        Levels(np.array(t_s, dtype=float), np.array(value, dtype=float))
