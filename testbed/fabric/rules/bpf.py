"""Keep tunnel rules as entries of a BPF map. A tc program on every representor looks frames up in it.

For: kernels without flower or tunnel_key. Not for: adapters that take rules over themselves (flower.py).
Source: kernel/tunnel.bpf.c, tc(8). Implements port.Applier.

Every owner has its own map and program, recognised by the filter's name, so that owners do not disturb each
other. A successor finds its predecessor's map through the filters. A rule gets its handle, a number, when it
is added. The shared action of control.reconciler is a column of the map, because a change of two maps would
not be atomic.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.reconciler.model import Rules, Whole
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
"""Default room of a map, number of rules. Its buckets are allocated from the start, 16 bytes each."""

_PREFERENCE = 0x7462
_ALL_PROTOCOLS = 0x0300
"""ETH_P_ALL in network byte order."""

_FD, _NAME, _FLAGS, _ID = 6, 7, 8, 11
_DIRECT_ACTION = 1
_IN_FILTERS: dict[Path, Inside] = {(OPTIONS,): Inside.ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class _Filter:
    """A BPF filter at a device's ingress. device: ifindex. handle: its number. program: program's id."""

    device: int
    name: str
    handle: int
    program: int


class BpfRules:
    """The rules of one owner on these representors (ifindex), and a view of all other owners' rules.

    local: this host's VTEP address (IPv4 as an integer). room: least number of rules that must fit.
    Raises BackendError if the kernel, the compiler or nft refuses.
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
        """The program and its maps."""
        assert self._tunnel is not None
        return self._tunnel

    def measures(self) -> dict[str, int]:
        """Return the numbers of frames since loading: sent by a rule, and left to the bridge."""
        sent, left = self.tunnel.frames()
        return {"frames_sent": sent, "frames_left": left, "room": self.tunnel.room}

    def close(self) -> None:
        """See `port.Applier`. The program keeps working."""
        for tunnel in (self._tunnel, *self._others.values()):
            if tunnel is not None:
                tunnel.close()
        self._others.clear()
        self._netlink.close()

    def make_room(self, room: int) -> None:
        """Switch to a map with this room. No rule is missing at any moment.

        Raises BackendError, and changes nothing, if there are more rules than that.
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
        attached = _filters(self._netlink, self._devices)
        parts = [
            _rules(*self.tunnel.read(), [filter_.device for filter_ in attached if self._is_ours(filter_)])
        ]
        theirs = [filter_ for filter_ in attached if filter_.name != self._name]
        self._look_at({filter_.program for filter_ in theirs})
        parts += [
            _rules(*tunnel.read(), [filter_.device])
            for filter_ in theirs
            if (tunnel := self._others[filter_.program]) is not None
        ]
        return FoundRules(Rules.joined(parts))

    def carry_out(self, change: RuleChange) -> Refused | None:
        """See `port.Applier`. If somebody removed a filter, it is put back when a rule is written."""
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
        """Return the rules' handles. A rule without one gets the handle in the map, or else a new one."""
        if rules.handle.all():
            return rules.handle
        handles = _rules(*self.tunnel.read(), self._devices).handles_for(rules)
        missing = handles == 0
        handles[missing] = self._new_handles(int(missing.sum()))
        return handles

    # --- the program ---------------------------------------------------------------------------------

    def _adopt_or_load(self, room: int) -> None:
        for filter_ in _filters(self._netlink, self._devices):
            if filter_.name == self._name and (tunnel := Tunnel.adopt(filter_.program)) is not None:
                self._tunnel = tunnel
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
        """Attach the program to devices that lack it. Raises BackendError.

        afresh: whether to remove the device's old rules first, which no dump showed while the program was
        detached.
        """
        named = [filter_ for filter_ in _filters(self._netlink, devices) if filter_.name == self._name]
        attached = {filter_.device: filter_ for filter_ in named}
        for device in devices:
            old = attached.get(device)
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

    def _is_ours(self, attached: _Filter) -> bool:
        return attached.name == self._name and attached.program == self.tunnel.program_id

    def _look_at(self, programs: set[int]) -> None:
        """Keep these programs of other owners open, and close those that are no longer attached."""
        for program in self._others.keys() - programs:
            gone = self._others.pop(program)
            if gone is not None:
                gone.close()
        for program in programs - self._others.keys():
            self._others[program] = Tunnel.adopt(program)


def installed(netlink: Socket, devices: Sequence[int]) -> Rules:
    """Return all owners' rules on these devices. Raises OSError or BackendError."""
    parts = []
    for filter_ in _filters(netlink, devices):
        if (tunnel := Tunnel.adopt(filter_.program)) is not None:
            with tunnel:
                parts.append(_rules(*tunnel.read(), [filter_.device]))
    return Rules.joined(parts)


def _filters(netlink: Socket, devices: Sequence[int]) -> list[_Filter]:
    """Return the BPF filters at the ingress of these devices."""
    result = []
    for device in devices:
        for group in alike(filters(netlink, device), TC_WORDS, _IN_FILTERS):
            if (OPTIONS, _ID) in group:
                rows = zip(group.header(2).tolist(), group.word(OPTIONS, _ID).tolist(), strict=True)
                result += [
                    _Filter(device, group.text(row, OPTIONS, _NAME), handle, program)
                    for row, (handle, program) in enumerate(rows)
                ]
    return result


def _keys(rules: Rules) -> Keys:
    keys = np.zeros(len(rules.mac), KEY)
    keys["device"] = rules.device
    keys["mac"] = rules.mac.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    return keys


def _rules(keys: Keys, values: Keys, devices: Sequence[int]) -> Rules:
    """Return a map's rules for these devices."""
    wanted = np.isin(keys["device"], list(devices))
    keys, values = keys[wanted], values[wanted]
    mac = np.zeros((len(keys), 8), np.uint8)
    mac[:, 2:] = keys["mac"]
    return Rules(
        keys["device"].astype(np.int64),
        mac.view(">u8").ravel().astype(np.int64),
        *(values[name].astype(np.int64) for name in ("vni", "remote", "action", "handle", "cookie")),
    )
