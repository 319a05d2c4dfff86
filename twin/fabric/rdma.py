"""RDMA reliable connections through outages: what a queue pair survives, and its cost to the sender.

For: the closed forms `stall_s`, `survives` and `retries_s`; series of messages packet by packet (packets.py);
the cost of headers with and without a tunnel. Not for: collectives (collectives.py), nor the time for which a
path is lost (failover.py).
Source: InfiniBand Architecture Specification 1.4, chapters 9.7 and 9.9 (go-back-N, ACK timeout, error
retries), and annex A17 for RoCEv2; RFC 7348 for VXLAN; IEEE 802.3 for framing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from control.fabric import VXLAN_OVERHEAD_BYTES
from twin.fabric import packets, recovery, retransmission
from twin.fabric.model import Flags, Floats, QueuePair, Scheme
from twin.fabric.steps import OVERLAYS
from twinbed import ScenarioError

ROCE_BYTES = 14 + 20 + 8 + 12 + 4
"""Headers and checksum of a RoCEv2 packet, B: Ethernet, IPv4, UDP, transport header, ICRC."""
FRAMING_BYTES = 7 + 1 + 4 + 12
"""Preamble, start of frame, frame check and gap of an Ethernet frame, B."""

ROCE_V2_BYTES = ROCE_BYTES + FRAMING_BYTES
"""Bytes on the wire besides a packet's payload, without a tunnel's."""

NO_OUTAGES = np.empty((0, 2))


@dataclass(frozen=True, slots=True)
class Link:
    """A sender's link and the way to its receiver.

    rate_bps: rate of the link, headers included (inf: sending takes no time).
    rtt_s: time to the receiver and back, s.
    header_bytes: bytes on the wire besides a packet's payload.
    """

    rate_bps: float = np.inf
    rtt_s: float = 0.0
    header_bytes: int = ROCE_V2_BYTES


ENDLESS = Link()
"""A link on which sending takes no time."""


@dataclass(frozen=True, slots=True)
class SendSeries:
    """Messages sent one after another over one queue pair.

    latency_s: float64[n], s; NaN for messages that an error left unfinished.
    retransmitted: number of packets sent more than once. timeouts, naks: numbers of their causes.
    error_at_s: time at which the queue pair broke, s (NaN: it did not).
    """

    latency_s: Floats
    retransmitted: int
    timeouts: int
    naks: int
    error_at_s: float


def wire_bytes(payload_bytes: int, scheme: Scheme) -> int:
    """Return the size on an Ethernet link of a RoCEv2 packet with payload_bytes, B."""
    tunnel = VXLAN_OVERHEAD_BYTES if scheme in OVERLAYS else 0
    return payload_bytes + ROCE_BYTES + tunnel + FRAMING_BYTES


def goodput_bps(rate_bps: float, payload_bytes: int, scheme: Scheme) -> float:
    """Return the payload per second on a busy link of rate_bps, bit/s."""
    return rate_bps * payload_bytes / wire_bytes(payload_bytes, scheme)


def check(qp: QueuePair) -> None:
    """Raise ScenarioError for values that no queue pair takes, or that its profile does not know."""
    retransmission.ladder(qp.retry_profile, qp.timeout, qp.retry_count)
    if qp.mtu_bytes < 1 or qp.window < 1:
        raise ScenarioError("queue_pair: mtu_bytes and window must be at least 1")


def patience(qp: QueuePair, link: Link) -> recovery.Patience:
    """Return the queue pair as recovery.py needs it. Raises ScenarioError for an impossible queue pair or
    link."""
    check(qp)
    if not link.rate_bps > 0 or not 0 <= link.rtt_s < np.inf or link.header_bytes < 0:
        raise ScenarioError("a link needs rate_bps above 0, and rtt_s and header_bytes from 0")
    burst_s = qp.window * (qp.mtu_bytes + link.header_bytes) * 8 / link.rate_bps
    times = qp.ladder
    rungs_s = np.array(times.rungs_s, np.float64)
    return recovery.Patience(rungs_s, times.error_s, times.retries, burst_s, link.rtt_s)


def stall_s(qp: QueuePair, gap_s: ArrayLike, link: Link = ENDLESS) -> Floats:
    """Return the time from a path's loss for gap_s until a busy sender's data flows again, s, in the shape of
    gap_s.

    The stall lasts until a retransmission gets through. A path that is lost for less time than a window takes
    to send recovers within a round trip. It is inf if the queue pair breaks. Raises ScenarioError for an
    impossible queue pair or link.
    """
    gaps = np.asarray(gap_s, np.float64)
    rule = patience(qp, link)
    return recovery.stalls(gaps.ravel(), rule).reshape(gaps.shape)


def survives(qp: QueuePair, gap_s: ArrayLike, link: Link = ENDLESS) -> Flags:
    """Return whether the queue pair survives each gap (any shape), because its last retry finds the path."""
    return np.isfinite(stall_s(qp, gap_s, link))


def retries_s(qp: QueuePair, gap_s: float, link: Link = ENDLESS) -> Floats:
    """Return float64[k]: times at which a busy sender sends again, s after the loss of its path for gap_s.

    The last time succeeds if the queue pair survives. Raises ScenarioError as `stall_s` does.
    """
    rule = patience(qp, link)
    resumed_s = recovery.stall(gap_s, rule)
    timers_s = rule.rtt_s + rule.rungs_s
    last_s = [resumed_s] if 0 < resumed_s < np.inf else []
    return np.concatenate((timers_s[timers_s < resumed_s], np.array(last_s, np.float64)))


def in_order(outages: Floats, touching_s: float = 0.0) -> Floats:
    """Return outages, float64[m, 2], in the order of time, with overlapping ones merged.

    touching_s: longest distance of outages that are merged, s. Raises ScenarioError for another shape, and
    for an outage that ends before it begins.
    """
    rows = np.asarray(outages, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.all(rows[:, 0] <= rows[:, 1]):
        raise ScenarioError(f"outages: rows of begin and end, begin first, got shape {rows.shape}")
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reach = np.maximum.accumulate(rows[:, 1])
    first = np.append(True, rows[1:, 0] > reach[:-1] + touching_s)[: len(rows)]
    last = np.append(first[1:], True)[: len(rows)]
    return np.column_stack((rows[first, 0], reach[last]))


def send_series(
    qp: QueuePair,
    link: Link,
    *,
    messages: int,
    message_bytes: int,
    outages: Floats = NO_OUTAGES,
    ack_outages: Floats = NO_OUTAGES,
    interval_s: float = 0.0,
) -> SendSeries:
    """Send `messages`. Each is posted when the one before is acknowledged, and at least interval_s after its
    post.

    outages, ack_outages: float64[m, 2], begin and end (inf: never) of the times in which the path to the
    receiver, and the path back, is down, s. A latency is the time from the post to the last acknowledgement.
    Raises ScenarioError for impossible values.
    """
    return shared_series(
        qp,
        link,
        messages=messages,
        message_bytes=message_bytes,
        outages=[outages],
        ack_outages=[ack_outages],
        interval_s=interval_s,
    )[0]


def shared_series(
    qp: QueuePair,
    link: Link,
    *,
    messages: int,
    message_bytes: int,
    outages: Sequence[Floats],
    ack_outages: Sequence[Floats],
    interval_s: float = 0.0,
) -> tuple[SendSeries, ...]:
    """Return the results of `send_series` for queue pairs that share a sender's link packet by packet, in
    turn.

    outages, ack_outages: outages of each queue pair's path beyond that link. Raises ScenarioError as
    `send_series` does.
    """
    setting = _setting(qp, link, messages, message_bytes, interval_s)
    if len(outages) != len(ack_outages) or not outages:
        raise ScenarioError(
            f"outages: given for {len(outages)} queue pairs, and for the answers of {len(ack_outages)}; "
            "give both for each, and at least one"
        )
    count = len(outages)
    pairs = packets.new_pairs([0] * count, [packets.NOBODY] * count, qp.ladder.retries)
    paths = [path for both in zip(outages, ack_outages, strict=True) for path in both]
    latency_s = _run(qp, setting, pairs, paths, messages)
    return tuple(_series(pairs, latency_s[pair], [pair]) for pair in range(count))


def ping_pong(
    qp: QueuePair,
    link: Link,
    *,
    rounds: int,
    message_bytes: int,
    outages: Floats = NO_OUTAGES,
    return_outages: Floats = NO_OUTAGES,
) -> SendSeries:
    """Return the results of perftest's ib_send_lat: a message there and one of the same size back. The
    latency is half a round trip.

    outages: float64[m, 2], outages of the path there, which also carries the acknowledgements of the way
    back, s. return_outages: the same for the path back. The result's error_at_s is that of the side that
    broke first. Everything else is as in `send_series`.
    """
    setting = _setting(qp, link, rounds, message_bytes, 0.0)
    pairs = packets.new_pairs([0, 1], [1, 0], qp.ladder.retries)
    paths = [outages, return_outages, return_outages, outages]
    latency_s = _run(qp, setting, pairs, paths, rounds)
    return _series(pairs, latency_s[0] / 2, [0, 1])


def _series(pairs: packets.Records, latency_s: Floats, ends: list[int]) -> SendSeries:
    return SendSeries(
        latency_s,
        int(pairs["retransmitted"][ends].sum()),
        int(pairs["timeouts"][ends].sum()),
        int(pairs["naks"][ends].sum()),
        float(np.fmin.reduce(pairs["error_s"][ends])),
    )


def _run(
    qp: QueuePair, setting: packets.Records, pairs: packets.Records, paths: Sequence[Floats], messages: int
) -> Floats:
    """Return latency_s, float64[Q, messages]. paths: outages of 2Q paths, numbered as in
    packets.new_paths."""
    merged = [in_order(path) for path in paths]
    common = setting[0]
    # At most a round trip's packets are on their way on a link. Its queue pairs have at most their windows on
    # their way. They send them again whenever a timer ends, which each survives at most as often as it has
    # retries.
    by_time = 2 * common["delay_s"] / min(common["full_s"], common["last_s"]) + 2
    by_window = len(pairs) * common["window"] * (common["retries"] + 4)
    room = 1 << int(min(by_time, by_window)).bit_length()
    links = np.zeros(int(pairs["link"].max()) + 1, packets.LINK)
    answers = np.zeros((len(links), room), packets.ANSWER)
    pairs["post_s"][(pairs["partner"] == packets.NOBODY) | (pairs["link"] == 0)] = 0.0
    latency_s = np.full((len(pairs), messages), np.nan)
    rows = packets.new_paths([len(path) for path in merged])
    waits_s = np.array(qp.ladder.waits_s, np.float64)
    packets.run(setting, waits_s, pairs, links, answers, rows, np.concatenate(merged), latency_s)
    return latency_s


def _setting(
    qp: QueuePair, link: Link, messages: int, message_bytes: int, interval_s: float
) -> packets.Records:
    patience(qp, link)
    if link.rate_bps == np.inf or not 0 <= interval_s < np.inf:
        raise ScenarioError("packets need a finite rate_bps and a finite interval_s from 0")
    if messages < 1 or message_bytes < 1:
        raise ScenarioError("messages and message_bytes must be at least 1")
    count = -(-message_bytes // qp.mtu_bytes)
    last_bytes = message_bytes - (count - 1) * qp.mtu_bytes
    setting = np.zeros(1, packets.SETTING)
    setting["full_s"] = (qp.mtu_bytes + link.header_bytes) * 8 / link.rate_bps
    setting["last_s"] = (last_bytes + link.header_bytes) * 8 / link.rate_bps
    setting["delay_s"] = link.rtt_s / 2
    setting["retries"] = qp.ladder.retries
    setting["interval_s"] = interval_s
    setting["window"], setting["packets"] = qp.window, count
    return setting
