"""Figures as people read them: no exponents, a unit that fits, and ticks at whole hours and days."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.charts import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00012, "0.12 ms"),
        (0.0813, "81.3 ms"),
        (1.25, "1.25 s"),
        (119.0, "119 s"),
        (600.0, "10 min"),
        (15_180.0, "4.22 h"),
        (604_800.0, "7 d"),
        (math.nan, ""),
    ],
)
def test_durations_read_in_the_unit_that_fits(seconds, text):
    assert words.duration(seconds) == text


@given(st.floats(1e-12, 1e15))
def test_a_number_has_no_exponent_and_three_digits(value):
    text = words.significant(value)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_an_interval_has_the_unit_of_its_middle():
    assert words.interval(15_180.0, 14_000.0, 90_000.0) == "4.22 h (3.89 to 25)"


@pytest.mark.parametrize(
    ("end_s", "unit", "ticks"),
    [
        (60.0, "s", []),
        (1800.0, "min", [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]),
        (43_200.0, "h", [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]),
        (604_800.0, "d", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
    ],
)
def test_ticks_stand_at_whole_minutes_hours_and_days(end_s, unit, ticks):
    size, name, at_s = words.ticks(0.0, end_s, 8)
    assert name == unit
    assert [place / size for place in at_s] == pytest.approx(ticks)


@given(st.floats(600, 1e8), st.integers(2, 20))
def test_there_are_never_more_ticks_than_asked_for(end_s, most):
    _, _, at_s = words.ticks(0.0, end_s, most)
    assert len(at_s) <= most + 1
