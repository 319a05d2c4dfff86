"""The door accepts TCP connections and passes their bytes on to gRPC, which listens on its own socket.

For: limits on waiting connections by number, address and time. gRPC has no limit per address, and keeps a
silent connection for minutes. Not for: TLS, which passes through unread (service.py), nor authorisation
(controller.py). A connection waits until an agent has registered on it, and again after its call has ended.
See docs/decisions/0032-a-door-before-grpc.md.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from testbed.containers.remote.refusals import Refusals
from twinbed import BackendError

WAIT_S = 5.0
"""Longest time that a connection may wait for its agent to register, s. Registering takes milliseconds and
some network delays, and longer when hundreds of agents come at once."""

_MOST_WAITING = 256
"""Largest number of waiting connections of known addresses, and of others. It is enough for a burst, and
small enough to search."""

_FEWEST_WAITING = 8
_ADDRESSES = 8
"""Number of addresses needed to fill the waiting connections. Each address may have 1/_ADDRESSES of them."""

_DESCRIPTORS = 3
"""Number of open files per connection: its own, and both ends of the one to gRPC."""

_SPARE_DESCRIPTORS = 64
"""Number of open files for everything else, such as gRPC's own and the metrics' readers."""

_CHUNK_BYTES = 1 << 16
_REST_S = 0.1
_BACKLOG = 512


def room(agents: int) -> int:
    """Return two numbers: the most waiting connections of known addresses, and of others, besides those of
    `agents` agents. It raises this process's limit of open files as far as possible. Raises BackendError if
    the limit is too low."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    free = most - sum(1 for _ in Path("/proc/self/fd").iterdir()) - _SPARE_DESCRIPTORS
    waiting = min((free // _DESCRIPTORS - agents) // 2, _MOST_WAITING)
    if waiting < _FEWEST_WAITING:
        more = _DESCRIPTORS * (agents + 2 * _FEWEST_WAITING + 1) - free
        raise BackendError(
            f"{most} open files are too few for {agents} agents; allow {most + more} with: ulimit -n"
        )
    return waiting


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.create_server(
        address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=address[0] == "::"
    )
    listener.setblocking(False)
    return listener


@dataclass(slots=True, eq=False)
class _Guest:
    """A connection.

    name: name of its end of the connection to gRPC. address: its real address. origin: its address as it is
    counted (see `origin`). since_s: time at which it began to wait, s. calls: number of registered agents'
    calls on it. explained: whether it showed a good certificate, or its end is counted already.
    """

    name: str
    address: str
    origin: str
    since_s: float
    task: asyncio.Task[None] | None = None
    calls: int = 0
    explained: bool = False

    def dismiss(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Door:
    """Passes connections of `listener` on to gRPC at the Unix socket `inside`.

    waiting: numbers of connections that may wait, of known addresses and of others (see `room`). An address
    is known once an agent has registered from it. If too many wait, the one that waits longest is closed.
    """

    def __init__(self, listener: socket.socket, inside: Path, waiting: int, refusals: Refusals) -> None:
        self._listener = listener
        self._inside = str(inside)
        self._most = waiting
        self._most_per_origin = max(1, waiting // _ADDRESSES)
        self._refusals = refusals
        self._guests: dict[str, _Guest] = {}
        self._known: dict[str, str] = {}
        self._mark, self._number = f"twinbed-{secrets.token_hex(8)}", 0

    async def run(self) -> None:
        """Accept connections until cancelled, which closes all of them."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listener)
                except OSError:
                    # The connection was closed, or another part of the process has used the spare files.
                    await asyncio.sleep(_REST_S)
                    continue
                self._take_in(connection, str(address[0]))
                # Dismissed connections end before the next connection comes.
                await asyncio.sleep(0)
        finally:
            self._listener.close()
            tasks = [guest.task for guest in self._guests.values() if guest.task is not None]
            for guest in self._guests.values():
                guest.explained = True
                guest.dismiss()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- events of the controller: peer is gRPC's name of a connection ------------------------------

    def address(self, peer: str) -> str:
        """Return the address that a peer really has."""
        guest = self._guest(peer)
        return "an address that has disconnected" if guest is None else guest.address

    def called(self, peer: str) -> None:
        """Record that a call came, which shows that the certificate is good."""
        guest = self._guest(peer)
        if guest is not None:
            guest.explained = True

    def registered(self, peer: str, agent: str) -> None:
        """Record that the agent has registered. The connection no longer waits, and its address is known."""
        guest = self._guest(peer)
        if guest is not None:
            guest.calls += 1
            self._known[agent] = guest.origin

    def ended(self, peer: str) -> None:
        """Record that a registered agent's call is over. The connection waits again."""
        guest = self._guest(peer)
        if guest is not None:
            guest.calls -= 1
            guest.since_s = asyncio.get_running_loop().time()

    def tick(self) -> None:
        """Close connections that have waited too long. Call it now and then."""
        due_s = asyncio.get_running_loop().time() - WAIT_S
        for guest in list(self._guests.values()):
            if not guest.calls and guest.since_s <= due_s:
                guest.dismiss()

    # --- connections -----------------------------------------------------------------------------

    def _guest(self, peer: str) -> _Guest | None:
        return self._guests.get(peer.partition(":")[2])

    def _take_in(self, connection: socket.socket, address: str) -> None:
        self._number += 1
        loop = asyncio.get_running_loop()
        guest = _Guest(f"{self._mark}-{self._number}", address, origin(address), loop.time())
        self._make_room(guest)
        self._guests[guest.name] = guest
        guest.task = asyncio.create_task(self._attend(guest, connection))
        guest.task.add_done_callback(lambda _: self._gone(guest, connection))

    def _make_room(self, newcomer: _Guest) -> None:
        """Close the connection that waits longest, if too many of the newcomer's kind wait."""
        known = set(self._known.values())
        alike = [
            guest
            for guest in self._guests.values()
            if not guest.calls and (guest.origin in known) == (newcomer.origin in known)
        ]
        near = [guest for guest in alike if guest.origin == newcomer.origin]
        if len(near) >= self._most_per_origin:
            crowd = near
        elif len(alike) >= self._most:
            crowd = alike
        else:
            return
        oldest = min(crowd, key=lambda guest: guest.since_s)
        self._refusals.add("too many connections", f"the oldest that waits, from {oldest.address}, is closed")
        oldest.explained = True
        oldest.dismiss()
        del self._guests[oldest.name]

    def _gone(self, guest: _Guest, connection: socket.socket) -> None:
        connection.close()
        self._guests.pop(guest.name, None)
        if not guest.explained:
            self._refusals.add(
                "certificate",
                f"a connection from {guest.address} without a certificate of ours that is in date, or none "
                "at all",
            )

    async def _attend(self, guest: _Guest, outer: socket.socket) -> None:
        """Pass bytes on, both ways, until either side ends. gRPC sees it with the first bytes."""
        loop = asyncio.get_running_loop()
        try:
            outer.setblocking(False)
            outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = await loop.sock_recv(outer, _CHUNK_BYTES)
            if not first:
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as inner:
                # The end's socket has a name without a file. gRPC uses that name for the peer.
                inner.bind(f"\0{guest.name}")
                await loop.sock_connect(inner, self._inside)
                await loop.sock_sendall(inner, first)
                ways = [asyncio.create_task(_pass_on(*pair)) for pair in ((outer, inner), (inner, outer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            # One side has closed the connection.
            return


async def _pass_on(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK_BYTES):
        await loop.sock_sendall(target, data)


def origin(address: str) -> str:
    """Return the address as it is counted. For IPv6 it is the /64 network, because one machine may have all
    of it. An IPv4 address that reached a listener on [::] counts as itself."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
