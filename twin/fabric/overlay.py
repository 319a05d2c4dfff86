"""The cost of a tunnel's headers: goodput of RDMA packets on a link, with and without VXLAN.

For: the rate that an application gets from a link. Not for: queueing or losses (rdma.py).
Source: RFC 7348 (VXLAN over IPv4: 50 bytes), IEEE 802.3 (preamble, frame check and gap: 24 bytes), InfiniBand
annex A17 (RoCEv2: Ethernet 14, IPv4 20, UDP 8, transport header 12, ICRC 4).
"""

from __future__ import annotations

from control.fabric import VXLAN_OVERHEAD_BYTES
from twin.fabric.model import Scheme
from twin.fabric.steps import OVERLAYS

ROCE_BYTES = 14 + 20 + 8 + 12 + 4
"""Headers and checksum of a RoCEv2 packet, B."""
FRAMING_BYTES = 7 + 1 + 4 + 12
"""Preamble, start of frame, frame check and gap of an Ethernet frame, B."""


def wire_bytes(payload_bytes: int, scheme: Scheme) -> int:
    """Return the bytes of an Ethernet link that a RoCEv2 packet with payload_bytes takes."""
    tunnel = VXLAN_OVERHEAD_BYTES if scheme in OVERLAYS else 0
    return payload_bytes + ROCE_BYTES + tunnel + FRAMING_BYTES


def goodput_bps(rate_bps: float, payload_bytes: int, scheme: Scheme) -> float:
    """Return the payload per second on a busy link of rate_bps, bit/s."""
    return rate_bps * payload_bytes / wire_bytes(payload_bytes, scheme)
