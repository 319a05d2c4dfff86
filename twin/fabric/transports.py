"""The effect of a gap in a connection's path: the time for which its data stops, and when its job is dead.

For: the rule that turns an outage into a stall of a job. Not for: the time for which the path is lost
(failover.py), nor packets (rdma.py). A stall counts from the path's loss and is inf if the connection or the
framework gives up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from twin.fabric import rdma
from twin.fabric.model import Floats, QueuePair
from twin.fabric.port_failover import PortFailover


class Transport(Protocol):
    """The transport of a job's collectives."""

    def stall_s(self, gap_s: Floats) -> Floats:
        """Return the time from the path's loss until data flows again, s, in the shape of gap_s; inf: the job
        dies."""
        ...


@dataclass(frozen=True, slots=True)
class Rdma:
    """A queue pair, which stalls until a retransmission gets through or its retries are used up.

    timeout_s: timeout of the framework's collective, s (torch.distributed with NCCL: 10 min by default).
    library: NCCL's own failover to another port (None: an error ends the job). With it, a gap is that of a
    port.
    """

    queue_pair: QueuePair = QueuePair()  # noqa: RUF009  (frozen)
    link: rdma.Link = rdma.ENDLESS
    timeout_s: float = 600.0
    library: PortFailover | None = None

    def stall_s(self, gap_s: Floats) -> Floats:
        """Return the stall as Transport says."""
        stall_s = rdma.stall_s(self.queue_pair, gap_s, self.link)
        if self.library is not None:
            moved_s = self.queue_pair.ladder.error_s + self.library.failed_over_s
            stall_s = np.minimum(stall_s, moved_s)
        return _given_up(gap_s, stall_s, self.timeout_s)

    @property
    def noticed_s(self) -> float:
        """Time from a path's loss for good until the job knows, s."""
        return min(self.queue_pair.ladder.error_s, self.timeout_s)


@dataclass(frozen=True, slots=True)
class Tcp:
    """Gloo over TCP, with data in flight. It retries after rto_min_s and then after twice as long each time,
    up to rto_max_s. The first retry after the gap succeeds.

    timeout_s: timeout of the framework's collective, s, after which the job ends. Source: RFC 6298 (5.5),
    Linux's TCP_RTO_MIN and TCP_RTO_MAX; torch.distributed (30 min by default for gloo).
    """

    rto_min_s: float = 0.2
    rto_max_s: float = 120.0
    timeout_s: float = 1800.0

    def stall_s(self, gap_s: Floats) -> Floats:
        """Return the stall as Transport says."""
        tries = int(np.ceil(self.timeout_s / self.rto_max_s)) + 64
        waits_s = np.minimum(self.rto_min_s * 2.0 ** np.arange(tries), self.rto_max_s)
        at_s = np.cumsum(waits_s)
        first = np.searchsorted(at_s, gap_s)
        stall_s = np.where(first < tries, at_s[np.minimum(first, tries - 1)], np.inf)
        return _given_up(gap_s, stall_s, self.timeout_s)


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """A library that reconnects within the gap, so it adds no time to the gap. timeout_s: as in Tcp."""

    timeout_s: float = 600.0

    def stall_s(self, gap_s: Floats) -> Floats:
        """Return the stall as Transport says."""
        return _given_up(gap_s, gap_s, self.timeout_s)


def _given_up(gap_s: Floats, stall_s: Floats, timeout_s: float) -> Floats:
    """Return stall_s, but inf where the framework does not wait so long, and 0 where nothing was lost."""
    return np.where(gap_s > 0, np.where(stall_s <= timeout_s, stall_s, np.inf), 0.0)
