"""Capture: decoding a packet, naming a place, and a real fabric's BFD and VXLAN packets."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from io import BytesIO

import pytest
from scapy.arch.linux import LinuxInterfaceProvider
from scapy.config import conf
from scapy.contrib.bfd import BFD
from scapy.contrib.roce import BTH
from scapy.interfaces import NetworkInterface
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import rdpcap

from control.fabric import Fault, FaultKind
from testbed.fabric import capture as capturing
from testbed.fabric import faults
from testbed.fabric.capture import CapturedPacket, capture, decode, devices_at
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.plan import fabric_of
from testbed.fabric.up import wait_converged
from tests.testbed.fabric.test_fabric_up import WITHIN_S, send_and_receive
from twinbed import BackendError, ScenarioError

FRAME = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OUTER = FRAME / IP(src="10.255.0.1", dst="10.255.0.2")
ROCE = UDP(sport=50000, dport=4791) / BTH(opcode="RC_SEND_ONLY", dqpn=17, psn=5) / Raw(b"x" * 8)
INNER = FRAME / IP(src="10.0.1.1", dst="10.0.2.1")
SMALL = fabric_of(Plan(name="small", peer_link=True))


def sent(packet) -> CapturedPacket | None:
    """Decode the packet from its bytes on the wire."""
    return decode(Ether(bytes(packet)), "tor0", 0.5)


def test_a_bfd_packet_says_its_state_and_timers() -> None:
    captured = sent(
        OUTER / UDP(sport=49152, dport=3784) / BFD(sta="Init", detect_mult=5, min_tx_interval=50_000)
    )
    assert captured is not None
    assert (captured.protocol, captured.source, captured.device) == ("BFD", "10.255.0.1", "tor0")
    assert (captured.bfd_state, captured.bfd_multiplier, captured.bfd_interval_s) == ("Init", 5, 0.05)
    assert captured.vni is None


@pytest.mark.parametrize(
    ("inner", "addresses"),
    [
        (INNER / TCP(), ("10.0.1.1", "10.0.2.1")),
        (FRAME / ARP(), ("02:00:00:00:00:01", "02:00:00:00:00:02")),
    ],
    ids=["ip", "arp"],
)
def test_a_vxlan_packet_says_its_tenant_and_who_talks_inside(inner, addresses) -> None:
    captured = sent(OUTER / UDP(sport=50000, dport=4789) / VXLAN(vni=100) / inner)
    assert captured is not None
    assert (captured.protocol, captured.vni) == ("VXLAN", 100)
    assert (captured.source, captured.destination) == ("10.255.0.1", "10.255.0.2")
    assert (captured.inner_source, captured.inner_destination) == addresses


@pytest.mark.parametrize(
    ("packet", "protocol"),
    [
        (OUTER / ROCE, "RoCEv2"),
        (OUTER / UDP(sport=50000, dport=4789) / VXLAN(vni=100) / INNER / ROCE, "VXLAN/RoCEv2"),
    ],
    ids=["bare", "tunnelled"],
)
def test_a_roce_packet_says_its_operation_queue_pair_and_sequence_number(packet, protocol) -> None:
    captured = sent(packet)
    assert captured is not None
    assert captured.protocol == protocol
    assert (captured.opcode, captured.queue_pair, captured.sequence) == ("RC_SEND_ONLY", 17, 5)


@pytest.mark.parametrize("packet", [OUTER / TCP(), FRAME / ARP()], ids=["tcp", "arp"])
def test_other_packets_are_not_decoded(packet) -> None:
    assert sent(packet) is None


def test_a_tunnelled_frame_that_is_cut_short_has_no_inner_addresses() -> None:
    captured = sent(OUTER / UDP(sport=50000, dport=4789) / VXLAN(vni=100) / Raw(b"cut"))
    assert captured is not None
    assert captured.inner_source is None


@pytest.mark.parametrize(
    ("place", "namespace", "devices"),
    [
        ("h1", "tb-small-h1", ("tor0", "tor1")),
        ("t0:host1", "tb-small-t0", ("host1",)),
        ("t1", "tb-small-t1", ("host0", "host1", "peer")),
        ("h0e0", "tb-small-h0e0", ("eth0",)),
    ],
)
def test_a_place_is_a_node_or_one_of_its_devices(place, namespace, devices) -> None:
    assert devices_at(SMALL, place) == (namespace, devices)


@pytest.mark.parametrize(
    ("place", "message"),
    [("h9", "fabric small has no 'h9'; it has h0"), ("h0:vf7", "h0 has no device 'vf7'")],
)
def test_a_place_that_a_fabric_does_not_have_is_refused(place, message) -> None:
    with pytest.raises(ScenarioError, match=message):
        devices_at(SMALL, place)


@pytest.mark.parametrize(("seconds", "count", "key"), [(0.0, 1, "seconds"), (1.0, 0, "count")])
def test_a_bound_that_is_not_one_is_refused(seconds, count, key) -> None:
    with pytest.raises(ScenarioError, match=f"{key}: .* is not possible"):
        capture(SMALL, "h0", seconds=seconds, count=count)


@pytest.fixture
def line(monkeypatch) -> list[dict]:
    """A link on which a TCP, a RoCEv2 and an ARP packet cross. Returns what was asked of scapy."""
    asked: list[dict] = []

    def sniff(*, opened_socket, timeout, stop_filter, **options) -> None:
        asked.append(options)
        for sent_one in (OUTER / TCP(), OUTER / ROCE, FRAME / ARP()):
            packet = Ether(bytes(sent_one))
            packet.sniffed_on = "tor0"
            stop_filter(packet)

    monkeypatch.setattr(capturing, "in_namespace", lambda _: nullcontext())
    monkeypatch.setattr(capturing, "_Listening", lambda iface: BytesIO())
    monkeypatch.setattr(capturing, "sniff", sniff)
    return asked


def test_a_capture_keeps_only_decoded_packets_in_memory_and_writes_all(line, tmp_path) -> None:
    packets, others = capture(SMALL, "h0", seconds=1.0, count=5, out=tmp_path / "h0.pcap")
    assert ([packet.protocol for packet in packets], others) == (["RoCEv2"], 2)
    assert line == [{"store": False}]
    assert [TCP in packet for packet in rdpcap(str(tmp_path / "h0.pcap"))] == [True, False, False]


def test_a_file_that_cannot_be_written_is_refused_before_the_capture(line, tmp_path) -> None:
    with pytest.raises(BackendError, match=r"x.pcap: cannot be written"):
        capture(SMALL, "h0", seconds=600.0, count=5, out=tmp_path / "none" / "x.pcap")
    assert line == []


@pytest.mark.root
@pytest.mark.slow
def test_a_real_fabrics_bfd_and_vxlan_packets_are_captured(fabric: Fabric, tmp_path) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            send_and_receive(fabric, 0, 1)
            stop.wait(0.05)

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        packets, others = capture(fabric, "h0", seconds=10.0, count=200, out=tmp_path / "h0.pcap")
    finally:
        stop.set()
        talker.join()
    protocols = {packet.protocol for packet in packets}
    assert protocols >= {"BFD", "VXLAN"}
    bfd = next(packet for packet in packets if packet.protocol == "BFD" and packet.bfd_state == "Up")
    assert (bfd.bfd_multiplier, bfd.bfd_interval_s) == (5, 0.05)
    tunnelled = next(packet for packet in packets if packet.protocol == "VXLAN")
    assert tunnelled.vni == fabric.plan.tenants[0]
    assert {tunnelled.source, tunnelled.destination} == {host.loopback for host in fabric.hosts}
    assert {packet.device for packet in packets} <= {uplink.device for uplink in fabric.hosts[0].uplinks}
    assert len(rdpcap(str(tmp_path / "h0.pcap"))) == len(packets) + others


@pytest.mark.root
@pytest.mark.slow
def test_an_endpoints_device_is_not_taken_for_the_machines_device_of_that_name(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = NetworkInterface(LinuxInterfaceProvider(), {"name": "eth0", "index": 99_999})
    monkeypatch.setitem(conf.ifaces, "eth0", other)
    packets, _ = capture(fabric, "h0e0", seconds=0.2, count=1)
    assert packets == ()


@pytest.mark.root
@pytest.mark.slow
def test_a_capture_at_a_port_goes_on_after_the_port_was_down(fabric: Fabric) -> None:
    fault = Fault(FaultKind.LINK, host=0, uplink=0, silent=False)

    def flap() -> None:
        faults.inject(fabric, fault)
        time.sleep(0.5)
        faults.clear(fabric, fault)

    flapping = threading.Timer(1.0, flap)
    flapping.start()
    try:
        packets, _ = capture(fabric, "t0:host0", seconds=8.0, count=100_000)
    finally:
        flapping.join()
        wait_converged(fabric, WITHIN_S)
    assert packets[0].at_s < 1.0
    assert packets[-1].at_s > 7.0
