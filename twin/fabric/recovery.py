"""What a lost path costs whoever sends over it: one queue pair in closed form, and a collective's steps.

For: compiled kernels behind rdma.stall_s and interruption.series, which say what goes in and out. Not for:
packets (packets.py): here a sender that is cut off is silent until its retransmission gets through.

The source of the rule is the reliable connection's: after the last acknowledgement the sender waits one ACK
timeout, sends everything unacknowledged again, and so on `retries` times (InfiniBand Architecture
Specification 1.4, 9.7.6.1.3 and 9.9.2.4). A path that comes back while such a burst is on its way lets later
packets of it through; the receiver sees the hole and its negative acknowledgement ends the wait at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Floats


class Patience(NamedTuple):
    """A queue pair, as far as an outage asks: timeout_s, retries; burst_s: how long it may send without an
    acknowledgement; rtt_s: to the receiver and back."""

    timeout_s: float
    retries: int
    burst_s: float
    rtt_s: float


@kernel
def stall(gap_s: float, patience: Patience) -> float:
    """Seconds from a path's loss until its sender sends what arrives in order; inf: never, it is in error."""
    if gap_s <= 0.0:
        return 0.0
    for retry in range(patience.retries + 1):
        sent_s = patience.rtt_s + retry * patience.timeout_s if retry > 0 else 0.0
        if sent_s >= gap_s:
            return sent_s
        # The hole costs a retry, too.
        if sent_s + patience.burst_s > gap_s and retry < patience.retries:
            return gap_s + patience.rtt_s
    return np.inf


@kernel
def stalls(gap_s: Floats, patience: Patience) -> Floats:
    """`stall` of each of float64[n]."""
    result = np.empty(len(gap_s))
    for index in range(len(gap_s)):
        result[index] = stall(gap_s[index], patience)
    return result
