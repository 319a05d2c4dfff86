"""What is set on a fabric's devices: addresses, the overlay, applications' routes, rates, chains for faults.

For: one namespace at a time, as a reader could type it (`ip -batch`, `tc -batch`, `nft -f`). Not for: making
namespaces and cables (topology.py) nor routing (frr.py). Sources: RFC 7348 (VXLAN), RFC 8365 section 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.fabric import VXLAN_OVERHEAD_BYTES
from testbed.fabric.links import run_in, write_sysctls
from testbed.fabric.model import Endpoint, Fabric, Host, Plan, Tor
from testbed.fabric.plan import UPLINK_PREFIX_LENGTH
from twinbed import BackendError

TABLE = "twinbed"
"""Of nftables, in hosts and ToRs; nothing else there is ours."""

LOST_OUT, LOST_IN = "lost_out", "lost_in"
"""Sets of a ToR's ports that drop what hosts send, and what they are sent."""

_QUEUE_S = 0.05
_BURST_S = 0.004
"""What a shaped link holds back, and lets through at once: a tick of a kernel with HZ = 250."""

_CONTROL_SHARE = 0.05
"""Of a shaped link's rate, for routing; what it leaves over is the applications'."""

_QUIET = {
    "ipv6/conf/all/disable_ipv6": 1,
    "ipv6/conf/default/disable_ipv6": 1,
}
_ROUTING = {
    **_QUIET,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
    # A next hop without carrier is not taken, before anybody has changed the route.
    "ipv4/conf/all/ignore_routes_with_linkdown": 1,
    "ipv4/conf/default/ignore_routes_with_linkdown": 1,
    # Of flows by their ports, which tell tunnelled flows apart.
    "ipv4/fib_multipath_hash_policy": 1,
}


def set_up(fabric: Fabric, part: Host | Tor | Endpoint) -> None:
    """Everything of one namespace but FRR. Raises BackendError for the first thing that is refused."""
    plan = fabric.plan
    if isinstance(part, Endpoint):
        write_sysctls(part.namespace, _QUIET)
        _batch("ip", part.namespace, _endpoint(plan, part))
        return
    forwards = isinstance(part, Tor)
    write_sysctls(part.namespace, {**_ROUTING, "ipv4/ip_forward": int(forwards)})
    if isinstance(part, Host):
        _batch("ip", part.namespace, _host(fabric, part))
        _batch("bridge", part.namespace, _pinned(part))
        _load(part.namespace, _spread(part))
        shaped: Sequence[str] = [each.device for each in part.uplinks]
    else:
        _batch("ip", part.namespace, _tor(plan, part))
        _load(part.namespace, _faults(part))
        shaped = part.ports
    if plan.rate_bps is not None:
        lines = [line for each in shaped for line in _rate(each, plan.rate_bps, _uplink_mtu(plan))]
        _batch("tc", part.namespace, lines)


def _host(fabric: Fabric, host: Host) -> list[str]:
    plan = fabric.plan
    lines = ["link set lo up", f"address add {host.loopback}/32 dev lo"]
    for up in host.uplinks:
        lines += _uplink(plan, up.device, up.address)
    address = f"02:01:00:00:00:{host.index:02x}"
    lines += [
        # An address of its own: one that follows its ports' takes all its neighbours along when it changes.
        f"link add {host.bridge} address {address} type bridge stp_state 0 mcast_snooping 0",
        f"link add {host.tunnel} type vxlan id {plan.vni} local {host.loopback} dstport 4789 nolearning",
        f"link set {host.tunnel} mtu {plan.mtu_bytes} master {host.bridge}",
        f"link set {host.tunnel} type bridge_slave neigh_suppress on learning off",
        f"link set {host.bridge} up",
        f"link set {host.tunnel} up",
    ]
    for end in host.endpoints:
        lines.append(f"link set {end.representor} mtu {plan.mtu_bytes} master {host.bridge} up")
        # EVPN tells others of these (type 2), so that they need not ask by broadcast.
        lines.append(f"neigh add {end.address} lladdr {end.mac} dev {host.bridge} nud permanent")
    return lines


def _pinned(host: Host) -> list[str]:
    """Applications' addresses: they would be forgotten while nobody talks, their type-2 routes with them."""
    return [f"fdb add {each.mac} dev {each.representor} master static" for each in host.endpoints]


def _tor(plan: Plan, tor: Tor) -> list[str]:
    lines = ["link set lo up"]
    for port, address in zip(tor.ports, tor.addresses, strict=True):
        lines += _uplink(plan, port, address)
    return lines


def _endpoint(plan: Plan, end: Endpoint) -> list[str]:
    lines = [
        "link set lo up",
        f"link set {end.device} mtu {plan.mtu_bytes} up",
        f"address add {end.address}/{end.prefix_length} dev {end.device}",
    ]
    if plan.rto_min_s is not None:
        network = ".".join(end.address.split(".")[: end.prefix_length // 8])
        subnet = f"{network}.0.0/{end.prefix_length}"
        lines.append(
            f"route replace {subnet} dev {end.device} proto kernel scope link src {end.address} "
            f"rto_min {plan.rto_min_s * 1e3:g}ms"
        )
    return lines


def _uplink(plan: Plan, device: str, address: str) -> list[str]:
    return [
        f"link set {device} mtu {_uplink_mtu(plan)}",
        f"address add {address}/{UPLINK_PREFIX_LENGTH} dev {device}",
        f"link set {device} up",
    ]


def _uplink_mtu(plan: Plan) -> int:
    return plan.mtu_bytes + VXLAN_OVERHEAD_BYTES


def _rate(device: str, rate_bps: float, mtu_bytes: int) -> list[str]:
    """Two classes: what routing says of itself (DSCP CS6, as FRR marks BFD and BGP) does not wait behind, nor
    is lost with, what applications send; switches keep such a class as well."""
    burst_bytes = max(round(rate_bps / 8 * _BURST_S), 10 * mtu_bytes)
    queue_bytes = max(round(rate_bps / 8 * _QUEUE_S), 20 * mtu_bytes)
    own_bps = rate_bps * _CONTROL_SHARE
    burst = f"burst {burst_bytes} cburst {burst_bytes}"
    shared = f"ceil {rate_bps:.0f}bit {burst}"
    return [
        f"qdisc add dev {device} root handle 1: htb default 2",
        f"class add dev {device} parent 1: classid 1:9 htb rate {rate_bps:.0f}bit {shared}",
        f"class add dev {device} parent 1:9 classid 1:1 htb rate {own_bps:.0f}bit {shared} prio 0",
        f"class add dev {device} parent 1:9 classid 1:2 htb rate {rate_bps - own_bps:.0f}bit {shared} prio 1",
        f"qdisc add dev {device} parent 1:2 bfifo limit {queue_bytes}",
        f"filter add dev {device} parent 1: protocol ip u32 match ip tos 0xc0 0xff flowid 1:1",
    ]


def _spread(host: Host) -> str:
    """VXLAN keeps one route per remote host for packets without a mark: all flows would take one uplink."""
    devices = ", ".join(each.representor for each in host.endpoints)
    return f"""
table netdev {TABLE} {{
    chain spread {{
        type filter hook ingress devices = {{ {devices} }} priority 0
        meta mark set 1
    }}
}}
"""


def _faults(tor: Tor) -> str:
    """Chains that drop what crosses the ports in a set, so that a fault is one element (faults.py)."""
    ports = ", ".join(tor.ports)
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


def _batch(program: str, namespace: str, commands: Sequence[str]) -> None:
    done = run_in(namespace, (program, "-batch", "-"), text="\n".join([*commands, ""]))
    if done.returncode:
        # "Command failed -:3" names the line.
        number = done.stderr.rpartition("-:")[2].strip()
        which = commands[int(number) - 1] if number.isdecimal() else commands[0]
        reason = (done.stderr.strip() or "no reason given").splitlines()[0]
        raise BackendError(f"{program} {which} in {namespace}: {reason}; twinbed testbed doctor says more")


def _load(namespace: str, rules: str) -> None:
    done = run_in(namespace, ("nft", "-f", "-"), text=rules)
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[0]
        raise BackendError(f"nft in {namespace}: {reason}; twinbed testbed doctor says more")
