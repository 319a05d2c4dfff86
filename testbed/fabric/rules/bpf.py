"""Tunnel rules as entries of a BPF map, which a tc program on every representor looks frames up in.

For: kernels without flower or tunnel_key. Not for: adapters that take rules themselves (flower.py).
Implements port.Applier. Each owner has a map and a program of its own, told by the filter's name, so that
nobody's rules are in another's way; a successor finds its predecessor's through the filters. A rule's handle
is a number that is given when it is added. The shared action of the port is a column here: two look-ups would
not be one change.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from control.reconciler.model import NO_RULES, Rules, Whole
from control.reconciler.ports import Add, Delete, RuleChange
from kernel.tunnel import KEY, RULE, Keys, Tunnel
from testbed.fabric.netlink import Inside, Path, Socket, alike, attribute, name_of, request
from testbed.fabric.rules.ingress import (
    CREATE,
    EXCLUSIVE,
    INGRESS,
    KIND,
    NEW_FILTER,
    OPTIONS,
    REPLACE,
    TC_HEADER,
    TC_WORDS,
    ensure_clsact,
    ensure_way_out,
    filters,
)
from testbed.fabric.rules.port import FoundRules, Refused
from twinbed import BackendError

ROOM = 1 << 17
"""Rules that a map takes unless more are asked for: its buckets are there from the start, 16 bytes each."""

_PREFERENCE = 0x7462
_ALL_PROTOCOLS = 0x0300
"""ETH_P_ALL in the network's byte order."""

_FD, _NAME, _FLAGS, _ID = 6, 7, 8, 11
_DIRECT_ACTION = 1
_IN_FILTERS: dict[Path, Inside] = {(OPTIONS,): Inside.ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class _Filter:
    """One at a device's ingress: its name, its number and its program's."""

    device: int
    name: str
    handle: int
    program: int


class BpfRules:
    """The rules of one owner on these representors (ifindex), and a view of everyone else's.

    local: this host's VTEP address, a whole number; room: rules that it has room for at least. Raises
    BackendError where the kernel, the compiler or nft refuses.
    """

    def __init__(self, owner: int, devices: Sequence[int], local: int, *, room: int = ROOM) -> None:
        self._name = f"twinbed:{owner:x}"
        self._devices = tuple(devices)
        self._netlink = Socket()
        self._others: dict[int, Tunnel | None] = {}  # by program
        self._tunnel: Tunnel | None = None
        self._last_handle = 0
        try:
            self._way_out = ensure_way_out(self._netlink, usual_port=True), local
            self._adopt_or_load(room)
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> frozenset[int]:
        """See `port.Applier`."""
        return frozenset({self._netlink.port})

    @property
    def tunnel(self) -> Tunnel:
        """The program and its maps: how many frames it sent, and how many it left to the bridge."""
        assert self._tunnel is not None
        return self._tunnel

    def measures(self) -> dict[str, int]:
        """Frames that a rule sent and frames left to the bridge, since the program was loaded."""
        sent, left = self.tunnel.frames()
        return {"frames_sent": sent, "frames_left": left, "room": self.tunnel.room}

    def close(self) -> None:
        """See `port.Applier`: the program works on."""
        for each in (self._tunnel, *self._others.values()):
            if each is not None:
                each.close()
        self._others.clear()
        self._netlink.close()

    def make_room(self, room: int) -> None:
        """Goes over to a map with room for so many rules, without a moment without them.

        Raises BackendError, and all is as it was, where there are more rules than that.
        """
        fresh = Tunnel.load(room)
        keys, rules = self.tunnel.read()
        written, _ = fresh.write(keys, rules)
        if written < len(keys):
            fresh.close()
            raise BackendError(f"tunnel rules: {len(keys)} are installed, more than room for {room}")
        self.tunnel.close()
        self._take(fresh)

    def read(self) -> FoundRules:
        """See `port.Applier`."""
        found = _filters(self._netlink, self._devices)
        attached = [each.device for each in found if self._is_ours(each)]
        parts = [_rules(*self.tunnel.read(), attached)]
        theirs = [each for each in found if each.name != self._name]
        self._look_at({each.program for each in theirs})
        parts += [
            _rules(*other.read(), [each.device])
            for each in theirs
            if (other := self._others[each.program]) is not None
        ]
        return FoundRules(_in_order(parts))

    def carry_out(self, change: RuleChange) -> Refused | None:
        """See `port.Applier`. A filter that somebody removed is put back when a rule is written."""
        rules = change.rules
        every = np.arange(len(rules.mac))
        keys = _keys(rules)
        try:
            if isinstance(change, Delete):
                self.tunnel.remove(keys)
                return None
            self._attach(np.unique(rules.device).tolist(), afresh=True)
        except (BackendError, OSError) as error:
            return Refused(every, str(error))
        values = np.zeros(len(keys), RULE)
        for name in ("vni", "remote", "action", "cookie"):
            values[name] = getattr(rules, name)
        values["handle"] = self._new_handles(len(keys)) if isinstance(change, Add) else self._handles(rules)
        return self._write(keys, values)

    # --- the map -------------------------------------------------------------------------------------

    def _write(self, keys: Keys, values: Keys) -> Refused | None:
        refused: list[int] = []
        why, full, at = "", False, 0
        while at < len(keys) and not full:
            written, number = self.tunnel.write(keys[at:], values[at:])
            at += written
            if number:
                full = number == errno.E2BIG
                why = why or (
                    f"E2BIG: the map has room for {self.tunnel.room} rules" if full else name_of(number)
                )
                refused.extend(range(at, len(keys)) if full else (at,))
                at += 1
        return Refused(np.array(refused, np.int64), why, full) if refused else None

    def _new_handles(self, count: int) -> Whole:
        first, self._last_handle = self._last_handle + 1, self._last_handle + count
        return np.arange(first, first + count)

    def _handles(self, rules: Rules) -> Whole:
        """The handles that the rules have, and where they name none, what the map says, else new ones."""
        if rules.handle.all():
            return rules.handle
        found = _rules(*self.tunnel.read(), self._devices)
        rows = zip(found.device.tolist(), found.mac.tolist(), found.handle.tolist(), strict=True)
        known = {(device, mac): handle for device, mac, handle in rows}
        own = zip(rules.device.tolist(), rules.mac.tolist(), strict=True)
        handles = np.array([known.get(each, 0) for each in own], np.int64)
        missing = handles == 0
        handles[missing] = self._new_handles(int(missing.sum()))
        return handles

    # --- the program ---------------------------------------------------------------------------------

    def _adopt_or_load(self, room: int) -> None:
        for each in _filters(self._netlink, self._devices):
            if each.name == self._name and (found := Tunnel.adopt(each.program)) is not None:
                self._tunnel = found
                break
        self._take(self._tunnel or Tunnel.load(room))
        self._last_handle = int(self.tunnel.read()[1]["handle"].max(initial=0))
        if self.tunnel.room < room:
            self.make_room(room)

    def _take(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel
        tunnel.set_way_out(*self._way_out)
        self._attach(self._devices)

    def _attach(self, devices: Sequence[int], *, afresh: bool = False) -> None:
        """Puts the program where it is not. afresh: without the rules that were there before, which no dump
        showed while it was away. Raises BackendError."""
        there = {each.device: each for each in _filters(self._netlink, devices) if each.name == self._name}
        for device in devices:
            old = there.get(device)
            if old is not None and self._is_ours(old):
                continue
            if afresh:
                self.tunnel.remove(_keys(_rules(*self.tunnel.read(), [device])))
            if old is None:
                ensure_clsact(self._netlink, device)
            options = attribute(_FD, struct.pack("=I", self.tunnel.program))
            options += attribute(_NAME, self._name.encode() + b"\0")
            options += attribute(_FLAGS, struct.pack("=I", _DIRECT_ACTION))
            place = (_PREFERENCE << 16) | _ALL_PROTOCOLS
            body = TC_HEADER.pack(0, device, 0 if old is None else old.handle, INGRESS, place)
            body += attribute(KIND, b"bpf\0") + attribute(OPTIONS, options)
            flags = CREATE | (EXCLUSIVE if old is None else REPLACE)
            for _, number in self._netlink.change(request(NEW_FILTER, flags, body), 1):
                raise BackendError(
                    f"tc program on device {device}: refused ({name_of(number)}); needs root and cls_bpf"
                )

    def _is_ours(self, found: _Filter) -> bool:
        return found.name == self._name and found.program == self.tunnel.program_id

    def _look_at(self, programs: set[int]) -> None:
        """Holds these programs of others open, and no longer those that are not attached any more."""
        for program in self._others.keys() - programs:
            gone = self._others.pop(program)
            if gone is not None:
                gone.close()
        for program in programs - self._others.keys():
            self._others[program] = Tunnel.adopt(program)


def installed(netlink: Socket, devices: Sequence[int]) -> Rules:
    """Everyone's rules on these devices, for a reader who has none. Raises OSError or BackendError."""
    parts = [NO_RULES]
    for each in _filters(netlink, devices):
        if (found := Tunnel.adopt(each.program)) is not None:
            with found:
                parts.append(_rules(*found.read(), [each.device]))
    return _in_order(parts)


def _filters(netlink: Socket, devices: Sequence[int]) -> list[_Filter]:
    """BPF filters at the ingress of these devices."""
    result = []
    for device in devices:
        for each in alike(filters(netlink, device), TC_WORDS, _IN_FILTERS):
            if (OPTIONS, _ID) in each:
                rows = zip(each.header(2).tolist(), each.word(OPTIONS, _ID).tolist(), strict=True)
                result += [
                    _Filter(device, each.text(row, OPTIONS, _NAME), handle, program)
                    for row, (handle, program) in enumerate(rows)
                ]
    return result


def _keys(rules: Rules) -> Keys:
    keys = np.zeros(len(rules.mac), KEY)
    keys["device"] = rules.device
    keys["mac"] = rules.mac.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    return keys


def _rules(keys: Keys, values: Keys, devices: Sequence[int]) -> Rules:
    """What a map says of these devices."""
    here = np.isin(keys["device"], list(devices))
    keys, values = keys[here], values[here]
    mac = np.zeros((len(keys), 8), np.uint8)
    mac[:, 2:] = keys["mac"]
    return Rules(
        keys["device"].astype(np.int64),
        mac.view(">u8").ravel().astype(np.int64),
        *(values[name].astype(np.int64) for name in ("vni", "remote", "action", "handle", "cookie")),
    )


def _in_order(parts: list[Rules]) -> Rules:
    columns = [np.concatenate([getattr(each, spec.name) for each in parts]) for spec in fields(Rules)]
    rules = Rules(*columns)
    return rules.take(np.lexsort((rules.mac, rules.device)))
