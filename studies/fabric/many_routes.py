"""Gives the bgpd of every router of a fabric many routes, to see whether detection suffers.

For: `python -m studies detection --only routes`. Not for: the kernel, which gets none of them: a table map
keeps them in bgpd. Source: FRR issue 9078 (a bgpd that is busy with a full table while sessions of BFD go
down).
"""

from __future__ import annotations

import json
import tempfile
from ipaddress import IPv4Address

from lab.fabric.real.bench import until
from testbed.fabric import frr
from testbed.fabric.links import run_in
from testbed.fabric.model import Daemon, Fabric, Host, Tor
from twinbed import BackendError

COUNT = 100_000
_RANGE = "100.64.0.0/10"
"""Shared address space (RFC 6598), which no fabric uses for itself."""

_WITHIN_S = 120.0


def load(fabric: Fabric, count: int = COUNT) -> None:
    """Announce `count` routes at every ToR, and return when every host has them. Raises BackendError."""
    for router in fabric.routers:
        _command(router, _kept_in_bgpd(router))
    first = int(IPv4Address(_RANGE.partition("/")[0]))
    networks = [f"network {IPv4Address(first + number)}/32" for number in range(count)]
    for tor in fabric.tors:
        _command(
            tor, [f"router bgp {tor.asn}", "no bgp network import-check", "address-family ipv4", *networks]
        )
    until(lambda: all(_has(host, count) for host in fabric.hosts), _WITHIN_S, "bgpd lacks routes")


def _kept_in_bgpd(router: Host | Tor) -> list[str]:
    return [
        f"ip prefix-list many seq 5 permit {_RANGE} le 32",
        "route-map kernel deny 10",
        "match ip address prefix-list many",
        "exit",
        "route-map kernel permit 20",
        "exit",
        f"router bgp {router.asn}",
        "address-family ipv4",
        "table-map kernel",
    ]


def _command(router: Host | Tor, lines: list[str]) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="twinbed-", suffix=".conf") as file:
        file.write("\n".join([*lines, "end", ""]))
        file.flush()
        words = ("vtysh", "-N", router.namespace, "-d", str(Daemon.BGPD), "-f", file.name)
        done = run_in(router.namespace, words, timeout_s=_WITHIN_S)
    if done.returncode:
        raise BackendError(f"bgpd in {router.namespace}: {done.stdout.strip()}{done.stderr.strip()}")


def _has(host: Host, count: int) -> bool:
    shown = json.loads(frr.show(host.namespace, "show bgp ipv4 unicast summary json", Daemon.BGPD))
    return all(peer["pfxRcd"] >= count for peer in shown["peers"].values())
