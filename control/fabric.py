"""Terms for a fabric's edge that both backends share: links, faults, directions, BFD's timers and states.

For: `control.fast_path`, `control.reconciler`, and the fabric of the twin, of the testbed and of the lab. Not
for: how a fault is made or survived. All times are in seconds.

A *link* is the cable between two ports: a host's port (its *uplink*, numbered from 0 at every host) and a
port of a ToR, the switch at the top of the rack. A ToR may have uplinks too, to the spines that join racks. A
*port* is one end of a link. A dead port and a dead link do the same to traffic, but they are different
devices, each with its own failure rate.

Whether a fault can be noticed at the port is a separate question, which `Fault.silent` answers. A silent
fault loses packets and the carrier stays. Any other fault takes the carrier away, and the carrier is always
lost at both ends of the link, whichever end failed.

Source: RFC 5880 for BFD; RFC 7348 for VXLAN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

MAX_VNI = (1 << 24) - 1
"""Highest VXLAN network identifier, which has 24 bits (RFC 7348 §5)."""

VXLAN_OVERHEAD_BYTES = 14 + 20 + 8 + 8
"""Bytes that a VXLAN tunnel adds to a packet: the outer Ethernet, IPv4, UDP and VXLAN headers (RFC 7348
§5)."""


class FaultKind(StrEnum):
    """The device that fails.

    PORT: a ToR's port to one host. LINK: the cable between a host and a ToR. NIC: a host's adapter, with all
    of its uplinks. TOR: a whole switch, with all of its ports.
    """

    PORT = "port"
    LINK = "link"
    NIC = "nic"
    TOR = "tor"


class Direction(IntEnum):
    """Direction of traffic as the host at the fault sees it. OUT: the host sends. IN: the host receives."""

    OUT = 0
    IN = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """A device that fails.

    kind: which device fails.
    host, uplink: indices of the host and of its uplink, for PORT, LINK and NIC (−1: not used).
    tor: index of the switch, for TOR (−1: not used). For PORT or LINK without a host: the ToR whose uplink
    to a spine fails; the twin has no such faults.
    silent: packets are lost but links keep their carrier. Otherwise each affected link loses its carrier at
    both ends.
    one_way: the only direction that is lost (None: both are).
    """

    kind: FaultKind
    host: int = -1
    uplink: int = -1
    tor: int = -1
    silent: bool = True
    one_way: Direction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault(Fault):
    """A fault with its time.

    at_s: begin of the fault, s.
    down_s: length of the fault, s (inf: it is never repaired).
    """

    at_s: float
    down_s: float


class BfdState(IntEnum):
    """State of one end of a BFD session, as packets carry it (RFC 5880 §4.1)."""

    ADMIN_DOWN = 0
    DOWN = 1
    INIT = 2
    UP = 3


@dataclass(frozen=True, slots=True)
class BfdTimers:
    """Timers of one end of a BFD session: the time between its packets, and the silence that counts as a
    fault.

    interval_s: time between control packets, s, from which a sender subtracts 0–25 % at random (RFC 5880
    §6.8.7). multiplier: number of packets in a row whose loss is a fault.
    """

    interval_s: float = 0.05
    multiplier: int = 5

    @property
    def detection_s(self) -> float:
        """Detection time, s: silence of this length brings a session down."""
        return self.interval_s * self.multiplier

    def received_at_least(self, interval_s: float) -> BfdTimers:
        """Return the timers for a receiver that wants packets at least interval_s apart (RFC 5880 §6.8.4)."""
        return BfdTimers(max(self.interval_s, interval_s), self.multiplier)
