"""What happens between a fault and new routes, seen from outside: BFD's packets, BGP's updates, the routes.

For: taking a failover apart, to calibrate the twin. Not for: what flows lose (probe.py). It listens at every
host's uplinks and at the ToRs' ports and changes nothing; a dropped packet is not seen where it would have
arrived. Packets have the kernel's time stamps, routes the time at which their message was read.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

from control.fabric import BfdState
from control.fast_path import bfd
from testbed.fabric.fast_path.hearing import BFD, packet_socket, waiting
from testbed.fabric.fast_path.steering import MAIN, messages, route_of
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric

_BGP_PORT, _BGP_UPDATE = 179, 2
_BGP_MARKER = b"\xff" * 16
_LONGEST_BYTES = 2048
# ldb [9]; is it TCP?; ldx the header's length; ldh its ports; is one of them BGP's?; all, or nothing.
_BGP = (
    (0x30, 0, 0, 9),
    (0x15, 0, 6, 6),
    (0xB1, 0, 0, 0),
    (0x48, 0, 0, 0),
    (0x15, 2, 0, _BGP_PORT),
    (0x48, 0, 0, 2),
    (0x15, 0, 1, _BGP_PORT),
    (0x06, 0, 0, _LONGEST_BYTES),
    (0x06, 0, 0, 0),
)
_NEW_ROUTE, _DELETE_ROUTE, _IPV4_ROUTES = 24, 25, 0x40
_NETLINK_BYTES = 1 << 18
_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Heard:
    """A BFD packet arrived at the end of a link: the host's (at_host) or the ToR's."""

    at_ns: int
    host: int
    uplink: int
    at_host: bool
    state: BfdState


@dataclass(frozen=True, slots=True)
class Updated:
    """A BGP update arrived at a host over an uplink."""

    at_ns: int
    host: int
    uplink: int


@dataclass(frozen=True, slots=True)
class Routed:
    """A host's kernel reaches another host by so many next hops (0: no route), by the main table."""

    at_ns: int
    host: int
    other: int
    next_hops: int


Seen = Heard | Updated | Routed


class Witness:
    """What was seen, and forgotten when it was taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[Seen] = []

    def add(self, seen: list[Seen]) -> None:
        """From the thread that watches."""
        with self._lock:
            self._seen += seen

    def take(self) -> list[Seen]:
        """Everything since the last call, by time."""
        with self._lock:
            seen, self._seen = self._seen, []
        return sorted(seen, key=lambda each: each.at_ns)


@contextmanager
def witness(fabric: Fabric) -> Iterator[Witness]:
    """Watches a fabric while the block runs."""
    readers = _readers(fabric)
    made, ended = Witness(), threading.Event()
    thread = threading.Thread(target=_watch, args=(readers, made, ended), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        ended.set()
        thread.join()
        for each in readers:
            each.close()


_Reader = Callable[[int], list[Seen]]


def _watch(readers: dict[socket.socket, _Reader], made: Witness, ended: threading.Event) -> None:
    while not ended.is_set():
        ready, _, _ = select.select(list(readers), [], [], _WAIT_S)
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        for each in ready:
            made.add(readers[each](offset_ns))


def _readers(fabric: Fabric) -> dict[socket.socket, _Reader]:
    """Sockets and what reads them; a socket stays in the namespace that it was made in."""
    readers: dict[socket.socket, _Reader] = {}
    hosts = {int(IPv4Address(host.loopback)): host.index for host in fabric.hosts}
    for host in fabric.hosts:
        with in_namespace(host.namespace):
            routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            routes.bind((0, _IPV4_ROUTES))
            routes.setblocking(False)
            readers[routes] = _routes(routes, host.index, hosts)
            for index, uplink in enumerate(host.uplinks):
                packets = packet_socket(uplink.device, BFD)
                readers[packets] = _bfd(packets, host.index, index, at_host=True)
                updates = packet_socket(uplink.device, _BGP)
                readers[updates] = _bgp(updates, host.index, index)
    for tor in fabric.tors:
        with in_namespace(tor.namespace):
            for host_index, port in enumerate(tor.ports):
                uplinks = fabric.hosts[host_index].uplinks
                index = next(index for index, each in enumerate(uplinks) if each.tor == tor.index)
                packets = packet_socket(port, BFD)
                readers[packets] = _bfd(packets, host_index, index, at_host=False)
    return readers


def _bfd(source: socket.socket, host: int, uplink: int, *, at_host: bool) -> _Reader:
    def read(offset_ns: int) -> list[Seen]:
        parsed = [(at_ns - offset_ns, bfd.parse(packet)) for at_ns, packet in waiting(source)]
        return [Heard(at_ns, host, uplink, at_host, each.state) for at_ns, each in parsed if each is not None]

    return read


def _bgp(source: socket.socket, host: int, uplink: int) -> _Reader:
    def read(offset_ns: int) -> list[Seen]:
        return [
            Updated(at_ns - offset_ns, host, uplink)
            for at_ns, packet in waiting(source)
            if _is_update(packet)
        ]

    return read


def _is_update(packet: bytes) -> bool:
    """Whether a TCP segment's data begin with a BGP update (RFC 4271 §4.1), as they do when one is news."""
    tcp = 4 * (packet[0] & 0x0F)
    data = packet[tcp + 4 * (packet[tcp + 12] >> 4) :]
    return data.startswith(_BGP_MARKER) and len(data) > 18 and data[18] == _BGP_UPDATE


def _routes(source: socket.socket, host: int, hosts: dict[int, int]) -> _Reader:
    def read(_: int) -> list[Seen]:
        seen: list[Seen] = []
        try:
            received = source.recv(_NETLINK_BYTES)
        except OSError:
            # Messages that were lost are a failover that is not taken apart.
            return seen
        at_ns = time.monotonic_ns()
        for kind, _, body in messages(received):
            route = route_of(body) if kind in (_NEW_ROUTE, _DELETE_ROUTE) else None
            if route is not None and route.table == MAIN and route.host in hosts:
                count = 0 if kind == _DELETE_ROUTE else len(route.devices)
                seen.append(Routed(at_ns, host, hosts[route.host], count))
        return seen

    return read
