"""Listen to BFD on a host's uplinks, to changes of its links and routes, and to the other hosts' reports.

For: events, with their times, from the fast path's sockets in the process's namespace. Not for: the decisions
(control.fast_path). Source: packet(7), socket(7) (SO_TIMESTAMPNS), rtnetlink(7). A packet socket with a
filter in the kernel copies BFD's packets to us; bfdd does not notice.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from control.fast_path import bfd
from control.fast_path.message import Opener
from control.fast_path.ports import CarrierLost, Event, Heard, RoutesChanged, Told
from testbed.fabric.fast_path.reports import Reports
from testbed.fabric.fast_path.steering import MAIN, messages

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER, _SO_TIMESTAMPNS = 26, 35
_GROUPS = 0x1 | 0x40
"""RTMGRP_LINK and RTMGRP_IPV4_ROUTE."""
_NEW_LINK, _NEW_ROUTE, _DELETE_ROUTE = 16, 24, 25
_LOWER_UP = 0x10000
_LINK, _ROUTE_TABLE = struct.Struct("=BBHiII"), 4
_TIMESPEC = struct.Struct("=qq")
_LONGEST_BYTES, _NETLINK_BYTES = 2048, 1 << 18
_MOST_AT_ONCE = 256
"""Largest number of datagrams of one socket that are read before the other sockets are read."""
_NETWORK_CONTROL = 0xC0
"""TOS byte of reports. It is the class of BFD and BGP (DSCP CS6)."""

BFD = (
    # ldb [9]; is it UDP?; ldx the header's length; ldh its destination port; is it BFD's?; accept all, or
    # nothing.
    (0x30, 0, 0, 9),
    (0x15, 0, 4, 17),
    (0xB1, 0, 0, 0),
    (0x48, 0, 0, 2),
    (0x15, 0, 1, bfd.PORT),
    (0x06, 0, 0, _LONGEST_BYTES),
    (0x06, 0, 0, 0),
)
"""A filter for packet_socket that accepts BFD (classic BPF; offsets begin after the link's header)."""


@dataclass(frozen=True, slots=True)
class Ear:
    """An uplink to listen on. index: ifindex of its device. gateway: IPv4 address of the only sender."""

    device: str
    index: int
    gateway: int


class Hearing:
    """The fast path's sockets.

    address, port: address and UDP port at which the other hosts' reports arrive. plane: reports of BFD's data
    plane, which replace overheard packets (None: there is no data plane).
    """

    def __init__(
        self, ears: Sequence[Ear], address: str, port: int, opener: Opener, plane: Reports | None = None
    ) -> None:
        self._ears = tuple(ears)
        self._uplink_of = {ear.index: uplink for uplink, ear in enumerate(ears)}
        self._packets = [] if plane else [packet_socket(ear.device, BFD) for ear in ears]
        self._plane = plane
        self._opener = opener
        self._monitor = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._monitor.bind((0, _GROUPS))
        self._monitor.setblocking(False)
        self.reports = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.reports.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _NETWORK_CONTROL)
        self.reports.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.reports.bind((address, port))
        self.reports.setblocking(False)

    def sockets(self) -> list[socket.socket]:
        """Return all sockets to wait for."""
        plane = self._plane.sockets() if self._plane else ()
        return [*self._packets, *plane, self._monitor, self.reports]

    def heard(self) -> list[Event]:
        """Return the waiting events in the order in which they happened. Their at_s is CLOCK_MONOTONIC, s."""
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        events: list[Event] = list(self._plane.events()) if self._plane else []
        for uplink, (ear, packets) in enumerate(zip(self._ears, self._packets, strict=False)):
            for at_ns, packet in waiting(packets):
                control = bfd.parse(packet)
                if control is not None and control.source == ear.gateway:
                    events.append(Heard((at_ns - offset_ns) / 1e9, uplink, control))
        for at_ns, datagram in waiting(self.reports):
            report = self._opener.open(datagram, time.time_ns())
            if report is not None:
                events.append(Told((at_ns - offset_ns) / 1e9, report))
        events += self._announced()
        return sorted(events, key=lambda event: event.at_s)

    def _announced(self) -> Iterator[Event]:
        """Yield the kernel's messages about links and routes. Many changes of routes are one event."""
        changed = False
        for _ in range(_MOST_AT_ONCE):
            try:
                received = self._monitor.recv(_NETLINK_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                changed = True
                continue
            for kind, _, body in messages(received):
                if kind in (_NEW_ROUTE, _DELETE_ROUTE):
                    changed |= body[_ROUTE_TABLE] == MAIN
                elif kind == _NEW_LINK:
                    _, _, _, index, flags, _ = _LINK.unpack_from(body)
                    if index in self._uplink_of and not flags & _LOWER_UP:
                        yield CarrierLost(time.monotonic(), self._uplink_of[index])
        if changed:
            yield RoutesChanged(time.monotonic())


Filter = Sequence[tuple[int, int, int, int]]


def packet_socket(device: str, steps: Filter) -> socket.socket:
    """Return a socket that gets copies of the IPv4 packets that arrive at a device and pass a filter."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program_of = struct.pack("HP", len(steps), ctypes.addressof(program))
    packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program_of)
    packets.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    # The socket is bound last, so that the filter sees the first packet too.
    packets.bind((device, _ETH_P_IP))
    packets.setblocking(False)
    return packets


def waiting(source: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield (arrival on CLOCK_REALTIME in ns, datagram) for every waiting datagram."""
    for _ in range(_MOST_AT_ONCE):
        try:
            datagram, ancillary, _, _ = source.recvmsg(_LONGEST_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        except BlockingIOError:
            return
        except OSError as error:
            # A device that goes down reports an error once, and an absent host sends ICMP.
            if error.errno not in (errno.ENETDOWN, errno.ECONNREFUSED, errno.EHOSTUNREACH):
                raise
            continue
        at_ns = time.time_ns()
        for _, kind, value in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
                at_ns = seconds * 1_000_000_000 + nanoseconds
        yield at_ns, datagram
