"""What the kernel says of its own accord: notifications, as the events of a controller of rules.

For: which tables changed, which VXLAN entries were named, and that something was lost. Not for: what the
tables hold now (dumps.py); a message is a hint. Messages about what we asked for ourselves are left out: the
kernel says whose request it was (nlmsg_pid). A full buffer (ENOBUFS) leaves a queue that is older than the
dump to come, so the socket is exchanged for a new one, which listens before the old one is closed.
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
"""RTNLGRP_…: a bridge's and a VXLAN device's entries are neighbours', too."""

BUFFER_BYTES = 16 << 20
"""A burst of 20,000 entries, read slowly, was lost in part with 2 MB and whole with 16."""

_NEW_LINK, _DELETE_LINK = 16, 17
_NEW_ROUTE, _DELETE_ROUTE = 24, 25
_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR = 28, 29
_NEW_FILTER, _DELETE_FILTER = 44, 45
_PF_BRIDGE = 7
_MOST_DATAGRAMS = 1000
"""Read at once: timers and dumps have their turn."""

_MOST_EVENTS = 100
"""Of one reading; where entries come and go more often in turn, they are not named."""

Event = Changed | Overflowed


class Monitor:
    """Notifications of this namespace. connect: makes a socket; ours: ports whose requests are our own.

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
        """For epoll; another one after an overflow."""
        return self._socket.fileno()

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
        self._links.close()

    def deaf(self, deaf: bool) -> None:
        """From now on the kernel tells nothing, as if all of it were lost, or everything again."""
        (self._socket.leave if deaf else self._socket.join)(GROUPS)

    def read(self, now_s: float) -> list[Event]:
        """What came since the last call, in its order; returns at once."""
        datagrams: list[bytes] = []
        try:
            while len(datagrams) < _MOST_DATAGRAMS and (each := self._socket.receive()) is not None:
                datagrams.append(each)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._reconnect()
            return [Overflowed(now_s)]
        if not datagrams:
            return []
        found = messages_of(datagrams)
        found = found.take(~np.isin(found.column(3), self._ours))
        self.messages += len(found.starts)
        return self._events(found, now_s)

    def _reconnect(self) -> None:
        self.overflows += 1
        fresh = self._connect()
        fresh.join(GROUPS)
        self._socket.close()
        self._socket = fresh

    def _events(self, found: Messages, now_s: float) -> list[Event]:
        kinds = found.kinds
        if np.isin(kinds, (_NEW_LINK, _DELETE_LINK)).any():
            self._tunnels = tunnels_of(read_links(self._links))
        bridges = found.column(4) & 0xFF == _PF_BRIDGE
        neighbours = np.isin(kinds, (_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR))
        tables = {
            table
            for table, here in (
                (Table.BRIDGE_FDB, neighbours & bridges),
                (Table.NEIGHBOURS, neighbours & ~bridges),
                (Table.ROUTES, np.isin(kinds, (_NEW_ROUTE, _DELETE_ROUTE))),
                # A link that loses its carrier takes its next hops along, of which no message is sent.
                (Table.ROUTES, np.isin(kinds, (_NEW_LINK, _DELETE_LINK))),
                (Table.RULES, np.isin(kinds, (_NEW_FILTER, _DELETE_FILTER))),
            )
            if here.any()
        }
        events = self._named(found.take(neighbours & bridges), now_s)
        if events:
            tables.discard(Table.BRIDGE_FDB)
        return [*events, Changed(now_s, frozenset(tables))] if tables else events

    def _named(self, found: Messages, now_s: float) -> list[Event]:
        """An event for each run of VXLAN entries that came or that went."""
        events: list[Event] = []
        gone = found.kinds == _DELETE_NEIGHBOUR
        turns = np.flatnonzero(np.diff(gone)) + 1
        if len(turns) >= _MOST_EVENTS:
            return [Changed(now_s, frozenset({Table.BRIDGE_FDB, Table.EVPN_FDB}))]
        for run in np.split(np.arange(len(gone)), turns) if gone.size else ():
            bridge, evpn = forwarding_entries(found.take(run), self._tunnels)
            tables = {Table.EVPN_FDB} if evpn.mac.size else set()
            if bridge.mac.size or not tables:
                tables.add(Table.BRIDGE_FDB)
            events.append(
                Changed(now_s, frozenset(tables), evpn if evpn.mac.size else None, bool(gone[run[0]]))
            )
        return events
