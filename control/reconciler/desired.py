"""Compute which tunnel rules the kernel's forwarding state calls for.

For: a VXLAN forwarding entry becomes a rule on every representor of its tenant if its MAC address is not on
this host and its VTEP can be reached. It takes a few vector operations over all entries. Not for: comparing
with the installed rules (diff.py). Source: THORN-ML (Nazari, PhD thesis 2025, chapter 3); longest prefix
match as in the kernel (RFC 1812, 5.2.4.3).

An entry is identified by one number, its `key`: the position of its VNI (or of its representor) in ascending
order, above the 48 bits of the MAC address.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.reconciler.model import (
    MAC_BITS,
    MAC_MASK,
    BridgeFdb,
    EvpnFdb,
    Flags,
    ForwardingState,
    Neighbours,
    Representors,
    Routes,
    Rules,
    Whole,
)

ADDRESS_BITS = 32
_GROUP_BIT = 1 << 40
"""The bit of a MAC address that marks broadcast and multicast (IEEE 802), in the first byte."""


@dataclass(frozen=True, slots=True)
class Desired:
    """Rules that the state allows, ascending by key.

    key: position of the representor and MAC address, int64[n].
    vni, remote: tunnel and VTEP address, int64[n].
    reachable: False if the VTEP has no route, bool[n]; such a rule stays if installed but is not added.
    on_host: ascending keys of addresses that are on this host, int64[m].
    duplicated: number of entries dropped because another VTEP has the same MAC address and VNI.
    """

    key: Whole
    vni: Whole
    remote: Whole
    reachable: Flags
    on_host: Whole
    duplicated: int


def contains(ascending: Whole, wanted: Whole) -> Flags:
    """Return which values of `wanted` are in `ascending` (sorted), bool[n]."""
    if not ascending.size:
        return np.zeros(len(wanted), np.bool_)
    place = np.searchsorted(ascending, wanted)
    place[place == len(ascending)] = 0
    present: Flags = ascending[place] == wanted
    return present


def has_route(remote: Whole, routes: Routes, neighbours: Neighbours) -> Flags:
    """Return the addresses for which the kernel has a next hop that is not known to be dead, bool[n].

    The longest prefix decides, even if all of its next hops are dead. A gateway that is not in the neighbour
    table yet counts as alive, because the kernel resolves it with the first packet.
    """
    dead = np.unique(((neighbours.ifindex << ADDRESS_BITS) | neighbours.address)[neighbours.usable == 0])
    usable = ~contains(dead, (routes.ifindex << ADDRESS_BITS) | routes.gateway) | (routes.gateway == 0)
    routed, undecided = np.zeros(len(remote), np.bool_), np.ones(len(remote), np.bool_)
    for length in np.unique(routes.length)[::-1].tolist():
        shift = ADDRESS_BITS - length
        prefixes, mine = routes.prefix >> shift, remote >> shift
        rows = routes.length == length
        routed |= undecided & contains(np.unique(prefixes[rows & usable]), mine)
        undecided &= ~contains(np.unique(prefixes[rows]), mine)
    return routed


def desired(state: ForwardingState, representors: Representors, own: Rules) -> Desired:
    """Return the rules that `state` calls for. own: our installed rules.

    If two VTEPs have the same address, a reachable one is preferred, then the one that already has a rule,
    then the lowest: a dump does not say which entry came last.
    """
    vnis = np.unique(representors.vni)
    tenant_devices = np.searchsorted(vnis, representors.vni)
    key, remote = _entries(state.evpn, vnis)
    on_host = _on_host(state.bridge, np.unique(state.evpn.ifindex), representors, tenant_devices)
    if on_host.size:
        away = ~contains(on_host, key)
        key, remote = key[away], remote[away]
    distinct, place = np.unique(remote, return_inverse=True)
    reachable = has_route(distinct, state.routes, state.neighbours)[place]
    duplicated = 0
    if key.size and (key[1:] == key[:-1]).any():
        kept, duplicated = _one_remote_per_key(key, remote, reachable, own, vnis)
        key, remote, reachable = key[kept], remote[kept], reachable[kept]
    bounds = np.searchsorted(key, np.arange(len(vnis) + 1) << MAC_BITS)
    parts = [slice(bounds[tenant], bounds[tenant + 1]) for tenant in tenant_devices.tolist()]
    counts = [part.stop - part.start for part in parts]
    mac = key & MAC_MASK
    return Desired(
        key=_joined([mac[part] | (number << MAC_BITS) for number, part in enumerate(parts)]),
        vni=np.repeat(representors.vni, counts),
        remote=_joined([remote[part] for part in parts]),
        reachable=_joined([reachable[part] for part in parts], np.bool_),
        on_host=_joined(
            [
                (on_host[on_host >> MAC_BITS == tenant] & MAC_MASK) | (number << MAC_BITS)
                for number, tenant in enumerate(tenant_devices.tolist())
            ]
        ),
        duplicated=duplicated,
    )


def _joined(parts: list[np.ndarray], dtype: type = np.int64) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def _entries(evpn: EvpnFdb, vnis: Whole) -> tuple[Whole, Whole]:
    """Return ascending keys (position of the VNI, MAC address) and remotes of our tenants' unicast entries.

    Entries with an all-zero address are flooding lists, which a rule cannot express, so they are left out.
    """
    place = np.searchsorted(vnis, evpn.vni)
    place[place == len(vnis)] = 0
    ours = (evpn.mac != 0) & ((evpn.mac & _GROUP_BIT) == 0)
    ours &= (vnis[place] == evpn.vni) if len(vnis) else False
    key = (place << MAC_BITS) | evpn.mac
    remote = evpn.remote
    if not ours.all():
        key, remote = key[ours], remote[ours]
    order = np.argsort(key)
    return key[order], remote[order]


def _on_host(bridge: BridgeFdb, tunnels: Whole, representors: Representors, tenant_devices: Whole) -> Whole:
    """Return ascending keys of the addresses on this host.

    These are local to the bridge or were learned at a port that is not a tunnel. An address at a
    representor belongs to its tenant; at any other port, such as the bridge itself, to every tenant.
    """
    local = (bridge.is_local != 0) | ~contains(tunnels, bridge.ifindex)
    mac, port = bridge.mac[local], bridge.ifindex[local]
    if not mac.size or not representors.device.size:
        return np.empty(0, np.int64)
    place = np.searchsorted(representors.device, port)
    place[place == len(representors.device)] = 0
    known = representors.device[place] == port
    tenants = np.unique(tenant_devices)
    common = ((tenants << MAC_BITS)[:, None] | mac[~known]).ravel()
    return np.unique(np.concatenate(((tenant_devices[place[known]] << MAC_BITS) | mac[known], common)))


def _one_remote_per_key(
    key: Whole, remote: Whole, reachable: Flags, own: Rules, vnis: Whole
) -> tuple[Whole, int]:
    """Return the position of one entry per key, and how many other remotes were dropped."""
    tenant = np.searchsorted(vnis, own.vni)
    tenant[tenant == len(vnis)] = 0
    ruled = (tenant << MAC_BITS) | own.mac
    ruled = np.where(vnis[tenant] == own.vni, ruled, -1)
    remotes, place = np.unique(np.concatenate((own.remote, remote)), return_inverse=True)
    # (key, remote) as one number: the rank of the key times the number of remotes, plus the remote's rank.
    _, rank = np.unique(np.concatenate((ruled, key)), return_inverse=True)
    pair = rank * len(remotes) + place
    installed = contains(np.unique(pair[: len(ruled)]), pair[len(ruled) :])
    order = np.lexsort((remote, ~installed, ~reachable, key))
    first = np.concatenate(([True], np.diff(key[order]) != 0))
    distinct = len(np.unique(pair[len(ruled) :]))
    return order[first], distinct - int(first.sum())
