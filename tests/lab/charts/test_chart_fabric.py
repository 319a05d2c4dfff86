"""Charts of a fabric: which fault the steps are of."""

from __future__ import annotations

import pandas as pd
import pytest

from lab.charts.fabric import _first_felt


@pytest.mark.parametrize(("held_up_s", "begin_s"), [(1.0, 20.0), (3.0, 60.0)])
def test_the_steps_are_of_the_first_fault_that_something_waited_for(held_up_s, begin_s):
    took = pd.Series([1.0] * 60 + [held_up_s] + [1.0] * 20)
    series = pd.DataFrame({"at_s": took.cumsum().shift(fill_value=0.0), "duration_s": took})
    assert _first_felt(pd.Series([60.0, 20.0, 20.0]), series) == begin_s
