"""The candidates after other people's recommenders say what these say."""

import numpy as np
import pytest

from control.advice import candidates
from control.advice.model import MIB
from control.allocator.model import Application, Join
from control.allocator.roster import Roster
from control.allocator.vpa_recommender import Recommender
from control.allocator.vpa_settings import VpaSettings
from tests.control.advice.usages import usage


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


def test_the_vpa_is_its_own_recommender_for_one_replica():
    random = np.random.default_rng(3)
    cores = random.lognormal(-1, 0.7, (2, 3000))
    memory = random.lognormal(21, 0.2, (2, 3000))
    made = candidates.vpa(usage(cores, memory))
    roster = Roster([Application("app", 64.0, 1 << 40)])
    recommender = Recommender(roster, VpaSettings())
    roster.join(Join(np.zeros(2, np.int64), np.full(2, 64.0)))
    slots = np.arange(2)
    for interval in range(3000):
        at_s = interval * 60.0
        recommender.observe_cpu(slots, cores[:, interval], at_s)
        recommender.observe_memory(slots, memory[:, interval], at_s)
    target = recommender.recommend(slots).target
    # Buckets are 5 % wide; the two differ by at most one, for weights in another precision.
    assert made.cpu_request == pytest.approx(target[0], rel=0.051)
    assert made.memory_request == pytest.approx(target[1], rel=0.051)


def test_the_vpa_keeps_limits_in_proportion_and_sets_none_where_none_is():
    held = np.full((1, 200), 300.0 * MIB)
    made = candidates.vpa(usage(np.ones((1, 200)), held, current=(1.0, 2.0, MIB, np.inf)))
    assert made.cpu_limit[0] == pytest.approx(2 * made.cpu_request[0])
    assert made.memory_limit[0] == np.inf
