"""Read the kernel's forwarding state by full dumps: bridge and VXLAN forwarding entries, routes, neighbours.

For: the four tables as arrays of control.reconciler.model. Not for: rules (rules/, control.reconciler).
Source: linux/neighbour.h, linux/rtnetlink.h, linux/if_link.h. Entries that the kernel would not use are left
out: next hops that are dead or have no carrier, and routes that lead nowhere.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

import numpy as np

from control.reconciler.model import BridgeFdb, EvpnFdb, ForwardingState, Neighbours, Routes, Table
from testbed.fabric.netlink import Inside, Messages, Path, Socket, Whole, alike

GET_LINK, GET_NEIGHBOUR, GET_ROUTE = 18, 30, 26
_PF_BRIDGE = 7

_LINK_HEADER = struct.Struct("=BxHiII")
_NEIGHBOUR_HEADER = struct.Struct("=BxxxiHBB")
_ROUTE_HEADER = struct.Struct("=BBBBBBBBI")
LINK_WORDS, NEIGHBOUR_WORDS, ROUTE_WORDS = 4, 3, 3

_IFNAME, _MASTER_OF_LINK, _LINKINFO, _ALIAS, _EXT_MASK = 3, 10, 18, 20, 29
_INFO_KIND, _INFO_DATA = (_LINKINFO, 1), (_LINKINFO, 2)
_VXLAN_ID, _VXLAN_LOCAL, _VXLAN_EXTERNAL = (*_INFO_DATA, 1), (*_INFO_DATA, 4), (*_INFO_DATA, 25)
_SKIP_STATISTICS = 1 << 3
_IN_LINKS: dict[Path, Inside] = {(_LINKINFO,): Inside.ATTRIBUTES, _INFO_DATA: Inside.ATTRIBUTES}

_DST, _LLADDR, _VLAN, _VNI, _MASTER = (1,), (2,), (5,), (7,), (9,)
_IPV4_BYTES = 4
_NTF_SELF = 0x02
_PERMANENT, _VALID = 0x80, 0xDE
"""NUD_PERMANENT, and NUD_VALID: all states in which the kernel has an address to send to."""

_ROUTE_DST, _OIF, _GATEWAY, _MULTIPATH = (1,), (4,), (5,), (9,)
_UNICAST = 1
_DEAD_OR_NO_CARRIER = 0x1 | 0x10
_IN_ROUTES: dict[Path, Inside] = {_MULTIPATH: Inside.HOPS}


@dataclass(frozen=True, slots=True)
class Link:
    """A device.

    master: ifindex of its bridge, or 0. kind: its kind, such as "vxlan". vni, local: VNI and address of a
    VXLAN device, or 0. external: whether it takes both from the metadata of every frame. alias: text that its
    maker gave it.
    """

    name: str
    ifindex: int
    master: int = 0
    kind: str = ""
    vni: int = 0
    local: int = 0
    external: bool = False
    alias: str = ""


@dataclass(frozen=True, slots=True)
class DumpedTables:
    """The result of a dump.

    state: the dumped tables. interrupted: tables that changed meanwhile, as the kernel says. in_parts: tables
    that came in several datagrams. A change between two datagrams may have hidden an entry.
    """

    state: ForwardingState
    interrupted: frozenset[Table]
    in_parts: frozenset[Table]


def read_links(netlink: Socket) -> list[Link]:
    """Return the namespace's devices. Raises OSError."""
    choice = struct.pack("=HHI", 8, _EXT_MASK, _SKIP_STATISTICS)
    messages = netlink.dump(GET_LINK, _LINK_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + choice)
    return [
        Link(
            name=group.text(row, _IFNAME),
            ifindex=ifindex,
            master=int(group.word(_MASTER_OF_LINK)[row]),
            kind=group.text(row, *_INFO_KIND),
            vni=int(group.word(*_VXLAN_ID)[row]),
            local=int(group.network_word(*_VXLAN_LOCAL)[row]),
            external=bool(group.word(*_VXLAN_EXTERNAL)[row] & 0xFF),
            alias=group.text(row, _ALIAS),
        )
        for group in alike(messages, LINK_WORDS, _IN_LINKS)
        for row, ifindex in enumerate(group.header(1).tolist())
    ]


def tunnels_of(links: list[Link]) -> dict[int, int]:
    """Return ifindex → VNI of the VXLAN devices that have one."""
    return {link.ifindex: link.vni for link in links if link.kind == "vxlan" and link.vni}


def read_tables(netlink: Socket) -> DumpedTables:
    """Dump all four tables. Raises OSError."""
    tunnels = tunnels_of(read_links(netlink))
    entries = netlink.dump(GET_NEIGHBOUR, _NEIGHBOUR_HEADER.pack(_PF_BRIDGE, 0, 0, 0, 0))
    routes = netlink.dump(GET_ROUTE, _ROUTE_HEADER.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0))
    neighbours = netlink.dump(GET_NEIGHBOUR, _NEIGHBOUR_HEADER.pack(socket.AF_INET, 0, 0, 0, 0))
    bridge, evpn = forwarding_entries(entries, tunnels)
    state = ForwardingState(bridge, evpn, routes_of(routes), neighbours_of(neighbours))
    from_which = (
        (entries, (Table.BRIDGE_FDB, Table.EVPN_FDB)),
        (routes, (Table.ROUTES,)),
        (neighbours, (Table.NEIGHBOURS,)),
    )
    return DumpedTables(
        state,
        frozenset(table for dump, tables in from_which if dump.interrupted for table in tables),
        frozenset(table for dump, tables in from_which if dump.parts > 1 for table in tables),
    )


def forwarding_entries(messages: Messages, tunnels: dict[int, int]) -> tuple[BridgeFdb, EvpnFdb]:
    """Return the entries of bridges, and of `tunnels` (VXLAN ifindex → VNI), in neighbour messages.

    Entries with an IPv6 VTEP are left out.
    """
    bridge: list[tuple[Whole, ...]] = []
    evpn: list[tuple[Whole, ...]] = []
    for group in alike(messages, NEIGHBOUR_WORDS, {}):
        if _LLADDR not in group:
            continue
        mac, ifindex = group.mac(*_LLADDR), group.header(1)
        state_and_flags = group.header(2)
        own = (state_and_flags >> 16) & _NTF_SELF != 0
        if group.size_bytes(*_DST) == _IPV4_BYTES:
            # The message has a VNI only if it differs from the device's own.
            vni = group.word(*_VNI) if _VNI in group else _looked_up(tunnels, ifindex)
            keep = own & np.isin(ifindex, list(tunnels)) & (vni > 0)
            evpn.append((mac[keep], group.network_word(*_DST)[keep], vni[keep], ifindex[keep]))
        elif _MASTER in group:
            is_local = (state_and_flags & _PERMANENT != 0).astype(np.int64)
            vlan = group.word(*_VLAN) & 0xFFFF
            keep = ~own
            bridge.append((mac[keep], ifindex[keep], vlan[keep], is_local[keep]))
    return BridgeFdb(*_joined(bridge, 4)), EvpnFdb(*_joined(evpn, 4))


def routes_of(messages: Messages) -> Routes:
    """Return a row for every living next hop in route messages: unicast routes of all routing tables."""
    rows: list[tuple[Whole, ...]] = []
    for group in alike(messages, ROUTE_WORDS, _IN_ROUTES):
        unicast = group.header(1) >> 24 == _UNICAST
        prefix, length = group.network_word(*_ROUTE_DST), (group.header(0) >> 8) & 0xFF
        if _OIF in group:
            alive = unicast & (group.header(2) & _DEAD_OR_NO_CARRIER == 0)
            hop = group.network_word(*_GATEWAY), group.word(*_OIF)
            rows.append(tuple(column[alive] for column in (prefix, length, *hop)))
        for path in group.paths:
            if len(path) == 2 and path[:1] == _MULTIPATH:
                # struct rtnexthop has length, flags and weight in the word before the device.
                alive = unicast & ((group.word(*path, at=-1) >> 16) & _DEAD_OR_NO_CARRIER == 0)
                hop = group.network_word(*path, *_GATEWAY), group.word(*path)
                rows.append(tuple(column[alive] for column in (prefix, length, *hop)))
    return Routes(*_joined(rows, 4))


def neighbours_of(messages: Messages) -> Neighbours:
    """Return the IPv4 neighbours in neighbour messages. Usable ones have a known MAC address."""
    rows: list[tuple[Whole, ...]] = []
    for group in alike(messages, NEIGHBOUR_WORDS, {}):
        usable = (group.header(2) & _VALID != 0).astype(np.int64)
        mac = group.mac(*_LLADDR) if _LLADDR in group else np.zeros(group.count, np.int64)
        rows.append((group.network_word(*_DST), mac, group.header(1), usable))
    return Neighbours(*_joined(rows, 4))


def _joined(rows: list[tuple[Whole, ...]], columns: int) -> list[Whole]:
    if len(rows) == 1:
        return list(rows[0])
    none = np.empty(0, np.int64)
    return [np.concatenate([none, *(row[column] for row in rows)]) for column in range(columns)]


def _looked_up(tunnels: dict[int, int], ifindex: Whole) -> Whole:
    distinct, place = np.unique(ifindex, return_inverse=True)
    return np.array([tunnels.get(device, 0) for device in distinct.tolist()], np.int64)[place]
