"""Keep tunnel rules as tc flower rules (tunnel_key and a redirection). Adapters can take them over.

For: kernels with cls_flower, act_tunnel_key and act_mirred. Not for: other kernels (bpf.py). Source:
tc-flower(8), tc-tunnel_key(8), tc-mirred(8). Implements port.Applier.

Both actions are shared by their index. There is one tunnel_key for every VNI and VTEP, which exists from its
first rule to its last, and one mirred for the host. The owner's mark is the cookie of tunnel_key. A rule's
handle is tc's handle with the preference in the higher bits, which makes it unique. pyroute2's classes encode
one message. The other messages are copies of it with other columns (docs/decisions/0021).
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from control.reconciler.model import Rules, Whole
from control.reconciler.ports import Add, Cause, Delete, Reason, RuleChange
from testbed.fabric.model import VXLAN_PORT
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
"""Lowest index of mirred. The ifindex of the way out is added. All owners share this redirection."""

_HANDLE_BITS = 32
_AT_ONCE = 256
"""Largest number of messages in one send: about 60 KiB, less than a socket's smallest buffer."""

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
"""Attributes of a filter that contain attributes."""

_COOKIE_BYTES = 8
_NO_OWNER = -1
"""Owner of a rule without a cookie, or with a cookie of another length than ours."""

_CLONE_NEWNET = 0x4000_0000


class FlowerRules:
    """The rules of one owner on these representors (ifindex), and a view of all other owners' rules.

    local: this host's VTEP address (IPv4 as an integer). Raises BackendError if the kernel refuses.
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
        """Return whether this kernel takes such a rule, by a trial in a namespace of its own."""
        results: list[bool] = []
        trial = threading.Thread(target=lambda: results.append(_trial()))
        trial.start()
        trial.join()
        return results == [True]

    @property
    def ports(self) -> frozenset[int]:
        """See `port.Applier`."""
        return frozenset({self._netlink.port})

    def measures(self) -> dict[str, int]:
        """Return the numbers of rules in an adapter (in_hw), and only there (skip_sw), as last read."""
        in_hardware, hardware_only = self._counts
        return {"in_hw": in_hardware, "skip_sw": hardware_only}

    def close(self) -> None:
        """See `port.Applier`."""
        self._netlink.close()

    def read(self) -> FoundRules:
        """See `port.Applier`."""
        installed, self._counts = _read(self._netlink, self._devices)
        return installed

    def carry_out(self, change: RuleChange) -> Refused | None:
        """See `port.Applier`."""
        rules = change.rules
        try:
            if isinstance(change, Add):
                refused = self._send(self._written(rules, np.zeros_like(rules.handle)), CREATE | EXCLUSIVE)
            else:
                handles = rules.handle if rules.handle.all() else self._handles(rules)
                if isinstance(change, Delete):
                    # Handle 0 would mean all rules of the preference.
                    rows = np.flatnonzero(handles)
                    refused = self._send(_removals(rules.take(rows), handles[rows]), 0)
                    refused = [(int(rows[row]), number) for row, number in refused if number != errno.ENOENT]
                else:
                    refused = self._send(self._written(rules, handles), CREATE)
        except OSError as error:
            return Refused(np.arange(len(rules.mac)), str(error))
        if not refused:
            return None
        full = any(number == errno.ENOSPC for _, number in refused)
        return Refused(np.array([row for row, _ in refused], np.int64), name_of(refused[0][1]), full)

    def _send(self, requests: Words, flags: int) -> list[tuple[int, int]]:
        """Send uint32[n, words], one message per row. Returns (row, errno) of the refused ones."""
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
        """Return a message for every rule."""
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
        """Return the handles of our rules for the same devices and MAC addresses; 0 if there is none."""
        installed = self.read().rules
        return installed.take(installed.cookie == self._owner).handles_for(rules)


def installed(netlink: Socket, devices: Sequence[int]) -> Rules:
    """Return all owners' rules on these devices, for a reader without rules. Raises OSError."""
    return _read(netlink, devices)[0].rules


def _read(netlink: Socket, devices: Sequence[int]) -> tuple[FoundRules, tuple[int, int]]:
    """Return the rules, and two numbers: rules that are in an adapter, and rules that are only there."""
    parts = []
    interrupted = in_parts = False
    in_hardware = hardware_only = 0
    for device in devices:
        messages = filters(netlink, device)
        interrupted |= messages.interrupted
        in_parts |= messages.parts > 1
        for group in alike(messages, TC_WORDS, INSIDE):
            if (rules := rules_of(group)) is not None:
                parts.append(rules)
                flags = group.word(*_FLAGS)
                in_hardware += int(((flags & IN_HW) != 0).sum())
                hardware_only += int(((flags & SKIP_SW) != 0).sum())
    return FoundRules(Rules.joined(parts), interrupted, in_parts), (in_hardware, hardware_only)


def rules_of(group: Alike) -> Rules | None:
    """Return all owners' tunnel rules in messages with one layout; None if they are other filters."""
    if any(path not in group for path in (_MAC, _ACTION, _REMOTE, _VNI, (*_REDIRECT, 2))):
        return None
    kinds = group.text(0, KIND), group.text(0, *_FIRST, _ACT_KIND), group.text(0, *_SECOND, _ACT_KIND)
    if kinds != ("flower", "tunnel_key", "mirred"):
        return None
    if group.size_bytes(*_COOKIE) == _COOKIE_BYTES:
        cookie = (group.network_word(*_COOKIE) << 32) | group.network_word(*_COOKIE, at=1)
    else:
        cookie = np.full(group.count, _NO_OWNER, np.int64)
    return Rules(
        device=group.header(_DEVICE_WORD),
        mac=group.mac(*_MAC),
        vni=group.network_word(*_VNI),
        remote=group.network_word(*_REMOTE),
        action=group.word(*_ACTION),
        handle=((group.header(_PLACE_WORD) >> 16) << _HANDLE_BITS) | group.header(_HANDLE_WORD),
        cookie=cookie,
    )


def _template(owner: int, local: int, way_out: int) -> tuple[Words, dict[Path, int]]:
    """Return a message, and the words in which its columns are."""
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
    """Return a message for every rule. handles: tc's handles with the preference in the higher bits."""
    body = TC_HEADER.pack(0, 0, 0, INGRESS, _ALL_PROTOCOLS) + attribute(KIND, b"flower\0")
    message = HEADER.pack(HEADER.size + len(body), DELETE_FILTER, 0, 0, 0) + body
    requests: NDArray[np.uint32] = np.tile(np.frombuffer(message, np.uint32), (len(handles), 1))
    requests[:, FIRST_HEADER_WORD + _DEVICE_WORD] = rules.device
    requests[:, FIRST_HEADER_WORD + _HANDLE_WORD] = handles & ((1 << _HANDLE_BITS) - 1)
    requests[:, FIRST_HEADER_WORD + _PLACE_WORD] |= (handles >> _HANDLE_BITS << 16).astype(np.uint32)
    return requests


def _trial() -> bool:
    """Return whether a rule can be put on the loopback device of a new namespace of this thread."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNET):
        return False  # a process that may not make a namespace may not make a rule
    loopback, ones = 1, np.ones(1, np.int64)
    try:
        rules = FlowerRules(1, [loopback], 0x7F00_0001)
    except BackendError:
        return False
    try:
        row = Rules(loopback * ones, ones, ones, ones, ones, 0 * ones, ones)
        return rules.carry_out(Add(1, row, ones.astype(np.uint8), Cause(Reason.STARTED, 0.0))) is None
    finally:
        rules.close()
