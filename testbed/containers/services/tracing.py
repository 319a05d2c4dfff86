"""Spans of requests on the wire: their names and their messages.

For: a container's messages about its calls for a traced request. Not for: choosing the traced requests and
using their spans (testbed.containers.load.tracing).

A traced request's path ends in `?SPAN`. A span is named by its request's number and the positions of the
calls that lead to it: `17.0.2` is the third call of the first call of request 17. A container sends its calls
in one datagram, before it answers, to PORT of its deployment's address. If no process listens, the datagram
is lost.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

MARK = "?"
"""Text between a path and the span's name."""

PORT = 9000
"""UDP port of the collector of spans, at the deployment's address."""

FIRST_PORT = 9001
"""TCP port of a deployment's first container. The other containers have the next ports."""

Call = tuple[str, int, int, int]
"""A call: its span's name, the port of the container that answered, and when it was made and answered, ns of
CLOCK_MONOTONIC."""


class Visit:
    """The calls of one visit of a traced request. span: the visit's own name."""

    def __init__(self, span: str) -> None:
        self._span, self._made = span, 0
        self.calls: list[Call] = []

    def call(self) -> str:
        """Return the name of the next call's span."""
        self._made += 1
        return f"{self._span}.{self._made - 1}"

    def answered(self, name: str, port: int, began_ns: int) -> None:
        """Note that a call was answered just now, by the container at this port."""
        self.calls.append((name, port, began_ns, time.monotonic_ns()))


class Teller:
    """Sends a datagram about each call, and never waits. host: address of the deployment."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect((host, PORT))

    def tell(self, visit: Visit) -> None:
        """Send a datagram about a visit's calls. It is lost if the kernel does not take it."""
        if visit.calls:
            with suppress(OSError):
                self._socket.send(json.dumps(visit.calls).encode("ascii"))
