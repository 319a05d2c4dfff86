"""When containers of a recording first connected to each other.

For: distributed jobs, whose ranks work alone until they meet (twin/containers/job.py). Not for: traffic,
which a container's own network counts (network.py). A connection is seen where both of its ends are TCP
sockets of recorded processes. Source: proc(5), /proc/PID/fd and /proc/PID/net/tcp, as psutil reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol


class _Group(Protocol):
    def pids(self) -> Collection[int]: ...


class Meetings:
    """The meetings of containers with each other. groups: container's name → its cgroup."""

    def __init__(self, groups: Mapping[str, _Group]) -> None:
        self._groups = groups
        self._met_s: dict[str, float] = {}

    @property
    def met_s(self) -> Mapping[str, float]:
        """Return container's name → time at which it was first seen connected to another one, s since the
        recording's start."""
        return self._met_s

    def look(self, at_s: float) -> None:
        """Look for connections at `at_s`, s since the start, unless all containers have met."""
        if len(self._met_s) == len(self._groups):
            return
        owner = {
            ends: name
            for name, group in self._groups.items()
            for pid in group.pids()
            for ends in _connections(pid)
        }
        for (local, remote), name in owner.items():
            if owner.get((remote, local), name) != name:
                self._met_s.setdefault(name, at_s)


def _connections(pid: int) -> list[tuple[object, object]]:
    """Return the local and remote address of each established connection; none if the process has ended."""
    import psutil  # of an extra that recordings without ranks do not need

    with suppress(psutil.Error):
        sockets = psutil.Process(pid).net_connections("tcp")
        return [(each.laddr, each.raddr) for each in sockets if each.status == psutil.CONN_ESTABLISHED]
    return []
