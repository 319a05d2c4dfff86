"""The candidates after other people's recommenders say what these say."""

import numpy as np
import pytest

from control.advice import candidates
from control.advice.model import MIB
from control.allocator.histogram import exponential
from control.allocator.model import Application, Join
from control.allocator.roster import Roster
from control.allocator.vpa_recommender import Recommender
from control.allocator.vpa_settings import VpaSettings
from tests.control.advice.usages import usage
from tests.control.allocator.fleets import bucket_end


def test_krr_takes_the_largest_percentile_of_the_pods_and_no_limit():
    cores = np.stack([np.linspace(0, 1, 101), np.linspace(0, 2, 101)])
    own = usage(cores, np.full((2, 101), 200.0 * MIB), row=[0, 0])
    made = candidates.krr(own)
    assert made.cpu_request[0] == pytest.approx(1.9, abs=0.0011)
    assert made.cpu_limit[0] == np.inf
    assert made.memory_limit[0] / MIB == 230


def test_krr_has_no_opinion_on_few_samples():
    made = candidates.krr(usage(np.ones((1, 99)), np.full((1, 99), MIB)))
    assert np.isnan([made.cpu_request[0], made.cpu_limit[0], made.memory_request[0]]).all()


def test_krr_sizes_each_row_by_its_own_pods_that_ran_and_by_kills():
    cores = np.repeat([[0.5], [9.0], [2.0], [1.0]], 150, axis=1)
    held = np.repeat([[200.0], [0.0], [300.0], [0.0]], 150, axis=1) * MIB
    there = np.ones(cores.shape, np.bool_)
    there[1] = False
    there[2, 120:] = False
    killed = [800.0 * MIB, 0.0, 0.0]
    own = usage(cores, held, row=[0, 0, 1, 2], present=there, oom_limit_bytes=killed)
    made = candidates.krr(own)
    assert made.cpu_request.tolist() == [0.5, 2.0, 1.0]
    # A quarter more than what it was killed under, 15 % more than the peak, and unknown.
    assert (made.memory_request / MIB).tolist() == pytest.approx([1000, 345, np.nan], nan_ok=True)
    assert np.isnan(made.memory_limit).tolist() == [False, False, True]


def noise(count):
    random = np.random.default_rng(3)
    return random.lognormal(-1, 0.7, (2, count)), random.lognormal(21, 0.2, (2, count))


def steps(count):
    """A day that was busy, and three days that were not: it weighs 6 % by age, and 25 % else."""
    busy = np.array([[4.0], [2.0]]) * (np.arange(count) < count // 4) + 0.5
    return busy, 1e9 * busy


@pytest.mark.parametrize("killed", [None, 100, 500])
@pytest.mark.parametrize(("made_up", "count", "interval_s"), [(noise, 3000, 60.0), (steps, 576, 600.0)])
def test_the_vpa_is_its_own_recommender_for_one_replica(made_up, count, interval_s, killed):
    cores, memory = made_up(count)
    limit = 0.0 if killed is None else 2.0 * memory[0, : killed + 1].max()
    own = usage(cores, memory, interval_s=interval_s, oom_limit_bytes=[limit, 0.0], oom_interval=killed)
    made = candidates.vpa(own)
    roster = Roster([Application("app", 64.0, 1 << 40)])
    recommender = Recommender(roster, VpaSettings())
    roster.join(Join(np.zeros(2, np.int64), np.full(2, 64.0)))
    slots = np.arange(2)
    for interval in range(count):
        at_s = (interval + 1) * interval_s
        recommender.observe_cpu(slots, cores[:, interval], at_s)
        recommender.observe_memory(slots, memory[:, interval], at_s)
        if interval == killed:
            recommender.observe_oom(slots[:1], np.array([limit]), at_s)
    target = recommender.recommend(slots).target
    # Buckets are 5 % wide; the two differ by at most one, for weights in another precision.
    assert made.cpu_request == pytest.approx(target[0], rel=0.051)
    assert made.memory_request == pytest.approx(target[1], rel=0.051)


@pytest.mark.parametrize(("limit_mib", "needed_mib"), [(400, 500), (1000, 1200)])
def test_the_vpa_counts_a_kill_as_a_peak_of_100_mib_or_a_fifth_more(limit_mib, needed_mib):
    held = np.full((2, 200), 300.0 * MIB)
    made = candidates.vpa(usage(np.ones((2, 200)), held, oom_limit_bytes=[limit_mib * MIB, 0.0]))
    memory = exponential(1e7, 1.05, 1e12)
    assert made.memory_request == pytest.approx(
        [1.15 * bucket_end(memory, size * MIB) for size in (needed_mib, 300)]
    )


def test_the_vpa_has_no_opinion_where_nothing_is_known():
    there = np.array([[True] * 10, [False] * 10])
    made = candidates.vpa(usage(np.ones((2, 10)), np.zeros((2, 10)), present=there))
    assert np.isnan(made.cpu_request).tolist() == [False, True]
    assert np.isnan(made.memory_request).all()


def test_the_vpa_keeps_limits_in_proportion_and_sets_none_where_none_is():
    held = np.full((1, 200), 300.0 * MIB)
    made = candidates.vpa(usage(np.ones((1, 200)), held, current=(1.0, 2.0, MIB, np.inf)))
    assert made.cpu_limit[0] == pytest.approx(2 * made.cpu_request[0])
    assert made.memory_limit[0] == np.inf
    # A limit below the request is a mistake, and no proportion to keep.
    odd = candidates.vpa(usage(np.ones((1, 200)), held, current=(2.0, 1.0, MIB, MIB)))
    assert odd.cpu_limit[0] == np.inf
    assert odd.memory_limit[0] == odd.memory_request[0]


@pytest.mark.parametrize("request_now", [0.0, np.nan])
def test_the_vpa_gives_a_limit_without_a_request_the_size_of_the_request(request_now):
    held = np.full((1, 200), 300.0 * MIB)
    now = (request_now, 2.0, request_now, 512.0 * MIB)
    made = candidates.vpa(usage(np.ones((1, 200)), held, current=now))
    assert made.cpu_limit[0] == made.cpu_request[0]
    assert made.memory_limit[0] == made.memory_request[0]


def test_the_vpa_does_not_remove_a_limit_that_is_unknown():
    held = np.full((1, 200), 300.0 * MIB)
    made = candidates.vpa(usage(np.ones((1, 200)), held, current=(1.0, np.nan, MIB, np.nan)))
    assert np.isnan([made.cpu_limit[0], made.memory_limit[0]]).all()
