"""RDMA sends during faults, timed as in perftest's ib_send_lat. For: the measurement of experiment T5."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lab.fabric.input import SendsInput
from lab.fabric.run.world import Measured, World, of_outages, outages_on, through
from twin.fabric import rdma
from twin.fabric.model import Floats, Outages

_LATE = 2.0
"""A message is late if it takes more than this multiple of the finished messages' median, or never ends."""

_THERE, _BACK = (0, 1), (1, 0)


def measure(world: World, asked: SendsInput) -> Measured:
    """Send between hosts 0 and 1. A single fault hits the path from 0 to 1. perftest uses one port and no
    NCCL, so NCCL's schemes have no effect."""
    random = np.random.default_rng(world.measure)
    there, back = world.path(*_THERE, random), world.path(*_BACK, random)
    wire_bytes = (
        asked.message_bytes
        + -(-asked.message_bytes // world.fabric.queue_pair.mtu_bytes) * world.header_bytes
    )
    undisturbed_s = 2 * asked.messages * (wire_bytes * 8 / world.rate_bps + world.rtt_s(*_THERE) / 2)

    def sent(outages: Outages) -> tuple[rdma.SendSeries, float]:
        link = rdma.Link(world.rate_bps, world.rtt_s(*_THERE), world.header_bytes)
        sizes = {"rounds": asked.messages, "message_bytes": asked.message_bytes}
        downs = outages_on(outages, *_THERE, there), outages_on(outages, *_BACK, back)
        if any(map(len, downs)):
            series = rdma.ping_pong(
                world.fabric.queue_pair, link, **sizes, outages=downs[0], return_outages=downs[1]
            )
        else:
            series = _undisturbed(world.fabric.queue_pair, link, **sizes)
        ended_s = float(np.fmin(2 * series.latency_s.sum(), series.error_at_s))
        return series, np.inf if np.isnan(ended_s) else ended_s  # without a timer it stands still for ever

    pairs = np.array([_THERE, _BACK])
    outages, sends = through(world, undisturbed_s, sent, pairs=pairs, uplink=int(there[0]))
    done = sends.latency_s[~np.isnan(sends.latency_s)]
    latencies, censored = _latencies(done, asked.messages, sends.error_at_s)
    metrics = {
        "failed": float(len(done) < asked.messages),
        "retransmitted_packets": float(sends.retransmitted),
        **latencies,
    }
    exchange_s = 2 * done
    series = {"at_s": np.cumsum(exchange_s) - exchange_s, "duration_s": exchange_s}
    return of_outages(outages, metrics, series, censored=censored)


_undisturbed = lru_cache(maxsize=8)(rdma.ping_pong)
"""Sends without outages are the same with every seed and under every scheme with the same link."""


def _latencies(done: Floats, messages: int, error_at_s: float) -> tuple[dict[str, float], frozenset[str]]:
    """Return (metric key → value, keys whose value is a lower bound) of `messages` messages.

    done: float64[n], latencies of those that finished; error_at_s: time at which the queue pair broke, s;
    NaN: it did not. A message that an error left unfinished counts as later than every finished one. The
    message in flight had waited since the end of the one before it, and half of that time is a latency.
    """
    ordered, unfinished = np.sort(done), messages - len(done)
    waited_s = (error_at_s - 2 * float(done.sum())) / 2 if error_at_s < np.inf else 0.0
    longest_s = max(waited_s, float(done.max(initial=0.0)))
    places = {
        f"latency_{key}_s": min(int(np.ceil(share * messages)), messages - 1)
        for key, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
    }
    censored = {key for key, place in places.items() if place >= len(done)}
    values = {key: longest_s if key in censored else float(ordered[place]) for key, place in places.items()}
    late = np.count_nonzero(done > _LATE * np.median(done)) if len(done) else 0
    values |= {
        "latency_mean_s": (float(done.sum()) + unfinished * longest_s) / messages,
        "late_messages": float(late + unfinished),
    }
    return values, frozenset(censored | {"latency_mean_s"} if unfinished else censored)
