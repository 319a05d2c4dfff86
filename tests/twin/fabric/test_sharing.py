import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from twin.fabric.sharing import NO_LINK, edge_capacity_bps, edge_links, fair_rates_bps
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError


def test_a_ring_on_its_own_uplinks_has_the_links_rate_and_on_one_the_half():
    """Two rings over four hosts, one on each of two uplinks; then all of host 2's flows on its uplink 0."""
    topology = dual_tor(4, rate_bps=100e9)
    source = np.tile(np.arange(4), 2)
    destination = (source + 1) % 4
    uplink = np.repeat([0, 1], 4)
    links = edge_links(topology, source, destination, uplink, uplink)
    assert fair_rates_bps(links, edge_capacity_bps(topology)) == pytest.approx(100e9)
    uplink = np.where((source == 2) | (destination == 2), 0, uplink)
    links = edge_links(topology, source, destination, uplink, uplink)
    rates = fair_rates_bps(links, edge_capacity_bps(topology))
    assert rates.reshape(2, 4).tolist() == [[100e9, 50e9, 50e9, 100e9]] * 2


def test_flows_within_a_host_use_no_link():
    topology = dual_tor(2)
    zero = np.zeros(1, np.int64)
    links = edge_links(topology, zero, zero, zero, zero)
    assert links.tolist() == [[NO_LINK, NO_LINK]]
    assert fair_rates_bps(links, edge_capacity_bps(topology)).tolist() == [np.inf]


@given(
    npst.arrays(np.int64, st.tuples(st.integers(1, 20), st.integers(1, 4)), elements=st.integers(-1, 5)),
    npst.arrays(np.float64, 6, elements=st.floats(1.0, 1e12)),
)
def test_no_link_is_overfull_and_each_flow_is_among_the_fastest_on_a_full_one(links, capacity_bps):
    # A link named twice is used once.
    links = np.array([[*sorted(set(row)), *[NO_LINK] * (len(row) - len(set(row)))] for row in links.tolist()])
    rates = fair_rates_bps(links, capacity_bps)
    on = np.array([(links == link).any(axis=1) for link in range(6)])
    load = np.array([rates[flows].sum() for flows in on])
    assert np.all(load <= capacity_bps * (1 + 1e-9))
    for flow, rate in enumerate(rates):
        mine = [link for link in range(6) if on[link, flow]]
        if not mine:
            assert rate == np.inf
            continue
        assert any(
            load[link] >= capacity_bps[link] * (1 - 1e-9) and rate >= rates[on[link]].max() * (1 - 1e-9)
            for link in mine
        )


def test_a_link_that_does_not_exist_is_refused():
    with pytest.raises(ScenarioError, match="links"):
        fair_rates_bps(np.array([[2]]), np.ones(2))
