"""How fast the twin follows a series of RDMA sends packet by packet through one fault.

The load is perftest's: 10,000 messages of 2^23 bytes, one after another, over a queue pair with packets of 4
KiB at 100 Gbit/s, with one outage of 150 ms in the middle. That makes 20.48 million packets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from benchmarks.figure import figure
from benchmarks.simpy_rdma import Connection
from twin.fabric import rdma
from twin.fabric.model import QueuePair

MESSAGES, MESSAGE_BYTES = 10_000, 1 << 23
PLAIN_MESSAGES = 50
RATE_BPS, RTT_S = 100e9, 10e-6
OUTAGE_S = 0.15
REPEATS = 5
QP = QueuePair()


def figures() -> Iterator[dict[str, object]]:
    """Yield the core time of the series, s, as the median of repeats. The SimPy model's time is scaled up by
    packets."""
    packets = MESSAGE_BYTES // QP.mtu_bytes
    wire_s = (QP.mtu_bytes + rdma.ROCE_V2_BYTES) * 8 / RATE_BPS
    send_s = packets * wire_s + RTT_S
    _series(1, 0.0)
    runs = [_series(MESSAGES, MESSAGES / 2 * send_s) for _ in range(REPEATS)]
    cpu_s = median(taken_s for taken_s, _ in runs)
    series = runs[0][1]
    began_s = PLAIN_MESSAGES / 2 * send_s
    plain = Connection(QP, packets, wire_s, RTT_S / 2, [(began_s, began_s + OUTAGE_S)], [])
    began = time.process_time()
    plain.run(PLAIN_MESSAGES)
    plain_s = (time.process_time() - began) * MESSAGES / PLAIN_MESSAGES
    yield figure(
        "rdma_10000_sends_one_fault",
        cpu_s,
        "s of core time",
        baseline=f"SimPy, a process per packet, {PLAIN_MESSAGES} sends scaled up",
        baseline_value=plain_s,
        ratio=plain_s / cpu_s,
        target="≤ 5 s",
        packets=MESSAGES * packets + series.retransmitted,
        ns_per_packet=round(cpu_s / (MESSAGES * packets + series.retransmitted) * 1e9, 1),
        p50_ms=round(float(np.median(series.latency_s)) * 1e3, 4),
        max_ms=round(float(series.latency_s.max()) * 1e3, 4),
    )


def _series(messages: int, began_s: float) -> tuple[float, rdma.SendSeries]:
    began = time.process_time()
    series = rdma.send_series(
        QP,
        rdma.Link(RATE_BPS, RTT_S),
        messages=messages,
        message_bytes=MESSAGE_BYTES,
        outages=np.array([[began_s, began_s + OUTAGE_S]]),
    )
    return time.process_time() - began, series
