"""Check the overlay's packets on the wire, captured at a host's uplink and decoded by Scapy.

For: checking that they are as VXLAN and the host's rules require. Not for: rates or gaps, because capturing
costs too much, nor captures for people (capture.py). Source: RFC 7348 (VXLAN), RFC 791 (IPv4), RFC 768 (a
checksum of 0 means none).
"""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, bind_layers

from testbed.fabric import links
from testbed.fabric.model import VXLAN_PORT, Endpoint, Fabric, Host, Uplink
from testbed.waiting import until

ETH_P_ALL = 3
HEADERS_BYTES = 14 + 20 + 8 + 8
"""Bytes that the overlay adds to an inner frame: Ethernet, IPv4, UDP, VXLAN."""

_FRAME_BYTES = 65_536
_NOBODY_LISTENS = 9
_INSTANCE = 0x08
"""VXLAN's flag I: the VNI is valid."""

_SOURCE_PORTS = (32_768, 60_999)
"""Linux's default source ports (net.ipv4.ip_local_port_range); RFC 7348 recommends 49,152-65,535."""

Flow = tuple[str, str, int, int, int]
"""Inner source and destination address, protocol, source and destination port."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected fields of a packet from one host to another at an uplink.

    uplink_mac: MAC address of the uplink. next_hop_mac: MAC address of the ToR's port. source, destination:
    the hosts. source_end, destination_end: their endpoints. vni, port: VNI and UDP port of the tunnel.
    """

    uplink_mac: str
    next_hop_mac: str
    source: Host
    destination: Host
    source_end: Endpoint
    destination_end: Endpoint
    vni: int
    port: int = VXLAN_PORT


@dataclass(slots=True)
class WireCheck:
    """Result of checking a tunnel's packets.

    packets: number of packets. wrong: each kind of error, once. source_ports: inner flow → its outer UDP
    source ports. payloads: payloads of the inner UDP datagrams. ttls: outer TTLs. fragments_refused: number
    of outer packets with DF set.
    """

    packets: int = 0
    wrong: list[str] = field(default_factory=list)
    source_ports: dict[Flow, set[int]] = field(default_factory=lambda: defaultdict(set))
    payloads: list[bytes] = field(default_factory=list)
    ttls: set[int] = field(default_factory=set)
    fragments_refused: int = 0


@contextmanager
def taken(host: Host, uplink: Uplink) -> Iterator[list[bytes]]:
    """Yield a list that gets every frame that crosses a host's uplink, both ways, during the block."""
    frames: list[bytes] = []
    over = threading.Event()
    with links.in_namespace(host.namespace):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with wire:
        wire.bind((uplink.device, ETH_P_ALL))
        wire.settimeout(0.05)
        thread = threading.Thread(target=_take, args=(wire, frames, over), name="taker", daemon=True)
        thread.start()
        try:
            yield frames
        finally:
            over.set()
            thread.join()


def send(source: Endpoint, destination: Endpoint, *, flows: int, count: int) -> list[bytes]:
    """Send `count` datagrams from each of `flows` source ports to a closed port. Returns their payloads."""
    payloads = [
        f"flow {flow:4} datagram {index:4}".encode() for index in range(count) for flow in range(flows)
    ]
    with links.in_namespace(source.namespace), ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(flows)]
        for index, payload in enumerate(payloads):
            sockets[index % flows].sendto(payload, (destination.address, _NOBODY_LISTENS))
    return payloads


def wait_for(taken: Sequence[Sequence[bytes]], payloads: Sequence[bytes], within_s: float) -> bool:
    """Return whether all payloads were captured within within_s, at all places together."""
    length = len(payloads[-1])
    return until(lambda: set(payloads) <= {frame[-length:] for frames in taken for frame in frames}, within_s)


def expected(fabric: Fabric, source: Host, uplink: Uplink, destination: Host) -> Expected:
    """Return the expected fields of packets between the first endpoints of two hosts."""
    return Expected(
        _mac(source.namespace, uplink.device),
        _mac(fabric.tors[uplink.tor].namespace, uplink.tor_device),
        source,
        destination,
        source.endpoints[0],
        destination.endpoints[0],
        source.endpoints[0].vni,
    )


def read(frames: Sequence[bytes], expected: Expected) -> WireCheck:
    """Check all packets of the tunnel from expected's source to its destination, layer by layer."""
    bind_layers(UDP, VXLAN, dport=expected.port)
    seen = WireCheck()
    for frame in frames:
        packet = Ether(frame)
        if IP in packet and UDP in packet and packet[UDP].dport == expected.port:
            outer = packet[IP]
            if (outer.src, outer.dst) == (expected.source.loopback, expected.destination.loopback):
                _check(packet, len(frame), expected, seen)
    return seen


def _check(packet: Packet, length: int, expected: Expected, seen: WireCheck) -> None:
    seen.packets += 1
    outer, udp = packet[IP], packet[UDP]
    if VXLAN not in packet or Ether not in packet[VXLAN]:
        _wrong(seen, "no VXLAN header with an Ethernet frame in it")
        return
    vxlan, inner = packet[VXLAN], packet[VXLAN][Ether]
    payload_bytes = length - HEADERS_BYTES
    rules = {
        "outer Ethernet source": (packet.src, expected.uplink_mac),
        "outer Ethernet destination": (packet.dst, expected.next_hop_mac),
        "outer IP length": (outer.len, length - 14),
        "outer IP options": (outer.ihl, 5),
        "outer IP checksum": (outer.chksum, _checksum(outer)),
        "UDP length": (udp.len, payload_bytes + 16),
        "UDP checksum": (udp.chksum, udp.chksum and _udp_checksum(outer)),
        "VXLAN flags": (int(vxlan.flags), _INSTANCE),
        "VNI": (vxlan.vni, expected.vni),
        "VXLAN's reserved bits": ((vxlan.reserved1, vxlan.reserved2), (0, 0)),
    }
    if IP in inner and inner[IP].dst == expected.destination_end.address:
        rules["inner Ethernet source"] = (inner.src, expected.source_end.mac)
        rules["inner Ethernet destination"] = (inner.dst, expected.destination_end.mac)
        rules["inner IP source"] = (inner[IP].src, expected.source_end.address)
        rules["inner IP length"] = (inner[IP].len, payload_bytes - 14)
        seen.source_ports[_flow(inner[IP])].add(udp.sport)
        if UDP in inner[IP]:
            seen.payloads.append(bytes(inner[IP][UDP].payload))
    for name, (value, right) in rules.items():
        if value != right:
            _wrong(seen, f"{name}: {value}, expected {right}")
    if not _SOURCE_PORTS[0] <= udp.sport <= _SOURCE_PORTS[1]:
        _wrong(seen, f"UDP source port {udp.sport} is not one of {_SOURCE_PORTS[0]}-{_SOURCE_PORTS[1]}")
    seen.ttls.add(outer.ttl)
    seen.fragments_refused += bool(outer.flags.DF)


def _mac(namespace: str, device: str) -> str:
    show = ("ip", "-json", "link", "show", "dev", device)
    return str(json.loads(links.output_of(namespace, show, cure="is the fabric up?"))[0]["address"])


def _flow(ip: Packet) -> Flow:
    ports = next((ip[layer] for layer in (TCP, UDP) if layer in ip), None)
    return ip.src, ip.dst, ip.proto, getattr(ports, "sport", 0), getattr(ports, "dport", 0)


def _checksum(ip: Packet) -> int:
    """Return the header checksum that Scapy computes."""
    again = ip.copy()
    again.remove_payload()
    del again.chksum
    return int(IP(bytes(again)).chksum)


def _udp_checksum(ip: Packet) -> int:
    """Return the UDP checksum that Scapy computes.

    The inner checksum may be left to the adapter; the outer one counts it as done
    (Documentation/networking/checksum-offloads.rst, "LCO").
    """
    again = ip.copy()
    del again[UDP].chksum
    if IP in again[VXLAN] and UDP in again[VXLAN]:
        del again[VXLAN][UDP].chksum
    return int(IP(bytes(again))[UDP].chksum)


def _wrong(seen: WireCheck, problem: str) -> None:
    if problem not in seen.wrong:
        seen.wrong.append(problem)


def _take(wire: socket.socket, frames: list[bytes], over: threading.Event) -> None:
    while not over.is_set():
        with suppress(TimeoutError):
            frames.append(wire.recv(_FRAME_BYTES))
