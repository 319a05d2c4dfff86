"""Agents in a real fabric: frames go by rules, else by the bridge; rules outlive faults and agents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from control.fabric import Fault, FaultKind
from control.reconciler.settings import ReconcilerSettings
from kernel.tunnel import Tunnel
from testbed.fabric import faults
from testbed.fabric.agent_process import Agents
from testbed.fabric.links import in_namespace, run_in
from testbed.fabric.model import Fabric
from testbed.fabric.place import here
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.ingress import WAY_OUT
from testbed.fabric.rules.seen import installed, unchanged
from testbed.fabric.up import wait_converged
from tests.testbed.fabric.test_fabric_up import send_and_receive, until
from twinbed import BackendError, InvariantError

pytestmark = [pytest.mark.root, pytest.mark.slow]

WITHIN_S = 20.0


def macs(fabric: Fabric, host: int) -> list[int]:
    """Return the MAC addresses that a host has rules for."""
    return installed(fabric.hosts[host].namespace).mac.tolist()


def elsewhere(fabric: Fabric, host: int) -> list[int]:
    """Return the MAC addresses of applications at other hosts."""
    others = (other for other in fabric.hosts if other.index != host)
    return sorted(int(end.mac.replace(":", ""), 16) for other in others for end in other.endpoints)


@pytest.fixture(scope="module")
def agents(fabric: Fabric) -> Iterator[Agents]:
    """An agent in every host, with all rules installed; all is removed afterwards. A test that kills one
    starts another."""
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))
    with Agents(fabric, kind="bpf") as started:
        until(
            lambda: all(macs(fabric, host.index) == elsewhere(fabric, host.index) for host in fabric.hosts),
            "all rules",
        )
        yield started
    for host in fabric.hosts:
        for end in host.endpoints:
            run_in(host.namespace, ["tc", "qdisc", "del", "dev", end.representor, "clsact"])
        run_in(host.namespace, ["ip", "link", "del", WAY_OUT])
        run_in(host.namespace, ["nft", "delete", "table", "ip", "twinbed_way_out"])


def frames(agents: Agents, host: int) -> tuple[int, int]:
    """Return the frames sent by a rule and those left to the bridge, from a report after this call."""
    before = agents.report(host)

    def fresh() -> bool:
        now = agents.report(host)
        return now is not None and now != before and now["dumps"] > before["dumps"]

    until(fresh, "another report")
    report = agents.report(host)
    return report["frames_sent"], report["frames_left"]


def test_frames_go_by_rules_and_by_the_bridge_where_there_is_none(fabric: Fabric, agents: Agents) -> None:
    before, _ = frames(agents, 0)
    assert send_and_receive(fabric, 0, 1)
    assert frames(agents, 0)[0] > before

    agents.kill(0)  # so that nothing puts the rules back
    with in_namespace(fabric.hosts[0].namespace):
        place = here()
        rules = BpfRules(ReconcilerSettings().owner, place.devices, place.local)
        rules.tunnel.remove(rules.tunnel.read()[0])
    sent, left = rules.tunnel.frames()
    assert send_and_receive(fabric, 0, 1)
    assert rules.tunnel.frames()[0] == sent
    assert rules.tunnel.frames()[1] > left
    rules.close()
    agents.start(0)
    until(lambda: macs(fabric, 0) == elsewhere(fabric, 0), "the successor's rules")


def test_a_failover_changes_no_rule(fabric: Fabric, agents: Agents) -> None:
    fault = Fault(FaultKind.PORT, host=1, uplink=0)
    with unchanged(fabric):
        faults.inject(fabric, fault)
        until(lambda: send_and_receive(fabric, 0, 1), "a way around the fault")
        dumps = agents.report(0)["dumps"]
        until(lambda: agents.report(0)["dumps"] > dumps + 1, "dumps during the fault")
        faults.clear(fabric, fault)
        wait_converged(fabric, WITHIN_S)
        assert send_and_receive(fabric, 0, 1)


def test_a_killed_agent_is_followed_by_one_that_adopts_its_rules(fabric: Fabric, agents: Agents) -> None:
    with unchanged(fabric):
        agents.kill(1)
        agents.start(1)
        first = agents.wait_ready(1)
    assert (first["adopted"], first["added"], first["deleted"]) == (len(elsewhere(fabric, 1)), 0, 0)


def test_a_rule_that_is_another_is_said(fabric: Fabric, agents: Agents) -> None:
    agents.kill(0)
    host = fabric.hosts[0]
    message = r"h0: the rule for 0200000001\w\w has changed"
    with pytest.raises(InvariantError, match=message), unchanged(fabric):
        run_in(host.namespace, ["tc", "qdisc", "del", "dev", host.endpoints[0].representor, "clsact"])
    agents.start(0)
    until(lambda: macs(fabric, 0) == elsewhere(fabric, 0), "the successor's rules")
