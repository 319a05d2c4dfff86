"""What the reconciler knows and wants: the kernel's forwarding state, and the tunnel rules made from it.

For: the data that passes between the reconciler and who carries its instructions out. Not for: deciding
(reconciler.py), nor netlink. Tables are structures of arrays, one row per entry: a step over 100,000 entries
is a few vector operations. MAC addresses are int64 (48 bits), IPv4 addresses int64 (32 bits), interfaces by
ifindex. Source: THORN-ML (SPEC §2).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from control.fabric import MAX_VNI
from twinbed import InvariantError, ScenarioError

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

MAC_BITS = 48
MAC_MASK = (1 << MAC_BITS) - 1


def _same_length(table: object) -> None:
    """Raises InvariantError naming the table whose columns are not of one length."""
    columns = {spec.name: getattr(table, spec.name).shape for spec in fields(table)}  # type: ignore[arg-type]
    if len(set(columns.values())) > 1:
        raise InvariantError(f"{type(table).__name__}: columns of different lengths, {columns}")


@dataclass(frozen=True, slots=True)
class BridgeFdb:
    """Bridge forwarding entries: mac, ifindex (of the port), vlan, is_local (0/1): int64[n] each."""

    mac: Whole
    ifindex: Whole
    vlan: Whole
    is_local: Whole

    def __post_init__(self) -> None:
        _same_length(self)


@dataclass(frozen=True, slots=True)
class EvpnFdb:
    """VXLAN forwarding entries: mac, remote (VTEP address), vni, ifindex (of the device): int64[n] each."""

    mac: Whole
    remote: Whole
    vni: Whole
    ifindex: Whole

    def __post_init__(self) -> None:
        _same_length(self)


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes to VTEPs, a row per next hop: prefix, length, gateway, ifindex: int64[n] each."""

    prefix: Whole
    length: Whole
    gateway: Whole
    ifindex: Whole

    def __post_init__(self) -> None:
        _same_length(self)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """address, mac, ifindex, usable (0/1): int64[n] each."""

    address: Whole
    mac: Whole
    ifindex: Whole
    usable: Whole

    def __post_init__(self) -> None:
        _same_length(self)


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

    def __post_init__(self) -> None:
        _same_length(self)

    def take(self, rows: Whole | Flags | slice) -> Rules:
        """The rules at `rows` (positions, a mask or a slice), in that order."""
        return Rules(*(getattr(self, spec.name)[rows] for spec in fields(self)))


def _no_rules() -> Rules:
    none: Whole = np.empty(0, np.int64)
    none.setflags(write=False)
    return Rules(none, none, none, none, none, none, none)


NO_RULES = _no_rules()


@dataclass(frozen=True, slots=True)
class Representors:
    """The host's VF representors. device: ifindex; vni: of its tenant: int64[r] each, by ascending device.

    Raises ScenarioError for a device that is given twice and a VNI outside 1 … 2^24 − 1.
    """

    device: Whole
    vni: Whole

    def __post_init__(self) -> None:
        _same_length(self)
        twice = self.device[1:][np.diff(self.device) <= 0]
        if twice.size:
            raise ScenarioError(
                f"representors: device {twice[0]} is given twice or out of order; name each once, ascending, "
                "with its tenant's one VNI"
            )
        wrong = self.vni[(self.vni < 1) | (self.vni > MAX_VNI)]
        if wrong.size:
            raise ScenarioError(f"representors: VNI {wrong[0]} is outside 1 … {MAX_VNI}")


class Table(StrEnum):
    """What is dumped."""

    BRIDGE_FDB = "bridge-fdb"
    EVPN_FDB = "evpn-fdb"
    ROUTES = "routes"
    NEIGHBOURS = "neighbours"
    RULES = "rules"
