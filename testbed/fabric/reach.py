"""Read by which ToRs hosts are reached, from the kernels of hosts and spines, in a fraction of a millisecond.

For: waiting for a failover, or for its end, without disturbing it. Not for: checking whether a fabric is
complete (up.converged checks more and costs more). Source: rtnetlink(7).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address

from testbed.fabric.fast_path.steering import Hop, Steering
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric, Host, Tor


class Reach:
    """The routes to the hosts of a fabric that is up, at every other host and at every spine."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._tables: list[tuple[Steering, list[int]]] = []
        for router in fabric.fast_paths:
            links = fabric.to_tors(router)
            with in_namespace(router.namespace):
                hops = [Hop(socket.if_nametoindex(device), int(IPv4Address(far))) for device, far, _ in links]
                self._tables.append((Steering(hops), [tor for *_, tor in links]))

    def close(self) -> None:
        """Close the sockets."""
        for table, _ in self._tables:
            table.shut()

    def whole(self) -> bool:
        """Return whether every host and spine reaches every other host by as many ToRs as a rack has."""
        return all(len(tors) == self._fabric.plan.uplinks for _, _, tors in self._all())

    def without(self, host: int, uplink: int) -> bool:
        """Return whether no route to or from a host uses its uplink any more."""
        ends, tor = self._fabric.hosts[host], self._fabric.hosts[host].uplinks[uplink].tor
        return not any(tor in tors for router, other, tors in self._all() if ends in (router, other))

    def _all(self) -> Iterator[tuple[Host | Tor, Host, set[int]]]:
        """Yield (router, host, ToRs by which the router reaches it) for all pairs."""
        for router, (table, tors) in zip(self._fabric.fast_paths, self._tables, strict=True):
            main, _ = table.read()
            for host in self._fabric.hosts:
                if host is not router:
                    hops = main.get(int(IPv4Address(host.loopback)), frozenset())
                    yield router, host, {tors[hop] for hop in hops}
