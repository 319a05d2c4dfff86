import numpy as np
import pytest

from control.market.levels import Levels
from twinbed import ScenarioError


def levels(*pairs: tuple[float, float]) -> Levels:
    return Levels(np.array([t for t, _ in pairs], dtype=float), np.array([v for _, v in pairs], dtype=float))


def test_a_tick_has_the_least_of_what_it_saw() -> None:
    history = levels((0, 2), (150, 0), (160, 1), (300, 3), (450, 3))
    assert history.least(100).tolist() == [2, 0, 1, 3]
    assert history.least(150).tolist() == [2, 0, 3]


def test_a_history_may_begin_at_any_time_and_be_shorter_than_a_tick() -> None:
    assert levels((1000, 1), (1300, 0), (1500, 0)).least(300).tolist() == [1]
    assert levels((5, 1)).least(10).size == 0


@pytest.mark.parametrize(
    ("pairs", "message"),
    [((), "at least one"), (((1, 1), (1, 2)), "must ascend"), (((0, -1),), "NaN or negative")],
)
def test_what_is_no_history(pairs: tuple[tuple[float, float], ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        levels(*pairs)
