"""Observe what happens between a fault and new routes: BFD's packets, BGP's updates and the routes.

For: splitting a failover into its steps, to calibrate the twin. Not for: the losses of flows (probe.py).
Source: packet(7), rtnetlink(7), RFC 4271. It listens at every host's uplinks and at the ToRs' ports and
changes nothing. A dropped packet is not seen where it would have arrived. Packets have the kernel's time
stamps; routes have the time at which their message was read.
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
# ldb [9]; is it TCP?; ldx the header's length; ldh its ports; is one of them BGP's?; accept all, or nothing.
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
class BfdSeen:
    """A BFD packet arrived at an end of a link. at_ns: time, CLOCK_MONOTONIC. at_host: whether it was the
    host's end, not the ToR's.
    """

    at_ns: int
    host: int
    uplink: int
    at_host: bool
    state: BfdState


@dataclass(frozen=True, slots=True)
class BgpSeen:
    """A BGP update arrived at a host over an uplink. at_ns: CLOCK_MONOTONIC."""

    at_ns: int
    host: int
    uplink: int


@dataclass(frozen=True, slots=True)
class RouteSeen:
    """A host's main table changed. next_hops: number of next hops to the other host (0: no route)."""

    at_ns: int
    host: int
    other: int
    next_hops: int


Seen = BfdSeen | BgpSeen | RouteSeen


class Witness:
    """Collects the events of the watching thread until the caller takes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[Seen] = []

    def add(self, seen: list[Seen]) -> None:
        """Add events that the watching thread saw."""
        with self._lock:
            self._seen += seen

    def take(self) -> list[Seen]:
        """Return everything since the last call, sorted by time."""
        with self._lock:
            seen, self._seen = self._seen, []
        return sorted(seen, key=lambda event: event.at_ns)


@contextmanager
def witness(fabric: Fabric) -> Iterator[Witness]:
    """Watch a fabric while the `with` block runs."""
    readers = _readers(fabric)
    watched, ended = Witness(), threading.Event()
    thread = threading.Thread(target=_watch, args=(readers, watched, ended), daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join()
        for source in readers:
            source.close()


_Reader = Callable[[int], list[Seen]]


def _watch(readers: dict[socket.socket, _Reader], watched: Witness, ended: threading.Event) -> None:
    while not ended.is_set():
        ready, _, _ = select.select(list(readers), [], [], _WAIT_S)
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        for source in ready:
            watched.add(readers[source](offset_ns))


def _readers(fabric: Fabric) -> dict[socket.socket, _Reader]:
    """Return sockets and their readers. A socket stays in the namespace in which it was watched."""
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
            for host_index, port in zip(tor.below, tor.ports, strict=True):
                uplinks = fabric.hosts[host_index].uplinks
                index = next(index for index, uplink in enumerate(uplinks) if uplink.tor == tor.index)
                packets = packet_socket(port, BFD)
                readers[packets] = _bfd(packets, host_index, index, at_host=False)
    return readers


def _bfd(source: socket.socket, host: int, uplink: int, *, at_host: bool) -> _Reader:
    def read(offset_ns: int) -> list[Seen]:
        return [
            BfdSeen(at_ns - offset_ns, host, uplink, at_host, control.state)
            for at_ns, packet in waiting(source)
            if (control := bfd.parse(packet)) is not None
        ]

    return read


def _bgp(source: socket.socket, host: int, uplink: int) -> _Reader:
    def read(offset_ns: int) -> list[Seen]:
        return [
            BgpSeen(at_ns - offset_ns, host, uplink)
            for at_ns, packet in waiting(source)
            if _is_update(packet)
        ]

    return read


def _is_update(packet: bytes) -> bool:
    """Return whether a TCP segment's data begin with a BGP update (RFC 4271 §4.1), as a new update's do."""
    tcp = 4 * (packet[0] & 0x0F)
    data = packet[tcp + 4 * (packet[tcp + 12] >> 4) :]
    return data.startswith(_BGP_MARKER) and len(data) > 18 and data[18] == _BGP_UPDATE


def _routes(source: socket.socket, host: int, hosts: dict[int, int]) -> _Reader:
    def read(_: int) -> list[Seen]:
        seen: list[Seen] = []
        try:
            received = source.recv(_NETLINK_BYTES)
        except OSError:
            # If messages were lost, this failover cannot be split into steps.
            return seen
        at_ns = time.monotonic_ns()
        for kind, _, body in messages(received):
            route = route_of(body) if kind in (_NEW_ROUTE, _DELETE_ROUTE) else None
            if route is not None and route.table == MAIN and route.host in hosts:
                count = 0 if kind == _DELETE_ROUTE else len(route.devices)
                seen.append(RouteSeen(at_ns, host, hosts[route.host], count))
        return seen

    return read
