"""A fabric's nodes and cables, made through Mininet's Python API.

For: namespaces and veth pairs. Not for: what is configured on them (devices.py). Mininet's nodes live in
namespaces without a name that end with their shell; here they enter named ones, so that a fabric outlives the
process that made it. No switch and no controller: ToRs are routers. Mininet's global settings (Mininet.init:
rmem_max and others) are not applied, so there is nothing to put back.
"""

from __future__ import annotations

import subprocess
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node

from testbed.fabric.links import environment_of
from testbed.fabric.model import Fabric
from testbed.fabric.ownership import NAMESPACES
from twinbed import BackendError

_FIRST_INDEX = 10
"""Of devices: the loopback device has 1."""


class _NamedNode(Node):  # type: ignore[misc]
    """A node in a namespace that has the node's name."""

    def __init__(self, name: str, **parameters: Any) -> None:
        _ip("netns", "add", name)
        # False: its shell makes no namespace of its own.
        super().__init__(name, inNamespace=False, **parameters)

    def _popen(self, cmd: list[str], **parameters: Any) -> subprocess.Popen[bytes]:
        entered = ["nsenter", f"--net={NAMESPACES / self.name}", *cmd]
        process: subprocess.Popen[bytes] = super()._popen(
            entered, env=environment_of(self.name), **parameters
        )
        return process


class _Plain(Intf):  # type: ignore[misc]
    """A device that is configured later, together with all others of its node."""

    def config(self, **_: Any) -> dict[str, str]:
        return {}


class _Cable(Link):  # type: ignore[misc]
    """A veth pair whose ends differ in their index: otherwise the kernel reports a lost carrier up to
    a second late (linkwatch_urgent_event in net/core/link_watch.c)."""

    def __init__(self, *ends: Node, number: int, **parameters: Any) -> None:
        self._number = number
        super().__init__(*ends, **parameters)

    def makeIntfPair(  # noqa: N802  (as Mininet calls it)
        self, one: str, other: str, one_mac: str, other_mac: str, here: Node, there: Node, **_: Any
    ) -> None:
        """Makes it. Raises BackendError when the kernel refuses."""
        index = _FIRST_INDEX + 2 * self._number
        said = here.cmd(
            f"ip link add name {one} index {index} address {one_mac} type veth "
            f"peer name {other} index {index + 1} address {other_mac} netns {there.pid}"
        )
        if said:
            raise BackendError(
                f"link {one} of {here.name}: {said.strip()}; is there a testbed of that name already?"
            )


def build(fabric: Fabric) -> None:
    """Makes all namespaces and cables. Raises BackendError when the kernel refuses one."""
    Mininet.inited = True
    net = Mininet(controller=None, build=False)
    try:
        nodes = {name: net.addHost(name, cls=_NamedNode) for name in fabric.namespaces}
        for host in fabric.hosts:
            here = nodes[host.namespace]
            for up in host.uplinks:
                _link(net, (here, up.device), (nodes[fabric.tors[up.tor].namespace], up.tor_device))
            for end in host.endpoints:
                _link(net, (here, end.representor), (nodes[end.namespace], end.device), end.mac)
    finally:
        for node in net.hosts:
            node.terminate()


def _link(net: Mininet, one: tuple[Node, str], other: tuple[Node, str], other_mac: str | None = None) -> None:
    given: dict[str, Any] = {} if other_mac is None else {"addr2": other_mac}
    given |= {"cls": _Cable, "number": len(net.links), "intf": _Plain}
    net.addLink(one[0], other[0], intfName1=one[1], intfName2=other[1], **given)


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"ip {' '.join(arguments)}: {done.stderr.strip()}; a fabric needs root")
