"""bfdd's protocol for distributed BFD, from bfdd's side, and a listener that takes bfdd's place.

For: driving the data plane without FRR, in tests and in measurements of many sessions. Not for: a fabric,
where bfdd is the other side. Source: FRRouting, bfdd/bfddp_packet.h, version 1 of the protocol (FRR 8.4). All
fields are big-endian.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from control.fabric import BfdState, BfdTimers
from twinbed import BackendError

ECHO_REQUEST, ECHO_REPLY, ADD, DELETE, CHANGE, COUNTERS_REQUEST, COUNTERS = range(7)
_VERSION = 1
_HEADER = struct.Struct("!BBHHH")
_SESSION = struct.Struct("!I4s12x4s12xI5IBB2xI64s")
_CHANGE = struct.Struct("!6I3Bx")
_COUNTERS = struct.Struct("!I4x8Q")
_RECEIVED_BYTES, _ACCEPT_S = 1 << 16, 10.0
_TTL = 255


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the data plane.

    id: local discriminator. local, peer: IPv4 addresses. timers: timers that this end uses and asks for.
    flags: flags of the protocol; 64: the session is shut down.
    """

    id: int
    local: str
    peer: str
    timers: BfdTimers
    flags: int = 0

    def message(self, kind: int = ADD) -> bytes:
        """Return the message that adds, updates or deletes the session."""
        interval_us = round(self.timers.interval_s * 1e6)
        addresses = IPv4Address(self.local).packed, IPv4Address(self.peer).packed
        timers = interval_us, interval_us, 0, 0, 0, _TTL, self.timers.multiplier
        body = _SESSION.pack(self.flags, *addresses, self.id, *timers, 0, b"")
        return message(kind, body)


@dataclass(frozen=True, slots=True)
class Change:
    """The data plane's report of a session's state. at_s: time at which it was read (time.monotonic), s."""

    at_s: float
    id: int
    remote_id: int
    state: BfdState
    diagnostic: int
    multiplier: int


def message(kind: int, body: bytes = b"", number: int = 0) -> bytes:
    """Return a message of a kind. number: number of the request; 0 asks for no answer."""
    return _HEADER.pack(_VERSION, 0, kind, number, _HEADER.size + len(body)) + body


class Listener:
    """Takes bfdd's place towards a data plane. path: path of the socket on which it listens."""

    def __init__(self, path: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._connection: socket.socket | None = None
        self._waiting = b""
        self.changes: list[Change] = []
        self.counters: dict[int, tuple[int, ...]] = {}
        self.echoes: list[int] = []

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        if self._connection is not None:
            self._connection.close()

    def accept(self) -> None:
        """Wait for a data plane. Raises BackendError if none comes."""
        if self._connection is not None:
            self._connection.close()
        self._listening.settimeout(_ACCEPT_S)
        try:
            self._connection, _ = self._listening.accept()
        except TimeoutError:
            raise BackendError("no BFD data plane connects; does it run?") from None
        self._waiting = b""

    def send(self, data: bytes) -> None:
        """Send bytes to the data plane, which need not be a valid message."""
        assert self._connection is not None
        self._connection.sendall(data)

    def read(self, wait_s: float = 0.0) -> bool:
        """Wait up to wait_s and read what the data plane sent. Returns whether it is still connected."""
        assert self._connection is not None
        while select.select([self._connection], [], [], wait_s)[0]:
            received = self._connection.recv(_RECEIVED_BYTES)
            if not received:
                return False
            self._waiting += received
            wait_s = 0.0
        while len(self._waiting) >= _HEADER.size:
            _, _, kind, _, size = _HEADER.unpack_from(self._waiting)
            if len(self._waiting) < size:
                break
            self._take(kind, self._waiting[_HEADER.size : size])
            self._waiting = self._waiting[size:]
        return True

    def states(self) -> dict[int, BfdState]:
        """Return the last reported state of each session."""
        return {change.id: change.state for change in self.changes}

    def until(self, true: Callable[[], bool], within_s: float) -> bool:
        """Read until `true()` is true. Returns whether it became true in time."""
        deadline = time.monotonic() + within_s
        while not true():
            if time.monotonic() > deadline or not self.read(0.02):
                return False
        return True

    def _take(self, kind: int, body: bytes) -> None:
        if kind == CHANGE:
            own, remote, _, _, _, _, state, diagnostic, multiplier = _CHANGE.unpack(body)
            self.changes.append(
                Change(time.monotonic(), own, remote, BfdState(state), diagnostic, multiplier)
            )
        elif kind == COUNTERS:
            own, *counted = _COUNTERS.unpack(body)
            self.counters[own] = tuple(counted)
        elif kind == ECHO_REPLY:
            self.echoes.append(int.from_bytes(body[:8], "big"))
