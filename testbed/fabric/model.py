"""The real fabric's vocabulary: what is asked for (Plan), what is up (Fabric), what was broken (Injected).

For: every module of the testbed's fabric and those who measure on it. Not for: making any of it (up.py) nor
breaking it (faults.py). Links, faults and directions are those of `control.fabric`. Times are seconds, rates
bits per second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from control.fabric import MAX_VNI, BfdTimers, Fault
from twinbed import ScenarioError

MOST_HOSTS, MOST_TORS, MOST_ENDPOINTS = 200, 8, 50
"""What the plan of addresses has room for (plan.py)."""

LONGEST_NAME = 20
_NAME = re.compile(r"[a-z0-9](-?[a-z0-9])*")
_MTU_BYTES = (1280, 9000)


class Daemon(StrEnum):
    """FRR's daemons in every host and ToR, in the order in which they start."""

    ZEBRA = "zebra"
    BFDD = "bfdd"
    BGPD = "bgpd"


@dataclass(frozen=True, slots=True)
class Plan:
    """A fabric to be: every host has an uplink to every ToR, and `endpoints` namespaces for applications.

    name: several stand side by side under different names; vni: of the overlay; rate_bps: of every uplink,
    both ways (None: as fast as the machine); mtu_bytes: of the applications' devices; bfd: of every uplink;
    real_time: bfdd is scheduled before everything (SCHED_FIFO), zebra and bgpd at nice −15; stock: FRR as its
    package has it, so that real_time does not count and the kernel's next-hop groups are used; fast_path: at
    every host a process turns away from a dead uplink before routing does; rto_min_s: TCP's least
    retransmission timeout on the applications' routes (None: the kernel's 0.2). Raises ScenarioError for
    what cannot be made.
    """

    name: str = "fabric"
    hosts: int = 2
    tors: int = 2
    endpoints: int = 1
    vni: int = 100
    rate_bps: float | None = None
    mtu_bytes: int = 1500
    bfd: BfdTimers = BfdTimers()  # noqa: RUF009  (frozen)
    real_time: bool = True
    stock: bool = False
    fast_path: bool = False
    rto_min_s: float | None = None

    def __post_init__(self) -> None:
        # `run-…` would be taken for a container's network (testbed.containers.ownership).
        if not _NAME.fullmatch(self.name) or len(self.name) > LONGEST_NAME or self.name.startswith("run-"):
            raise ScenarioError(
                f"name: {self.name!r} cannot name a fabric: take 1 to {LONGEST_NAME} of a-z, 0-9 and single "
                "dashes between them, not beginning with run-"
            )
        _within("hosts", self.hosts, 2, MOST_HOSTS)
        _within("tors", self.tors, 2, MOST_TORS)
        _within("endpoints", self.endpoints, 1, MOST_ENDPOINTS)
        _within("vni", self.vni, 1, MAX_VNI)
        _within("mtu_bytes", self.mtu_bytes, *_MTU_BYTES)
        _within("bfd.multiplier", self.bfd.multiplier, 2, 255)
        _within("bfd.interval_s", self.bfd.interval_s, 0.01, 60.0)
        if self.rate_bps is not None:
            _within("rate_bps", self.rate_bps, 1e6, 1e12)
        if self.rto_min_s is not None:
            _within("rto_min_s", self.rto_min_s, 0.001, 10.0)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An application's place: a namespace with one device, as a VF would be. representor: the device's other
    end, in the host's namespace and its bridge. address: IPv4, prefix_length that of the overlay's subnet."""

    namespace: str
    device: str
    representor: str
    address: str
    prefix_length: int
    mac: str


@dataclass(frozen=True, slots=True)
class Uplink:
    """A host's link to a ToR. address, gateway: IPv4 of the host's and the ToR's end; tor: its index;
    tor_device: the ToR's port."""

    device: str
    address: str
    gateway: str
    tor: int
    tor_device: str


@dataclass(frozen=True, slots=True)
class Host:
    """loopback: IPv4, its tunnel endpoint; bridge, tunnel: devices, the latter VXLAN and in the former."""

    namespace: str
    index: int
    asn: int
    loopback: str
    uplinks: tuple[Uplink, ...]
    bridge: str
    tunnel: str
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Tor:
    """ports: devices, by the host's index; addresses: IPv4 of each; router_id: in the form of one."""

    namespace: str
    index: int
    asn: int
    router_id: str
    ports: tuple[str, ...]
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric by its parts; made from a plan alone, so that it can be known before it is there."""

    plan: Plan
    hosts: tuple[Host, ...]
    tors: tuple[Tor, ...]

    @property
    def routers(self) -> tuple[Host | Tor, ...]:
        """Everything that runs FRR."""
        return (*self.hosts, *self.tors)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All of them."""
        endpoints = (end.namespace for host in self.hosts for end in host.endpoints)
        return (*(each.namespace for each in self.routers), *endpoints)


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
    """A fault that took effect: it was asked for at asked_ns and in force at at_ns (CLOCK_MONOTONIC)."""

    fault: Fault | DaemonFault
    asked_ns: int
    at_ns: int


def _within(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ScenarioError(f"{key}: {value:g} is not possible; take {least:g} to {most:g}")
