"""Derive a fabric's parts from its plan alone: names, addresses and AS numbers.

For: knowing a fabric before it is up, and finding it again later. Not for: making it (up.py). Source: RFC
6996, RFC 3021. Every namespace is named `tb-<plan's name>-…`. Addresses exist inside the namespaces only, so
several fabrics can have the same ones.
"""

from __future__ import annotations

from testbed.fabric.model import Endpoint, Fabric, Host, Plan, Segment, Tor, Uplink
from testbed.fabric.ownership import namespace

_FIRST_HOST_ASN, _FIRST_TOR_ASN, _SPINE_ASN = 65_100, 64_512, 64_600
"""Private AS numbers (RFC 6996) of two octets, so that route targets derived from them are not truncated. All
spines have one, so that no path leads down to a ToR and up again (RFC 7938 §5.2.1)."""

OVERLAY_PREFIX_LENGTH = 16
UPLINK_PREFIX_LENGTH = 31


def fabric_of(plan: Plan) -> Fabric:
    """Return the parts of a fabric."""
    hosts = tuple(_host(plan, index) for index in range(plan.hosts + plan.storage))
    tors = tuple(_tor(plan, index) for index in range(plan.tors))
    return Fabric(plan, hosts, tors, tuple(_spine(plan, index) for index in range(plan.spines)))


def _host(plan: Plan, index: int) -> Host:
    first = plan.rack_of(index) * plan.uplinks
    uplinks = tuple(
        Uplink(f"tor{tor}", _uplink_address(tor, index, 1), _uplink_address(tor, index, 0), tor, _port(index))
        for tor in range(first, first + plan.uplinks)
    )
    return Host(
        namespace(plan.name, f"h{index}"),
        index,
        _FIRST_HOST_ASN + index,
        f"10.255.0.{index + 1}",
        uplinks,
        tuple(_segment(plan, index, tenant) for tenant in range(len(plan.tenants))),
        storage=index >= plan.hosts,
    )


def _segment(plan: Plan, host: int, tenant: int) -> Segment:
    vni, first = plan.tenants[tenant], tenant * plan.endpoints
    numbers = range(first, first + plan.endpoints)
    return Segment(
        vni, f"br{vni}", f"vx{vni}", tuple(_endpoint(plan, host, number, vni) for number in numbers)
    )


def _endpoint(plan: Plan, host: int, number: int, vni: int) -> Endpoint:
    return Endpoint(
        namespace(plan.name, f"h{host}e{number}"),
        "eth0",
        f"vf{number}",
        f"10.0.{host + 1}.{number + 1}",
        OVERLAY_PREFIX_LENGTH,
        f"02:00:00:00:{host:02x}:{number + 1:02x}",
        vni,
    )


def _tor(plan: Plan, index: int) -> Tor:
    rack = index // plan.uplinks
    hosts = [host for host in range(plan.hosts + plan.storage) if plan.rack_of(host) == rack]
    return Tor(
        namespace(plan.name, f"t{index}"),
        index,
        _FIRST_TOR_ASN + index,
        f"10.254.0.{index + 1}",
        tuple(_port(host) for host in hosts),
        tuple(_uplink_address(index, host, 0) for host in hosts),
        f"172.31.0.{index}" if plan.peer_link else None,
        tuple(hosts),
        tuple(
            Uplink(
                f"spine{spine}",
                _spine_address(spine, index, 1),
                _spine_address(spine, index, 0),
                spine,
                f"tor{index}",
            )
            for spine in range(plan.spines)
        ),
    )


def _spine(plan: Plan, index: int) -> Tor:
    tors = range(plan.tors)
    return Tor(
        namespace(plan.name, f"s{index}"),
        index,
        _SPINE_ASN,
        f"10.253.0.{index + 1}",
        tuple(f"tor{tor}" for tor in tors),
        tuple(_spine_address(index, tor, 0) for tor in tors),
        None,
        tuple(tors),
        loopback=f"10.253.0.{index + 1}",
    )


def _port(host: int) -> str:
    return f"host{host}"


def _uplink_address(tor: int, host: int, end: int) -> str:
    """Return an address of a link. end: 0: the ToR's, 1: the host's (RFC 3021: both of a /31 are usable)."""
    number = 2 * host + end
    return f"172.{16 + tor}.{number // 256}.{number % 256}"


def _spine_address(spine: int, tor: int, end: int) -> str:
    """Return an address of a ToR's link to a spine. end: 0: the spine's, 1: the ToR's."""
    return f"172.30.{spine}.{2 * tor + end}"
