"""Tenants of a real fabric never see each other's frames; storage and the ToRs' own link serve them all."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from control.fabric import Fault, FaultKind
from kernel.tunnel import Tunnel
from testbed.fabric import faults, leftovers
from testbed.fabric.agent_process import Agents
from testbed.fabric.apps.paths import answers
from testbed.fabric.apps.wire import ETH_P_ALL
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Endpoint, Fabric, Plan
from testbed.fabric.rules.seen import installed
from testbed.fabric.up import load, up, wait_converged
from tests.testbed.fabric.test_fabric_up import WITHIN_S, reaches, until
from twinbed import BackendError

pytestmark = [pytest.mark.root, pytest.mark.slow]

RED, BLUE = 100, 200
ALL = "ff:ff:ff:ff:ff:ff"
QUIET_S = 0.5
"""Time to wait for a frame that must not come, s; those that may come take a millisecond."""


@pytest.fixture(scope="module")
def shared(fabric_machine: None) -> Iterator[Fabric]:
    """Two hosts and a storage host, of two tenants with addresses in the same subnet."""
    plan = Plan(name="tenants", storage=1, tenants=(RED, BLUE), peer_link=True)
    yield up(plan)
    leftovers.down(plan.name)


def of(fabric: Fabric, host: int, vni: int) -> Endpoint:
    (end,) = (end for end in fabric.hosts[host].endpoints if end.vni == vni)
    return end


def seen_at(source: Endpoint, others: list[Endpoint], *frames: Ether) -> list[set[bytes]]:
    """Return which of these frames every other endpoint sees within QUIET_S."""
    sent, got = {bytes(frame) for frame in frames}, [set[bytes]() for _ in others]
    with ExitStack() as opened:
        wires = []
        for end in (source, *others):
            with in_namespace(end.namespace):
                wires.append(opened.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
            wires[-1].bind((end.device, ETH_P_ALL))
        for frame in sent:
            wires[0].send(frame)
        time.sleep(QUIET_S)
        for wire, seen in zip(wires[1:], got, strict=True):
            with suppress(BlockingIOError):
                while packet := wire.recv(2048, socket.MSG_DONTWAIT):
                    seen |= {frame for frame in sent if packet.startswith(frame)}
    return got


def frames_of(source: Endpoint, target: Endpoint) -> tuple[Ether, ...]:
    """Return an ARP request for the target, a broadcast, and a frame to the target's own MAC address."""
    ask = ARP(op=1, hwsrc=source.mac, psrc=source.address, pdst=target.address)
    text = IP(src=source.address, dst=target.address) / UDP(sport=4000, dport=4000) / Raw(b"to whom?" * 4)
    return (
        Ether(src=source.mac, dst=ALL) / ask,
        Ether(src=source.mac, dst=ALL) / text,
        Ether(src=source.mac, dst=target.mac) / text,
    )


def test_a_fabric_with_tenants_is_found_again(shared: Fabric) -> None:
    assert load(shared.plan.name) == shared
    assert [host.storage for host in shared.hosts] == [False, False, True]


def test_a_tenant_reaches_its_own_and_the_storage_and_no_other_tenant(shared: Fabric) -> None:
    for vni, other in ((RED, BLUE), (BLUE, RED)):
        assert reaches(of(shared, 0, vni), of(shared, 1, vni))
        assert reaches(of(shared, 1, vni), of(shared, 2, vni)), "storage"
        for host in range(3):
            assert not reaches(of(shared, 0, vni), of(shared, host, other), tries=2)


def check_nothing_leaks(fabric: Fabric) -> None:
    red, reds = of(fabric, 0, RED), [of(fabric, 1, RED), of(fabric, 2, RED)]
    blues = [of(fabric, host, BLUE) for host in range(3)]
    for target in blues:
        # The tenant's other endpoints see the broadcast, so that it was on the wire.
        frames = frames_of(red, target)
        *red_sees, at_0, at_1, at_2 = seen_at(red, [*reds, *blues], *frames)
        assert all(bytes(frames[1]) in seen for seen in red_sees)
        assert (at_0, at_1, at_2) == (set(), set(), set())


def test_no_frame_of_a_tenant_is_seen_by_another(shared: Fabric) -> None:
    check_nothing_leaks(shared)


def test_rules_are_those_of_the_representors_own_tenant(shared: Fabric) -> None:
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))

    def rules(host: int) -> set[tuple[str, int, int]]:
        """Return (representor, VNI, MAC) of all rules of a host."""
        found = installed(shared.hosts[host].namespace)
        with in_namespace(shared.hosts[host].namespace):
            names = dict(socket.if_nameindex())
        columns = (found.device.tolist(), found.vni.tolist(), found.mac.tolist())
        return {(names[device], vni, mac) for device, vni, mac in zip(*columns, strict=True)}

    def wanted(host: int) -> set[tuple[str, int, int]]:
        far = [end for other in shared.hosts if other.index != host for end in other.endpoints]
        return {
            (end.representor, end.vni, int(other.mac.replace(":", ""), 16))
            for end in shared.hosts[host].endpoints
            for other in far
            if other.vni == end.vni
        }

    with Agents(shared, kind="bpf"):
        until(lambda: all(rules(host) == wanted(host) for host in range(3)), "a rule for each of its own")
        assert reaches(of(shared, 0, RED), of(shared, 1, RED))
        # A closed port's answer comes with its checksum, unlike a datagram.
        assert answers(of(shared, 0, RED), of(shared, 1, RED), within_s=WITHIN_S)
        check_nothing_leaks(shared)


def test_two_lost_uplinks_are_bridged_by_the_link_between_the_tors(shared: Fabric) -> None:
    lost = (Fault(FaultKind.LINK, host=0, uplink=1), Fault(FaultKind.LINK, host=1, uplink=0))
    try:
        for fault in lost:
            faults.inject(shared, fault)
        until(lambda: reaches(of(shared, 0, BLUE), of(shared, 1, BLUE)), "the way over both ToRs")
    finally:
        for fault in lost:
            faults.clear(shared, fault)
        wait_converged(shared, WITHIN_S)
