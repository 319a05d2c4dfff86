"""The fabric twin's data: topologies, delays, ways to meet a fault, outages and queue pairs.

For: the input and output of the fabric's simulations. Not for: links, faults and BFD's timers
(control.fabric), how detection and routing work (failover.py), queue pairs (rdma.py), jobs (jobs.py) or
fleets (fleet.py). All times are in seconds, all rates in bits per second, all sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from control.fabric import BfdTimers
from twin.fabric.retransmission import PLAIN, Ladder, Profile, ack_timeout_s, ladder
from twinbed import ScenarioError

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_SPINE = 0
"""Number of spines in a topology that has none."""
_NORMAL_P95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


class Scheme(StrEnum):
    """The scheme by which a fabric or a job meets a fault at the edge.

    NONE: there is one path; the job dies and restarts from a checkpoint.
    BOND: hosts bond their uplinks by LACP to a pair of ToRs (MLAG).
    REROUTE: the collective library times out and rebuilds its communicator on the paths that work.
    NCCL_FAILOVER: one adapter has several ports, and NCCL moves a dead port's traffic to another.
    NCCL_RECOVERY: the same, and NCCL takes a port that works again back into use.
    THORN_SOFTWARE: hosts run the overlay in their kernel.
    THORN: hosts run the overlay and offload it to the NIC by tc rules.
    """

    NONE = "none"
    BOND = "bond"
    REROUTE = "reroute"
    NCCL_FAILOVER = "nccl-failover"
    NCCL_RECOVERY = "nccl-recovery"
    THORN_SOFTWARE = "thorn-software"
    THORN = "thorn"


@dataclass(frozen=True, slots=True)
class Topology:
    """Hosts and the ToRs that they are attached to.

    tor_of: int64[H, U], the ToR at each uplink of each host.
    nic_of: int64[H, U], the adapter of each uplink, numbered per host.
    rate_bps, delay_s: rate and one-way delay of a link between a host and a ToR.
    spines: number of spines, each of which connects all ToRs. Without spines (NO_SPINE) two hosts talk
    through a ToR that both have.
    spine_delay_s: one-way delay of a link between a ToR and a spine.
    """

    tor_of: Whole
    nic_of: Whole
    rate_bps: float = 100e9
    delay_s: float = 1e-6
    spines: int = NO_SPINE
    spine_delay_s: float = 1e-6

    @property
    def hosts(self) -> int:
        """Number of hosts, H."""
        return int(self.tor_of.shape[0])

    @property
    def uplinks(self) -> int:
        """Number of uplinks of every host, U."""
        return int(self.tor_of.shape[1])

    @property
    def tors(self) -> int:
        """Number of ToRs."""
        return int(self.tor_of.max()) + 1


@dataclass(frozen=True, slots=True)
class Delay:
    """A measured delay: lognormal with this median and 95th percentile, s; constant if both are equal."""

    median_s: float
    p95_s: float

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draw float64[count], s. Raises ScenarioError unless 0 < median ≤ p95, or both are zero."""
        median_s, p95_s = self.median_s, self.p95_s
        if not 0.0 <= median_s <= p95_s < np.inf or (median_s == 0.0) != (p95_s == 0.0):
            raise ScenarioError(
                f"delay: median_s {median_s}, p95_s {p95_s}: give 0 < median_s ≤ p95_s, or zero for both"
            )
        normal = random.standard_normal(count)
        if median_s == p95_s:
            return np.full(count, median_s)
        return np.asarray(median_s * np.exp(normal * (np.log(p95_s / median_s) / _NORMAL_P95)), np.float64)


@dataclass(frozen=True, slots=True)
class Stalls:
    """Times in which a machine runs no process, so that BFD falls silent without a fault.

    per_s: number of stalls longer than floor_s that begin in a second.
    floor_s: shortest stall that counts, s.
    excess_s: mean time by which those stalls exceed floor_s, s. The excess is exponential, which fits the
    measurement: 59 stalls above 50 ms, 18 above 100 ms, none above 222 ms.
    """

    per_s: float
    floor_s: float
    excess_s: float


@dataclass(frozen=True, slots=True)
class FastPath:
    """Delays of the fast path (control.fast_path), which hosts may run besides BGP.

    late_s: time from the sign of a dead link (silence for the detection time, a packet that says so, a lost
    carrier) until the fast path acts.
    told_s: time from then until another host has its report.
    route_s: time from either until the kernel forwards around the dead link.
    """

    late_s: Delay
    told_s: Delay
    route_s: Delay


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Calibrated delays of detection and routing. The calibration file names the source of each value.

    carrier_s: time from a lost carrier until the routing daemon knows.
    hold_s: time that a BGP daemon waits before it selects paths, at each BGP hop, s.
    message_s: time that an update takes to a neighbour, including its handling there.
    route_s: time from a selected path until the kernel forwards by it.
    rule_s: time from a netlink event until the reconciler's rules are in force.
    session_up_s: time from the repair of a link until BGP uses it again.
    stalls: stalls of a host.
    fast: delays of the fast path (None: hosts run BGP alone).
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
    """Timers of a bond.

    miimon_s: time between two looks at the carrier, s.
    lacp_s: time between LACPDUs, s (1 fast, 30 slow); three lost LACPDUs are a fault.
    """

    miimon_s: float = 0.1
    lacp_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Reroute:
    """Timers of a collective library that reroutes.

    timeout_s: time without progress after which a collective is given up, s.
    rebuild_s: time to build a new communicator, s.
    """

    timeout_s: float = 30.0
    rebuild_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Handling:
    """A fabric's handling of faults: the scheme, and all delays and timers on which its steps depend.

    control: delays of detection and routing. timers: timers of BFD. bond: timers of Scheme.BOND. reroute:
    timers of Scheme.REROUTE.
    """

    scheme: Scheme
    control: ControlPlane
    timers: BfdTimers
    bond: Bond = Bond()
    reroute: Reroute = Reroute()


@dataclass(frozen=True, slots=True)
class Outages:
    """The effect of faults on flows: a row per fault, host pair with a new route, direction and lost path.

    fault: int64[n], index of the fault in the plan.
    source, destination: int64[n], hosts that send and receive.
    uplink, last_uplink: int64[n], the source's uplink by which the path leaves and the destination's by which
    it arrives. Flows on other paths lose nothing.
    direction: int64[n], Direction as the host at the fault sees it.
    begin_s, end_s: float64[n], time between which packets on the path are lost.
    detected_s, selected_s, installed_s: float64[n], times at which the sender's side noticed the fault,
    selected another path and forwarded by it, s. All are inf if it did not notice; the last two also if it
    had no other path.
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
        """float64[n], time for which packets are lost, s."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class QueuePair:
    """An RDMA reliable connection.

    timeout: exponent of the local ACK timeout, which is 4.096 µs · 2^timeout (0: it never ends).
    retry_count: set number of retries. The profile says how an adapter interprets it.
    mtu_bytes: payload of a full packet, B.
    window: number of packets that may be unacknowledged.
    retry_profile: how the adapter spaces its retransmissions.
    """

    timeout: int = 14
    retry_count: int = 7
    mtu_bytes: int = 4096
    window: int = 1024
    retry_profile: Profile = PLAIN

    @property
    def ack_timeout_s(self) -> float:
        """The local ACK timeout, s."""
        return ack_timeout_s(self.timeout)

    @property
    def ladder(self) -> Ladder:
        """Its times of retransmission and of giving up. Raises as retransmission.ladder does."""
        return ladder(self.retry_profile, self.timeout, self.retry_count)
