"""Use the reports of BFD's data plane in place of overheard packets. The data plane knows its own freezes.

For: the fast path of a host whose plan has `bfd_plane`. Not for: overhearing (hearing.py) or deciding
(control.fast_path). Source: testbed/fabric/bfd_plane/plane.c, struct told. If a data plane ends, nothing
watches its sessions, so they count as silent until another data plane reports.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from control.fabric import BfdState, BfdTimers
from control.fast_path.bfd import Control
from control.fast_path.ports import Event, Heard, Silent

if TYPE_CHECKING:
    from testbed.fabric.fast_path.hearing import Ear

_TOLD = struct.Struct("=q4sBBBx")
_NEIGHBOUR_DOWN = 3
"""Diagnostic of a session that went down because the far end said so (RFC 5880 §4.1)."""

_NO_TIMERS = BfdTimers(math.inf, 1)
"""The data plane watches the silence, so the fast path has no detection time of its own."""


class Reports:
    """The socket on which a host's data plane reports. path: path of the socket. ears: the host's uplinks."""

    def __init__(self, path: Path, ears: Sequence[Ear]) -> None:
        self._uplink_of = {ear.gateway: uplink for uplink, ear in enumerate(ears)}
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.setblocking(False)
        self._plane: socket.socket | None = None

    def close(self) -> None:
        """Close the sockets."""
        for one in self.sockets():
            one.close()

    def sockets(self) -> tuple[socket.socket, ...]:
        """Return the sockets to wait for."""
        return (self._listening, *([self._plane] if self._plane else []))

    def events(self) -> Iterator[Event]:
        """Yield the waiting events, with the data plane's times (CLOCK_MONOTONIC, s)."""
        with suppress(BlockingIOError):
            plane, _ = self._listening.accept()
            plane.setblocking(False)
            if self._plane is not None:
                self._plane.close()
            self._plane = plane
        while self._plane is not None:
            try:
                told = self._plane.recv(_TOLD.size)
            except BlockingIOError:
                return
            except OSError:
                told = b""
            if len(told) == _TOLD.size:
                yield from self._event(told)
                continue
            self._plane.close()
            self._plane = None
            for uplink in self._uplink_of.values():
                yield Silent(time.monotonic(), uplink)

    def _event(self, told: bytes) -> Iterator[Event]:
        at_ns, peer, state, remote_state, diagnostic = _TOLD.unpack(told)
        source = int(IPv4Address(peer))
        uplink = self._uplink_of.get(source)
        if uplink is None:
            return
        if state == BfdState.DOWN and diagnostic not in (0, _NEIGHBOUR_DOWN):
            yield Silent(at_ns / 1e9, uplink)
            return
        # Where the far end was shut down on purpose, our own state does not say so (RFC 5880 §6.8.16).
        shown = BfdState.ADMIN_DOWN if remote_state == BfdState.ADMIN_DOWN else BfdState(state)
        yield Heard(at_ns / 1e9, uplink, Control(source, shown, _NO_TIMERS))
