"""Racks and spines: the parts of a plan, its routing, its links by name, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.fabric import Direction, Fault, FaultKind
from lab.fabric.real.impairments import ImpairmentFile, impairment
from testbed.fabric import capacity, frr
from testbed.fabric.capture import devices_at
from testbed.fabric.faults import _link_ends, _ports
from testbed.fabric.impairments import fault_at
from testbed.fabric.model import MOST_HOSTS, MOST_SPINES, MOST_TORS, Fabric, Host, Impairment, Plan
from testbed.fabric.ownership import fabric_of as owner_of
from testbed.fabric.plan import fabric_of
from tests.testbed.fabric.routers import configurations
from twinbed import ScenarioError

PAIRS = Plan(name="pairs", hosts=3, tors=4, storage=1, racks=2, spines=2)

plans = st.builds(
    lambda racks, tors, spines, spare: Plan(
        hosts=max(racks + spare, 2), tors=max(racks * tors, 2), racks=racks, spines=spines, storage=spare
    ),
    st.integers(2, 4), st.integers(1, 2), st.integers(1, 3), st.integers(0, 3),
)  # fmt: skip


def test_without_racks_and_spines_the_configurations_are_those_of_one_tier(file_regression: Any) -> None:
    """The recorded ones were made before there were racks."""
    plan = Plan(hosts=2, tors=2, storage=1, tenants=(100, 200), peer_link=True)
    file_regression.check(configurations(fabric_of(plan)))


@given(plans)
def test_hosts_have_the_tors_of_their_rack_and_tors_have_all_spines(plan: Plan) -> None:
    fabric = fabric_of(plan)
    for host in fabric.hosts:
        assert {uplink.tor // plan.uplinks for uplink in host.uplinks} == {plan.rack_of(host.index)}
        assert len({uplink.tor for uplink in host.uplinks}) == plan.tors // plan.racks
        assert all(host.index in fabric.tors[uplink.tor].below for uplink in host.uplinks)
    assert {plan.rack_of(host) for host in range(plan.hosts)} == {*range(plan.racks)}
    for tor in fabric.tors:
        assert [uplink.tor for uplink in tor.uplinks] == [*range(plan.spines)]
    for spine in fabric.spines:
        assert spine.below == (*range(plan.tors),)


@given(plans)
def test_every_neighbour_is_the_other_end_of_a_link(plan: Plan) -> None:
    fabric = fabric_of(plan)
    own: dict[str, str] = {}
    for router in fabric.routers:
        ends = [uplink.address for uplink in router.uplinks]
        ends += [] if isinstance(router, Host) else router.addresses
        own |= dict.fromkeys(ends, router.namespace)
        assert {owner_of(router.namespace)} == {plan.name}
    neighbours: set[tuple[str, str]] = set()
    for router in fabric.routers:
        lines = frr._bgpd(router).splitlines()
        theirs = [line.split()[1] for line in lines if line.endswith("peer-group edge")]
        neighbours |= {(router.namespace, own[address]) for address in theirs}
    assert neighbours == {(far, near) for near, far in neighbours}
    links = sum(len(router.uplinks) for router in fabric.routers)
    assert len(neighbours) == 2 * links
    assert len(own) == 2 * links


def test_the_largest_plan_has_addresses_for_everything() -> None:
    fabric = fabric_of(Plan(hosts=MOST_HOSTS, tors=MOST_TORS, racks=4, spines=MOST_SPINES))
    uplinks = [uplink for router in fabric.routers for uplink in router.uplinks]
    addresses = [end for uplink in uplinks for end in (uplink.address, uplink.gateway)]
    addresses += [host.loopback for host in fabric.hosts]
    addresses += [switch.router_id for switch in fabric.switches]
    assert len({*addresses}) == len(addresses)
    asns = [router.asn for router in (*fabric.hosts, *fabric.tors)]
    assert len({*asns}) == len(asns)
    # One AS number for all spines: none takes a path that another one has passed on.
    assert len({spine.asn for spine in fabric.spines}) == 1
    assert not {fabric.spines[0].asn} & {*asns}


@pytest.mark.parametrize(
    ("given_keys", "said"),
    [
        ({"hosts": 4, "tors": 3, "racks": 2, "spines": 1}, "tors: 3 do not fill 2 racks; give a multiple"),
        ({"hosts": 4, "tors": 4, "racks": 2}, "racks: 2 cannot reach each other; give spines: 1 or more"),
        ({"hosts": 2, "tors": 4, "racks": 3, "spines": 1}, "racks: 3 is not possible; take 1 to 2"),
        ({"spines": 9}, "spines: 9 is not possible; take 0 to 8"),
        ({"hosts": 4, "tors": 6, "racks": 2, "spines": 1, "peer_link": True}, "joins the two ToRs of a rack"),
        ({"impairments": (Impairment(-1, 0, spine=0),)}, "link: t0:spine0: this fabric has no spines"),
    ],
)
def test_what_cannot_be_made_is_refused_by_its_key(given_keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        Plan(**given_keys)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("link", "fault", "ends"),
    [
        ("h2:tor3", Fault(FaultKind.PORT, host=2, uplink=1), {("h2", "tor3"), ("t3", "host2")}),
        ("h3:tor0", Fault(FaultKind.PORT, host=3, uplink=0), {("h3", "tor0"), ("t0", "host3")}),
        ("t2:spine1", Fault(FaultKind.PORT, tor=2, uplink=1), {("t2", "spine1"), ("s1", "tor2")}),
    ],
)
def test_a_link_has_the_name_of_its_lower_ends_device(link: str, fault: Fault, ends: set[Any]) -> None:
    fabric = fabric_of(PAIRS)
    wanted = impairment(ImpairmentFile(link=link))
    assert wanted.link == link
    assert fault_at(fabric, wanted) == fault
    both = _link_ends(fabric, *_ports(fabric, fault))
    there = {(place.rpartition("-")[2], device) for _, place, device in both}
    assert there == ends
    for place, device in ends:
        assert devices_at(fabric, f"{place}:{device}")[1] == (device,)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("h0:tor2", "h0:tor: 2 is not possible; take 0 to 1"),
        ("h2:tor0", "h2:tor: 0 is not possible; take 2 to 3"),
        ("t4:spine0", "tor: 4 is not possible; take 0 to 3"),
        ("t0:spine2", "spine: 2 is not possible; take 0 to 1"),
        ("s0:tor1", "'s0:tor1' is no link; take a host and its uplink, as h0:tor1, or t0:spine1"),
    ],
)
def test_a_link_that_is_not_there_is_refused_by_name(link: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        fault_at(fabric_of(PAIRS), impairment(ImpairmentFile(link=link)))


def test_a_dead_tor_is_dead_to_hosts_and_spines() -> None:
    fabric = fabric_of(PAIRS)
    ends = [*_link_ends(fabric, *_ports(fabric, Fault(FaultKind.TOR, tor=2)))]
    # Host 2 is in the second rack, with the only storage host in the first.
    sends = {way: {device for of, _, device in ends if of is way} for way in Direction}
    assert sends == {Direction.OUT: {"tor2", "spine0", "spine1"}, Direction.IN: {"host2", "tor2"}}


def test_links_between_switches_have_sessions_and_spines_need_memory() -> None:
    # 3 hosts and 1 storage host with 2 uplinks each, and 4 ToRs with 2 each: 16 sessions.
    assert capacity._cores(PAIRS, 3) == pytest.approx(2 * 16 / 0.05 * capacity._PACKET_S)
    assert capacity._routers(PAIRS, 3) == len(fabric_of(PAIRS).routers) == 4 + 4 + 2
    assert capacity._namespaces(PAIRS, 3) == len(fabric_of(PAIRS).namespaces)


def test_a_spine_is_told_to_keep_the_tunnels_far_end() -> None:
    fabric: Fabric = fabric_of(PAIRS)
    for switch in fabric.switches:
        assert "attribute-unchanged next-hop" in frr._bgpd(switch)
