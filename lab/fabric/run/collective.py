"""Collectives through faults, timed as nccl-tests does. For: the measurement of experiment T4."""

from __future__ import annotations

import numpy as np

from lab.fabric.input import CollectiveInput
from lab.fabric.run.world import Measured, World, of_outages, outages_on, plan, story_of
from twin.fabric import interruption
from twin.fabric.collectives import Collective, bus_bandwidth_bps, time_s
from twin.fabric.model import Floats, Outages
from twin.fabric.port_failover import PortFailover
from twin.fabric.rdma import goodput_bps
from twin.fabric.topology import all_pairs

_GBIT = 1e9


def measure(world: World, asked: CollectiveInput) -> Measured:
    """Repeat the operation on all hosts. Each host has one flow to each host to which it sends."""
    kind, ranks, fabric = Collective(asked.operation), world.topology.hosts, world.fabric
    rate_bps = goodput_bps(world.rate_bps, fabric.queue_pair.mtu_bytes, world.scheme)
    alone_s = float(time_s(kind, asked.message_bytes, ranks, fabric.alpha_s, rate_bps))
    faults = plan(world, asked.repeats * alone_s)
    outages = world.outages(faults)
    if world.port_failover is not None:
        return _by_library(world, world.port_failover, asked, outages)
    random = np.random.default_rng(world.measure)
    series = interruption.series(
        kind,
        asked.message_bytes,
        ranks,
        alpha_s=fabric.alpha_s,
        rate_bps=rate_bps,
        operations=asked.repeats,
        outages={
            (source, destination): outages_on(
                outages, source, destination, world.path(source, destination, random)
            )
            for source, destination in all_pairs(world.topology).tolist()
        },
        qp=fabric.queue_pair,
        rtt_s=world.rtt_s(0, 1),
    )
    return _measured(asked, ranks, outages, series.duration_s)


def _by_library(world: World, library: PortFailover, asked: CollectiveInput, outages: Outages) -> Measured:
    """Repeat the operation over all ports of each host. A stall of one flow delays the whole operation."""
    kind, ranks, fabric = Collective(asked.operation), world.topology.hosts, world.fabric
    rate_bps = library.ports * goodput_bps(world.rate_bps, fabric.queue_pair.mtu_bytes, world.scheme)
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    every = [(int(source), int(destination)) for source, destination in all_pairs(world.topology)]
    told, _ = story_of(world, library, outages, every if kind is Collective.ALL_TO_ALL else ring)
    whole_s, slow_s = (
        float(time_s(kind, asked.message_bytes, ranks, fabric.alpha_s, rate_bps * share))
        for share in (1.0, library.degraded)
    )
    duration_s = np.full(asked.repeats, np.nan)
    now_s = 0.0
    for index in range(asked.repeats):
        degraded = np.any((told.degraded[:, 0] <= now_s) & (now_s < told.degraded[:, 1]))
        took_s = slow_s if degraded else whole_s
        for begin_s, end_s in told.stalls[told.stalls[:, 1] > now_s]:
            if begin_s < now_s + took_s:
                took_s += end_s - max(begin_s, now_s)
        if now_s + took_s >= told.died_s:
            break
        duration_s[index] = took_s
        now_s += took_s
    return _measured(asked, ranks, outages, duration_s)


def _measured(asked: CollectiveInput, ranks: int, outages: Outages, duration_s: Floats) -> Measured:
    kind = Collective(asked.operation)
    done = duration_s[~np.isnan(duration_s)]
    metrics = {"failed": float(len(done) < asked.repeats)}
    if len(done):
        bus = bus_bandwidth_bps(kind, asked.message_bytes, ranks, done) / _GBIT
        mean = bus_bandwidth_bps(kind, asked.message_bytes, ranks, done.mean()) / _GBIT
        metrics |= {
            "bus_bandwidth_mean_gbps": float(mean),
            "bus_bandwidth_p20_gbps": float(np.quantile(bus, 0.2)),
            "bus_bandwidth_p80_gbps": float(np.quantile(bus, 0.8)),
        }
    at_s = np.cumsum(done) - done
    return of_outages(outages, metrics, {"at_s": at_s, "duration_s": done})
