"""By which uplinks every host's kernel reaches every other, asked in a fraction of a millisecond.

For: waiting for a failover or its end without disturbing it. Not for: whether a fabric is complete
(up.converged), which asks for more and costs more.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

from testbed.fabric.fast_path.steering import Hop, Steering
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric


class Reach:
    """Of a fabric that is up."""

    def __init__(self, fabric: Fabric) -> None:
        self._hosts = {host.index: int(IPv4Address(host.loopback)) for host in fabric.hosts}
        self._tables: dict[int, Steering] = {}
        self._uplinks = fabric.plan.tors
        for host in fabric.hosts:
            with in_namespace(host.namespace):
                self._tables[host.index] = Steering(
                    [
                        Hop(socket.if_nametoindex(each.device), int(IPv4Address(each.gateway)))
                        for each in host.uplinks
                    ]
                )

    def close(self) -> None:
        """Gives the sockets back."""
        for each in self._tables.values():
            each.shut()

    def whole(self) -> bool:
        """Whether everybody reaches everybody by every uplink."""
        return all(len(hops) == self._uplinks for _, _, hops in self._all())

    def without(self, host: int, uplink: int) -> bool:
        """Whether nobody's routes to or from a host use its uplink any more."""
        return not any(uplink in hops for here, other, hops in self._all() if host in (here, other))

    def _all(self) -> list[tuple[int, int, frozenset[int]]]:
        """(host, other host, uplinks of the first)."""
        found = []
        for here, table in self._tables.items():
            main, _ = table.read()
            found += [
                (here, other, main.get(address, frozenset()))
                for other, address in self._hosts.items()
                if other != here
            ]
        return found
