"""Which tunnel rules the kernel's forwarding state calls for.

For: a VXLAN forwarding entry becomes a rule on every representor of its tenant, if its MAC address is
elsewhere and its VTEP can be reached. Not for: comparing with what is installed (diff.py). A few vector
operations over all entries. Source: THORN-ML (SPEC §2); longest prefix match as the kernel has it (RFC 1812,
5.2.4.3).

Entries are told apart by one number, the place of their VNI (or their representor) in order above the 48 bits
of the MAC address: `key`.
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
"""Of the first byte: broadcast and multicast (IEEE 802)."""


@dataclass(frozen=True, slots=True)
class Desired:
    """Rules that may be there, ascending by key (place of the representor, MAC address).

    key, vni, remote: int64[n]; reachable: bool[n], False where the VTEP has no route: such a rule stays if it
    is installed and is not added if it is not. on_host: int64[m], ascending keys of addresses that are here.
    duplicated: how many entries lost to another VTEP's of the same MAC address and VNI.
    """

    key: Whole
    vni: Whole
    remote: Whole
    reachable: Flags
    on_host: Whole
    duplicated: int


def contains(ascending: Whole, wanted: Whole) -> Flags:
    """bool[n]: which of `wanted` are in `ascending`."""
    if not ascending.size:
        return np.zeros(len(wanted), np.bool_)
    place = np.searchsorted(ascending, wanted)
    place[place == len(ascending)] = 0
    found: Flags = ascending[place] == wanted
    return found


def has_route(remote: Whole, routes: Routes, neighbours: Neighbours) -> Flags:
    """bool[n]: to which addresses the kernel has a next hop that is not known to be dead.

    The longest prefix decides, even if all of its next hops are dead. A gateway that is no neighbour yet is
    not dead: the kernel asks for it with the first packet.
    """
    dead = np.unique(((neighbours.ifindex << ADDRESS_BITS) | neighbours.address)[neighbours.usable == 0])
    usable = ~contains(dead, (routes.ifindex << ADDRESS_BITS) | routes.gateway) | (routes.gateway == 0)
    found, undecided = np.zeros(len(remote), np.bool_), np.ones(len(remote), np.bool_)
    for length in np.unique(routes.length)[::-1].tolist():
        shift = ADDRESS_BITS - length
        prefixes, mine = routes.prefix >> shift, remote >> shift
        rows = routes.length == length
        found |= undecided & contains(np.unique(prefixes[rows & usable]), mine)
        undecided &= ~contains(np.unique(prefixes[rows]), mine)
    return found


def desired(state: ForwardingState, representors: Representors, own: Rules) -> Desired:
    """What `state` calls for. own: installed rules. Of two VTEPs of one address one that can be reached is
    taken, of those the one with a rule, else the lowest: a dump does not say which came last."""
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
        kept, duplicated = _one_each(key, remote, reachable, own, vnis)
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
    """Keys (place of the VNI, MAC address), ascending, and remotes of our tenants' entries for single hosts.

    All-zero addresses are the lists for flooding, which no rule can do.
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
    """Ascending keys of addresses at this host: local to the bridge or learned at a port that is no tunnel.

    At a representor they are its tenant's; at any other port, such as the bridge itself, every tenant's.
    """
    here = (bridge.is_local != 0) | ~contains(tunnels, bridge.ifindex)
    mac, port = bridge.mac[here], bridge.ifindex[here]
    if not mac.size or not representors.device.size:
        return np.empty(0, np.int64)
    place = np.searchsorted(representors.device, port)
    place[place == len(representors.device)] = 0
    known = representors.device[place] == port
    tenants = np.unique(tenant_devices)
    common = ((tenants << MAC_BITS)[:, None] | mac[~known]).ravel()
    return np.unique(np.concatenate(((tenant_devices[place[known]] << MAC_BITS) | mac[known], common)))


def _one_each(key: Whole, remote: Whole, reachable: Flags, own: Rules, vnis: Whole) -> tuple[Whole, int]:
    """One position for each key, and how many other remotes lost to those."""
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
