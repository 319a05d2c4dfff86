"""Which limit changes count as taken back: examples by hand, and a check against the definition."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.containers.run.figures import taken_back

INF = np.inf


def count(quotas, within=3, up=None, memory=None):
    quota = np.array([quotas], np.float32).T
    limit = np.full(quota.shape, 1 << 30) if memory is None else np.array([memory]).T
    there = np.ones(quota.shape, np.bool_) if up is None else np.array([up], np.bool_).T
    return taken_back(SimpleNamespace(quota_cores=quota, limit_bytes=limit, up=there), within).tolist()


@pytest.mark.parametrize(
    ("quotas", "back"),
    [
        ([1, 1, 1, 1], 0),
        ([1, 2, 3, 4], 0),
        ([1, 2, 1, 1], 1),  # the raise; the cut back to 1 stays
        ([1, 2, 1, 2], 2),
        ([2, 1, 1, 1, 2], 1),  # three periods after the cut
        ([2, 1, 1, 1, 1, 2], 0),  # four
        ([1, 4, 3, 2, 2, 2], 0),  # lowered, and still above the old value
        ([1, 4, 3, 0.5, 0.5], 1),  # the raise to 4; the cuts from 4 and from 3 stay
        ([INF, 1, INF, INF], 1),
        ([1, INF, INF, 1], 1),
    ],
)
def test_a_change_counts_when_the_limit_is_back_in_time(quotas, back):
    assert count(quotas) == [back]


def test_memory_limits_count_as_well():
    assert count([1, 1, 1], memory=[100, 200, 100]) == [1]


def test_periods_in_which_a_container_is_down_are_left_out():
    assert count([1, 2, 0, 0, 0, 1], up=[1, 1, 0, 0, 0, 1]) == [1]
    assert count([1, 1, 0, 0, 1, 1], up=[1, 1, 0, 0, 1, 1]) == [0]
    assert count([0, 0], up=[0, 0]) == [0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 9))
def test_the_arrays_count_what_the_definition_says(limits, within):
    expected = 0
    for at, (before, after) in enumerate(pairwise(limits), 1):
        later = limits[at : at + within + 1]
        expected += after > before and min(later) <= before
        expected += after < before and max(later) >= before
    assert count(limits, within) == [expected]
