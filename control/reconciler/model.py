"""What the reconciler knows and wants: the kernel's forwarding state, and the tunnel rules made from it.

For: the data that passes between the reconciler and who carries its instructions out. Not for: deciding
(reconciler.py), nor netlink. Tables are structures of arrays, one row per entry: a step over 100,000 entries
is a few vector operations. MAC addresses are int64 (48 bits), IPv4 addresses int64 (32 bits), interfaces by
ifindex. Source: THORN-ML (SPEC §2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BridgeFdb:
    """Bridge forwarding entries: mac, ifindex (of the port), vlan, is_local (0/1): int64[n] each."""

    mac: Whole
    ifindex: Whole
    vlan: Whole
    is_local: Whole


@dataclass(frozen=True, slots=True)
class EvpnFdb:
    """VXLAN forwarding entries: mac, remote (VTEP address), vni, ifindex (of the device): int64[n] each."""

    mac: Whole
    remote: Whole
    vni: Whole
    ifindex: Whole


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes to VTEPs, a row per next hop: prefix, length, gateway, ifindex: int64[n] each."""

    prefix: Whole
    length: Whole
    gateway: Whole
    ifindex: Whole


@dataclass(frozen=True, slots=True)
class Neighbours:
    """address, mac, ifindex, usable (0/1): int64[n] each."""

    address: Whole
    mac: Whole
    ifindex: Whole
    usable: Whole


@dataclass(frozen=True, slots=True)
class ForwardingState:
    """All that a full dump returned; arrays do not change any more."""

    bridge: BridgeFdb
    evpn: EvpnFdb
    routes: Routes
    neighbours: Neighbours


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules on representors, as desired or as found in the kernel, sorted by (device, mac).

    device: ifindex of the representor; mac: destination matched; vni, remote: of the tunnel; action: index of
    the shared tunnel action (one per remote and VNI); handle: the kernel's, 0 if not installed; cookie: its
    owner's mark. int64[n] each.
    """

    device: Whole
    mac: Whole
    vni: Whole
    remote: Whole
    action: Whole
    handle: Whole
    cookie: Whole


class Table(StrEnum):
    """What is dumped."""

    BRIDGE_FDB = "bridge-fdb"
    EVPN_FDB = "evpn-fdb"
    ROUTES = "routes"
    NEIGHBOURS = "neighbours"
    RULES = "rules"
