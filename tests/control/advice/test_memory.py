"""Memory: never below the peak, and with a margin that the history teaches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.advice import memory
from control.advice.model import DAY_S, MIB
from tests.control.advice.usages import usage
from twinbed import ScenarioError


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


def test_growth_is_reserved_once_more_up_to_a_buffer_and_the_limit_holds_twice_of_it():
    # 190 → 200 MiB over half of the history: request 200 + 10.
    # 100 → 200 MiB: request 200 + 15 %, limit 200 + 2 · 100.
    held = np.array([[50.0, 190.0, 150.0, 200.0], [50.0, 100.0, 150.0, 200.0]]) * MIB
    request, limit = memory.sizes(usage(np.ones((2, 4)), held, interval_s=DAY_S))
    assert (request / MIB).tolist() == [210, 230]
    assert limit[1] / MIB == 400


def test_leaps_of_a_history_that_saw_no_whole_day_may_get_a_wider_margin():
    # 100 → 350 MiB: the fleet's leap of 250 % is cut at twice the peak after a day, at three times before.
    held = np.repeat([[100.0, 350.0]], 10, axis=0) * MIB
    short, long = (
        memory.sizes(usage(np.ones((10, 2)), held, interval_s=interval_s))[1][0] / 350 / MIB
        for interval_s in (60.0, DAY_S / 2)
    )
    assert (short, long) == (3, pytest.approx(1 + 2 * 250 / 350))


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


def test_a_small_container_has_room_for_a_shell():
    _, limit = memory.sizes(usage(np.ones((1, 4)), np.full((1, 4), 10.0 * MIB)))
    assert limit[0] / MIB == 26


def test_a_setting_out_of_range_is_named():
    with pytest.raises(ScenarioError, match=r"advice\.memory\.covered: 2\.0"):
        memory.MemorySettings(covered=2.0)


def test_unknown_memory_has_no_opinion():
    request, limit = memory.sizes(usage(np.ones((1, 4)), np.zeros((1, 4))))
    assert np.isnan(request[0])
    assert np.isnan(limit[0])


def test_one_interval_and_a_late_container_are_enough():
    request, _ = memory.sizes(usage(np.ones((1, 1)), np.full((1, 1), 5.0 * MIB)))
    assert request[0] == 5 * MIB
    late = np.array([[0.0, 0.0, 0.0, 7.0 * MIB]])
    request, limit = memory.sizes(usage(np.ones((1, 4)), 10 * late, present=late > 0))
    assert (request[0] / MIB, limit[0] / MIB) == (70, 105)


def test_a_return_to_an_earlier_peak_is_no_leap():
    held = np.repeat([[100.0, 50.0, 90.0, 50.0]], 10, axis=0) * MIB
    assert memory.sizes(usage(np.ones((10, 4)), held))[1][0] / MIB == 150


def test_a_half_of_a_history_knows_what_is_set_but_not_of_kills_in_the_other():
    held = np.full((1, 4), 90.0 * MIB)
    current = [1.0, 2.0, 100.0 * MIB, 400.0 * MIB]
    own = usage(np.ones((1, 4)), held, current=current, oom_limit_bytes=[400.0 * MIB], oom_interval=3)
    first, second = own.part(0, 2), own.part(2, 4)
    assert first.oom_events().tolist() == [0]
    assert memory.sizes(first)[1][0] < 400 * MIB
    assert second.oom_events().tolist() == [1]
    assert second.kills.interval.tolist() == [1]
    assert memory.sizes(second)[1][0] == 600 * MIB
    assert second.current.memory_limit.tolist() == [400 * MIB]
