"""Read over which uplinks every host's kernel reaches every other host, in a fraction of a millisecond.

For: waiting for a failover, or for its end, without disturbing it. Not for: checking whether a fabric is
complete (up.converged checks more and costs more). Source: rtnetlink(7).
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

from testbed.fabric.fast_path.steering import Hop, Steering
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric


class Reach:
    """The routes between the hosts of a fabric that is up."""

    def __init__(self, fabric: Fabric) -> None:
        self._hosts = {host.index: int(IPv4Address(host.loopback)) for host in fabric.hosts}
        self._tables: dict[int, Steering] = {}
        self._uplinks = fabric.plan.tors
        for host in fabric.hosts:
            with in_namespace(host.namespace):
                self._tables[host.index] = Steering(
                    [
                        Hop(socket.if_nametoindex(uplink.device), int(IPv4Address(uplink.gateway)))
                        for uplink in host.uplinks
                    ]
                )

    def close(self) -> None:
        """Close the sockets."""
        for table in self._tables.values():
            table.shut()

    def whole(self) -> bool:
        """Return whether every host reaches every other over every uplink."""
        return all(len(hops) == self._uplinks for _, _, hops in self._all())

    def without(self, host: int, uplink: int) -> bool:
        """Return whether no route to or from a host uses its uplink any more."""
        return not any(uplink in hops for source, other, hops in self._all() if host in (source, other))

    def _all(self) -> list[tuple[int, int, frozenset[int]]]:
        """Return (host, other host, uplinks of the first) for all pairs."""
        pairs = []
        for host, table in self._tables.items():
            main, _ = table.read()
            pairs += [
                (host, other, main.get(address, frozenset()))
                for other, address in self._hosts.items()
                if other != host
            ]
        return pairs
