"""The Tower: costs, classes, and what the bandit tries."""

from collections import deque
from itertools import pairwise
from math import inf, log, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.autothrottle_tower import EVERYONE_BUSY, LADDER, Pair, Sample, Tower, boundary, costs

SLO_S = 0.2


def tower(exploration=0.1, busy=0.06, idle=0.06):
    return Tower(SLO_S, exploration, busy, idle)


def test_costs_are_the_allocation_where_the_slo_is_met_and_the_latency_where_not():
    seen = [(0.1, 4.0), (0.15, 8.0), (0.2, 5.0), (0.3, 1.0), (0.7, 1.0), (0.4, 1.0), (inf, 1.0)]
    samples = deque(Sample(Pair(0, 0), 0.0, latency, cores) for latency, cores in seen)
    # met: (4, 8, 5 − 4) / 4; violated: 2 + (0.3, 0.7, 0.4 − 0.3) / 0.4; nobody answered: 3
    assert costs(samples, SLO_S) == pytest.approx([0.0, 1.0, 0.25, 2.0, 3.0, 2.25, 3.0])


def test_a_lone_sample_costs_the_middle_of_its_range():
    for latency, cores, cost in ((0.1, 1.0, 0.5), (0.1, 0.0, 0.5), (0.3, 1.0, 2.5)):
        assert costs(deque([Sample(Pair(0, 0), 0.0, latency, cores)]), SLO_S).tolist() == [cost]


def test_allocations_that_differ_by_rounding_cost_the_same():
    sums = 5.0, np.nextafter(5.0, 6.0)
    assert costs(deque(Sample(Pair(0, 0), 0.0, 0.1, cores) for cores in sums), SLO_S).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("target", "step"), [(0.06, 0.06), (0.07, 0.06), (0.09, 0.10), (1.0, 0.30), (0, 0)])
def test_the_first_pair_is_the_nearest_on_the_ladder(target, step):
    assert tower(busy=target, idle=0.02).targets == (step, 0.02)


def test_the_first_interval_teaches_nothing_because_nothing_was_chosen_for_it():
    bandit = tower()
    bandit.learn(100.0, 5.0, 3.0)
    assert bandit.targets == (0.06, 0.06)


def test_an_interval_without_requests_teaches_nothing():
    bandit = tower()
    for _ in range(10):
        bandit.learn(0.0, nan, 3.0)
    assert bandit.targets == (0.06, 0.06)


def test_a_few_requests_an_hour_teach():
    bandit = tower()
    for _ in range(2):
        bandit.learn(0.001, 0.1, 3.0)
    assert len(bandit.samples) == 1


@pytest.mark.parametrize(("slower_s", "end"), [(10.0, (0.0, 0.0)), (0.0, (0.30, 0.30))])
def test_an_application_gets_no_throttling_if_it_bears_none_and_most_if_it_bears_all(slower_s, end):
    bandit = tower()
    for _ in range(60):
        throttled = sum(bandit.targets)
        bandit.learn(100.0, 0.15 + slower_s * throttled, 10.0 - 10.0 * throttled)
    assert bandit.targets == end


def test_what_is_tried_is_a_neighbour_of_what_was_tried_before():
    bandit = tower(exploration=1.0)
    rng = np.random.default_rng(5)
    seen = {bandit.targets}
    for _ in range(60):
        bandit.learn(100.0, 0.1 + 0.2 * rng.random(), 3.0 + rng.random())
        places = [LADDER.index(target) for target in bandit.targets]
        assert any(
            sum(abs(a - LADDER.index(b)) for a, b in zip(places, old, strict=True)) <= 1 for old in seen
        )
        seen.add(bandit.targets)
    assert len(seen) > 10


def respond(targets):
    """A made-up application: throttling saves cores and costs latency, that of the busy ones more."""
    busy, idle = targets
    return 0.05 + 1.0 * busy + 0.4 * idle, 10.0 - 12.0 * busy - 4.0 * idle


def test_it_finds_a_pair_that_meets_the_slo_and_is_cheaper_than_the_first():
    bandit = tower(busy=0.0, idle=0.0)
    chosen = []
    for _ in range(240):
        latency, cores = respond(bandit.targets)
        bandit.learn(100.0, latency, cores)
        chosen.append(bandit.targets)
    # Met up to busy + 0.4 · idle = 0.15. In the last hour nearly all are met, at well below the first's 10.
    met = [respond(targets)[0] <= SLO_S for targets in chosen[-60:]]
    cores = [respond(targets)[1] for targets in chosen[-60:]]
    assert np.mean(met) > 0.9
    assert np.mean(cores) < 8.6


def test_a_violated_slo_leads_to_less_throttling():
    bandit = tower(busy=0.30, idle=0.30)
    for _ in range(60):
        latency, cores = respond(bandit.targets)
        bandit.learn(100.0, latency, cores)
    assert respond(bandit.targets)[0] <= SLO_S


def test_a_minute_in_which_nobody_was_answered_costs_most_and_leads_to_less_throttling():
    bandit = tower()
    bandit.learn(100.0, 0.1, 5.0)
    bandit.learn(100.0, nan, 5.0)
    assert costs(bandit.samples, SLO_S).tolist() == [3.0]
    assert sum(bandit.targets) < 0.12


def test_without_exploration_the_best_of_what_was_tried_stays():
    bandit = tower(exploration=0.0)
    for _ in range(20):
        bandit.learn(100.0, 0.1, 5.0)
    assert bandit.targets == (0.06, 0.06)


def test_what_was_learnt_at_another_rate_counts_for_less():
    """At 100/s the SLO holds everywhere, at 1000/s only without throttling."""
    bandit = tower(busy=0.0, idle=0.0)
    for step in range(400):
        rate = 100.0 if step // 20 % 2 == 0 else 1000.0
        busy, idle = bandit.targets
        latency = 0.1 if rate == 100.0 else 0.1 + 5.0 * (busy + idle)
        bandit.learn(rate, latency, 10.0 - 10.0 * busy - 10.0 * idle)
    sums = {rate: sum(targets_after(bandit, rate)) for rate in (100.0, 1000.0)}
    assert sums[1000.0] <= 0.04
    assert sums[100.0] > sums[1000.0]


def targets_after(bandit, rate):
    pair = bandit.choose(log(rate))
    return LADDER[pair.busy], LADDER[pair.idle]


def test_the_same_story_leads_to_the_same_targets():
    stories = []
    for _ in range(2):
        rng = np.random.default_rng(7)
        bandit, seen = tower(), []
        for _ in range(50):
            bandit.learn(rng.uniform(10, 500), rng.uniform(0.05, 0.4), rng.uniform(2, 9))
            seen.append(bandit.targets)
        stories.append(seen)
    assert stories[0] == stories[1]


def test_the_classes_part_half_way_between_their_means():
    # means of 0.1, 0.2, 0.15 and of 3, 2.5
    assert boundary(np.array([3.0, 0.1, 0.2, 2.5, 0.15])) == pytest.approx((0.15 + 2.75) / 2)
    # One very busy container: 0.3 is nearer to the mean of the others, 0.15.
    assert boundary(np.array([0.1, 0.1, 0.3, 0.1, 9.0])) == pytest.approx((0.15 + 9.0) / 2)
    # 0.1 | 0.2, 0.3 and 0.1, 0.2 | 0.3 are equally good, whatever the last bit says.
    for middle in (0.2, np.nextafter(0.2, 0.0), np.nextafter(0.2, 1.0)):
        assert boundary(np.array([0.1, middle, 0.3])) == pytest.approx((0.1 + 0.25) / 2)


@pytest.mark.parametrize("usage", [[], [1.0], [0.5, 0.5, 0.5], [0.5, np.nextafter(0.5, 1.0)]])
def test_without_a_difference_everyone_is_busy(usage):
    assert boundary(np.array(usage)) == EVERYONE_BUSY


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=12), st.randoms())
def test_the_classes_have_the_least_squared_distance_of_all_ways_to_divide_them(values, random):
    usage = np.array(values, np.float64)
    if usage.min() == usage.max():
        return
    edge = boundary(usage)
    shuffled = usage.copy()
    random.shuffle(shuffled)
    assert boundary(shuffled) == edge

    def distance(limit):
        parts = usage[usage <= limit], usage[usage > limit]
        return sum(((part - part.mean()) ** 2).sum() for part in parts)

    least = min(distance(low) for low, _ in pairwise(sorted(set(usage))))
    assert distance(edge) == pytest.approx(least)
