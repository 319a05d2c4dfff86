"""Find the objects that an agent serves in its namespace: representors, tenants, and tunnel endpoint.

For: agents, which get no configuration of their namespace. Not for: making these objects. Source: our design.
A bridge with a VXLAN device belongs to a tenant; the bridge's other ports are its representors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.reconciler.model import Representors
from testbed.fabric.dumps import Link, read_links
from testbed.fabric.netlink import Socket
from twinbed import BackendError


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace's objects. tenants: (ifindex, VNI) of representors, ascending. local: VTEP (IPv4)."""

    tenants: tuple[tuple[int, int], ...]
    local: int

    @property
    def devices(self) -> tuple[int, ...]:
        """Interface indices of the representors."""
        return tuple(device for device, _ in self.tenants)

    @property
    def representors(self) -> Representors:
        """The representors in the reconciler's form."""
        devices = np.array(self.tenants, np.int64).reshape(-1, 2)
        return Representors(devices[:, 0], devices[:, 1])


def here() -> Place:
    """Return the place of this thread's namespace. Raises BackendError if there is nothing to serve."""
    with Socket() as netlink:
        return place_of(read_links(netlink))


def place_of(links: list[Link]) -> Place:
    """Return the place of a namespace with these devices. Raises BackendError as `here` does."""
    tunnels = [link for link in links if link.kind == "vxlan" and link.vni and link.master]
    local = {link.local for link in tunnels}
    if len(local) != 1 or 0 in local:
        raise BackendError(
            "agent: no bridge here has a VXLAN device with one local address; run it in a host's namespace, "
            "after twinbed testbed up"
        )
    tenants = {link.master: link.vni for link in tunnels}
    ports = [link for link in links if link.master in tenants and link.kind != "vxlan"]
    return Place(tuple(sorted((link.ifindex, tenants[link.master]) for link in ports)), local.pop())
