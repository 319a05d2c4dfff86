"""Hosts with fewer CPUs than their containers want: who gets how much, and when."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.model import CpuRequests, Decision
from tests.twin.containers.scripted import PERIOD_S, Scripted, cpu, machine, run, workload
from twin.containers.sharing import crowded_hosts, max_min

shares = st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.1, 100.0)), min_size=1, max_size=12)


def shared(wanted, capacity, weight=None):
    wanted = np.array(wanted, np.float64)
    given_to = np.empty(len(wanted))
    max_min(wanted, np.ones(len(wanted)) if weight is None else np.array(weight, float), capacity, given_to)
    return given_to


def test_who_wants_less_than_a_fair_share_gets_it_and_others_share_the_rest():
    assert shared([6.0, 5.0], 4.0).tolist() == [2.0, 2.0]
    assert shared([1.0, 5.0, 6.0], 6.0).tolist() == [1.0, 2.5, 2.5]
    assert shared([1.0, 2.0], 4.0).tolist() == [1.0, 2.0]
    assert shared([4.0, 4.0], 4.0, [100.0, 300.0]).tolist() == [1.0, 3.0]
    assert shared([4.0, 1.0], 4.0, [100.0, 300.0]).tolist() == [3.0, 1.0]
    assert shared([0.0, 1.0], 0.0).tolist() == [0.0, 0.0]


@given(shares, st.floats(0.0, 40.0))
def test_shares_are_max_min_fair_by_weight(asked, capacity):
    wanted, weight = (np.array(column) for column in zip(*asked, strict=True))
    given_to = shared(wanted, capacity, weight)
    assert (given_to >= 0.0).all()
    assert (given_to <= wanted).all()
    assert given_to.sum() == pytest.approx(min(wanted.sum(), capacity), abs=1e-9)
    short = given_to < wanted - 1e-9
    if short.any():
        level = (given_to / weight)[short]
        assert level == pytest.approx(level[0])
        assert (given_to / weight <= level[0] + 1e-9).all()


def test_a_host_is_crowded_if_its_containers_can_keep_more_cpus_busy_than_it_has():
    host = np.array([5, 2, 5, 2, 9])
    cores = np.array([4.0, 2.0, 4.0, 2.0, 1.0])
    hosts = crowded_hosts(host, cores, np.array([3.0, 1.0, 2.0, 1.0, 1.0]), np.arange(1.0, 6.0))
    assert hosts.cores.tolist() == [4.0]
    assert hosts.members.tolist() == [0, 2]
    assert hosts.first.tolist() == [0, 2]
    assert hosts.weight.tolist() == [1.0, 3.0]
    assert hosts.of.tolist() == [0, -1, 0, -1, -1]
    assert hosts.place.tolist() == [0, -1, 1, -1, -1]


def test_two_containers_that_each_want_the_whole_host_get_half_of_it():
    load = workload([[3.0, 2.5]] * 10, threads=[3.0, 2.5], host=2.0, on=[0, 0])
    series = run(load, Scripted(), machine()).series
    assert series.usage_cores == pytest.approx(1.0)
    assert not series.throttled.any()  # no quota, so a lack of CPUs is nobody's throttling


def test_containers_of_different_hosts_do_not_meet():
    load = workload([[2.0, 2.0, 1.0]] * 3, threads=2.0, host=2.0, on=[0, 1, 1])
    series = run(load, Scripted(), machine()).series
    assert series.usage_cores[-1] == pytest.approx([2.0, 1.0, 1.0])


def test_weights_divide_what_is_short_and_nothing_else():
    load = workload([[4.0, 4.0, 0.5]] * 3, threads=4.0, host=4.0, on=[0, 0, 0], weight=[100, 300, 1])
    series = run(load, Scripted(), machine()).series
    # 0.5 of weight 1 is above its fair share of 4/401, and stays short.
    assert series.usage_cores[0] == pytest.approx(np.array([100, 300, 1]) * 4 / 401)
    alone = workload([[0.5, 4.0]] * 3, threads=4.0, host=4.0, on=[0, 0], weight=[1, 1])
    assert run(alone, Scripted(), machine()).series.usage_cores[0] == pytest.approx([0.5, 3.5])


def test_what_waited_is_done_when_there_is_room():
    # 3 cores of work for 2 CPUs in the first period; 50 ms each are left, and done in the next one.
    load = workload([[1.5, 1.5], [0.5, 0.5], [0.0, 0.0]], threads=2.0, host=2.0, on=[0, 0])
    series = run(load, Scripted(), machine()).series
    assert series.usage_cores[:, 0] == pytest.approx([1.0, 1.0, 0.0], abs=1e-7)
    assert series.backlog_s[:, 0] == pytest.approx([0.05, 0.0, 0.0], abs=1e-9)


def test_a_pool_that_empties_leaves_the_cpus_to_others():
    # Each container has one CPU until its quota of 0.4 is used up after 40 ms; the other has both for the
    # last 60 ms.
    load = workload([[2.0, 2.0]], threads=2.0, host=2.0, on=[0, 0])
    policy = Scripted()
    policy.quota = np.array([0.4, 10.0])
    series = run(load, policy, machine()).series
    assert series.usage_cores[0] == pytest.approx([0.4, 1.6])
    assert series.throttled[0].tolist() == [True, False]
    assert series.throttled_s[0, 0] == pytest.approx(2 * 0.06)


def test_a_write_in_mid_period_shares_anew():
    load = workload([[2.0, 2.0]] * 2, threads=2.0, host=2.0, on=[0, 0])
    policy = Scripted()
    policy.quota = np.array([0.2, 10.0])
    policy.period = lambda stats: Decision(cpu(stats.ids[:1], 10.0)) if len(policy.periods) == 1 else None
    series = run(load, policy, machine(telemetry_delay_s=0.05)).series
    # Second period: 20 ms at one CPU each, 30 ms the other alone, 50 ms at one CPU each.
    assert series.usage_cores[1] == pytest.approx([0.7, 1.3])


def asking(*cores):
    """A policy that decides these requests in its first and its second period, in turn."""
    policy = Scripted()

    def decide(stats):
        told = len(policy.periods) - 1
        asked = np.array(cores[told], np.float64) if told < len(cores) else None
        return None if asked is None else Decision(requests=CpuRequests(stats.ids[: len(asked)], asked))

    policy.period = decide
    return policy


def test_requests_are_weights_from_the_moment_they_are_decided():
    load = workload([[2.0, 2.0]] * 4, threads=2.0, host=2.0, on=[0, 0])
    series = run(load, asking([0.25, 0.75]), machine(telemetry_delay_s=0.05)).series
    assert series.usage_cores[0] == pytest.approx([1.0, 1.0])
    # Second period: half of it at one CPU each, half at a half and one and a half.
    assert series.usage_cores[1] == pytest.approx([0.75, 1.25])
    assert series.usage_cores[2:] == pytest.approx(np.tile([0.5, 1.5], (2, 1)))
    assert np.isnan(series.request_cores[0]).all()
    assert series.request_cores[1:].tolist() == [[0.25, 0.75]] * 3


def test_a_request_of_a_core_weighs_as_much_as_a_container_without_one():
    load = workload([[2.0, 2.0]] * 3, threads=2.0, host=2.0, on=[0, 0], weight=[100, 100])
    assert run(load, asking([1.0]), machine()).series.usage_cores[-1] == pytest.approx([1.0, 1.0])


def test_without_requests_none_are_recorded():
    load = workload([[2.0, 2.0]] * 3, threads=2.0, host=2.0, on=[0, 0])
    assert run(load, Scripted(), machine()).series.request_cores is None


@st.composite
def crowds(draw):
    count, periods = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    numbers = st.floats(0.0, 4.0)
    demand = [[draw(numbers) for _ in range(count)] for _ in range(periods)]
    threads = [draw(st.floats(0.5, 4.0)) for _ in range(count)]
    weight = [draw(st.floats(1.0, 1000.0)) for _ in range(count)]
    quota = np.array([draw(st.one_of(st.just(np.inf), st.floats(0.05, 3.0))) for _ in range(count)])
    load = workload(demand, threads=threads, host=draw(st.floats(0.5, 6.0)), on=[0] * count, weight=weight)
    return load, quota


@given(crowds())
def test_work_is_conserved_and_never_beyond_the_host(made):
    load, quota = made
    policy = Scripted()
    policy.quota = quota
    outcome = run(load, policy, machine())
    series = outcome.series
    usage_s = np.cumsum(series.usage_cores.astype(float), axis=0) * PERIOD_S
    arrived_s = np.cumsum(load.demand_cores, axis=0) * PERIOD_S
    assert usage_s + series.backlog_s == pytest.approx(arrived_s, abs=1e-5)
    assert (series.usage_cores.sum(axis=1) <= load.host_cores[0] + 1e-5).all()
    assert (series.usage_cores <= np.minimum(quota, load.threads) + 1e-5).all()
    assert outcome.done_s + series.backlog_s[-1] == pytest.approx(outcome.arrived_s, abs=1e-6)


def in_small_steps(load, quota, steps=1000):
    """Usage by period of containers on one host: wants and shares are looked at `steps` times a period."""
    step_s, cores = PERIOD_S / steps, load.host_cores[0]
    cap = np.minimum(load.threads, cores)
    backlog = np.zeros(len(cap))
    for demand in load.demand_cores:
        pool, used = quota * PERIOD_S, np.zeros(len(cap))
        for _ in range(steps):
            offered = backlog + demand * step_s
            wanted = np.minimum(np.minimum(offered, cap * step_s), pool)
            done, left = np.zeros(len(cap)), cores * step_s
            for i in np.argsort(wanted / load.weight):
                rest = load.weight[(done == 0.0) & (wanted > 0.0)].sum()
                if wanted[i] > 0.0:
                    done[i] = min(wanted[i], left * load.weight[i] / rest)
                    left -= done[i]
            backlog, pool, used = offered - done, pool - done, used + done
        yield used / PERIOD_S


@settings(max_examples=25, deadline=None)
@given(crowds())
def test_usage_is_that_of_many_small_steps(made):
    load, quota = made
    policy = Scripted()
    policy.quota = quota
    series = run(load, policy, machine()).series
    assert series.usage_cores == pytest.approx(np.array(list(in_small_steps(load, quota))), abs=0.03)


@given(crowds())
def test_on_a_host_with_room_for_all_it_is_as_on_hosts_of_their_own(made):
    load, quota = made
    roomy = replace(load, host_cores=np.full(len(quota), load.threads.sum()))
    ours, own = Scripted(), Scripted()
    ours.quota = own.quota = quota
    together = run(roomy, ours, machine()).series
    apart = run(replace(roomy, host=np.arange(len(quota))), own, machine()).series
    for name in ("usage_cores", "backlog_s", "throttled", "throttled_s"):
        assert np.array_equal(getattr(together, name), getattr(apart, name))
