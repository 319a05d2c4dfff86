"""Packets at an uplink are checked layer by layer; right ones pass and wrong ones are reported."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from testbed.fabric.apps import wire
from testbed.fabric.apps.paths import answers
from testbed.fabric.apps.wire import Expected
from testbed.fabric.model import VXLAN_PORT, Fabric, Plan
from testbed.fabric.plan import fabric_of

WITHIN_S = 30.0
FLOWS, EACH = 64, 3
SMALL = fabric_of(Plan(name="wire"))
EXPECTED = Expected(
    "02:aa:00:00:00:01",
    "02:aa:00:00:00:02",
    *SMALL.hosts,
    SMALL.hosts[0].endpoints[0],
    SMALL.hosts[1].endpoints[0],
    SMALL.plan.tenants[0],
)


@pytest.mark.root
@pytest.mark.slow
def test_what_crosses_the_uplinks_is_vxlan_with_the_frames_that_were_sent(fabric: Fabric) -> None:
    source, destination = fabric.hosts
    ends = source.endpoints[0], destination.endpoints[0]
    assert answers(*ends, within_s=WITHIN_S)
    with ExitStack() as stack:
        frames = [stack.enter_context(wire.taken(source, uplink)) for uplink in source.uplinks]
        payloads = wire.send(*ends, flows=FLOWS, count=EACH)
        assert wire.wait_for(frames, payloads, WITHIN_S)
    checks = [
        wire.read(taken, wire.expected(fabric, source, uplink, destination))
        for uplink, taken in zip(source.uplinks, frames, strict=True)
    ]
    assert [seen.wrong for seen in checks] == [[], []]
    assert sorted(payload for seen in checks for payload in seen.payloads) == sorted(payloads)
    # Every flow has an outer port of its own, so that ToRs and uplinks may tell them apart, and keeps it.
    ports = [ports for seen in checks for ports in seen.source_ports.values()]
    assert len(ports) == FLOWS
    assert all(len(of_flow) == 1 for of_flow in ports)
    assert len(set().union(*ports)) > FLOWS // 2
    # 64 coins fall on one side once in 10¹⁹ times.
    assert all(seen.source_ports for seen in checks)
    assert set().union(*(seen.ttls for seen in checks)) == {64}


def test_a_packet_as_it_has_to_be_is_not_complained_about() -> None:
    seen = wire.read([bytes(_packet())], EXPECTED)
    assert (seen.packets, seen.wrong, seen.payloads) == (1, [], [b"payload"])


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"vni": 7}, "VNI: 7, expected 100"),
        ({"flags": 0}, "VXLAN flags: 0, expected 8"),
        ({"src": "02:aa:00:00:00:99"}, "outer Ethernet source"),
        ({"inner_dst": "02:aa:00:00:00:99"}, "inner Ethernet destination"),
        ({"sport": 53}, "UDP source port 53"),
        ({"chksum": 1}, "UDP checksum: 1, expected"),
    ],
)
def test_what_is_wrong_with_a_packet_is_named(changed: dict[str, int | str], complaint: str) -> None:
    (wrong,) = wire.read([bytes(_packet(**changed))], EXPECTED).wrong
    assert wrong.startswith(complaint)


def test_other_packets_are_left_alone() -> None:
    other = Ether() / IP(src="10.1.1.1", dst=SMALL.hosts[1].loopback) / UDP(dport=VXLAN_PORT) / Raw(b"x")
    assert wire.read([bytes(other), bytes(Ether() / Raw(b"y"))], EXPECTED).packets == 0


def _packet(
    *,
    vni: int = SMALL.plan.tenants[0],
    flags: int = 8,
    src: str = EXPECTED.uplink_mac,
    inner_dst: str = EXPECTED.destination_end.mac,
    sport: int = 50_000,
    chksum: int = 0,
) -> Packet:
    inner = Ether(src=EXPECTED.source_end.mac, dst=inner_dst)
    inner /= IP(src=EXPECTED.source_end.address, dst=EXPECTED.destination_end.address)
    inner /= UDP(sport=1234, dport=9) / Raw(b"payload")
    outer = IP(src=SMALL.hosts[0].loopback, dst=SMALL.hosts[1].loopback)
    udp = UDP(sport=sport, dport=VXLAN_PORT, chksum=chksum)
    return Ether(src=src, dst=EXPECTED.next_hop_mac) / outer / udp / VXLAN(vni=vni, flags=flags) / inner
