"""Collectives during faults, timed as in nccl-tests. For: the measurement of experiment T4."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lab.fabric.input import CollectiveInput
from lab.fabric.run.world import Measured, Paths, World, first_uplink, of_outages, stopped, story_of, through
from twin.fabric import interruption
from twin.fabric.collectives import Collective, bus_bandwidth_bps, time_s
from twin.fabric.model import Floats, Outages, Scheme
from twin.fabric.port_failover import Story
from twin.fabric.rdma import NO_OUTAGES, goodput_bps, in_order
from twin.fabric.topology import all_pairs, paths

_GBIT = 1e9


def measure(world: World, asked: CollectiveInput) -> Measured:
    """Repeat the operation on all hosts."""
    kind, fabric, library = Collective(asked.operation), world.fabric, world.port_failover
    rate_bps = goodput_bps(world.rate_bps, fabric.queue_pair.mtu_bytes, world.scheme)
    if library is not None:
        rate_bps *= library.ports  # A message is striped over all of them.
    rates_bps = np.array([1.0, 1.0 if library is None else library.degraded]) * rate_bps
    alone_s, slow_s = time_s(kind, asked.message_bytes, world.topology.hosts, fabric.alpha_s, rates_bps)

    flows = _flows(world, kind)
    taken = _paths(world, flows) if library is None else {}

    def timed(outages: Outages) -> tuple[Floats, float]:
        if library is not None:
            told, _ = story_of(world, library, outages, flows)
            return _by_library(asked, (alone_s, slow_s), told)
        spans = stopped(outages, taken)
        if world.scheme is not Scheme.REROUTE:
            return _by_flow(world, asked, rate_bps, spans)
        # The library makes new queue pairs, so it never meets the errors of the old ones.
        stalls = in_order(np.concatenate([spans[flow] for flow in flows]))
        return _by_library(asked, (alone_s, alone_s), Story(stalls, NO_OUTAGES))

    uplink = first_uplink(world, taken, world.topology.hosts)
    # Answers return between the same hosts.
    pairs = np.unique([*flows, *((destination, source) for source, destination in flows)], axis=0)
    outages, duration_s = through(world, asked.repeats * float(alone_s), timed, pairs=pairs, uplink=uplink)
    return _measured(asked, world.topology.hosts, outages, duration_s)


def _by_flow(
    world: World, asked: CollectiveInput, rate_bps: float, outages: Mapping[tuple[int, int], Floats]
) -> tuple[Floats, float]:
    """Return the time of each operation and the end of all, s. outages: of each flow, as in
    interruption.series. Each host has one flow to each host to which it sends."""
    series = interruption.series(
        Collective(asked.operation),
        asked.message_bytes,
        world.topology.hosts,
        alpha_s=world.fabric.alpha_s,
        rate_bps=rate_bps,
        operations=asked.repeats,
        outages=outages,
        qp=world.fabric.queue_pair,
        rtt_s=world.rtt_s(0, 1),
    )
    return series.duration_s, float(np.fmin(series.duration_s.sum(), series.error_at_s))


def _flows(world: World, kind: Collective) -> list[tuple[int, int]]:
    """Return source and destination of the operation's flows: between all hosts, or around a ring."""
    ranks = world.topology.hosts
    if kind is Collective.ALL_TO_ALL:
        return [(int(source), int(destination)) for source, destination in all_pairs(world.topology)]
    return [(rank, (rank + 1) % ranks) for rank in range(ranks)]


def _paths(world: World, flows: list[tuple[int, int]]) -> Paths:
    """Return the path of each flow, as World.path picks it. All pairs of hosts draw theirs in turn, so that
    a flow has the same path in every operation."""
    topology = world.topology
    _, first, of = np.unique(topology.tor_of, axis=0, return_index=True, return_inverse=True)
    of = of.ravel()
    choices = [[paths(topology, int(one), int(other)) for other in first] for one in first]
    counts = np.array([[len(rows) for rows in line] for line in choices])
    source, destination = all_pairs(topology).T
    picked = np.zeros(len(source), np.int64)
    if world.scheme is not Scheme.NONE:
        picked = np.random.default_rng(world.measure).integers(counts[of[source], of[destination]])
    chosen = {}
    for one, other in flows:
        place = one * (topology.hosts - 1) + other - (other > one)
        chosen[one, other] = choices[of[one]][of[other]][picked[place]]
    return chosen


def _by_library(asked: CollectiveInput, lasts_s: tuple[float, float], told: Story) -> tuple[Floats, float]:
    """Return the same as `_by_flow` if the library handles outages, as `told` says. A stall of one flow
    delays the whole operation.

    lasts_s: time of an operation with all ports, and without one, s.
    """
    duration_s = np.full(asked.repeats, np.nan)
    now_s = 0.0
    for index in range(asked.repeats):
        degraded = np.any((told.degraded[:, 0] <= now_s) & (now_s < told.degraded[:, 1]))
        took_s = lasts_s[1 if degraded else 0]
        for begin_s, end_s in told.stalls[told.stalls[:, 1] > now_s]:
            if begin_s < now_s + took_s:
                took_s += end_s - max(begin_s, now_s)
        if now_s + took_s >= told.died_s:
            return duration_s, told.died_s
        duration_s[index] = took_s
        now_s += took_s
    return duration_s, now_s


def _measured(asked: CollectiveInput, ranks: int, outages: Outages, duration_s: Floats) -> Measured:
    kind = Collective(asked.operation)
    unfinished = np.isnan(duration_s)
    lasted_s = np.where(unfinished, np.inf, duration_s)
    bus = bus_bandwidth_bps(kind, asked.message_bytes, ranks, lasted_s) / _GBIT
    mean = bus_bandwidth_bps(kind, asked.message_bytes, ranks, lasted_s.mean()) / _GBIT
    metrics = {
        "failed": float(unfinished.any()),
        "bus_bandwidth_mean_gbps": float(mean),
        "bus_bandwidth_p20_gbps": float(np.quantile(bus, 0.2)),
        "bus_bandwidth_p80_gbps": float(np.quantile(bus, 0.8)),
    }
    done = duration_s[~unfinished]
    at_s = np.cumsum(done) - done
    return of_outages(outages, metrics, {"at_s": at_s, "duration_s": done})
