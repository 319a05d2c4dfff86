"""Configure a fabric's devices: addresses, overlay, applications' routes, rates, and chains for faults.

For: one namespace at a time. pyroute2 makes links, addresses and routes, `tc` rates, `nft` chains.
Not for: making namespaces and cables (topology.py) or routing (frr.py). Source: RFC 7348 (VXLAN), RFC 8365
§5.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

from control.fabric import VXLAN_OVERHEAD_BYTES
from testbed.fabric.links import output_of, write_sysctls
from testbed.fabric.model import PEER, VXLAN_PORT, Endpoint, Fabric, Host, Plan, Segment, Tor
from testbed.fabric.plan import UPLINK_PREFIX_LENGTH
from testbed.fabric.rtnetlink import Rtnetlink

TABLE = "twinbed"
"""Name of our nftables table in hosts and ToRs."""

LOST_OUT, LOST_IN = "lost_out", "lost_in"
"""Sets of a switch's ports that drop traffic: from below (LOST_OUT), and to below (LOST_IN)."""

NTF_MASTER, NUD_NOARP = 0x04, 0x40
"""linux/neighbour.h: an entry of the bridge above the device; an entry that does not age ("static")."""

LEAVES = ("parent 1:1", "parent 1:2")
"""Places of a shaped link's two queues: first routing's, then the applications'."""

_QUEUE_S = 0.05
"""Longest queue of a shaped link, s at its rate."""

_BURST_S = 0.004
"""Burst that a shaped link lets through, s at its rate: one tick of a kernel with HZ = 250."""

_CONTROL_SHARE = 0.05
"""Share of a shaped link's rate that is guaranteed to routing; applications may use what routing leaves."""

_QUIET = {
    "ipv6/conf/all/disable_ipv6": 1,
    "ipv6/conf/default/disable_ipv6": 1,
}
_ROUTING = {
    **_QUIET,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
    # The kernel does not use a next hop without carrier, even before the route is changed.
    "ipv4/conf/all/ignore_routes_with_linkdown": 1,
    "ipv4/conf/default/ignore_routes_with_linkdown": 1,
    # Paths are chosen by UDP ports, which differ between tunnelled flows.
    "ipv4/fib_multipath_hash_policy": 1,
}


_SEED = "ipv4/fib_multipath_hash_seed"
"""Setting of Linux 6.11 and later: the seed with which a router chooses among equal paths."""


def set_up(fabric: Fabric, part: Host | Tor | Endpoint) -> None:
    """Configure one namespace completely, except for FRR. Raises BackendError at the first refusal."""
    plan = fabric.plan
    routes = not isinstance(part, Endpoint)
    forwards = {"ipv4/ip_forward": int(isinstance(part, Tor))}
    write_sysctls(part.namespace, {**_ROUTING, **forwards} if routes else _QUIET)
    if plan.spines and isinstance(part, Tor) and Path("/proc/sys/net", _SEED).exists():
        # With one seed all switches choose alike, and half of the links to spines carry nothing.
        write_sysctls(part.namespace, {_SEED: int(IPv4Address(part.router_id))})
    with Rtnetlink(part.namespace) as kernel:
        kernel("link", "set", "lo", state="up")
        if isinstance(part, Endpoint):
            _endpoint(kernel, plan, part)
            return
        if part.loopback:
            kernel("addr", "add", "lo", address=part.loopback, prefixlen=32)
        if isinstance(part, Host):
            uplinks = [(uplink.device, uplink.address) for uplink in part.uplinks]
        else:
            uplinks = list(zip(part.ports, part.addresses, strict=True))
            uplinks += [(uplink.device, uplink.address) for uplink in part.uplinks]
            uplinks += [(PEER, part.peer)] if part.peer else []
        for device, address in uplinks:
            kernel("link", "set", device, mtu=_uplink_mtu(plan))
            kernel("addr", "add", device, address=address, prefixlen=UPLINK_PREFIX_LENGTH)
            kernel("link", "set", device, state="up")
        if isinstance(part, Host):
            for segment in part.segments:
                _overlay(kernel, plan, part, segment)
    chains = _spread(part) if isinstance(part, Host) else _faults(part)
    output_of(part.namespace, ("nft", "-f", "-"), text=chains)
    shape(plan, part.namespace, [device for device, _ in uplinks])


def admit(
    kernel: Rtnetlink, bridge: str, device: str, mac: str, address: str, mtu_bytes: int, verb: str = "add"
) -> None:
    """Make a device a representor: put it into a tenant's bridge and announce its application's address.

    verb: "add", or "replace" if entries may be left over from an earlier device.
    """
    kernel("link", "set", device, mtu=mtu_bytes, master=kernel.index(bridge), state="up")
    # EVPN announces this entry (type 2), so that other hosts need not ask by broadcast.
    kernel("neigh", verb, bridge, dst=address, lladdr=mac, state="permanent")
    # This entry is static. A learned entry would expire without traffic, and its type-2 route would
    # disappear.
    kernel("fdb", verb, device, lladdr=mac, state=NUD_NOARP, flags=NTF_MASTER)


def _overlay(kernel: Rtnetlink, plan: Plan, host: Host, segment: Segment) -> None:
    # The bridge gets an address of its own. Otherwise it would take one of its ports', and lose all its
    # neighbours whenever that changes.
    address = f"02:01:00:00:00:{host.index:02x}"
    bridge = {"kind": "bridge", "br_stp_state": 0, "br_mcast_snooping": 0}
    kernel("link", "add", segment.bridge, address=address, **bridge)
    tunnel = {"kind": "vxlan", "vxlan_id": segment.vni, "vxlan_local": host.loopback}
    kernel("link", "add", segment.tunnel, **tunnel, vxlan_port=VXLAN_PORT, vxlan_learning=0)
    kernel("link", "set", segment.tunnel, mtu=plan.mtu_bytes, master=kernel.index(segment.bridge))
    kernel("brport", "set", segment.tunnel, neigh_suppress=1, learning=0)
    kernel("link", "set", segment.bridge, state="up")
    kernel("link", "set", segment.tunnel, state="up")
    for end in segment.endpoints:
        admit(kernel, segment.bridge, end.representor, end.mac, end.address, plan.mtu_bytes)


def _endpoint(kernel: Rtnetlink, plan: Plan, end: Endpoint) -> None:
    kernel("link", "set", end.device, mtu=plan.mtu_bytes, state="up")
    kernel("addr", "add", end.device, address=end.address, prefixlen=end.prefix_length)
    if plan.rto_min_s is not None:
        subnet = ip_interface(f"{end.address}/{end.prefix_length}").network
        route = {"dst": str(subnet), "proto": "kernel", "scope": "link", "prefsrc": end.address}
        kernel("route", "replace", end.device, **route, metrics={"rto_min": round(plan.rto_min_s * 1e3)})


def _uplink_mtu(plan: Plan) -> int:
    return plan.mtu_bytes + VXLAN_OVERHEAD_BYTES


def shape(plan: Plan, namespace: str, uplinks: Sequence[str]) -> None:
    """Give devices the plan's rate, if it has one. Raises BackendError if the machine refuses."""
    if plan.rate_bps is not None:
        lines = [line for device in uplinks for line in _rate(device, plan.rate_bps, _uplink_mtu(plan))]
        output_of(namespace, ("tc", "-batch", "-"), text="\n".join([*lines, ""]))


def _rate(device: str, rate_bps: float, mtu_bytes: int) -> list[str]:
    """Return tc's commands for a shaped device with two classes.

    Routing's own packets (DSCP CS6, as FRR marks BFD and BGP) neither wait behind applications' packets nor
    are dropped with them. Switches have such a class as well.
    """
    burst_bytes = max(round(rate_bps / 8 * _BURST_S), 10 * mtu_bytes)
    own_bps = rate_bps * _CONTROL_SHARE
    burst = f"burst {burst_bytes} cburst {burst_bytes}"
    shared = f"ceil {rate_bps:.0f}bit {burst}"
    return [
        f"qdisc add dev {device} root handle 1: htb default 2",
        f"class add dev {device} parent 1: classid 1:9 htb rate {rate_bps:.0f}bit {shared}",
        f"class add dev {device} parent 1:9 classid 1:1 htb rate {own_bps:.0f}bit {shared} prio 0",
        f"class add dev {device} parent 1:9 classid 1:2 htb rate {rate_bps - own_bps:.0f}bit {shared} prio 1",
        _queue(device, rate_bps, mtu_bytes),
        f"filter add dev {device} parent 1: protocol ip u32 match ip tos 0xc0 0xff flowid 1:1",
    ]


def _queue(device: str, rate_bps: float, mtu_bytes: int) -> str:
    queue_bytes = max(round(rate_bps / 8 * _QUEUE_S), 20 * mtu_bytes)
    return f"qdisc replace dev {device} {LEAVES[1]} bfifo limit {queue_bytes}"


def whole(plan: Plan, device: str) -> str:
    """Return tc's commands that remove netem (faults.degrade) and restore what an uplink had before."""
    if plan.rate_bps is None:
        return f"qdisc del dev {device} root\n"
    return f"qdisc del dev {device} {LEAVES[0]}\n{_queue(device, plan.rate_bps, _uplink_mtu(plan))}\n"


def _spread(host: Host) -> str:
    """Return the chain that marks applications' packets.

    VXLAN caches one route per remote host for packets without a mark, so all flows would take one uplink.
    """
    devices = ", ".join(end.representor for end in host.endpoints)
    return f"""
table netdev {TABLE} {{
    chain spread {{
        type filter hook ingress devices = {{ {devices} }} priority 0
        meta mark set 1
    }}
}}
"""


def _faults(tor: Tor) -> str:
    """Return chains that drop what crosses the ports in a set, so that a fault is one element (faults.py)."""
    ports = ", ".join(tor.devices)
    return f"""
table netdev {TABLE} {{
    set {LOST_OUT} {{
        type ifname
    }}
    set {LOST_IN} {{
        type ifname
    }}
    chain out {{
        type filter hook ingress devices = {{ {ports} }} priority -300
        iifname @{LOST_OUT} drop
    }}
    chain in {{
        type filter hook egress devices = {{ {ports} }} priority 300
        oifname @{LOST_IN} drop
    }}
}}
"""
