import numpy as np
import pytest

from control.market.levels import Levels
from twinbed import ScenarioError


def levels(*pairs: tuple[float, float]) -> Levels:
    return Levels(np.array([t for t, _ in pairs], dtype=float), np.array([v for _, v in pairs], dtype=float))


def test_a_tick_has_the_least_of_what_it_saw() -> None:
    history = levels((0, 2), (150, 0), (160, 1), (300, 3), (450, 0))
    assert history.least(100).tolist() == [2, 0, 1, 3]
    assert history.least(150).tolist() == [2, 0, 3]


def test_a_history_may_begin_at_any_time_and_be_shorter_than_a_tick() -> None:
    assert levels((1000, 1), (1300, 0), (1500, 0)).least(300).tolist() == [1]
    assert levels((5, 1)).least(10).size == 0


def test_a_time_has_the_value_of_the_last_change_and_the_first_one_before() -> None:
    history = levels((10, 2), (20, 0), (30, 3))
    assert [history.at(t_s) for t_s in (0, 10, 19.9, 20, 30, 99)] == [2, 2, 2, 0, 3, 3]


@pytest.mark.parametrize(
    ("begin_s", "end_s", "least", "integral"),
    [
        (0, 5, 2, 10),
        (0, 19, 2, 38),
        (0, 20, 0, 40),  # both ends count: at 20 s there is nothing
        (20, 25, 0, 0),
        (15, 35, 0, 5 * 2 + 5 * 3),
        (30, 40, 3, 30),
        (12, 12, 2, 0),
    ],
)
def test_a_span_has_a_least_value_and_an_integral(
    begin_s: float, end_s: float, least: float, integral: float
) -> None:
    history = levels((10, 2), (20, 0), (30, 3))
    assert history.least_between(begin_s, end_s) == least
    assert history.integral(begin_s, end_s) == integral


def test_a_span_has_the_values_from_its_begin_until_before_its_end() -> None:
    history = levels((10, 2), (20, 0), (30, 3))
    spans = {(0, 5): [2], (0, 20): [2], (0, 20.5): [2, 0], (20, 30): [0], (25, 31): [0, 3], (40, 50): [3]}
    assert {span: history.within(*span).tolist() for span in spans} == spans


def test_machines_are_lost_when_fewer_than_needed_are_left() -> None:
    history = levels((0, 1), (10, 3), (20, 1), (20.5, 0), (40, 2), (50, 1))
    assert {need: history.falls_below(need).tolist() for need in (1, 2, 4)} == {1: [20.5], 2: [20, 50], 4: []}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((), "at least one"),
        (((1, 1), (1, 2)), "must ascend"),
        (((0, 1), (np.nan, 2), (3, 1)), "none may be NaN"),
        (((0, -1), (1, 1)), "NaN or negative"),
        (((0, 1), (1, np.nan)), "NaN or negative"),
    ],
)
def test_what_is_no_history(pairs: tuple[tuple[float, float], ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        levels(*pairs)
