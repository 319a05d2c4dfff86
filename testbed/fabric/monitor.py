"""Turn the kernel's notifications into events for a controller of tunnel rules.

For: which tables changed, and whether messages were lost. Not for: the tables' contents (dumps.py); a message
is only a hint. Source: rtnetlink(7). Messages about our own requests are left out: the kernel says whose
request it was (nlmsg_pid). After a full buffer (ENOBUFS) the queue is older than the next dump, so the socket
is replaced by a new one, which listens before the old one is closed.
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
"""Size of the receive buffer, bytes. When a burst of 20,000 entries was read slowly, 2 MB lost a part of it
and 16 MB lost nothing."""

_NEW_LINK, _DELETE_LINK = 16, 17
_NEW_ROUTE, _DELETE_ROUTE = 24, 25
_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR = 28, 29
_NEW_FILTER, _DELETE_FILTER = 44, 45
_PF_BRIDGE = 7
_MOST_DATAGRAMS = 1000
"""Largest number of datagrams read at a time, so that timers and dumps have their turn."""

Event = Changed | Overflowed


class Monitor:
    """The notifications of this namespace. ours: netlink ports of our own requests. connect: function that
    makes a socket.

    overflows: number of times that messages were lost. messages: number of messages received. Raises
    BackendError as `Socket` does.
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
        """Return the events since the last call, without waiting."""
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
        bridge, evpn = forwarding_entries(messages.take(neighbours & bridges), self._tunnels)
        changed = {
            Table.EVPN_FDB: evpn.mac.size > 0,
            # A message of neither kind counts as a bridge's.
            Table.BRIDGE_FDB: bridge.mac.size > 0 or (not evpn.mac.size and (neighbours & bridges).any()),
            Table.NEIGHBOURS: (neighbours & ~bridges).any(),
            # A link that loses its carrier also loses its next hops, and no message says so.
            Table.ROUTES: np.isin(kinds, (_NEW_ROUTE, _DELETE_ROUTE, _NEW_LINK, _DELETE_LINK)).any(),
            Table.RULES: np.isin(kinds, (_NEW_FILTER, _DELETE_FILTER)).any(),
        }
        tables = frozenset(table for table, has in changed.items() if has)
        return [Changed(now_s, tables)] if tables else []
