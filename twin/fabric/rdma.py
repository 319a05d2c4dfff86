"""RDMA reliable connections through outages: what a queue pair survives, and what it costs its sender.

For: `stall_s` and `survives`, the closed forms; `send_series` and `ping_pong`, packet by packet (packets.py).
Not for: collectives (collectives.py), nor for how long a path is lost (failover.py).

Source: InfiniBand Architecture Specification 1.4, chapter 9.7 and 9.9 (go-back-N, ACK timeout, error
retries); RoCEv2 (Annex A17) for the headers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from twin.fabric import recovery
from twin.fabric.model import Flags, Floats, QueuePair
from twinbed import ScenarioError

ROCE_V2_BYTES = 82
"""On the wire besides a packet's payload: preamble and gap 20, Ethernet 14 and its check 4, IPv4 20, UDP 8,
base transport header 12, invariant check 4. VXLAN adds its own."""

_TIMEOUTS = range(1, 32)
_RETRIES = range(8)


def check(qp: QueuePair) -> None:
    """Raises ScenarioError for values that no queue pair takes (timeout 0 means: never)."""
    if qp.timeout not in _TIMEOUTS:
        raise ScenarioError(f"queue_pair.timeout: {qp.timeout} is not one of 1 … 31 (4.096 µs · 2^timeout)")
    if qp.retry_count not in _RETRIES:
        raise ScenarioError(f"queue_pair.retry_count: {qp.retry_count} is not one of 0 … 7")
    if qp.mtu_bytes < 1 or qp.window < 1:
        raise ScenarioError("queue_pair: mtu_bytes and window must be at least 1")


def stall_s(
    qp: QueuePair,
    gap_s: ArrayLike,
    *,
    rtt_s: float = 0.0,
    rate_bps: float = np.inf,
    header_bytes: int = ROCE_V2_BYTES,
) -> Floats:
    """Seconds from a path's loss for gap_s (any shape) until a busy sender's data flows again; same shape.

    Whole ACK timeouts, except that a path lost for less than a window's sending recovers within a round
    trip; inf where the queue pair is in error. rate_bps: of the link; inf leaves the windows' sending out.
    Raises ScenarioError for a queue pair that cannot be.
    """
    gaps = np.asarray(gap_s, np.float64)
    patience = _patience(qp, rtt_s, rate_bps, header_bytes)
    return recovery.stalls(gaps.ravel(), patience).reshape(gaps.shape)


def survives(
    qp: QueuePair,
    gap_s: ArrayLike,
    *,
    rtt_s: float = 0.0,
    rate_bps: float = np.inf,
    header_bytes: int = ROCE_V2_BYTES,
) -> Flags:
    """Whether the queue pair lives through each gap (any shape): its last retry finds the path."""
    return np.isfinite(stall_s(qp, gap_s, rtt_s=rtt_s, rate_bps=rate_bps, header_bytes=header_bytes))


def _patience(qp: QueuePair, rtt_s: float, rate_bps: float, header_bytes: int) -> recovery.Patience:
    check(qp)
    burst_s = qp.window * (qp.mtu_bytes + header_bytes) * 8 / rate_bps
    return recovery.Patience(qp.ack_timeout_s, qp.retry_count, burst_s, rtt_s)
