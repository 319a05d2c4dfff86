"""A fabric's parts from its plan: unique names and addresses, and plans that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.fabric import BfdTimers
from testbed.containers.ownership import is_run
from testbed.fabric import ownership
from testbed.fabric.model import LONGEST_NAME, MOST_ENDPOINTS, MOST_HOSTS, MOST_TORS, Plan
from testbed.fabric.plan import fabric_of
from twinbed import ScenarioError

NAMES = st.from_regex(rf"\A(?!run-)[a-z0-9](-?[a-z0-9]){{0,{LONGEST_NAME // 2 - 1}}}\Z")


@given(NAMES, st.sampled_from(["t0", "t7", "h0", "h12", "h3e4"]))
def test_a_namespace_tells_its_fabric_and_no_other(name: str, part: str) -> None:
    assert ownership.fabric_of(ownership.namespace(name, part)) == name


@pytest.mark.parametrize("part", ["h0", "t0", "web"])
def test_networks_of_containers_are_no_fabrics(part: str) -> None:
    run = "run-10-0123456789abcdef"
    assert is_run(run)
    assert ownership.fabric_of(f"tb-{run}-{part}") is None


def test_the_largest_plan_has_names_and_addresses_for_everything() -> None:
    vnis = (16_777_000, 16_777_215)
    plan = Plan("x" * LONGEST_NAME, MOST_HOSTS - 1, MOST_TORS, 1, vnis, MOST_ENDPOINTS // 2)
    fabric = fabric_of(plan)
    ends = [end for host in fabric.hosts for end in host.endpoints]
    uplinks = [up for host in fabric.hosts for up in host.uplinks]
    assert (
        len({*fabric.namespaces}) == len(fabric.namespaces) == MOST_HOSTS * (1 + MOST_ENDPOINTS) + MOST_TORS
    )
    assert len({end.mac for end in ends}) == len(ends)
    assert len({end.address for end in ends}) == len(ends)
    addresses = [*(up.address for up in uplinks), *(up.gateway for up in uplinks)]
    addresses += [host.loopback for host in fabric.hosts] + [tor.router_id for tor in fabric.tors]
    assert len({*addresses}) == len(addresses)
    assert len({router.asn for router in fabric.routers}) == len(fabric.routers)
    devices = {up.device for up in uplinks} | {port for tor in fabric.tors for port in tor.ports}
    devices |= {end.representor for end in ends}
    devices |= {name for part in fabric.hosts[0].segments for name in (part.bridge, part.tunnel)}
    assert max(map(len, devices)) <= 15


@pytest.mark.parametrize(
    ("given_keys", "said"),
    [
        ({"name": "a_b"}, "name: 'a_b' cannot name a fabric"),
        ({"name": "run-1-2-3"}, "name: 'run-1-2-3' cannot"),
        ({"name": "x" * 21}, "use 1 to 20 of"),
        ({"hosts": 1}, "hosts: 1 is not possible; take 2 to 200"),
        ({"tors": 9}, "tors: 9 is not possible; take 2 to 8"),
        ({"tenants": (100, 0)}, "tenants.1: 0 is not possible; take 1 to 16777215"),
        ({"tenants": (100, 100)}, "tenants: give 1 to 50 VNIs, no two alike"),
        ({"tenants": (1, 2), "endpoints": 26}, "endpoints: 26 is not possible; take 1 to 25"),
        ({"hosts": 199, "storage": 2}, "storage: 2 is not possible; take 0 to 1"),
        ({"tors": 3, "peer_link": True}, "peer_link: joins the two ToRs of a rack; with tors: 3"),
        ({"bfd": BfdTimers(0.001, 3)}, "bfd.interval_s: 0.001 is not possible"),
        ({"rate_bps": 1.0}, "rate_bps: 1 is not possible"),
    ],
)
def test_what_cannot_be_made_is_refused_by_its_key(given_keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        Plan(**given_keys)
    assert said in str(refused.value)
