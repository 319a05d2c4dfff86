"""The fabric twin's vocabulary: topologies, faults, timers, delays, and what a fault does to flows.

For: the data that goes in and comes out of the fabric's simulations. Not for: how detection and routing work
(failover.py), queue pairs (rdma.py), jobs (jobs.py) or fleets (fleet.py). All times are seconds, all rates
bits per second, all sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_SPINE = 0


class Scheme(StrEnum):
    """How an edge fault is met.

    NONE: one path; the job dies and restarts from a checkpoint. BOND: LACP to a dual-ToR pair (MLAG).
    REROUTE: the collective library times out and rebuilds its communicator on what works. THORN_SOFTWARE:
    the overlay in the host's kernel. THORN: the same, offloaded to the NIC by tc rules.
    """

    NONE = "none"
    BOND = "bond"
    REROUTE = "reroute"
    THORN_SOFTWARE = "thorn-software"
    THORN = "thorn"


@dataclass(frozen=True, slots=True)
class Topology:
    """Hosts at ToRs. tor_of: int64[H, U], the ToR of each host's uplinks; nic_of: int64[H, U], the adapter.

    rate_bps, delay_s: of an edge link, one way; spines: how many connect all ToRs (NO_SPINE: none, so two
    hosts talk through a ToR that both have); spine_rate_bps, spine_delay_s: of a ToR's link to a spine.
    """

    tor_of: Whole
    nic_of: Whole
    rate_bps: float = 100e9
    delay_s: float = 1e-6
    spines: int = NO_SPINE
    spine_rate_bps: float = 400e9
    spine_delay_s: float = 1e-6

    @property
    def hosts(self) -> int:
        """H."""
        return int(self.tor_of.shape[0])

    @property
    def uplinks(self) -> int:
        """U, of every host."""
        return int(self.tor_of.shape[1])

    @property
    def tors(self) -> int:
        """Switches at the edge."""
        return int(self.tor_of.max()) + 1


@dataclass(frozen=True, slots=True)
class Delay:
    """A measured delay: lognormal through its median and 95th percentile (equal: constant)."""

    median_s: float
    p95_s: float


@dataclass(frozen=True, slots=True)
class Stalls:
    """Times in which a machine runs nobody, so that BFD falls silent without a fault.

    per_s: how many longer than floor_s begin in a second; excess_s: by how much, on average. (Exponential: it
    is what 59 of more than 50 ms, 18 of more than 100 ms and none of more than 222 ms look like.)
    """

    per_s: float
    floor_s: float
    excess_s: float


@dataclass(frozen=True, slots=True)
class FastPath:
    """Delays of the fast path (control.fast_path), which hosts have besides BGP.

    late_s: from what it sees (silence for the detection time, a packet that says so, a lost carrier) until it
    acts; told_s: from then until another host has its report; route_s: from either until the kernel forwards
    around the dead link.
    """

    late_s: Delay
    told_s: Delay
    route_s: Delay


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Delays of detection and routing on a path, as calibrated. See lab's calibration for each source.

    carrier_s: a lost carrier until the routing daemon knows; hold_s: how long the BGP daemon waits before it
    selects paths, at each BGP hop; message_s: an update on its way to a neighbour, with its handling there;
    route_s: a selected path until the kernel forwards by it; rule_s: a netlink event until the reconciler's
    rules are in force; session_up_s: a repaired link until BGP uses it again; fast: what hosts have besides
    (None: BGP alone).
    """

    carrier_s: Delay
    hold_s: float
    message_s: Delay
    route_s: Delay
    rule_s: Delay
    session_up_s: Delay
    stalls: Stalls
    fast: FastPath | None = None


@dataclass(frozen=True, slots=True)
class Bond:
    """miimon_s: carrier poll; lacp_s: interval of LACPDUs (1 s fast, 30 s slow), three lost are a fault."""

    miimon_s: float = 0.1
    lacp_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Reroute:
    """timeout_s: of a collective that makes no progress; rebuild_s: to make a new communicator."""

    timeout_s: float = 30.0
    rebuild_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Outages:
    """What faults do to flows, one row per fault, host pair with a changed route, direction and lost path.

    fault: int64[n], index into the plan; source, destination: int64[n], hosts; uplink: int64[n], of the
    path's first link; direction: int64[n]; begin_s, end_s: float64[n], between which packets on that path
    are lost; detected_s, selected_s, installed_s: float64[n], when the sender's side noticed, chose anew and
    forwarded anew (inf: never: it did not notice, or had no other path); last_uplink: int64[n], the
    destination's, by which the path arrives. Flows on other paths lose nothing.
    """

    fault: Whole
    source: Whole
    destination: Whole
    uplink: Whole
    direction: Whole
    begin_s: Floats
    end_s: Floats
    detected_s: Floats
    selected_s: Floats
    installed_s: Floats
    last_uplink: Whole

    @property
    def gap_s(self) -> Floats:
        """float64[n], how long packets are lost."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class QueuePair:
    """An RDMA reliable connection. timeout: exponent of the local ACK timeout, 4.096 µs · 2^timeout;
    retry_count: retries after which the queue pair is in error; mtu_bytes: payload of a packet; window:
    packets that may be unacknowledged."""

    timeout: int = 14
    retry_count: int = 7
    mtu_bytes: int = 4096
    window: int = 1024

    @property
    def ack_timeout_s(self) -> float:
        """The local ACK timeout, seconds."""
        return 4.096e-6 * 2.0**self.timeout
