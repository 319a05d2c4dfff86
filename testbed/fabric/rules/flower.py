"""Tunnel rules as tc flower rules: tunnel_key and a redirection to the way out, as adapters can take them
over.

For: kernels with cls_flower, act_tunnel_key and act_mirred. Not for: those without (bpf.py). Implements
port.Applier. Both actions are shared by their index: one tunnel_key for each VNI and VTEP, which the first
rule brings along and the last takes away, and one mirred for the host. The owner's mark is the cookie of
tunnel_key. A rule's handle here is tc's with the preference above it, which tells it from every other's.

One message is encoded by pyroute2's classes; the rest are its copies with other columns
(docs/decisions/0021).
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from control.reconciler.model import NO_RULES, Rules, Whole
from control.reconciler.ports import Add, Cause, Delete, Reason, RuleChange
from testbed.fabric.netlink import (
    ACK,
    FIRST_HEADER_WORD,
    HEADER,
    REQUEST,
    Alike,
    Inside,
    Messages,
    Path,
    Socket,
    Words,
    alike,
    attribute,
    name_of,
)
from testbed.fabric.rules.flower_attributes import IN_HW, SKIP_SW, Tunnelling, filter_message
from testbed.fabric.rules.ingress import (
    CREATE,
    DELETE_FILTER,
    EXCLUSIVE,
    INGRESS,
    KIND,
    NEW_FILTER,
    OPTIONS,
    TC_HEADER,
    TC_WORDS,
    VXLAN_PORT,
    ensure_clsact,
    ensure_way_out,
    filters,
)
from testbed.fabric.rules.port import FoundRules, Refused
from twinbed import BackendError

_PREFERENCE = 0x7462
_ALL_PROTOCOLS = 0x0300
_PLACE = (_PREFERENCE << 16) | _ALL_PROTOCOLS
_FIRST_REDIRECTION = 0x7400_0000
"""Index of mirred: the way out's ifindex is added. Everyone's redirections to it are the same."""

_HANDLE_BITS = 32
_AT_ONCE = 256
"""Messages of one send: some 60 KiB, less than a socket's smallest buffer."""

_HANDLE_WORD, _DEVICE_WORD, _PLACE_WORD = 2, 1, 4
_MAC, _FLAGS = (OPTIONS, 4), (OPTIONS, 22)
_FIRST, _SECOND = (OPTIONS, 3, 1), (OPTIONS, 3, 2)
_ACT_KIND, _ACT_OPTIONS, _ACT_COOKIE = 1, 2, 6
_TUNNEL, _REDIRECT = (*_FIRST, _ACT_OPTIONS), (*_SECOND, _ACT_OPTIONS)
_ACTION, _REMOTE, _VNI = (*_TUNNEL, 2), (*_TUNNEL, 4), (*_TUNNEL, 7)
_COOKIE = (*_FIRST, _ACT_COOKIE)
INSIDE: dict[Path, Inside] = dict.fromkeys(
    ((OPTIONS,), (OPTIONS, 3), _FIRST, _SECOND, _TUNNEL, _REDIRECT), Inside.ATTRIBUTES
)
"""Attributes of a filter that have attributes."""

_COOKIE_BYTES = 8
_NO_OWNER = -1
"""Of a rule without a cookie, or with one of a length that none of ours has."""

_CLONE_NEWNET = 0x4000_0000


class FlowerRules:
    """The rules of one owner on these representors (ifindex), and a view of everyone else's.

    local: this host's VTEP address, a whole number. Raises BackendError where the kernel refuses.
    """

    def __init__(self, owner: int, devices: Sequence[int], local: int) -> None:
        self._owner, self._devices = owner, tuple(devices)
        self._netlink = Socket()
        self._counts = (0, 0)
        try:
            for device in self._devices:
                ensure_clsact(self._netlink, device)
            self._template = _template(owner, local, ensure_way_out(self._netlink, usual_port=False))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def works() -> bool:
        """Whether this kernel takes such a rule: tried in a namespace that is gone with the trial."""
        found: list[bool] = []
        trial = threading.Thread(target=lambda: found.append(_trial()))
        trial.start()
        trial.join()
        return found == [True]

    @property
    def ports(self) -> frozenset[int]:
        """See `port.Applier`."""
        return frozenset({self._netlink.port})

    def measures(self) -> dict[str, int]:
        """Rules that an adapter has taken over (in_hw), and those that only it carries out (skip_sw), as of
        the last reading."""
        in_hardware, hardware_only = self._counts
        return {"in_hw": in_hardware, "skip_sw": hardware_only}

    def close(self) -> None:
        """See `port.Applier`."""
        self._netlink.close()

    def read(self) -> FoundRules:
        """See `port.Applier`."""
        found, self._counts = _read(self._netlink, self._devices)
        return found

    def carry_out(self, change: RuleChange) -> Refused | None:
        """See `port.Applier`."""
        rules = change.rules
        try:
            if isinstance(change, Add):
                refused = self._send(self._written(rules, np.zeros_like(rules.handle)), CREATE | EXCLUSIVE)
            else:
                handles = rules.handle if rules.handle.all() else self._handles(rules)
                if isinstance(change, Delete):
                    # Handle 0 would be every rule of the preference.
                    there = np.flatnonzero(handles)
                    refused = self._send(_removals(rules.take(there), handles[there]), 0)
                    refused = [(int(there[row]), number) for row, number in refused if number != errno.ENOENT]
                else:
                    refused = self._send(self._written(rules, handles), CREATE)
        except OSError as error:
            return Refused(np.arange(len(rules.mac)), str(error))
        if not refused:
            return None
        full = any(number == errno.ENOSPC for _, number in refused)
        return Refused(np.array([row for row, _ in refused], np.int64), name_of(refused[0][1]), full)

    def _send(self, requests: Words, flags: int) -> list[tuple[int, int]]:
        """requests: uint32[n, words], one message each. (row, errno) of those that were refused."""
        refused: list[tuple[int, int]] = []
        for first in range(0, len(requests), _AT_ONCE):
            part = requests[first : first + _AT_ONCE]
            part[:, 1] |= (REQUEST | flags) << 16
            part[-1, 1] |= ACK << 16
            part[:, 2] = np.arange(len(part))
            refused += [
                (first + row, number) for row, number in self._netlink.change(part.tobytes(), len(part))
            ]
        return refused

    def _written(self, rules: Rules, handles: Whole) -> Words:
        """A message for each rule."""
        words, place = self._template
        requests = np.tile(words, (len(rules.mac), 1))
        network = requests.view(words.dtype.newbyteorder(">"))
        requests[:, FIRST_HEADER_WORD + _DEVICE_WORD] = rules.device
        requests[:, FIRST_HEADER_WORD + _HANDLE_WORD] = handles & ((1 << _HANDLE_BITS) - 1)
        network[:, place[_MAC]] = rules.mac >> 16
        network[:, place[_MAC] + 1] = (rules.mac & 0xFFFF) << 16
        requests[:, place[_ACTION]] = rules.action
        network[:, place[_REMOTE]] = rules.remote
        network[:, place[_VNI]] = rules.vni
        return requests

    def _handles(self, rules: Rules) -> Whole:
        """Those of our rules for the same devices and addresses, 0 where there is none."""
        found = self.read().rules
        found = found.take(found.cookie == self._owner)
        rows = zip(found.device.tolist(), found.mac.tolist(), found.handle.tolist(), strict=True)
        known = {(device, mac): handle for device, mac, handle in rows}
        wanted = zip(rules.device.tolist(), rules.mac.tolist(), strict=True)
        return np.array([known.get(each, 0) for each in wanted], np.int64)


def installed(netlink: Socket, devices: Sequence[int]) -> Rules:
    """Everyone's rules on these devices, for a reader who has none. Raises OSError."""
    return _read(netlink, devices)[0].rules


def _read(netlink: Socket, devices: Sequence[int]) -> tuple[FoundRules, tuple[int, int]]:
    """The rules, and how many of them are in an adapter, and only there."""
    parts = [NO_RULES]
    interrupted = in_parts = False
    in_hardware = hardware_only = 0
    for device in devices:
        found = filters(netlink, device)
        interrupted |= found.interrupted
        in_parts |= found.parts > 1
        for each in alike(found, TC_WORDS, INSIDE):
            if (rules := rules_of(each)) is not None:
                parts.append(rules)
                flags = each.word(*_FLAGS)
                in_hardware += int(((flags & IN_HW) != 0).sum())
                hardware_only += int(((flags & SKIP_SW) != 0).sum())
    rules = Rules(*(np.concatenate(column) for column in zip(*map(_columns, parts), strict=True)))
    rules = rules.take(np.lexsort((rules.mac, rules.device)))
    return FoundRules(rules, interrupted, in_parts), (in_hardware, hardware_only)


def rules_of(each: Alike) -> Rules | None:
    """Whoever's tunnel rules, of messages with one layout; None where they are no such rules."""
    if any(path not in each for path in (_MAC, _ACTION, _REMOTE, _VNI, (*_REDIRECT, 2))):
        return None
    kinds = each.text(0, KIND), each.text(0, *_FIRST, _ACT_KIND), each.text(0, *_SECOND, _ACT_KIND)
    if kinds != ("flower", "tunnel_key", "mirred"):
        return None
    if each.size_bytes(*_COOKIE) == _COOKIE_BYTES:
        cookie = (each.network_word(*_COOKIE) << 32) | each.network_word(*_COOKIE, at=1)
    else:
        cookie = np.full(each.count, _NO_OWNER, np.int64)
    return Rules(
        device=each.header(_DEVICE_WORD),
        mac=each.mac(*_MAC),
        vni=each.network_word(*_VNI),
        remote=each.network_word(*_REMOTE),
        action=each.word(*_ACTION),
        handle=((each.header(_PLACE_WORD) >> 16) << _HANDLE_BITS) | each.header(_HANDLE_WORD),
        cookie=cookie,
    )


def _columns(rules: Rules) -> tuple[Whole, ...]:
    return tuple(getattr(rules, name) for name in Rules.__slots__)


def _template(owner: int, local: int, way_out: int) -> tuple[Words, dict[Path, int]]:
    """A message, and at which words its columns are."""
    message = filter_message()
    message["parent"], message["info"] = INGRESS, _PLACE
    message["header"]["type"] = NEW_FILTER
    dotted = ".".join(str(byte) for byte in local.to_bytes(4, "big"))
    rule = Tunnelling(
        mac="00:00:00:00:00:00",
        vni=0,
        local=dotted,
        remote="0.0.0.0",
        port=VXLAN_PORT,
        way_out=way_out,
        action=0,
        redirection=_FIRST_REDIRECTION + way_out,
        cookie=owner.to_bytes(_COOKIE_BYTES, "big"),
    )
    message["attrs"] = [("TCA_KIND", "flower"), ("TCA_OPTIONS", rule.options())]
    message.encode()
    words = np.frombuffer(bytes(message.data), np.uint32).copy()
    words[1] &= 0xFFFF
    (layout,) = alike(Messages(words, np.zeros(1, np.int64)), TC_WORDS, INSIDE)
    return words, {path: layout.place(*path) for path in (_MAC, _ACTION, _REMOTE, _VNI)}


def _removals(rules: Rules, handles: Whole) -> Words:
    """A message for each rule. handles: with the preference above."""
    body = TC_HEADER.pack(0, 0, 0, INGRESS, _ALL_PROTOCOLS) + attribute(KIND, b"flower\0")
    message = HEADER.pack(HEADER.size + len(body), DELETE_FILTER, 0, 0, 0) + body
    requests: NDArray[np.uint32] = np.tile(np.frombuffer(message, np.uint32), (len(handles), 1))
    requests[:, FIRST_HEADER_WORD + _DEVICE_WORD] = rules.device
    requests[:, FIRST_HEADER_WORD + _HANDLE_WORD] = handles & ((1 << _HANDLE_BITS) - 1)
    requests[:, FIRST_HEADER_WORD + _PLACE_WORD] |= (handles >> _HANDLE_BITS << 16).astype(np.uint32)
    return requests


def _trial() -> bool:
    """Puts a rule on the loopback device of a new namespace, which this thread alone is in."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNET):
        return False  # who may not make a namespace may not make a rule
    loopback, one = 1, np.ones(1, np.int64)
    try:
        rules = FlowerRules(1, [loopback], 0x7F00_0001)
    except BackendError:
        return False
    try:
        row = Rules(loopback * one, one, one, one, one, 0 * one, one)
        return rules.carry_out(Add(1, row, one.astype(np.uint8), Cause(Reason.STARTED, 0.0))) is None
    finally:
        rules.close()
