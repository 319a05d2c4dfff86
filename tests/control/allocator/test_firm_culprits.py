"""Firm's figures by hand, their bounds on any spans, and the classifier's line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.firm_culprits import FEWEST_REQUESTS, Intensity, Separator, intensity
from control.allocator.firm_weights import SEPARATOR
from control.paths import critical_paths
from tests.control.test_paths import spans


def figures(rows):
    trace = spans(*rows)
    return intensity(trace, critical_paths(trace))


def calls(late_s):
    """Requests of owner 0 that call owner 1, which is late by `late_s` seconds; rows of spans."""
    return [
        row
        for request, late in enumerate(late_s)
        for row in ((request, -1, 0, 0.0, 3.0 + late, 1.0), (request, 2 * request, 1, 1.0, 2.0 + late, 1.0))
    ]


def test_the_culprit_is_important_and_congested_and_too_few_requests_say_nothing():
    rows = calls([5.0 if request == 19 else 0.01 * request for request in range(20)])
    found = figures(rows)
    # Owner 0's own time is 2 s in every request: it does not vary, so it has no figures.
    assert found.owner.tolist() == [1]
    assert found.importance[0] == pytest.approx(1.0)
    # Sorted times are 1.00 … 1.18 and 6.0: p50 1.095, p99 1.18 + 0.81 · 4.82.
    assert found.congestion[0] == pytest.approx((1.18 + 0.81 * 4.82) / 1.095)
    assert len(figures(rows[: 2 * (FEWEST_REQUESTS - 1)]).owner) == 0


def test_the_separator_is_a_line_in_importance_and_the_logarithm_of_congestion():
    line = Separator(importance=1.0, congestion=2.0, bias=-2.5)
    told = line.culprits(Intensity(np.arange(3), np.array([1.0, 0.4, -1.0]), np.array([np.e, np.e, 1.0])))
    # 1 + 2 − 2.5, 0.4 + 2 − 2.5, −1 − 2.5.
    assert told.tolist() == [True, False, False]


def test_what_was_trained_calls_the_congested_important_owner_a_culprit_and_no_other():
    told = SEPARATOR.culprits(Intensity(np.arange(3), np.array([1.0, 0.0, 0.2]), np.array([20.0, 1.0, 2.0])))
    assert told.tolist() == [True, False, False]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0.0, 100.0), max_size=40))
def test_importance_is_a_correlation_and_congestion_at_least_one(late_s):
    found = figures(calls(late_s) or [(0, -1, 0, 0.0, 1.0, 1.0)])
    assert (np.abs(found.importance) <= 1.0).all()
    assert (found.congestion >= 1.0).all()
    assert (np.diff(found.owner) > 0).all()
