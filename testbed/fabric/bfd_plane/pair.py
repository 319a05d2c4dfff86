"""Two data planes in namespaces of their own, joined by a cable, each with a listener in bfdd's place.

For: tests and measurements of the data plane without FRR. Not for: fabrics (up.py). Source: our design. The
namespaces carry the mark of a fabric of their own, so `twinbed testbed down` removes what was left.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from control.fabric import BfdState, BfdTimers
from testbed.fabric import leftovers
from testbed.fabric.bfd_plane import processes
from testbed.fabric.bfd_plane.messages import Listener, Session
from testbed.fabric.links import end, make_namespace, output_of
from testbed.fabric.ownership import namespace

MOST_SESSIONS = 1024
"""Largest number of sessions of one data plane (MOST in plane.c)."""

_FIRST = int(IPv4Address("198.18.0.0"))
"""First address of the ends (RFC 2544 reserves these addresses for measurements)."""

_DEVICE = "cable"


@dataclass(frozen=True, slots=True)
class End:
    """One end of the cable. addresses: one per possible session. first: id of the first session."""

    namespace: str
    addresses: tuple[str, ...]
    listener: Listener
    journal: Path
    tell: Path
    first: int

    def add(self, other: End, timers: BfdTimers, number: int = 0, flags: int = 0) -> None:
        """Add or update a session with the other end."""
        addresses = self.addresses[number], other.addresses[number]
        self.listener.send(Session(self.first + number, *addresses, timers, flags).message())

    def in_state(self, state: BfdState) -> int:
        """Return the number of sessions that are in a state now."""
        self.listener.read()
        return list(self.listener.states().values()).count(state)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the data plane's worker."""
        worker = processes.worker(self.journal)
        assert worker is not None
        os.kill(worker, number)

    def carrier(self, *, up: bool) -> None:
        """Set this end of the cable up or down."""
        _ip(self.namespace, f"link set {_DEVICE} {'up' if up else 'down'}")


@contextmanager
def pair(sessions: int = 1) -> Iterator[tuple[End, End]]:
    """Yield two ends whose data planes run. sessions: number of sessions for which both have addresses.

    Raises BackendError if the data plane cannot be compiled, or namespaces cannot be made.
    """
    assert 1 <= sessions <= MOST_SESSIONS
    name = f"plane{os.getpid()}"
    places = [namespace(name, f"h{index}") for index in range(2)]
    with ExitStack() as stack:
        stack.callback(leftovers.remove, name)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbed-")))
        for place in places:
            make_namespace(place)
        _ip(places[0], f"link add {_DEVICE} type veth peer name {_DEVICE} netns {places[1]}")
        ends = [
            stack.enter_context(_end(folder, index, place, sessions)) for index, place in enumerate(places)
        ]
        for one in ends:
            running = processes.start(one.namespace, folder / f"{one.first}.sock", one.journal, tell=one.tell)
            stack.callback(end, running)
            one.listener.accept()
        yield ends[0], ends[1]


@contextmanager
def _end(folder: Path, index: int, place: str, sessions: int) -> Iterator[End]:
    addresses = tuple(str(IPv4Address(_FIRST + 2 * number + index)) for number in range(sessions))
    _ip(
        place,
        *(f"link set {device} up" for device in ("lo", _DEVICE)),
        *(f"address add {address}/31 dev {_DEVICE}" for address in addresses),
    )
    first = 1 + index * MOST_SESSIONS
    files = folder / f"{first}.log", folder / f"{first}.tell"
    with Listener(folder / f"{first}.sock") as listener:
        yield End(place, addresses, listener, *files, first)


def _ip(place: str, *commands: str) -> None:
    output_of(place, ("ip", "-batch", "-"), text="\n".join([*commands, ""]))
