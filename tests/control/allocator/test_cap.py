"""The global cap that VPA and Autopilot work under: sharing, making room, and what is conserved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.cap import CappedFleet
from control.allocator.model import PAGE_BYTES, Application, Join, Reason
from twinbed import ScenarioError

MIB = 1 << 20
NOTHING_IN_USE = np.zeros(0)


def fleet(containers=4, cores=4.0, size=400 * MIB, peaks=None, cpu_factor=1.0, memory_factor=1.0):
    capped = CappedFleet((Application("shop", cores, size),), cpu_factor, memory_factor)
    peak_cores, peak_bytes = (None, None) if peaks is None else (np.array(peaks[0]), np.array(peaks[1]))
    join = Join(np.zeros(containers, np.int64), np.full(containers, 8.0), peak_cores, peak_bytes)
    capped.join(join, Reason.INITIAL, NOTHING_IN_USE)
    return capped


def newcomers(capped, count, memory_in_use, **peaks):
    join = Join(np.zeros(count, np.int64), np.full(count, 8.0), **peaks)
    return capped.join(join, Reason.JOINED, memory_in_use)


def test_containers_nobody_profiled_start_at_the_fair_share():
    capped = fleet()
    assert capped.cpu.values.tolist() == [1.0] * 4
    assert capped.memory.values.tolist() == [100 * MIB] * 4


def test_profiled_containers_start_at_their_peak_times_the_factor():
    capped = fleet(2, peaks=([0.5, 1.0], [10 * MIB, 20 * MIB]), cpu_factor=1.5, memory_factor=2.0)
    assert capped.cpu.values.tolist() == [0.75, 1.5]
    assert capped.memory.values.tolist() == [20 * MIB, 40 * MIB]


def test_a_container_that_reaches_its_profiled_peak_of_memory_stays_within_its_first_limit():
    capped = fleet(1, peaks=([0.5], [10 * MIB + 1]))
    assert capped.memory.values.tolist() == [10 * MIB + PAGE_BYTES]


def test_profiles_beyond_the_limit_are_scaled_above_the_kernels_minimum():
    capped = fleet(2, cores=2.0, peaks=([1.01, 3.01], [MIB, MIB]))
    # 0.01 each, and of the remaining 1.98 cores 1 : 3
    assert capped.cpu.values == pytest.approx([0.01 + 0.495, 0.01 + 1.485])


def test_more_containers_than_the_kernels_minimum_allows_are_refused():
    with pytest.raises(ScenarioError, match=r"'shop': 3 containers do not fit its CPU limit"):
        fleet(3, cores=0.025)
    with pytest.raises(ScenarioError, match="memory limit"):
        fleet(3, size=2 * PAGE_BYTES)


def test_a_refused_join_changes_nothing():
    capped = fleet(2, cores=0.025)
    with pytest.raises(ScenarioError):
        newcomers(capped, 1, np.zeros(2))
    assert capped.roster.size == 2
    assert capped.cpu.values.sum() == pytest.approx(0.025)


def test_increases_share_the_pool_and_decreases_are_taken_in_full():
    capped = fleet()
    changed = capped.cpu.change(np.arange(4), np.array([0.4, 2.0, 2.0, 1.0]))
    # 0.6 core becomes free; two ask one core more each
    assert capped.cpu.values == pytest.approx([0.4, 1.3, 1.3, 1.0])
    assert changed.tolist() == [True, True, True, False]


def test_what_the_pool_covers_is_set_exactly():
    capped = fleet()
    capped.cpu.change(np.arange(4), np.array([0.1, 0.1, 0.1, 1.7]))
    assert capped.cpu.values.tolist() == [0.1, 0.1, 0.1, 1.7]


def test_memory_is_rounded_up_to_pages_where_there_is_room():
    capped = fleet()
    capped.memory.change(np.arange(2), np.array([10_000.0, 4096.0]))
    assert capped.memory.values[:2].tolist() == [12_288.0, 4096.0]


def test_newcomers_get_the_fair_share_from_those_above_it():
    capped = fleet()
    capped.cpu.change(np.arange(4), np.array([0.5, 0.5, 1.0, 2.0]))
    decision = newcomers(capped, 1, np.zeros(4))
    # fair share 0.8: containers 2 and 3 have 0.2 and 1.2 above it and give 0.8 in that proportion
    assert capped.cpu.values == pytest.approx([0.5, 0.5, 1.0 - 0.8 / 7, 2.0 - 4.8 / 7, 0.8])
    assert decision.cpu.reason.tolist() == [Reason.MADE_ROOM, Reason.MADE_ROOM, Reason.JOINED]
    assert decision.cpu.quota_cores[-1] == pytest.approx(0.8)


def test_newcomers_take_free_room_before_anybody_is_lowered():
    capped = fleet()
    capped.cpu.change(np.arange(4), np.full(4, 0.5))
    decision = newcomers(capped, 1, np.zeros(4), peak_cores=np.array([1.9]), peak_bytes=np.array([MIB]))
    assert decision.cpu.quota_cores.tolist() == [1.9]


def test_nobody_is_lowered_below_the_memory_it_uses():
    capped = fleet()
    in_use = np.array([99.0, 10.0, 10.0, 10.0]) * MIB
    newcomers(capped, 1, in_use)
    assert capped.memory.values[0] >= 99 * MIB
    assert capped.memory.values.sum() <= 400 * MIB
    # the fair share is 80 MiB: three give 20 each, the first one gives 1
    assert capped.memory.values[4] == 61 * MIB


def test_a_newcomer_gets_the_minimum_even_if_all_memory_is_in_use():
    capped = fleet()
    newcomers(capped, 1, np.full(4, 100.0 * MIB))
    assert capped.memory.values[4] >= PAGE_BYTES
    assert capped.memory.values.sum() <= 400 * MIB


def test_a_shorter_period_lifts_limits_to_the_kernels_minimum():
    capped = fleet(2, cores=1.0, peaks=([0.01, 2.0], [MIB, MIB]))
    assert capped.fit_period(0.1).empty
    decision = capped.fit_period(0.05)
    # 1 ms per 50 ms is 0.02 core; the other container held all the rest
    assert capped.cpu.values == pytest.approx([0.02, 0.98])
    assert decision.cpu.reason.tolist() == [Reason.MADE_ROOM, Reason.INITIAL]
    with pytest.raises(ScenarioError, match="CPU limit"):
        fleet(2, cores=0.03).fit_period(0.05)


def test_the_limits_of_those_that_left_are_free_again():
    capped = fleet()
    capped.leave(capped.roster.living()[:2])
    capped.cpu.change(np.array([2]), np.array([3.0]))
    assert capped.cpu.values.tolist() == [0.0, 0.0, 3.0, 1.0]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_sequence_of_changes_and_joins_exceeds_the_limits(data):
    seed = data.draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    apps = (Application("a", 2.0, 64 * MIB + 17), Application("b", 30.0, 10 * MIB))
    capped = CappedFleet(apps, 1.0, 1.0)
    join = Join(random.integers(0, 2, 6), np.full(6, 8.0))
    capped.join(join, Reason.INITIAL, NOTHING_IN_USE)
    for step in data.draw(st.lists(st.sampled_from(["cpu", "memory", "join", "leave"]), max_size=12)):
        living = np.flatnonzero(capped.roster.alive)
        some = living[random.random(len(living)) < 0.7]
        if step == "cpu":
            capped.cpu.change(some, random.gamma(0.5, 4.0, len(some)))
        elif step == "memory":
            capped.memory.change(some, random.gamma(0.5, 40.0 * MIB, len(some)))
        elif step == "leave":
            capped.leave(capped.roster.ids[some[:2]])
        else:
            count = int(random.integers(0, 4))
            peaks = random.gamma(0.5, 3.0, count), (random.gamma(0.5, 3e7, count)).astype(np.int64)
            in_use = random.random(capped.roster.size) * 2e7
            capped.join(
                Join(random.integers(0, 2, count), np.full(count, 8.0), *peaks), Reason.JOINED, in_use
            )
        alive = capped.roster.alive
        for index, app in enumerate(apps):
            mine = alive & (capped.roster.app == index)
            assert capped.cpu.values[mine].sum() <= app.cpu_limit_cores * (1 + 1e-9)
            assert capped.memory.values[mine].sum() <= app.memory_limit_bytes
        assert (capped.cpu.values[alive] >= 0.01 - 1e-12).all()
        assert (capped.memory.values[alive] >= PAGE_BYTES).all()
        assert (capped.memory.values % PAGE_BYTES == 0).all()
        assert not capped.cpu.values[~alive].any()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sharing_does_not_depend_on_the_order_of_requests(seed):
    random = np.random.default_rng(seed)
    wanted, order = random.gamma(0.5, 3.0, 8), random.permutation(8)
    first, other = fleet(8), fleet(8)
    first.cpu.change(np.arange(8), wanted)
    other.cpu.change(order, wanted[order])
    np.testing.assert_allclose(first.cpu.values, other.cpu.values, rtol=1e-12)
