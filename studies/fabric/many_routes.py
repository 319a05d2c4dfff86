"""Gives the bgpd of every router of a fabric many routes, which may slow the detection of faults.

For: `python -m studies detection --only routes`. Not for: the hosts' kernels, because a table map keeps the
routes in bgpd. The ToRs' bgpd take the routes from their kernel, which is faster than FRR's commands.
Source: FRR issue 9078 (a bgpd that is busy with a full table while sessions of BFD go down).
"""

from __future__ import annotations

import json
from ipaddress import IPv4Address

from lab.fabric.real.bench import configure, until
from testbed.fabric import frr
from testbed.fabric.links import output_of
from testbed.fabric.model import Daemon, Fabric, Host, Tor

COUNT = 100_000
_RANGE = "100.64.0.0/10"
"""Shared address space (RFC 6598), which no fabric uses for itself."""

_BATCH = 2_000
"""Routes that are made at once. zebra must read them before the next ones come, or it misses some."""

_WITHIN_S = 120.0


def load(fabric: Fabric, count: int = COUNT) -> None:
    """Announce `count` routes at every ToR, and return when every host has them. Raises BackendError."""
    in_bgpd = (
        f"ip prefix-list many permit {_RANGE} le 32",
        "route-map kernel deny 10",
        "match ip address prefix-list many",
        "route-map kernel permit 20",
    )
    for router in fabric.routers:
        neighbour = (f"router bgp {router.asn}", "address-family ipv4 unicast", "table-map kernel")
        given = () if isinstance(router, Host) else ("redistribute kernel",)
        configure(router.namespace, Daemon.BGPD, *in_bgpd, *neighbour, *given)
    first = int(IPv4Address(_RANGE.partition("/")[0]))
    routes = [f"route add {IPv4Address(first + number)}/32 dev lo\n" for number in range(count)]
    for begin in range(0, count, _BATCH):
        for tor in fabric.tors:
            output_of(tor.namespace, ("ip", "-batch", "-"), text="".join(routes[begin : begin + _BATCH]))
        made = min(begin + _BATCH, count)
        until(lambda: all(_read(tor, made) for tor in fabric.tors), _WITHIN_S, "zebra lacks routes")  # noqa: B023
    until(lambda: all(_has(host, count) for host in fabric.hosts), _WITHIN_S, "a host's bgpd lacks routes")


def _read(tor: Tor, count: int) -> bool:
    shown = json.loads(frr.show(tor.namespace, "show ip route summary json", Daemon.ZEBRA))
    return any(row["type"] == "kernel" and row["rib"] >= count for row in shown["routes"])


def _has(host: Host, count: int) -> bool:
    shown = json.loads(frr.show(host.namespace, "show bgp ipv4 unicast summary json", Daemon.BGPD))
    return all(peer["pfxRcd"] >= count for peer in shown["peers"].values())
