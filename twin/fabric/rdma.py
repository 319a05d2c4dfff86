"""RDMA reliable connections through outages: what a queue pair survives, and what it costs its sender.

For: `stall_s` and `survives`, the closed forms; `send_series` and `ping_pong`, packet by packet (packets.py).
Not for: collectives (collectives.py), nor for how long a path is lost (failover.py).

Source: InfiniBand Architecture Specification 1.4, chapters 9.7 and 9.9 (go-back-N, ACK timeout, error
retries).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from twin.fabric import packets, recovery
from twin.fabric.model import Flags, Floats, QueuePair
from twin.fabric.overlay import FRAMING_BYTES, ROCE_BYTES
from twinbed import ScenarioError

ROCE_V2_BYTES = ROCE_BYTES + FRAMING_BYTES
"""On the wire besides a packet's payload; a tunnel adds its own (overlay.py)."""

NO_OUTAGES = np.empty((0, 2))

_TIMEOUTS = range(1, 32)
_RETRIES = range(8)


@dataclass(frozen=True, slots=True)
class SendSeries:
    """Messages sent one after another over one queue pair.

    latency_s: float64[n], NaN for those not finished because of an error; retransmitted: packets sent more
    than once; timeouts, naks: why; error_at_s: when the queue pair broke (NaN: it did not).
    """

    latency_s: Floats
    retransmitted: int
    timeouts: int
    naks: int
    error_at_s: float


def check(qp: QueuePair) -> None:
    """Raises ScenarioError for values that no queue pair takes (timeout 0 means: never)."""
    if qp.timeout not in _TIMEOUTS:
        raise ScenarioError(f"queue_pair.timeout: {qp.timeout} is not one of 1 … 31 (4.096 µs · 2^timeout)")
    if qp.retry_count not in _RETRIES:
        raise ScenarioError(f"queue_pair.retry_count: {qp.retry_count} is not one of 0 … 7")
    if qp.mtu_bytes < 1 or qp.window < 1:
        raise ScenarioError("queue_pair: mtu_bytes and window must be at least 1")


def patience(qp: QueuePair, rtt_s: float, rate_bps: float, header_bytes: int) -> recovery.Patience:
    """A queue pair as recovery.py asks of it. Raises ScenarioError for one, or a link, that cannot be."""
    check(qp)
    if not rate_bps > 0 or not 0 <= rtt_s < np.inf or header_bytes < 0:
        raise ScenarioError("a link needs rate_bps above 0, and rtt_s and header_bytes from 0")
    burst_s = qp.window * (qp.mtu_bytes + header_bytes) * 8 / rate_bps
    return recovery.Patience(qp.ack_timeout_s, qp.retry_count, burst_s, rtt_s)


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
    rule = patience(qp, rtt_s, rate_bps, header_bytes)
    return recovery.stalls(gaps.ravel(), rule).reshape(gaps.shape)


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


def retries_s(
    qp: QueuePair,
    gap_s: float,
    *,
    rtt_s: float = 0.0,
    rate_bps: float = np.inf,
    header_bytes: int = ROCE_V2_BYTES,
) -> Floats:
    """float64[k], when a busy sender sends anew, in seconds after its path's loss for gap_s.

    The last of them has success if the queue pair survives. Raises ScenarioError as `stall_s`.
    """
    rule = patience(qp, rtt_s, rate_bps, header_bytes)
    resumed_s = recovery.stall(gap_s, rule)
    timers_s = rule.rtt_s + np.arange(1, rule.retries + 1) * rule.timeout_s
    last_s = [resumed_s] if 0 < resumed_s < np.inf else []
    return np.concatenate((timers_s[timers_s < resumed_s], np.array(last_s, np.float64)))


def in_order(outages: Floats) -> Floats:
    """Outages, float64[m, 2], in the order of time, overlapping ones as one.

    Raises ScenarioError for another shape, and for one that ends before it begins.
    """
    rows = np.asarray(outages, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.all(rows[:, 0] <= rows[:, 1]):
        raise ScenarioError(f"outages: rows of begin and end, begin first, got shape {rows.shape}")
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reach = np.maximum.accumulate(rows[:, 1])
    apart = np.flatnonzero(np.concatenate(([True], rows[1:, 0] > reach[:-1]))[: len(rows)])
    return np.column_stack((rows[apart, 0], np.maximum.reduceat(rows[:, 1], apart) if len(rows) else reach))


def send_series(
    qp: QueuePair,
    *,
    rate_bps: float,
    rtt_s: float,
    messages: int,
    message_bytes: int,
    outages: Floats = NO_OUTAGES,
    ack_outages: Floats = NO_OUTAGES,
    interval_s: float = 0.0,
    header_bytes: int = ROCE_V2_BYTES,
) -> SendSeries:
    """`messages` sends, each posted when the one before is acknowledged (and interval_s after its post).

    rate_bps: of the link, headers included; outages, ack_outages: float64[m, 2], begin and end (inf: never)
    of the times in which the path to the receiver, and back from it, is down. A latency is from the post to
    the last acknowledgement. Raises ScenarioError for values that cannot be.
    """
    return shared_series(
        qp,
        rate_bps=rate_bps,
        rtt_s=rtt_s,
        messages=messages,
        message_bytes=message_bytes,
        outages=[outages],
        ack_outages=[ack_outages],
        interval_s=interval_s,
        header_bytes=header_bytes,
    )[0]


def shared_series(
    qp: QueuePair,
    *,
    rate_bps: float,
    rtt_s: float,
    messages: int,
    message_bytes: int,
    outages: Sequence[Floats],
    ack_outages: Sequence[Floats],
    interval_s: float = 0.0,
    header_bytes: int = ROCE_V2_BYTES,
) -> tuple[SendSeries, ...]:
    """As `send_series`, for queue pairs that share a sender's link packet by packet, in turn.

    outages, ack_outages: of each queue pair's path beyond that link. Raises ScenarioError likewise.
    """
    setting = _setting(qp, rate_bps, rtt_s, messages, message_bytes, interval_s, header_bytes)
    if len(outages) != len(ack_outages) or not outages:
        raise ScenarioError(f"outages: {len(outages)} queue pairs' and {len(ack_outages)} of their answers")
    count = len(outages)
    pairs = packets.new_pairs([0] * count, [packets.NOBODY] * count, qp.retry_count)
    paths = [path for both in zip(outages, ack_outages, strict=True) for path in both]
    latency_s = _run(setting, pairs, paths, messages)
    return tuple(_series(pairs, latency_s[pair], [pair]) for pair in range(count))


def ping_pong(
    qp: QueuePair,
    *,
    rate_bps: float,
    rtt_s: float,
    rounds: int,
    message_bytes: int,
    outages: Floats = NO_OUTAGES,
    return_outages: Floats = NO_OUTAGES,
    interval_s: float = 0.0,
    header_bytes: int = ROCE_V2_BYTES,
) -> SendSeries:
    """perftest's ib_send_lat: a message there, one of the same size back; the latency is half a round.

    outages: float64[m, 2], of the path there, which the answers to the way back take, too; return_outages: of
    the path back. error_at_s: of whichever side broke first. Else as `send_series`.
    """
    setting = _setting(qp, rate_bps, rtt_s, rounds, message_bytes, interval_s, header_bytes)
    pairs = packets.new_pairs([0, 1], [1, 0], qp.retry_count)
    paths = [outages, return_outages, return_outages, outages]
    latency_s = _run(setting, pairs, paths, rounds)
    return _series(pairs, latency_s[0] / 2, [0, 1])


def _series(pairs: packets.Records, latency_s: Floats, ends: list[int]) -> SendSeries:
    return SendSeries(
        latency_s,
        int(pairs["retransmitted"][ends].sum()),
        int(pairs["timeouts"][ends].sum()),
        int(pairs["naks"][ends].sum()),
        float(np.fmin.reduce(pairs["error_s"][ends])),
    )


def _run(setting: packets.Records, pairs: packets.Records, paths: Sequence[Floats], messages: int) -> Floats:
    """latency_s, float64[Q, messages]; paths: outages of 2Q paths as packets.new_paths numbers them."""
    merged = [in_order(path) for path in paths]
    common = setting[0]
    # A link cannot have more on its way than it sends in a round trip; nor its queue pairs more than their
    # windows, sent anew each time their timers end: none lives if they end more often than it has retries.
    by_time = 2 * common["delay_s"] / min(common["full_s"], common["last_s"]) + 2
    by_window = len(pairs) * common["window"] * (common["retries"] + 4)
    room = 1 << int(min(by_time, by_window)).bit_length()
    links = np.zeros(int(pairs["link"].max()) + 1, packets.LINK)
    answers = np.zeros((len(links), room), packets.ANSWER)
    pairs["post_s"][(pairs["partner"] == packets.NOBODY) | (pairs["link"] == 0)] = 0.0
    latency_s = np.full((len(pairs), messages), np.nan)
    rows = packets.new_paths([len(path) for path in merged])
    packets.run(setting, pairs, links, answers, rows, np.concatenate(merged), latency_s)
    return latency_s


def _setting(
    qp: QueuePair,
    rate_bps: float,
    rtt_s: float,
    messages: int,
    message_bytes: int,
    interval_s: float,
    header_bytes: int,
) -> packets.Records:
    patience(qp, rtt_s, rate_bps, header_bytes)
    if rate_bps == np.inf or not 0 <= interval_s < np.inf:
        raise ScenarioError("packets need a finite rate_bps and a finite interval_s from 0")
    if messages < 1 or message_bytes < 1:
        raise ScenarioError("messages and message_bytes must be at least 1")
    count = -(-message_bytes // qp.mtu_bytes)
    last_bytes = message_bytes - (count - 1) * qp.mtu_bytes
    setting = np.zeros(1, packets.SETTING)
    setting["full_s"] = (qp.mtu_bytes + header_bytes) * 8 / rate_bps
    setting["last_s"] = (last_bytes + header_bytes) * 8 / rate_bps
    setting["delay_s"] = rtt_s / 2
    setting["timeout_s"], setting["retries"] = qp.ack_timeout_s, qp.retry_count
    setting["interval_s"] = interval_s
    setting["window"], setting["packets"] = qp.window, count
    return setting
