"""Capture packets on a raised fabric for a bounded time, and decode VXLAN, BFD and RoCEv2.

For: seeing what crosses a link: BFD's control packets, applications' packets in VXLAN, RDMA's headers. Not
for: measuring (witness.py, probe.py): a busy capture loses packets. Source: scapy; RFC 7348 (VXLAN), RFC 5880
(BFD), InfiniBand Architecture Specification, annex A17 (RoCEv2; the base transport header, BTH).
"""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scapy.arch.linux import L2ListenSocket
from scapy.config import conf
from scapy.contrib.bfd import BFD
from scapy.contrib.roce import BTH
from scapy.data import DLT_EN10MB, MTU
from scapy.layers.inet import IP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet
from scapy.sendrecv import sniff
from scapy.utils import PcapWriter

from testbed.fabric.links import in_namespace
from testbed.fabric.model import PEER, Fabric, Tor
from twinbed import BackendError, ScenarioError

LONGEST_S, MOST_PACKETS = 600.0, 100_000
"""Largest duration of a capture, s, and number of decoded packets, which are held in memory."""


@dataclass(frozen=True, slots=True)
class CapturedPacket:
    """A decoded packet.

    at_s: time since the capture began, s. device: device at which it was captured. protocol: VXLAN, BFD,
    RoCEv2, or VXLAN/RoCEv2 for RoCEv2 inside a tunnel. source, destination: outer IPv4 addresses. size_bytes:
    length of the frame, bytes.
    vni, inner_source, inner_destination: the tunnel and the addresses inside it (IPv4, or MAC if not IPv4).
    bfd_state, bfd_multiplier, bfd_interval_s: the sender's state, multiplier and desired interval.
    opcode, queue_pair, sequence: BTH's operation, destination queue pair and packet sequence number.
    """

    at_s: float
    device: str
    protocol: str
    source: str
    destination: str
    size_bytes: int
    vni: int | None = None
    inner_source: str | None = None
    inner_destination: str | None = None
    bfd_state: str | None = None
    bfd_multiplier: int | None = None
    bfd_interval_s: float | None = None
    opcode: str | None = None
    queue_pair: int | None = None
    sequence: int | None = None


class _Listening(L2ListenSocket):
    """A socket that hears its device again after the device was down, as on a link that flaps."""

    def recv_raw(self, x: int = MTU) -> tuple[Any, ...]:
        """Return nothing when the device goes down. Scapy would close the socket for good."""
        try:
            received: tuple[Any, ...] = super().recv_raw(x)
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            return None, None, None
        return received


def decode(packet: Packet, device: str = "", at_s: float = 0.0) -> CapturedPacket | None:
    """Return the packet's fields; None if it is neither VXLAN nor BFD nor RoCEv2 over IPv4."""
    if IP not in packet or not (VXLAN in packet or BFD in packet or BTH in packet):
        return None
    protocols: list[str] = []
    fields: dict[str, Any] = {}
    if VXLAN in packet:
        protocols.append("VXLAN")
        fields["vni"] = packet[VXLAN].vni
        inner = packet[VXLAN].payload
        addressed = inner[IP] if inner.haslayer(IP) else inner
        for key, field in (("inner_source", "src"), ("inner_destination", "dst")):
            fields[key] = getattr(addressed, field, None)
    if BTH in packet:
        protocols.append("RoCEv2")
        header = packet[BTH]
        fields |= {"opcode": header.sprintf("%opcode%"), "queue_pair": header.dqpn, "sequence": header.psn}
    elif BFD in packet:
        protocols.append("BFD")
        header = packet[BFD]
        fields |= {"bfd_state": header.sprintf("%sta%"), "bfd_multiplier": header.detect_mult}
        fields["bfd_interval_s"] = header.min_tx_interval / 1e6
    outer = packet[IP]
    return CapturedPacket(at_s, device, "/".join(protocols), outer.src, outer.dst, len(packet), **fields)


def devices_at(fabric: Fabric, place: str) -> tuple[str, tuple[str, ...]]:
    """Return the namespace and the devices that `place` names.

    place: `h0` (a host's uplinks), `t0` or `s0` (the ports of a ToR or a spine), `h0e0` (an endpoint), each
    optionally with one of its devices, as in `h0:tor1`. Raises ScenarioError for a place that this fabric
    does not have.
    """
    nodes: dict[str, tuple[str, tuple[str, ...]]] = {}
    for router in fabric.routers:
        if isinstance(router, Tor):
            peer = (PEER,) if router.peer else ()
            nodes[router.namespace.rpartition("-")[2]] = router.namespace, (*router.devices, *peer)
            continue
        uplinks = tuple(uplink.device for uplink in router.uplinks)
        nodes[f"h{router.index}"] = router.namespace, uplinks
        for number, end in enumerate(router.endpoints):
            nodes[f"h{router.index}e{number}"] = end.namespace, (end.device,)
    node, _, device = place.partition(":")
    if node not in nodes:
        own = fabric.own_names
        there = (f"{each} ({own[each]})" if each in own else each for each in nodes)
        raise ScenarioError(f"place: fabric {fabric.plan.name} has no {node!r}; it has {', '.join(there)}")
    namespace, devices = nodes[node]
    if not device:
        return namespace, devices
    if device not in devices:
        raise ScenarioError(f"place: {node} has no device {device!r}; it has {', '.join(devices)}")
    return namespace, (device,)


def capture(
    fabric: Fabric, place: str, *, seconds: float, count: int, out: Path | None = None
) -> tuple[tuple[CapturedPacket, ...], int]:
    """Capture at `place` until `count` packets were decoded, or for `seconds`.

    Returns the decoded packets and the number of other packets. out: a file for all of them, in pcap format.
    Raises ScenarioError for a wrong place or bound, BackendError if the machine refuses.
    """
    if not 0 < seconds <= LONGEST_S:
        raise ScenarioError(f"seconds: {seconds:g} is not possible; take more than 0, up to {LONGEST_S:g}")
    if not 1 <= count <= MOST_PACKETS:
        raise ScenarioError(f"count: {count} is not possible; take 1 to {MOST_PACKETS}")
    namespace, devices = devices_at(fabric, place)
    decoded: list[CapturedPacket] = []
    others = 0
    file: PcapWriter | None = None
    began_s = time.time()

    def enough(packet: Packet) -> bool:
        nonlocal others
        captured = decode(packet, str(packet.sniffed_on), float(packet.time) - began_s)
        if captured is None:
            others += 1
        else:
            decoded.append(captured)
        if file is not None:
            file.write_packet(packet)
        return len(decoded) >= count

    with ExitStack() as stack:
        try:
            with in_namespace(namespace):
                # Scapy holds interfaces that it found in another namespace: an eth0 is not this eth0.
                conf.ifaces.reload()
                sockets = {_Listening(iface=device): device for device in devices}
        except OSError as error:
            raise BackendError(
                f"{place}: cannot capture ({error.strerror}); run as root, on a fabric that is up"
            ) from error
        for listening in sockets:
            stack.callback(listening.close)
        try:
            with ExitStack() as closed:
                if out is not None:
                    file = PcapWriter(str(out), linktype=DLT_EN10MB)
                    closed.enter_context(file)
                    file.write_header(None)
                sniff(opened_socket=sockets, timeout=seconds, stop_filter=enough, store=False)
        except OSError as error:
            raise BackendError(f"{out or place}: cannot be written ({error.strerror})") from error
    return tuple(decoded), others
