"""Write routes into our own routing table, which the kernel asks before the main one, and read both tables.

For: the fast path's Steer, Release and ReadRoutes in the process's namespace. Not for: deciding when
(control.fast_path).
Source: rtnetlink(7), linux/rtnetlink.h, linux/fib_rules.h. It uses a plain netlink socket, because routes
must be in force within a fraction of a millisecond, however many there are.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from control.fast_path.ports import NextHops
from twinbed import BackendError

TABLE = 0x7462
"""Number of our routing table (the bytes of "tb")."""
RULE_PRIORITY = 1000
"""Priority of the rule for our table, between the host's own addresses (0) and the main table (32766)."""
PROTOCOL = 0x74
"""Protocol number of our routes and our rule. It shows in listings who made them."""

MAIN = 254
_UNSPECIFIED_TABLE = 0
_NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE, _NEW_RULE, _DELETE_RULE = 24, 25, 26, 32, 33
_REQUEST, _ACK, _DUMP, _REPLACE, _EXCLUDE, _CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3
_DESTINATION, _OUT, _GATEWAY, _MULTIPATH, _TABLE = 1, 4, 5, 9, 15
_RULE_PRIORITY, _RULE_TABLE, _RULE_PROTOCOL, _RULE_TO_TABLE = 6, 15, 21, 1
_UNICAST, _HOST_BITS = 1, 32
_HEADER, _ROUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI")
_ATTRIBUTE, _NEXT_HOP, _WORD = struct.Struct("=HH"), struct.Struct("=HBBi"), struct.Struct("=I")
_RECEIVE_BYTES = 1 << 20
_ANSWER_S = 2.0
_BATCH = 100
"""Largest number of routes in one message to the kernel. Their answers must fit the socket's buffer."""


@dataclass(frozen=True, slots=True)
class Hop:
    """An uplink in a route. index: ifindex of its device. gateway: its IPv4 address."""

    index: int
    gateway: int


class Steering:
    """Our routing table in this thread's namespace. hops: the uplinks, in order.

    Raises BackendError with the cure for what the kernel refuses.
    """

    def __init__(self, hops: Sequence[Hop]) -> None:
        self._hops = tuple(hops)
        self._uplink_of = {hop.index: uplink for uplink, hop in enumerate(hops)}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._socket.settimeout(_ANSWER_S)
        self._sequence = 0
        self._codes: list[int] = []

    def open(self) -> None:
        """Make the kernel ask our table. Does nothing if it does so already."""
        self._ask([(_NEW_RULE, _CREATE | _EXCLUDE, _rule())], {errno.EEXIST})

    def close(self) -> None:
        """Remove our routes and the rule, if they still exist, and close the socket."""
        self.steer({}, self.read()[1])
        self._ask([(_DELETE_RULE, 0, _rule())], {errno.ENOENT, errno.EAFNOSUPPORT})
        self.shut()

    def shut(self) -> None:
        """Close the socket and leave the routes as they are."""
        self._socket.close()

    def steer(self, steered: Mapping[int, Iterable[int]], released: Iterable[int]) -> None:
        """Reach steered hosts over their uplinks, and released hosts as the main table says."""
        changes = [
            (_NEW_ROUTE, _CREATE | _REPLACE, self._route(host, hops)) for host, hops in steered.items()
        ]
        changes += [(_DELETE_ROUTE, 0, self._route(host, ())) for host in released]
        for begin in range(0, len(changes), _BATCH):
            # A route that is already gone is no failure.
            self._ask(changes[begin : begin + _BATCH], {errno.ESRCH})

    def read(self) -> tuple[NextHops, NextHops]:
        """Return (main, ours): the uplinks over which hosts are reached, in the main table and in ours."""
        main: dict[int, frozenset[int]] = {}
        ours: dict[int, frozenset[int]] = {}
        self._sequence += 1
        body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        self._socket.send(_message(_GET_ROUTE, _DUMP, self._sequence, body))
        for kind, body in self._answers(self._sequence):
            route = route_of(body) if kind == _NEW_ROUTE else None
            if route is not None and route.table in (MAIN, TABLE):
                hops = (self._uplink_of[index] for index in route.devices if index in self._uplink_of)
                (main if route.table == MAIN else ours)[route.host] = frozenset(hops)
        return main, ours

    def _route(self, host: int, uplinks: Iterable[int]) -> bytes:
        body = _ROUTE.pack(
            socket.AF_INET, _HOST_BITS, 0, 0, _UNSPECIFIED_TABLE, PROTOCOL, 0, _UNICAST if uplinks else 0, 0
        )
        body += _attribute(_DESTINATION, host.to_bytes(4, "big")) + _attribute(_TABLE, _WORD.pack(TABLE))
        if not uplinks:
            return body
        hops = b""
        for uplink in sorted(uplinks):
            hop = self._hops[uplink]
            gateway = _attribute(_GATEWAY, hop.gateway.to_bytes(4, "big"))
            hops += _NEXT_HOP.pack(_NEXT_HOP.size + len(gateway), 0, 0, hop.index) + gateway
        return body + _attribute(_MULTIPATH, hops)

    def _ask(self, requests: Sequence[tuple[int, int, bytes]], allowed: set[int]) -> None:
        """Send all requests in one message and read their answers. Raises BackendError for a refusal."""
        whole = b""
        for kind, flags, body in requests:
            self._sequence += 1
            whole += _message(kind, flags | _ACK, self._sequence, body)
        if whole:
            self._socket.send(whole)
        refused = 0
        for _ in requests:
            code = self._answer()
            refused = code if code and code not in allowed else refused
        if refused:
            raise BackendError(f"fast path: routes: {os.strerror(refused)}; run as root")

    def _answer(self) -> int:
        """Return the error number of the next answer; 0 for success."""
        while not self._codes:
            self._codes = [
                -struct.unpack_from("=i", body)[0]
                for kind, _, body in messages(self._receive())
                if kind == _ERROR
            ]
        return self._codes.pop(0)

    def _answers(self, sequence: int) -> Iterator[tuple[int, bytes]]:
        while True:
            for kind, number, body in messages(self._receive()):
                if number != sequence:
                    continue
                if kind in (_DONE, _ERROR):
                    return
                yield kind, body

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError as error:
            raise BackendError("fast path: the kernel does not answer about routes; restart it") from error


@dataclass(frozen=True, slots=True)
class Route:
    """A route to one host. table: its routing table. host: IPv4. devices: ifindex of every next hop."""

    table: int
    host: int
    devices: tuple[int, ...]


def route_of(body: bytes) -> Route | None:
    """Return the route in a message of rtnetlink; None if it does not lead to a single host."""
    _, bits, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
    attributes = dict(_attributes(body[_ROUTE.size :]))
    if kind != _UNICAST or bits != _HOST_BITS or _DESTINATION not in attributes:
        return None
    table = _WORD.unpack(attributes[_TABLE])[0] if _TABLE in attributes else table
    return Route(table, int.from_bytes(attributes[_DESTINATION], "big"), tuple(_devices(attributes)))


def _devices(attributes: Mapping[int, bytes]) -> Iterator[int]:
    if _OUT in attributes:
        yield struct.unpack("=i", attributes[_OUT])[0]
    hops = attributes.get(_MULTIPATH, b"")
    while len(hops) >= _NEXT_HOP.size:
        length, _, _, index = _NEXT_HOP.unpack_from(hops)
        yield index
        hops = hops[max(length, _NEXT_HOP.size) :]


def _rule() -> bytes:
    body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _UNSPECIFIED_TABLE, 0, 0, _RULE_TO_TABLE, 0)
    body += _attribute(_RULE_PRIORITY, _WORD.pack(RULE_PRIORITY)) + _attribute(_RULE_TABLE, _WORD.pack(TABLE))
    return body + _attribute(_RULE_PROTOCOL, bytes([PROTOCOL]))


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    padded = body + bytes(-len(body) % 4)
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, sequence, 0) + padded


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def messages(received: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (kind, sequence number, body) of every message in a netlink datagram."""
    while len(received) >= _HEADER.size:
        length, kind, _, sequence, _ = _HEADER.unpack_from(received)
        if length < _HEADER.size:
            return
        yield kind, sequence, received[_HEADER.size : length]
        received = received[(length + 3) & ~3 :]


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    while len(body) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(body)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, body[_ATTRIBUTE.size : length]
        body = body[(length + 3) & ~3 :]
