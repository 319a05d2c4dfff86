"""The data of a real fabric: its plan, its parts, and a fault that took effect.

For: every module of the testbed's fabric, and those that measure on it. Not for: making a fabric (up.py) or
breaking it (faults.py). Source: our design; links, faults and directions are those of `control.fabric`. Times
are in seconds, rates in bits per second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from control.fabric import MAX_VNI, BfdTimers, Direction, Fault
from twinbed import ScenarioError

MOST_HOSTS, MOST_TORS, MOST_SPINES, MOST_ENDPOINTS = 200, 8, 8, 50
"""Largest numbers that the address plan has room for (plan.py)."""

VXLAN_PORT = 4789
"""UDP port of VXLAN (RFC 7348)."""

PEER = "peer"
"""Device of a ToR's link to the other ToR of its rack."""

LONGEST_NAME = 20
_NAME = re.compile(r"[a-z0-9](-?[a-z0-9])*")
_MTU_BYTES = (1280, 9000)
_PEERS = 2


class Daemon(StrEnum):
    """FRR's daemons in every host and ToR, in their starting order."""

    ZEBRA = "zebra"
    BFDD = "bfdd"
    BGPD = "bgpd"


@dataclass(frozen=True, slots=True)
class Impairment:
    """An impairment of a link. Without loss, delay and corruption the link is broken.

    host, tor: indices of the host and the ToR that the link joins. silent: whether a broken link keeps its
    carrier. one_way: the only impaired direction (None: both). loss, corrupt: shares of the packets, 0 to 1.
    delay_s: delay of every packet, s. flap_s: time for which the link is impaired, and then repaired, in
    turns, s. at_s: beginning after the fabric is up, s. for_s: duration, s (None: no end).
    spine: index of the spine, for a link of the ToR to a spine; host is −1 then (None: a host's link).
    """

    host: int
    tor: int
    silent: bool = False
    one_way: Direction | None = None
    loss: float | None = None
    delay_s: float | None = None
    corrupt: float | None = None
    flap_s: float | None = None
    at_s: float = 0.0
    for_s: float | None = None
    spine: int | None = None

    @property
    def link(self) -> str:
        """The link's name, as users write it."""
        if self.spine is not None:
            return f"t{self.tor}:spine{self.spine}"
        return f"h{self.host}:tor{self.tor}"

    @property
    def needs_netem(self) -> bool:
        """Whether the impairment needs a kernel with netem."""
        return self.delay_s is not None or self.corrupt is not None

    @property
    def is_timed(self) -> bool:
        """Whether the impairment begins later, flaps or ends."""
        return self.at_s > 0 or self.flap_s is not None or self.for_s is not None

    def overlaps(self, other: Impairment) -> bool:
        """Return whether both impair the same link at the same time."""
        ends_s = [one.at_s + (math.inf if one.for_s is None else one.for_s) for one in (self, other)]
        return self.link == other.link and self.at_s < ends_s[1] and other.at_s < ends_s[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """A fabric to be made. Every host has an uplink to every ToR of its rack, and every ToR to every spine.
    Raises ScenarioError for a bad value.

    name: name of the fabric. Fabrics with different names can be up together.
    hosts, tors: numbers of hosts and ToRs of all racks. storage: number of further hosts, whose role is
    storage. racks, spines: numbers of racks and of spines, which join racks. Racks have equally many ToRs.
    tenants: VXLAN network identifier (VNI) of each tenant. No tenant sees another's frames.
    endpoints: number of namespaces for applications per host and tenant.
    peer_link: whether the two ToRs of a rack have a link to each other, over which they route around lost
    uplinks.
    rate_bps: rate of every uplink in each direction, bit/s (None: as fast as the machine).
    mtu_bytes: MTU of the applications' devices, bytes.
    bfd: timers of every uplink.
    real_time: whether bfdd has real-time priority (SCHED_FIFO), and zebra and bgpd have nice −15.
    stock: whether FRR runs as its package has it: without real_time, and with the kernel's next-hop groups.
    fast_path: whether a process at every host and spine leaves a dead link before routing does.
    bfd_plane: whether our own process behind bfdd handles BFD's packets and timers in hosts and ToRs.
    rto_min_s: TCP's smallest retransmission timeout on the applications' routes, s (None: the kernel's 0.2).
    impairments: impairments of links. Their times count from the fabric's convergence.
    names: names of the hosts, ToRs and spines in the user's own topology; empty without one.
    """

    name: str = "fabric"
    hosts: int = 2
    tors: int = 2
    storage: int = 0
    tenants: tuple[int, ...] = (100,)
    endpoints: int = 1
    peer_link: bool = False
    rate_bps: float | None = None
    mtu_bytes: int = 1500
    bfd: BfdTimers = BfdTimers()  # noqa: RUF009  (frozen)
    real_time: bool = True
    stock: bool = False
    fast_path: bool = False
    bfd_plane: bool = False
    rto_min_s: float | None = None
    impairments: tuple[Impairment, ...] = ()
    racks: int = 1
    spines: int = 0
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # `run-…` would look like a container's network (testbed.containers.ownership).
        if not _NAME.fullmatch(self.name) or len(self.name) > LONGEST_NAME or self.name.startswith("run-"):
            raise ScenarioError(
                f"name: {self.name!r} cannot name a fabric; use 1 to {LONGEST_NAME} of a-z, 0-9 and single "
                "dashes between them, not beginning with run-"
            )
        _within("hosts", self.hosts, 2, MOST_HOSTS)
        _within("tors", self.tors, 2, MOST_TORS)
        _within("storage", self.storage, 0, MOST_HOSTS - self.hosts)
        if not 0 < len(self.tenants) == len({*self.tenants}) <= MOST_ENDPOINTS:
            raise ScenarioError(f"tenants: give 1 to {MOST_ENDPOINTS} VNIs, no two alike")
        for number, vni in enumerate(self.tenants):
            _within(f"tenants.{number}", vni, 1, MAX_VNI)
        _within("endpoints", self.endpoints, 1, MOST_ENDPOINTS // len(self.tenants))
        _within("racks", self.racks, 1, min(self.hosts, self.tors))
        _within("spines", self.spines, 0, MOST_SPINES)
        if self.tors % self.racks:
            raise ScenarioError(f"tors: {self.tors} do not fill {self.racks} racks; give a multiple of racks")
        if self.racks > 1 and not self.spines:
            raise ScenarioError(f"racks: {self.racks} cannot reach each other; give spines: 1 or more")
        if self.peer_link and self.tors != _PEERS * self.racks:
            raise ScenarioError(
                f"peer_link: joins the two ToRs of a rack; with tors: {self.tors} leave it out"
            )
        _within("mtu_bytes", self.mtu_bytes, *_MTU_BYTES)
        _within("bfd.multiplier", self.bfd.multiplier, 2, 255)
        _within("bfd.interval_s", self.bfd.interval_s, 0.01, 60.0)
        if self.rate_bps is not None:
            _within("rate_bps", self.rate_bps, 1e6, 1e12)
        if self.rto_min_s is not None:
            _within("rto_min_s", self.rto_min_s, 0.001, 10.0)
        for number, impairment in enumerate(self.impairments):
            key = f"impairments.{number}"
            self.check_link(impairment, f"{key}.link: ")
            if any(impairment.overlaps(other) for other in self.impairments[:number]):
                raise ScenarioError(f"{key}: {impairment.link} is impaired already then; let that end before")

    @property
    def uplinks(self) -> int:
        """Number of uplinks of every host, which is the number of ToRs in a rack."""
        return self.tors // self.racks

    def rack_of(self, host: int) -> int:
        """Return the rack of a host. Racks get hosts in order, and storage hosts likewise."""
        number, count = (host, self.hosts) if host < self.hosts else (host - self.hosts, self.storage)
        return number * self.racks // count

    def check_link(self, impairment: Impairment, place: str = "") -> None:
        """Raise ScenarioError if the fabric has no such link. place: prefix of the message."""
        link = f"{place}{impairment.link}: "
        _within(f"{link}tor", impairment.tor, 0, self.tors - 1)
        if impairment.spine is not None:
            if not self.spines:
                raise ScenarioError(
                    f"{link}this fabric has no spines; its links are those of hosts, as h0:tor0"
                )
            _within(f"{link}spine", impairment.spine, 0, self.spines - 1)
            return
        _within(f"{link}host", impairment.host, 0, self.hosts + self.storage - 1)
        first = self.rack_of(impairment.host) * self.uplinks
        _within(f"{place}h{impairment.host}:tor", impairment.tor, first, first + self.uplinks - 1)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An application's namespace with one device, as a VF would be.

    representor: other end of the device, in the host's namespace and its tenant's bridge. address: IPv4
    address. prefix_length: prefix length of the overlay's subnet. mac: MAC address of the device. vni: its
    tenant's.
    """

    namespace: str
    device: str
    representor: str
    address: str
    prefix_length: int
    mac: str
    vni: int


@dataclass(frozen=True, slots=True)
class Uplink:
    """A host's link to a ToR, or a ToR's link to a spine.

    device: device of the lower end. address, gateway: IPv4 addresses of the lower and of the upper end. tor:
    index of the ToR or spine. tor_device: port of the ToR or spine.
    """

    device: str
    address: str
    gateway: str
    tor: int
    tor_device: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A tenant's part of a host. tunnel: the VXLAN device, which is in the bridge."""

    vni: int
    bridge: str
    tunnel: str
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """A host.

    asn: its autonomous system number in BGP. loopback: IPv4 address of its tunnel endpoint. segments: its
    part of each tenant's network. storage: whether its role is storage."""

    namespace: str
    index: int
    asn: int
    loopback: str
    uplinks: tuple[Uplink, ...]
    segments: tuple[Segment, ...]
    storage: bool

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of all tenants."""
        return tuple(end for segment in self.segments for end in segment.endpoints)


@dataclass(frozen=True, slots=True)
class Tor:
    """A switch, a ToR or a spine. below: indices of the hosts below a ToR, or of the ToRs below a spine.
    ports: its devices to them. addresses: their IPv4 addresses. router_id: router id in BGP, as an IPv4
    address. loopback: the same at a spine, where its fast path can be reached; empty at a ToR.

    peer: IPv4 address of its end of the link to the other ToR, on the device PEER (None: no link). uplinks:
    a ToR's links to the spines.
    """

    namespace: str
    index: int
    asn: int
    router_id: str
    ports: tuple[str, ...]
    addresses: tuple[str, ...]
    peer: str | None
    below: tuple[int, ...]
    uplinks: tuple[Uplink, ...] = ()
    loopback: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices to hosts, ToRs and spines, without the peer link's."""
        return (*self.ports, *(uplink.device for uplink in self.uplinks))

    @property
    def neighbours(self) -> int:
        """Number of its neighbours in BGP."""
        return len(self.devices) + (self.peer is not None)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric's parts. They follow from the plan alone, so they are known before the fabric is up."""

    plan: Plan
    hosts: tuple[Host, ...]
    tors: tuple[Tor, ...]
    spines: tuple[Tor, ...] = ()

    @property
    def switches(self) -> tuple[Tor, ...]:
        """All ToRs and spines."""
        return (*self.tors, *self.spines)

    @property
    def own_names(self) -> dict[str, str]:
        """Name in the user's topology of each node, by the node's name here, as h0, t0 and s0."""
        namespaces = [host.namespace for host in self.hosts if not host.storage]
        namespaces += [switch.namespace for switch in self.switches]
        here = (namespace.rpartition("-")[2] for namespace in namespaces)
        return dict(zip(here, self.plan.names, strict=bool(self.plan.names)))

    @property
    def fast_paths(self) -> tuple[Host | Tor, ...]:
        """All parts that run a fast path, if the plan has it: those that choose among ToRs."""
        return (*self.hosts, *self.spines)

    @property
    def routers(self) -> tuple[Host | Tor, ...]:
        """All parts that run FRR."""
        return (*self.hosts, *self.switches)

    def to_tors(self, router: Host | Tor) -> tuple[tuple[str, str, int], ...]:
        """Return (device, IPv4 address of the far end, index of the ToR) of a host's or spine's links."""
        if isinstance(router, Host):
            return tuple((uplink.device, uplink.gateway, uplink.tor) for uplink in router.uplinks)
        ends = (self.tors[tor].uplinks[router.index].address for tor in router.below)
        return tuple(zip(router.ports, ends, router.below, strict=True))

    def above(self, router: Host | Tor) -> Iterator[tuple[Uplink, Tor]]:
        """Return a router's links to the switches above it: a host's to ToRs, and a ToR's to spines."""
        switches = self.tors if isinstance(router, Host) else self.spines
        return ((uplink, switches[uplink.tor]) for uplink in router.uplinks)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""
        endpoints = (end.namespace for host in self.hosts for end in host.endpoints)
        return (*(router.namespace for router in self.routers), *endpoints)


@dataclass(frozen=True, slots=True)
class DaemonFault:
    """FRR's daemons of one host or one ToR are killed. The kernel keeps forwarding by the routes that it has.

    host, tor: index of the host or of the ToR; exactly one of them is given (−1: not given).
    daemons: which daemons are killed.
    """

    host: int = -1
    tor: int = -1
    daemons: tuple[Daemon, ...] = tuple(Daemon)


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that took effect. It was requested at asked_ns and in force at at_ns (CLOCK_MONOTONIC, ns)."""

    fault: Fault | DaemonFault
    asked_ns: int
    at_ns: int


def _within(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ScenarioError(f"{key}: {value:.15g} is not possible; take {least:.15g} to {most:.15g}")
