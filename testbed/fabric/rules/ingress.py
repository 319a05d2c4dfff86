"""The ingress of a representor (clsact), and the device over which tunnelled frames leave (the way out).

For: parts that both appliers share. Not for: the rules themselves. Source: tc(8), linux/rtnetlink.h.

The way out is a VXLAN device without a VNI of its own: it takes VNI and remote from the frame's metadata. It
cannot share its UDP port with the tenant's device, so it has another one. If a rule cannot set the remote's
port (BPF), one nftables rule gives the packets the usual port. So on the wire and at the receiver everything
is plain VXLAN.
"""

from __future__ import annotations

import errno
import struct

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from testbed.containers.ownership import MARK
from testbed.fabric import nftables
from testbed.fabric.dumps import read_links
from testbed.fabric.model import VXLAN_PORT
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
_OWN_PORT = 4790
_CLSACT, _CLSACT_HANDLE = 0xFFFF_FFF1, 0xFFFF_0000
_TABLE = "twinbed_way_out"
_MOST_MTU_BYTES = 65_000
"""MTU of the way out, bytes. It is so large that the MTU of the uplinks decides."""


def filters(netlink: Socket, device: int) -> Messages:
    """Return all filters at the ingress of a device; none if it has no clsact. Raises OSError."""
    return netlink.dump(GET_FILTER, TC_HEADER.pack(0, device, 0, INGRESS, 0))


def ensure_clsact(netlink: Socket, device: int) -> None:
    """Give the device an ingress for filters, unless it has one. Raises BackendError."""
    body = TC_HEADER.pack(0, device, _CLSACT_HANDLE, _CLSACT, 0) + attribute(KIND, b"clsact\0")
    for _, number in netlink.change(request(NEW_QDISC, CREATE | EXCLUSIVE, body), 1):
        if number != errno.EEXIST:
            raise BackendError(
                f"clsact on device {device}: refused ({name_of(number)}); needs root, the representor, and a "
                "kernel with sch_ingress"
            )


def ensure_way_out(netlink: Socket, *, usual_port: bool) -> int:
    """Return the ifindex of the way out. Makes the device if it does not exist.

    usual_port: whether an nftables rule gives its packets the usual port. Raises BackendError if another
    device has its name, or the kernel or nft refuses.
    """
    way_out = next((link for link in read_links(netlink) if link.name == WAY_OUT), None)
    if way_out is None:
        _make_way_out()
        way_out = next(link for link in read_links(netlink) if link.name == WAY_OUT)
    elif not way_out.external or way_out.alias != MARK:
        raise BackendError(f"{WAY_OUT}: a device of this name exists and is not ours; rename it")
    if usual_port:
        _give_usual_port()
    return way_out.ifindex


def _make_way_out() -> None:
    try:
        with IPRoute() as ip:
            vxlan = {"kind": "vxlan", "vxlan_collect_metadata": 1, "vxlan_port": _OWN_PORT}
            ip.link("add", ifname=WAY_OUT, mtu=_MOST_MTU_BYTES, **vxlan)
            (index,) = ip.link_lookup(ifname=WAY_OUT)
            ip.link("set", index=index, IFLA_IFALIAS=MARK, state="up")
    except NetlinkError as error:
        raise BackendError(
            f"{WAY_OUT}: the kernel made no VXLAN device ({error}); needs root and a kernel with vxlan"
        ) from error


def _give_usual_port() -> None:
    """Replace our nftables table by one with the rule that sets the port, as one transaction.

    The rule writes the port's two bytes and nothing else. `udp dport set` would also correct the checksum,
    and so turn 0, which means none, into a wrong one where the inner frame's checksum is complete already.
    """
    nftables.run(
        f"add table ip {_TABLE}\ndelete table ip {_TABLE}\ntable ip {_TABLE} {{\nchain out {{\n"
        f"type filter hook output priority raw\nudp dport {_OWN_PORT} @th,16,16 set {VXLAN_PORT}\n}}\n}}\n"
    )
