"""Where rules are: the ingress of a representor (clsact), and the device that tunnelled frames leave by.

For: what both appliers share. Not for: the rules themselves. The device is VXLAN without a VNI of its own: it
takes VNI and remote from the frame's metadata. It cannot share its UDP port with the tenant's device, so it
has another one; where the rule cannot say the remote's port (BPF), one rule of nftables gives the packets the
usual one. So on the wire and at the receiver all is plain VXLAN. Sources: tc(8), linux/rtnetlink.h.
"""

from __future__ import annotations

import errno
import struct

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from testbed.containers.ownership import MARK
from testbed.fabric import nftables
from testbed.fabric.dumps import read_links
from testbed.fabric.netlink import Messages, Socket, attribute, name_of, request
from twinbed import BackendError

NEW_QDISC, NEW_FILTER, DELETE_FILTER, GET_FILTER = 36, 44, 45, 46
TC_HEADER = struct.Struct("=BxxxiIII")
TC_WORDS = 5
KIND, OPTIONS = 1, 2
"""TCA_KIND, TCA_OPTIONS."""

INGRESS = 0xFFFF_FFF2
"""TC_H_CLSACT and TC_H_MIN_INGRESS."""

CREATE, EXCLUSIVE, REPLACE = 0x400, 0x200, 0x100

WAY_OUT = "tbout"
VXLAN_PORT = 4789
_OWN_PORT = 4790
_CLSACT, _CLSACT_HANDLE = 0xFFFF_FFF1, 0xFFFF_0000
_TABLE = "twinbed_way_out"
_MOST_MTU_BYTES = 65_000
"""Of the way out: the routes' own decide."""


def filters(netlink: Socket, device: int) -> Messages:
    """All filters at the ingress of a device, none if it has no clsact. Raises OSError."""
    return netlink.dump(GET_FILTER, TC_HEADER.pack(0, device, 0, INGRESS, 0))


def ensure_clsact(netlink: Socket, device: int) -> None:
    """Gives the device an ingress to put filters on, unless it has one. Raises BackendError."""
    body = TC_HEADER.pack(0, device, _CLSACT_HANDLE, _CLSACT, 0) + attribute(KIND, b"clsact\0")
    for _, number in netlink.change(request(NEW_QDISC, CREATE | EXCLUSIVE, body), 1):
        if number != errno.EEXIST:
            raise BackendError(
                f"clsact on device {device}: refused ({name_of(number)}); needs root, the representor, and a "
                "kernel with sch_ingress"
            )


def ensure_way_out(netlink: Socket, *, usual_port: bool) -> int:
    """The ifindex of the device that tunnelled frames leave by, made if need be.

    usual_port: packets are given the usual port on their way. Raises BackendError where something else has
    the device's name, or the kernel or nft refuses.
    """
    found = next((link for link in read_links(netlink) if link.name == WAY_OUT), None)
    if found is None:
        _make_way_out()
        found = next(link for link in read_links(netlink) if link.name == WAY_OUT)
    elif not found.external or found.alias != MARK:
        raise BackendError(f"{WAY_OUT}: a device of this name is not ours; rename it, it is in the way")
    if usual_port:
        _give_usual_port()
    return found.ifindex


def _make_way_out() -> None:
    try:
        with IPRoute() as ip:
            ip.link(
                "add",
                ifname=WAY_OUT,
                kind="vxlan",
                vxlan_collect_metadata=1,
                vxlan_port=_OWN_PORT,
                mtu=65_000,
            )
            (index,) = ip.link_lookup(ifname=WAY_OUT)
            ip.link("set", index=index, IFLA_IFALIAS=MARK, state="up")
    except NetlinkError as error:
        raise BackendError(
            f"{WAY_OUT}: the kernel made no VXLAN device ({error}); needs root and a kernel with vxlan"
        ) from error


def _give_usual_port() -> None:
    """At once, whatever was there: a table of nftables with one rule for the port of the way out."""
    nftables.run(
        f"add table ip {_TABLE}\ndelete table ip {_TABLE}\ntable ip {_TABLE} {{\nchain out {{\n"
        f"type filter hook output priority raw\nudp dport {_OWN_PORT} udp dport set {VXLAN_PORT}\n}}\n}}\n"
    )
