"""What a tunnel's headers cost: goodput of RDMA packets on a link, with and without VXLAN.

For: the rate that an application gets of a link. Not for: queueing or losses (rdma.py).
Source: RFC 7348 (VXLAN over IPv4: 50 bytes), IEEE 802.3 (preamble, frame check and gap: 24 bytes),
InfiniBand annex A17 (RoCEv2: Ethernet 14, IPv4 20, UDP 8, transport header 12, ICRC 4).
"""

from __future__ import annotations

from control.fabric import VXLAN_OVERHEAD_BYTES
from twin.fabric.model import Scheme
from twin.fabric.steps import OVERLAYS

ROCE_BYTES = 14 + 20 + 8 + 12 + 4
FRAMING_BYTES = 7 + 1 + 4 + 12


def wire_bytes(payload_bytes: int, scheme: Scheme) -> int:
    """What a RoCEv2 packet of payload_bytes takes of an Ethernet link."""
    tunnel = VXLAN_OVERHEAD_BYTES if scheme in OVERLAYS else 0
    return payload_bytes + ROCE_BYTES + tunnel + FRAMING_BYTES


def goodput_bps(rate_bps: float, payload_bytes: int, scheme: Scheme) -> float:
    """Payload per second on a link of rate_bps that is always busy."""
    return rate_bps * payload_bytes / wire_bytes(payload_bytes, scheme)
