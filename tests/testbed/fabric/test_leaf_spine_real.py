"""A real leaf–spine fabric: hosts of two racks reach each other through faults of links on every tier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from control.fabric import Fault, FaultKind
from lab.fabric.real.impairments import ImpairmentFile, impairment
from testbed.fabric import faults, frr, impairments, leftovers
from testbed.fabric.fast_path import processes
from testbed.fabric.fast_path.processes import RunningFastPath
from testbed.fabric.links import run_in
from testbed.fabric.model import Daemon, Fabric, Plan
from testbed.fabric.reach import Reach
from testbed.fabric.up import converged, load, up, wait_converged
from tests.testbed.fabric.test_fabric_up import WITHIN_S, send_and_receive, until

pytestmark = [pytest.mark.root, pytest.mark.slow]

PAIRS = [(0, 1), (0, 2), (2, 1)]
"""Two hosts of one rack, and hosts of both racks."""


@pytest.fixture(scope="module")
def racks(fabric_machine: None) -> Iterator[Fabric]:
    """Two racks of two ToRs, with two hosts and one, and two spines."""
    plan = Plan(name="racks", hosts=3, tors=4, racks=2, spines=2)
    yield up(plan)
    leftovers.down(plan.name)


def all_reach(fabric: Fabric) -> bool:
    return all(send_and_receive(fabric, *pair) and send_and_receive(fabric, *pair[::-1]) for pair in PAIRS)


def paths_at(fabric: Fabric, namespace: str, host: int) -> list[list[int]]:
    """Return the AS paths by which a router knows a host's loopback."""
    command = f"show bgp ipv4 unicast {fabric.hosts[host].loopback}/32 json"
    shown = json.loads(frr.show(namespace, command, Daemon.BGPD))
    return [[*map(int, path["aspath"]["string"].split())] for path in shown.get("paths", [])]


def test_hosts_of_all_racks_reach_each_other(racks: Fabric) -> None:
    assert converged(racks) == []
    assert load(racks.plan.name) == racks
    assert all_reach(racks)


def test_a_tunnel_ends_at_the_host_in_the_other_rack(racks: Fabric) -> None:
    """EVPN crosses ToRs and spines with its next hop unchanged."""
    rows = json.loads(run_in(racks.hosts[0].namespace, ("bridge", "-j", "fdb", "show")).stdout)
    (end,) = racks.hosts[2].endpoints
    assert {row["dst"] for row in rows if row["mac"] == end.mac and "dst" in row} == {racks.hosts[2].loopback}


@pytest.mark.parametrize("link", ["h0:tor0", "h2:tor3", "t0:spine1", "t3:spine0"])
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "carrier"])
def test_traffic_comes_back_after_a_fault_of_any_link(racks: Fabric, link: str, silent: bool) -> None:
    wanted = impairment(ImpairmentFile(link=link, silent=silent))
    impairments.begin(racks, wanted)
    try:
        until(lambda: converged(racks), "the lost link is noticed")
        until(lambda: all_reach(racks), "what is left carries on")
    finally:
        impairments.end(racks, wanted)
    wait_converged(racks, WITHIN_S)
    assert all_reach(racks)


def test_a_dead_tor_and_a_rack_with_one_spine_left_carry_on(racks: Fabric) -> None:
    dead = [Fault(FaultKind.TOR, tor=2), Fault(FaultKind.PORT, tor=0, uplink=0)]
    try:
        for fault in dead:
            faults.inject(racks, fault)
        until(lambda: all_reach(racks), "what is left carries on")
    finally:
        faults.clear_all(racks)
    wait_converged(racks, WITHIN_S)


def test_no_path_leads_down_to_a_tor_and_up_again(racks: Fabric) -> None:
    """Between the only link that a rack has left and its loss, a spine must not go by the other rack."""
    spine, (first, second) = racks.spines[0], racks.tors[:2]
    for host in racks.hosts:
        uplinks = {(racks.tors[uplink.tor].asn, host.asn) for uplink in host.uplinks}
        assert {tuple(path) for path in paths_at(racks, spine.namespace, host.index)} == uplinks
    cut = [Fault(FaultKind.LINK, tor=tor.index, uplink=0, silent=False) for tor in (first, second)]
    try:
        for fault in cut:
            faults.inject(racks, fault)
        until(lambda: paths_at(racks, spine.namespace, 0) == [], "the spine knows no path to the rack")
        until(lambda: all_reach(racks), "the other spine carries on")
    finally:
        faults.clear_all(racks)
    wait_converged(racks, WITHIN_S)


def test_with_the_fast_path_spines_leave_a_hosts_dead_link_because_it_tells_them(racks: Fabric) -> None:
    def rows(running: RunningFastPath) -> list[dict[str, Any]]:
        return [json.loads(line) for line in running.journal.read_text().splitlines()]

    def steered(running: RunningFastPath) -> list[dict[str, Any]]:
        return [row for row in rows(running) if row["what"] == "steer"]

    started, reach = processes.start(racks), Reach(racks)
    try:
        until(lambda: processes.missing(racks) == [], "every session is heard")
        faults.inject(racks, Fault(FaultKind.PORT, host=0, uplink=0))
        until(lambda: reach.without(0, 0), "BGP goes around")
        spines = [running for running in started if running.router in racks.spines]
        assert len(spines) == 2
        for running in spines:
            (first, *_) = steered(running)
            # Host 0 is below ToRs 0 and 1, which are at the spine's ports 0 and 1.
            assert (first["on"], first["host"], first["uplinks"]) == ("Told", racks.hosts[0].loopback, [1])
            until(lambda of=running: any(row["what"] == "release" for row in rows(of)), "given back")
    finally:
        faults.clear_all(racks)
        wait_converged(racks, WITHIN_S)
        processes.stop(started)
        reach.close()
