"""Memory: never below the peak, and with a margin that the history teaches."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.advice import memory
from control.advice.model import MIB
from tests.control.advice.usages import usage


@settings(max_examples=60, deadline=None)
@given(levels=st.lists(st.lists(st.floats(1.0, 1e11), min_size=6, max_size=6), min_size=1, max_size=5))
def test_no_size_is_below_the_recorded_peak(levels):
    own = usage(np.ones((len(levels), 6)), levels)
    request, limit = memory.sizes(own)
    assert (request >= own.peak_bytes()).all()
    assert (limit >= request).all()


def test_what_is_steady_reserves_its_peak_and_may_take_half_more():
    # Peak 100 MiB in both halves: no growth, so the margin is the least one, 50 %.
    request, limit = memory.sizes(usage(np.ones((1, 8)), np.full((1, 8), 100.0 * MIB)))
    assert (request[0] / MIB, limit[0] / MIB) == (100, 150)


def test_growth_is_expected_once_more_and_the_limit_holds_twice_of_it():
    # 100 → 200 MiB over half of the history: request 200 + 100; limit 200 + max(100 %, 2 · 100).
    held = np.array([[50.0, 100.0, 150.0, 200.0]]) * MIB
    request, limit = memory.sizes(usage(np.ones((1, 4)), held))
    assert (request[0] / MIB, limit[0] / MIB) == (300, 400)


def test_a_fleet_whose_peaks_grew_gives_all_of_it_a_larger_margin():
    held = np.full((10, 4), 100.0) * MIB
    held[1:, 2:] *= 1.8
    _, limit = memory.sizes(usage(np.ones((10, 4)), held))
    assert limit[0] / MIB == 100 * 1.8


def test_a_leap_inside_one_half_is_seen_too():
    # 100 → 180 MiB in the last quarter of the first half: no growth from half to half.
    held = np.full((10, 16), 100.0) * MIB
    held[1:, 6:] *= 1.8
    _, limit = memory.sizes(usage(np.ones((10, 16)), held))
    assert limit[0] / MIB == 100 * 1.8


def test_a_limit_under_which_it_was_killed_is_exceeded_by_half():
    own = usage(np.ones((1, 4)), np.full((1, 4), 90.0 * MIB), oom_limit_bytes=[400.0 * MIB])
    request, limit = memory.sizes(own)
    assert (request[0] / MIB, limit[0] / MIB) == (400, 600)


def test_unknown_memory_has_no_opinion():
    request, limit = memory.sizes(usage(np.ones((1, 4)), np.zeros((1, 4))))
    assert np.isnan(request[0])
    assert np.isnan(limit[0])


def test_one_interval_and_a_late_container_are_enough():
    request, _ = memory.sizes(usage(np.ones((1, 1)), np.full((1, 1), 5.0 * MIB)))
    assert request[0] == 5 * MIB
    late = np.array([[0.0, 0.0, 0.0, 7.0 * MIB]])
    request, _ = memory.sizes(usage(np.ones((1, 4)), late, present=late > 0))
    assert request[0] == 7 * MIB
