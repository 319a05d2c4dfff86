"""RDMA sends through faults, timed as perftest's ib_send_lat does. For: the measurement of experiment T5."""

from __future__ import annotations

import numpy as np

from lab.fabric.input import SendsInput
from lab.fabric.run.measured import Measured, of_outages
from lab.fabric.run.world import World, outages_on, plan
from twin.fabric import rdma
from twin.fabric.model import Floats

_LATE = 2.0
"""A message is late if it takes more than this multiple of the median."""

_THERE, _BACK = (0, 1), (1, 0)


def measure(world: World, asked: SendsInput) -> Measured:
    """Send between hosts 0 and 1. A single fault hits the path from 0 to 1."""
    random = np.random.default_rng(world.measure)
    there, back = world.path(*_THERE, random), world.path(*_BACK, random)
    wire_bytes = (
        asked.message_bytes
        + -(-asked.message_bytes // world.fabric.queue_pair.mtu_bytes) * world.header_bytes
    )
    undisturbed_s = 2 * asked.messages * (wire_bytes * 8 / world.rate_bps + world.rtt_s(*_THERE) / 2)
    faults = plan(world, undisturbed_s, uplink=int(there[0]))
    outages = world.outages(faults, np.array([_THERE, _BACK]))
    series = rdma.ping_pong(
        world.fabric.queue_pair,
        rdma.Link(world.rate_bps, world.rtt_s(*_THERE), world.header_bytes),
        rounds=asked.messages,
        message_bytes=asked.message_bytes,
        outages=outages_on(outages, *_THERE, there),
        return_outages=outages_on(outages, *_BACK, back),
    )
    done = series.latency_s[~np.isnan(series.latency_s)]
    metrics = {
        "failed": float(not np.isnan(series.error_at_s)),
        "retransmitted_packets": float(series.retransmitted),
        **_latencies(done),
    }
    at_s = np.concatenate(([0.0], np.cumsum(2 * done)[:-1])) if len(done) else done
    return of_outages(outages, metrics, {"at_s": at_s, "duration_s": done})


def _latencies(done: Floats) -> dict[str, float]:
    if not len(done):
        return {}
    ordered = np.sort(done)
    ranks = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    quantiles = {
        f"latency_{key}_s": float(ordered[min(int(np.ceil(share * len(done))), len(done) - 1)])
        for key, share in ranks.items()
    }
    late = done > _LATE * quantiles["latency_p50_s"]
    return quantiles | {
        "latency_mean_s": float(done.mean()),
        "latency_max_s": float(ordered[-1]),
        "late_messages": float(late.sum()),
    }
