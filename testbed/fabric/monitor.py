"""Turn the kernel's notifications into events for a controller of tunnel rules.

For: which tables changed, which VXLAN entries a message named, and whether messages were lost. Not for: the
tables' contents (dumps.py); a message is only a hint. Source: rtnetlink(7). Messages about our own requests
are left out: the kernel says whose request it was (nlmsg_pid). After a full buffer (ENOBUFS) the queue is
older than the next dump, so the socket is replaced by a new one, which listens before the old one is closed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

import numpy as np

from control.reconciler.model import Table
from control.reconciler.ports import Changed, Overflowed
from testbed.fabric.dumps import forwarding_entries, read_links, tunnels_of
from testbed.fabric.netlink import Messages, Socket, messages_of

_LINK, _NEIGHBOUR, _TC, _IPV4_ROUTE = 1, 3, 4, 7
GROUPS = (_LINK, _NEIGHBOUR, _TC, _IPV4_ROUTE)
"""RTNLGRP_… groups. Entries of bridges and VXLAN devices are announced as neighbours."""

BUFFER_BYTES = 16 << 20
"""Receive buffer. When a burst of 20,000 entries was read slowly, 2 MB lost a part of it and 16 MB lost
nothing."""

_NEW_LINK, _DELETE_LINK = 16, 17
_NEW_ROUTE, _DELETE_ROUTE = 24, 25
_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR = 28, 29
_NEW_FILTER, _DELETE_FILTER = 44, 45
_PF_BRIDGE = 7
_MOST_DATAGRAMS = 1000
"""Most datagrams read at a time, so that timers and dumps have their turn."""

_MOST_EVENTS = 100
"""Most events of one reading. If entries come and go alternately more often, they are not named."""

Event = Changed | Overflowed


class Monitor:
    """The notifications of this namespace. ours: netlink ports of our own requests; connect: makes a socket.

    overflows: how often messages were lost; messages: how many came. Raises BackendError as `Socket` does.
    """

    def __init__(self, ours: Iterable[int], connect: Callable[[], Socket] | None = None) -> None:
        self._connect = connect or (lambda: Socket(BUFFER_BYTES))
        self._ours = np.array(sorted(ours), np.int64)
        self._socket = self._connect()
        self._socket.join(GROUPS)
        self._links = Socket()
        self._tunnels = tunnels_of(read_links(self._links))
        self.overflows = self.messages = 0

    def fileno(self) -> int:
        """Return the descriptor, for epoll. It changes after an overflow."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        self._socket.close()
        self._links.close()

    def deaf(self, deaf: bool) -> None:
        """Ignore all notifications from now on, as if they were lost (True), or receive them (False)."""
        (self._socket.leave if deaf else self._socket.join)(GROUPS)

    def read(self, now_s: float) -> list[Event]:
        """Return what came since the last call, in order, without waiting."""
        datagrams: list[bytes] = []
        try:
            while len(datagrams) < _MOST_DATAGRAMS and (datagram := self._socket.receive()) is not None:
                datagrams.append(datagram)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._reconnect()
            return [Overflowed(now_s)]
        if not datagrams:
            return []
        messages = messages_of(datagrams)
        messages = messages.take(~np.isin(messages.column(3), self._ours))
        self.messages += len(messages.starts)
        return self._events(messages, now_s)

    def _reconnect(self) -> None:
        self.overflows += 1
        fresh = self._connect()
        fresh.join(GROUPS)
        self._socket.close()
        self._socket = fresh

    def _events(self, messages: Messages, now_s: float) -> list[Event]:
        kinds = messages.kinds
        if np.isin(kinds, (_NEW_LINK, _DELETE_LINK)).any():
            self._tunnels = tunnels_of(read_links(self._links))
        bridges = messages.column(4) & 0xFF == _PF_BRIDGE
        neighbours = np.isin(kinds, (_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR))
        tables = {
            table
            for table, changed in (
                (Table.BRIDGE_FDB, neighbours & bridges),
                (Table.NEIGHBOURS, neighbours & ~bridges),
                (Table.ROUTES, np.isin(kinds, (_NEW_ROUTE, _DELETE_ROUTE))),
                # A link that loses its carrier also loses its next hops, and no message says so.
                (Table.ROUTES, np.isin(kinds, (_NEW_LINK, _DELETE_LINK))),
                (Table.RULES, np.isin(kinds, (_NEW_FILTER, _DELETE_FILTER))),
            )
            if changed.any()
        }
        events = self._named(messages.take(neighbours & bridges), now_s)
        if events:
            tables.discard(Table.BRIDGE_FDB)
        return [*events, Changed(now_s, frozenset(tables))] if tables else events

    def _named(self, messages: Messages, now_s: float) -> list[Event]:
        """Return an event for every run of VXLAN entries that were added or removed."""
        events: list[Event] = []
        gone = messages.kinds == _DELETE_NEIGHBOUR
        turns = np.flatnonzero(np.diff(gone)) + 1
        if len(turns) >= _MOST_EVENTS:
            return [Changed(now_s, frozenset({Table.BRIDGE_FDB, Table.EVPN_FDB}))]
        for run in np.split(np.arange(len(gone)), turns) if gone.size else ():
            bridge, evpn = forwarding_entries(messages.take(run), self._tunnels)
            tables = {Table.EVPN_FDB} if evpn.mac.size else set()
            if bridge.mac.size or not tables:
                tables.add(Table.BRIDGE_FDB)
            events.append(
                Changed(now_s, frozenset(tables), evpn if evpn.mac.size else None, bool(gone[run[0]]))
            )
        return events
