"""Stalls from made-up runs: the differences' arithmetic, and what must hold for any runs."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from control.profiler import stalls
from control.profiler.stalls import Configuration, Reading, Run, Stall, Timing
from twinbed import ScenarioError

seconds = st.floats(0.1, 1e5)
timings = st.builds(Timing, st.lists(seconds, min_size=1, max_size=5).map(tuple), st.floats(1, 1e6))
runs = st.fixed_dictionaries({}, optional=dict.fromkeys(Run, timings))
all_runs = st.fixed_dictionaries(dict.fromkeys(Run, timings))


def once(**times):
    return {Run[name]: Timing((value,), 100) for name, value in times.items()}


def by_stall(found):
    return {stalled.stall: stalled for stalled in found}


def test_each_stall_is_a_difference_of_two_runs():
    found = by_stall(stalls.stalls(once(ALONE=8, TOGETHER=10, COLD=25, WARM=20, APART=50)))
    assert [found[stall].seconds for stall in Stall] == [10 - 8, 20 - 10, 25 - 20, 50 - 10]
    # The network's is a share of RUN1: five times as slow reads 400 %.
    assert [found[stall].share for stall in Stall] == [2 / 10, 10 / 20, 5 / 25, 4.0]


def test_runs_are_scaled_to_the_samples_of_run1_and_repeats_to_their_median():
    found = stalls.stalls({Run.ALONE: Timing((1, 3, 2), 50), Run.TOGETHER: Timing((10, 12), 100)})
    assert [(one.seconds, one.noise_s) for one in found] == [(11 - 2 * 2, 2 * 2)]


@given(all_runs)
def test_stalls_are_never_negative_and_shares_of_a_run_stay_below_one(made):
    for stalled in stalls.stalls(made):
        assert stalled.seconds >= 0
        assert stalled.stall is Stall.NETWORK or 0 <= stalled.share < 1


@given(all_runs, st.floats(0, 1e5))
def test_time_added_to_all_runs_on_real_data_moves_the_cpu_s_stall_alone(made, more_s):
    def later(run):
        # The same seconds for the samples of RUN1.
        more = more_s * made[run].samples / made[Run.TOGETHER].samples
        return Timing(tuple(value + more for value in made[run].seconds), made[run].samples)

    before = by_stall(stalls.stalls(made))
    after = by_stall(stalls.stalls({**made, Run.WARM: later(Run.WARM), Run.COLD: later(Run.COLD)}))
    for stall in set(Stall) - {Stall.CPU}:
        assert after[stall].seconds == pytest.approx(before[stall].seconds, rel=1e-6, abs=1e-5)
    assert after[Stall.CPU].seconds <= before[Stall.CPU].seconds + more_s * (1 + 1e-9) + 1e-5


@given(timings)
def test_equal_runs_have_no_stalls_and_nothing_to_fix(timing):
    found = stalls.stalls(dict.fromkeys(Run, timing))
    assert [stalled.seconds for stalled in found] == [0] * len(Stall)
    assert stalls.fix_first(found) is None


@given(runs, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(made, random):
    order = list(made)
    random.shuffle(order)
    assert stalls.stalls({run: made[run] for run in order}) == stalls.stalls(made)


@given(runs)
def test_what_is_to_be_fixed_first_is_the_longest_stall_beyond_noise(made):
    found = stalls.stalls(made)
    beyond = [one.seconds for one in found if one.seconds and not one.within_noise]
    first = stalls.fix_first(found)
    assert (first is None) == (not beyond)
    assert first is None or by_stall(found)[first].seconds == max(beyond)


def test_a_stall_of_a_moment_is_worth_fixing_if_it_is_beyond_noise():
    made = {Run.ALONE: Timing((9.0, 9.0), 1), Run.TOGETHER: Timing((9.5, 9.5), 1)}
    assert stalls.fix_first(stalls.stalls(made)) is Stall.INTERCONNECT


def test_a_stall_smaller_than_the_larger_spread_is_within_noise():
    made = {Run.ALONE: Timing((9, 9), 1), Run.TOGETHER: Timing((9, 12), 1)}
    (found,) = stalls.stalls(made)
    assert (found.seconds, found.noise_s, found.within_noise) == (1.5, 3, True)


@given(st.lists(seconds, max_size=8))
@example([1.0, 2.0])
def test_a_run_is_repeated_at_least_twice_at_most_five_times_and_while_it_spreads(times):
    if len(times) < 2 or len(times) >= 5:
        assert stalls.again(times) == (len(times) < 2)
    else:
        assert stalls.again(times) == (max(times) - min(times) > 1.0)


@pytest.mark.parametrize(
    ("times", "samples"), [((), 1), ((0.0,), 1), ((1.0, np.inf), 1), ((1.0,), 0), ((np.nan,), 1)]
)
def test_runs_without_a_time_are_refused(times, samples):
    with pytest.raises(ScenarioError, match="expected times above zero"):
        Timing(times, samples)


def test_reading_takes_longer_on_part_of_a_core_and_no_less_on_several():
    reading = Reading(cpu_s=0.02, wait_s=0.03)
    assert [reading.on(cores) for cores in (0.5, 1.0, 4.0)] == pytest.approx([0.07, 0.05, 0.05])


def test_an_epoch_costs_its_time_and_the_dearer_set_may_be_the_slower_one():
    slow, fast = Configuration("p2.8xl", 3600, 7.2), Configuration("p3.2xl", 1800, 3.06)
    assert (slow.epoch_usd, fast.epoch_usd) == (7.2, 1.53)
    assert stalls.by_cost([slow, fast]) == stalls.by_time([slow, fast]) == [fast, slow]
    assert stalls.dearer_and_slower([fast, slow]) == [(slow, fast)]


sets = st.builds(
    Configuration, st.sampled_from("abc"), st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 2.0])
)


@given(st.lists(sets, max_size=6), st.randoms(use_true_random=False))
def test_ties_are_broken_whatever_the_order_of_the_sets(given_sets, random):
    other = random.sample(given_sets, len(given_sets))
    for ranked in (stalls.by_cost, stalls.by_time, stalls.dearer_and_slower):
        assert ranked(other) == ranked(given_sets)
