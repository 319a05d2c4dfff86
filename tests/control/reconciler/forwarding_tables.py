"""Forwarding tables of a few entries or many, and the rules they call for, computed in plain Python."""

from __future__ import annotations

import numpy as np

from control.reconciler.model import (
    BridgeFdb,
    EvpnFdb,
    ForwardingState,
    Neighbours,
    Representors,
    Routes,
    Rules,
)

TUNNEL, UPLINKS, BRIDGE = 50, (2, 3), 40
"""Interfaces (ifindex): the VXLAN device, the links to the ToR switches, the bridge itself."""

VNI, OWNER = 100, 0xB0B
REPRESENTORS = Representors(np.array([10]), np.array([VNI]))


def vtep(host: int) -> int:
    """10.0.0.host as a number."""
    return (10 << 24) | host


def mac(number: int) -> int:
    """A locally administered address."""
    return (0x02 << 40) | number


def columns(kind, rows, count):
    table = np.array(rows, np.int64).reshape(-1, count)
    return kind(*(table[:, column].copy() for column in range(count)))


def tables(entries=(), *, local=(), routed=None, dead=()) -> ForwardingState:
    """entries: (mac, host[, vni]); local: (mac, port, is_local); routed: hosts with a /32 over both
    uplinks (None: all); dead: uplinks whose gateway does not answer."""
    full = [(entry[0], vtep(entry[1]), entry[2] if len(entry) > 2 else VNI, TUNNEL) for entry in entries]
    hosts = sorted({entry[1] for entry in entries} if routed is None else set(routed))
    routes = [(vtep(host), 32, gateway(uplink), uplink) for host in hosts for uplink in UPLINKS]
    return ForwardingState(
        bridge=columns(BridgeFdb, [(mac, port, 0, is_local) for mac, port, is_local in local], 4),
        evpn=columns(EvpnFdb, full, 4),
        routes=columns(Routes, routes, 4),
        neighbours=columns(
            Neighbours, [(gateway(link), mac(900 + link), link, link not in dead) for link in UPLINKS], 4
        ),
    )


def gateway(uplink: int) -> int:
    """Address of the ToR switch at an uplink."""
    return (192 << 24) | uplink


def rules(*rows) -> Rules:
    """rows: (mac, host[, more]); more: device, vni, action, handle, cookie by name."""
    full = []
    for number, (address, host, *more) in enumerate(rows):
        default = {"device": 10, "mac": address, "vni": VNI, "remote": vtep(host), "action": 1000 + host}
        row = {**default, "handle": number + 1, "cookie": OWNER, **(more[0] if more else {})}
        full.append([row[name] for name in Rules.__slots__])
    return columns(Rules, full, 7)


def called_for(state: ForwardingState, representors: Representors) -> dict[tuple[int, int], set[int]]:
    """Return (device, mac) → VTEPs that a rule may lead to; several if entries contradict each other.

    Entries whose VTEP has no usable route are left out.
    """
    wanted: dict[tuple[int, int], set[int]] = {}
    tenants = dict(zip(representors.device.tolist(), representors.vni.tolist(), strict=True))
    on_host: set[tuple[int, int]] = set()
    tunnels = set(state.evpn.ifindex.tolist())
    for address, port, is_local in zip(
        state.bridge.mac.tolist(), state.bridge.ifindex.tolist(), state.bridge.is_local.tolist(), strict=True
    ):
        if is_local or port not in tunnels:
            on_host |= {(vni, address) for vni in ([tenants[port]] if port in tenants else tenants.values())}
    for address, remote, vni in zip(
        state.evpn.mac.tolist(), state.evpn.remote.tolist(), state.evpn.vni.tolist(), strict=True
    ):
        if address == 0 or address >> 40 & 1 or (vni, address) in on_host or not routed(state, remote):
            continue
        for device, tenant in tenants.items():
            if tenant == vni:
                wanted.setdefault((device, address), set()).add(remote)
    return wanted


def routed(state: ForwardingState, address: int) -> bool:
    """Return whether the longest prefix of the address has a next hop that is not known to be dead."""
    dead = {
        (gate, link)
        for gate, link, usable in zip(
            state.neighbours.address.tolist(),
            state.neighbours.ifindex.tolist(),
            state.neighbours.usable.tolist(),
            strict=True,
        )
        if not usable
    }
    columns_ = (state.routes.prefix, state.routes.length, state.routes.gateway, state.routes.ifindex)
    matching = [
        (length, (gate, link) not in dead)
        for prefix, length, gate, link in zip(*(column.tolist() for column in columns_), strict=True)
        if prefix >> (32 - length) == address >> (32 - length)
    ]
    longest = max((length for length, _ in matching), default=0)
    return any(usable for length, usable in matching if length == longest)


def random_tables(entries: int, hosts: int, *, seed: int = 1, vnis=(VNI,)) -> ForwardingState:
    """Return tables as a dump has them: unordered, with every remote address at the tunnel's bridge port."""
    random = np.random.default_rng(seed)
    address = (0x02 << 40) | np.unique(random.integers(0, 1 << 40, 2 * entries))
    address = random.permutation(address)[:entries]
    host = random.integers(1, hosts + 1, entries)
    links = len(UPLINKS)
    everyone = np.arange(1, hosts + 1)
    return ForwardingState(
        bridge=BridgeFdb(
            address, np.full(entries, TUNNEL), np.zeros(entries, np.int64), np.zeros(entries, np.int64)
        ),
        evpn=EvpnFdb(
            address,
            (10 << 24) | host,
            np.array(vnis)[random.integers(0, len(vnis), entries)],
            np.full(entries, TUNNEL),
        ),
        routes=Routes(
            np.repeat((10 << 24) | everyone, links),
            np.full(hosts * links, 32),
            np.tile([gateway(link) for link in UPLINKS], hosts),
            np.tile(UPLINKS, hosts),
        ),
        neighbours=columns(Neighbours, [(gateway(link), mac(900 + link), link, 1) for link in UPLINKS], 4),
    )
