from dataclasses import replace

import numpy as np
import pytest

from tests.twin.fabric.conftest import reaches
from twin.fabric.model import Scheme, Topology
from twin.fabric.topology import NO_SPINE_USED, all_pairs, check, dual_tor, flow_hash, paths
from twinbed import ScenarioError


@pytest.mark.parametrize("scheme", Scheme)
def test_the_source_s_five_hosts_at_two_switches_carry_every_scheme(scheme):
    topology = dual_tor(5)
    check(topology, scheme)
    assert topology.tor_of.tolist() == [[0, 1]] * 5
    assert (topology.nic_of == 0).all()
    # Without a spine only the ToR that both have connects them.
    assert reaches(topology, 0, 1).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("scheme", Scheme)
def test_groups_of_switches_carry_every_scheme_with_spines(scheme):
    topology = dual_tor(10, tors=4, spines=2, nics=2)
    check(topology, scheme)
    assert topology.tor_of[[0, 4, 5, 9]].tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert topology.nic_of[0].tolist() == [0, 1]
    assert reaches(topology, 0, 9).all()


def of(tors, **changes):
    tor_of = np.array(tors, np.int64)
    return Topology(tor_of, np.zeros_like(tor_of), **changes)


@pytest.mark.parametrize(
    ("topology", "scheme", "message"),
    [
        (of([[0], [0]]), Scheme.THORN, "scheme thorn needs two"),
        (of([[0], [0]]), Scheme.BOND, "scheme bond needs two"),
        (of([[0], [0]]), Scheme.REROUTE, "scheme reroute needs two"),
        (of([[0, 1], [1, 1]]), Scheme.THORN, "host 1: all uplinks end at tor 1"),
        (of([[0, 1], [0, -1]]), Scheme.NONE, "asymmetric: host 1 has 1 uplinks where others have 2"),
        (of([[0, 1], [2, 3]]), Scheme.THORN, "disconnected: hosts 0 and 1"),
        (of([[0, 1], [1, 2]], spines=1), Scheme.BOND, "asymmetric: hosts 0 and 1 share one ToR"),
        (of([[0, 2], [2, 0]]), Scheme.THORN, "tor 1 has no host"),
        (of([[]]), Scheme.NONE, "both are hosts × uplinks"),
        (of([[0, 1]], rate_bps=0.0), Scheme.NONE, "rate_bps"),
        (of([[0, 1]], delay_s=np.nan), Scheme.NONE, "delay_s"),
        (of([[0, 1]], spines=-1), Scheme.NONE, "spines"),
    ],
)
def test_what_is_no_topology_for_a_scheme_is_refused_with_the_cure(topology, scheme, message):
    with pytest.raises(ScenarioError, match=message):
        check(topology, scheme)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": 0}, "hosts: 0"),
        ({"hosts": 4, "tors": 3}, "tors: 3"),
        ({"hosts": 4, "uplinks": 3, "tors": 3, "nics": 2}, "nics: 2"),
        ({"hosts": 1, "tors": 4}, "tors: 2 groups of ToRs for 1 hosts"),
    ],
)
def test_counts_that_do_not_fit_are_named(arguments, message):
    with pytest.raises(ScenarioError, match=message):
        dual_tor(**arguments)


def test_adapters_and_uplinks_are_as_many():
    topology = dual_tor(2)
    with pytest.raises(ScenarioError, match="nic_of"):
        check(replace(topology, nic_of=topology.nic_of[:1]), Scheme.NONE)


def test_hosts_at_the_same_switches_meet_there_and_others_by_every_spine():
    fabric = dual_tor(4, tors=4, spines=3)
    assert paths(fabric, 0, 1).tolist() == [[0, NO_SPINE_USED, 0], [1, NO_SPINE_USED, 1]]
    across = paths(fabric, 0, 3)
    assert len(across) == len(set(map(tuple, across.tolist()))) == 2 * 3 * 2
    assert len(paths(dual_tor(2, tors=8, uplinks=8, nics=4), 0, 1)) == 8
    assert len(paths(dual_tor(4, tors=4), 0, 3)) == 0


@pytest.mark.parametrize("count", [2, 3, 12])
def test_flows_spread_evenly_and_each_keeps_its_path(count):
    flows = np.stack([np.full(60_000, 1), np.full(60_000, 2), np.arange(60_000)], axis=1)
    taken = flow_hash(flows, count, 7)
    assert taken.min() == 0
    assert taken.max() == count - 1
    share = np.bincount(taken) / len(flows)
    assert share == pytest.approx(1 / count, abs=5 * np.sqrt(1 / count / len(flows)))
    assert (flow_hash(flows[::-1], count, 7)[::-1] == taken).all()
    # Another switch's seed sends about 1 / count of them the same way.
    assert (flow_hash(flows, count, 8) == taken).mean() == pytest.approx(1 / count, abs=0.02)


def test_more_hosts_than_have_flows_to_follow_are_refused_before_they_fill_the_memory():
    with pytest.raises(ScenarioError, match=r"topology: hosts: 100,000: .* at most 4,096: give fewer"):
        all_pairs(dual_tor(100_000))
