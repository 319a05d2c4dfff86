"""Make a fabric's nodes and cables through Mininet's Python API; pyroute2 makes each veth pair.

For: namespaces and veth pairs. Not for: configuring them (devices.py). Source: Mininet's Node and Link.

Mininet's own nodes live in unnamed namespaces that end with their shell. Ours enter named namespaces, so that
a fabric outlives the process that made it. There are no switches and no controller, because ToRs are routers.
Mininet's global settings (Mininet.init: rmem_max and others) are not applied, so nothing has to be restored.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node

from testbed.fabric.links import environment_of, make_namespace
from testbed.fabric.model import PEER, Fabric, Host, Tor
from testbed.fabric.ownership import NAMESPACES
from testbed.fabric.rtnetlink import Rtnetlink

_FIRST_INDEX = 10
"""Lowest ifindex of a cable's end; the loopback device has 1."""


class _NamedNode(Node):  # type: ignore[misc]
    """A node whose namespace has the node's name."""

    def __init__(self, name: str, **parameters: Any) -> None:
        make_namespace(name)
        # With False, its shell does not make another namespace.
        super().__init__(name, inNamespace=False, **parameters)

    def _popen(self, cmd: list[str], **parameters: Any) -> subprocess.Popen[bytes]:
        entered = ["nsenter", f"--net={NAMESPACES / self.name}", *cmd]
        process: subprocess.Popen[bytes] = super()._popen(
            entered, env=environment_of(self.name), **parameters
        )
        return process


class _Plain(Intf):  # type: ignore[misc]
    """A device that is configured later, together with the other devices of its node."""

    def config(self, **_: Any) -> dict[str, str]:
        return {}


class _Cable(Link):  # type: ignore[misc]
    """A veth pair whose ends have different ifindex values.

    With equal values the kernel reports a lost carrier up to a second late (linkwatch_urgent_event in
    net/core/link_watch.c).
    """

    def __init__(self, *ends: Node, kernel: Rtnetlink, number: int, **parameters: Any) -> None:
        self._kernel, self._number = kernel, number
        super().__init__(*ends, **parameters)

    def makeIntfPair(  # noqa: N802  (as Mininet calls it)
        self, near: str, far: str, near_mac: str, far_mac: str, _: Node, far_node: Node, **__: Any
    ) -> None:
        """Make the pair. Raises BackendError if the kernel refuses."""
        index = _FIRST_INDEX + 2 * self._number
        end = [["IFLA_IFNAME", far], ["IFLA_ADDRESS", far_mac], ["IFLA_NET_NS_PID", far_node.pid]]
        # pyroute2's keyword `peer` has no place for the peer's index, which is in the header.
        data = {"attrs": [["VETH_INFO_PEER", {"index": index + 1, "attrs": end}]]}
        veth = {"attrs": [["IFLA_INFO_KIND", "veth"], ["IFLA_INFO_DATA", data]]}
        self._kernel("link", "add", near, index=index, address=near_mac, IFLA_LINKINFO=veth)


def build(fabric: Fabric) -> None:
    """Make all namespaces and cables. Raises BackendError if the kernel refuses one."""
    Mininet.inited = True
    net = Mininet(controller=None, build=False)
    try:
        nodes = {name: net.addHost(name, cls=_NamedNode) for name in fabric.namespaces}
        for router in fabric.routers:
            with Rtnetlink(router.namespace) as kernel:
                for far, names in _cables(fabric, router):
                    _link(net, kernel, nodes[router.namespace], nodes[far], names)
    finally:
        for node in net.hosts:
            node.terminate()


def _cables(fabric: Fabric, router: Host | Tor) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (namespace of the far end, names for Mininet) of the cables that are made from a router."""
    for uplink, switch in fabric.above(router):
        yield switch.namespace, {"intfName1": uplink.device, "intfName2": uplink.tor_device}
    if isinstance(router, Host):
        for end in router.endpoints:
            names = {"intfName1": end.representor, "intfName2": end.device, "addr2": end.mac}
            yield end.namespace, names
    elif router.peer and router.index % 2 == 0:
        yield fabric.tors[router.index + 1].namespace, {"intfName1": PEER, "intfName2": PEER}


def _link(net: Mininet, kernel: Rtnetlink, near: Node, far: Node, names: dict[str, str]) -> None:
    net.addLink(near, far, **names, cls=_Cable, kernel=kernel, number=len(net.links), intf=_Plain)
