"""Containers that share hosts under steady settings go through what the full simulation says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.scripted import Scripted, machine, run, steady_load, workload
from twin.containers.steady import NO_BYTES, live
from twin.containers.steady_hosts import Crowd, live_on_hosts
from twinbed import InvariantError

MIB = 1 << 20


def crowded(history, cores, weight=None, *, host=None, quota=np.inf, limit=NO_BYTES, **given):
    count = len(history.cores)
    crowd = Crowd(
        np.zeros(count, np.int64) if host is None else np.array(host),
        cores,
        np.ones(count) if weight is None else np.array(weight, np.float64),
    )
    limits = np.full(count, limit, np.int64)
    return live_on_hosts(history, np.full(count, quota), limits, machine(**given), crowd)


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    count=st.integers(1, 4),
    length=st.integers(1, 20),
    host=st.sampled_from([1.0, 2.0, 8.0]),
    quota=st.sampled_from([0.4, 1.5, 1e6]),
)
def test_lateness_and_throttling_on_a_shared_host_are_those_of_the_simulation(
    data, count, length, host, quota
):
    row = st.lists(st.floats(0.0, 2.0), min_size=length, max_size=length)
    cores = np.array(data.draw(st.lists(row, min_size=count, max_size=count)))
    weight = data.draw(st.lists(st.sampled_from([1.0, 3.0, 50.0]), min_size=count, max_size=count))
    ours = crowded(steady_load(cores), host, weight, quota=quota)
    threads = np.maximum(np.ceil(cores.max(axis=1)), 1.0)
    whole = workload(cores.T, threads=threads, host=host, on=[0] * count, weight=weight)
    full = run(whole, Scripted(quota=quota), machine())
    assert ours.throttled.tolist() == full.nr_throttled.tolist()
    assert ours.arrived_s == pytest.approx(full.arrived_s)
    late_s = np.minimum(full.series.backlog_s, cores.T * 0.1).sum(axis=0)
    assert ours.late_s == pytest.approx(late_s, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), quota=st.sampled_from([0.3, 0.8, np.inf]), limit=st.sampled_from([5, 50]))
def test_where_hosts_have_room_all_is_as_if_each_had_its_own(seed, quota, limit):
    random = np.random.default_rng(seed)
    cores, memory = random.uniform(0, 1, (3, 30)), random.integers(0, 8 * MIB, (3, 30))
    history = steady_load(cores, memory, bursts=(0.5, 1.5), present=random.random((3, 30)) > 0.2)
    shared = crowded(history, 100.0, quota=quota, limit=limit * MIB, host=[0, 1, 0], restart_s=0.5)
    alone = live(history, np.full(3, quota), np.full(3, limit * MIB), machine(restart_s=0.5))
    for ours, theirs in zip(shared, alone, strict=True):
        assert ours == pytest.approx(theirs)


def test_who_has_more_weight_is_served_first():
    late_s = crowded(steady_load(np.full((2, 50), 1.0)), 1.0, [1.0, 9.0]).late_s
    assert late_s == pytest.approx([4.95, 4.55], abs=0.3)
    assert late_s[1] < late_s[0]


def test_a_demand_that_is_no_number_is_refused():
    with pytest.raises(InvariantError, match="negative or not finite"):
        crowded(steady_load([[np.nan, 1.0], [5.0, 5.0]]), 1.0)
