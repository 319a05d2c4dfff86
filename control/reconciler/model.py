"""The kernel's forwarding state, and the tunnel rules that are made from it.

For: the data that passes between the reconciler and the backend that carries its instructions out. Not for:
decisions (reconciler.py) or netlink. Source: THORN-ML (Nazari, PhD thesis 2025, chapter 3).

Tables are structures of arrays with one row per entry, so that a step over 100,000 entries is a few vector
operations. MAC addresses are int64 (48 bits), IPv4 addresses int64 (32 bits), interfaces are ifindex values.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class _Columns:
    """A table as columns. Raises InvariantError naming the table if its columns differ in length."""

    def __post_init__(self) -> None:
        columns = {spec.name: getattr(self, spec.name).shape for spec in fields(self)}
        if len(set(columns.values())) > 1:
            raise InvariantError(f"{type(self).__name__}: columns of different lengths, {columns}")


@dataclass(frozen=True, slots=True)
class BridgeFdb(_Columns):
    """Bridge forwarding entries: mac, ifindex (of the port), vlan, is_local (0/1), all int64[n]."""

    mac: Whole
    ifindex: Whole
    vlan: Whole
    is_local: Whole


@dataclass(frozen=True, slots=True)
class EvpnFdb(_Columns):
    """VXLAN forwarding entries: mac, remote (VTEP address), vni, ifindex (of the device), all int64[n]."""

    mac: Whole
    remote: Whole
    vni: Whole
    ifindex: Whole


@dataclass(frozen=True, slots=True)
class Routes(_Columns):
    """Routes to VTEPs, one row per next hop: prefix, length (bits), gateway, ifindex, all int64[n]."""

    prefix: Whole
    length: Whole
    gateway: Whole
    ifindex: Whole


@dataclass(frozen=True, slots=True)
class Neighbours(_Columns):
    """Neighbour (ARP) entries: address, mac, ifindex, usable (0/1), all int64[n]."""

    address: Whole
    mac: Whole
    ifindex: Whole
    usable: Whole


@dataclass(frozen=True, slots=True)
class ForwardingState:
    """Everything that a full dump returned. The arrays are never changed afterwards."""

    bridge: BridgeFdb
    evpn: EvpnFdb
    routes: Routes
    neighbours: Neighbours


@dataclass(frozen=True, slots=True)
class Rules(_Columns):
    """Rules on representors, desired or installed, sorted by (device, mac). All columns are int64[n].

    device: ifindex of the representor.
    mac: destination address that the rule matches.
    vni, remote: tunnel and VTEP address that the packet gets.
    action: index of the shared tunnel action (one per remote and VNI).
    handle: number that the kernel gave the rule; 0 if not installed.
    cookie: mark of the rule's owner.
    """

    device: Whole
    mac: Whole
    vni: Whole
    remote: Whole
    action: Whole
    handle: Whole
    cookie: Whole

    def take(self, rows: Whole | Flags | slice) -> Rules:
        """Return the rules at `rows` (positions, a mask or a slice), in that order."""
        return Rules(*(getattr(self, spec.name)[rows] for spec in fields(self)))

    @staticmethod
    def joined(parts: Sequence[Rules]) -> Rules:
        """Return the rules of all parts, sorted by (device, mac)."""
        columns = ([getattr(part, name) for part in parts] for name in Rules.__slots__)
        rules = Rules(*(np.concatenate([_NOTHING, *column]) for column in columns))
        return rules.take(np.lexsort((rules.mac, rules.device)))

    def handles_for(self, rules: Rules) -> Whole:
        """Return int64[n]: the handle that each of `rules` has here, by device and MAC address; 0 if none."""
        rows = zip(self.device.tolist(), self.mac.tolist(), self.handle.tolist(), strict=True)
        known = {(device, mac): handle for device, mac, handle in rows}
        wanted = zip(rules.device.tolist(), rules.mac.tolist(), strict=True)
        return np.array([known.get(pair, 0) for pair in wanted], np.int64)


_NOTHING: Whole = np.empty(0, np.int64)
_NOTHING.setflags(write=False)
NO_RULES = Rules(*[_NOTHING] * len(fields(Rules)))


@dataclass(frozen=True, slots=True)
class Representors(_Columns):
    """The host's VF representors, ascending by device. device: ifindex; vni: its tenant's; int64[r].

    Raises ScenarioError for a device that is given twice and for a VNI outside 1 … 2^24 − 1.
    """

    device: Whole
    vni: Whole

    def __post_init__(self) -> None:
        _Columns.__post_init__(self)
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
    """A table of the kernel that can be dumped."""

    BRIDGE_FDB = "bridge-fdb"
    EVPN_FDB = "evpn-fdb"
    ROUTES = "routes"
    NEIGHBOURS = "neighbours"
    RULES = "rules"
