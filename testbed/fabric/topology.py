"""A fabric's nodes and cables, made through Mininet's Python API.

For: namespaces and veth pairs. Not for: what is configured on them (devices.py). Mininet's nodes live in
namespaces without a name that end with their shell; here they enter named ones, so that a fabric outlives the
process that made it. No switch and no controller: ToRs are routers. Mininet's global settings (Mininet.init:
rmem_max and others) are not applied, so there is nothing to put back.
"""

from __future__ import annotations

import subprocess
from typing import Any

from mininet.link import Intf
from mininet.net import Mininet
from mininet.node import Node

from testbed.fabric.links import environment_of
from testbed.fabric.model import Fabric
from testbed.fabric.ownership import NAMESPACES
from twinbed import BackendError


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
    given = {} if other_mac is None else {"addr2": other_mac}
    try:
        net.addLink(one[0], other[0], intfName1=one[1], intfName2=other[1], intf=_Plain, **given)
    except Exception as error:  # Mininet raises nothing more precise
        raise BackendError(
            f"link {one[1]} of {one[0].name}: {error}; is there a testbed of that name already?"
        ) from error


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"ip {' '.join(arguments)}: {done.stderr.strip()}; a fabric needs root")
