"""Send UDP probes through outages, and return what a receiver would see, as the testbed measures it.

For: the gap in each flow's arrivals at each fault. Not for: RDMA (rdma.py), nor flows that are away from
their own path when another fault comes: each flow stays on the path of its hash.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twin.fabric.model import Floats, Outages, Topology, Whole
from twin.fabric.topology import flow_hash, paths
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Probes:
    """Gaps in probe flows, one row per outage and flow on its path.

    outage, flow: int64[n], index of the outage and number of the flow.
    gap_s: float64[n], time between the last arrival before the outage and the first after it, s (inf: none
    after it).
    lost: int64[n], number of probes that never arrived (-1: all from then on).
    A flow without an outage has gaps of one interval and no row.
    """

    outage: Whole
    flow: Whole
    gap_s: Floats
    lost: Whole


def probe(
    topology: Topology,
    outages: Outages,
    pairs: Whole,
    seed: np.random.SeedSequence,
    *,
    flows: int = 8,
    rate_per_s: float = 500.0,
) -> Probes:
    """Send `flows` probe flows per row of pairs (int64[m, 2]) through `outages`. Flow f belongs to row f //
    flows.

    Each flow sends rate_per_s probes in a phase of its own on the path of its hash. Raises ScenarioError for
    a rate of zero.
    """
    if not rate_per_s > 0.0:
        raise ScenarioError(f"probe: rate_per_s: {rate_per_s} sends nothing")
    random = np.random.default_rng(seed)
    interval_s = 1.0 / rate_per_s
    phase_s = random.uniform(0.0, interval_s, len(pairs) * flows)
    first, last = _paths_of(topology, pairs, flows, int(random.integers(1 << 32)))
    outage, flow = _met(topology.hosts, outages, pairs, flows)
    on_it = (outages.uplink[outage] == first[flow]) & (outages.last_uplink[outage] == last[flow])
    outage, flow = outage[on_it], flow[on_it]
    begin, end = outages.begin_s[outage] - phase_s[flow], outages.end_s[outage] - phase_s[flow]
    # Probe k is sent at phase + k intervals. It is lost from the outage's begin until before its end.
    before = np.ceil(begin * rate_per_s) - 1
    after = np.ceil(end * rate_per_s)
    missing = np.where(np.isfinite(after), after - before - 1, -1)
    return Probes(outage, flow, (after - before) * interval_s, missing.astype(np.int64))


def _paths_of(topology: Topology, pairs: Whole, flows: int, seed: int) -> tuple[Whole, Whole]:
    """Return (first uplink, last uplink), int64[m · flows]. Flows differ in their ports, here their
    numbers."""
    first, last = np.empty(len(pairs) * flows, np.int64), np.empty(len(pairs) * flows, np.int64)
    for row, (source, destination) in enumerate(pairs.tolist()):
        candidates = paths(topology, source, destination)
        numbers = np.arange(row * flows, (row + 1) * flows)
        tuples = np.stack([np.full(flows, source), np.full(flows, destination), numbers], axis=1)
        taken = candidates[flow_hash(tuples, len(candidates), seed)]
        first[numbers], last[numbers] = taken[:, 0], taken[:, 2]
    return first, last


def _met(hosts: int, outages: Outages, pairs: Whole, flows: int) -> tuple[Whole, Whole]:
    """Return (outage, flow), int64[k]: every outage with all flows of its pair."""
    keys = pairs[:, 0] * hosts + pairs[:, 1]
    order = np.argsort(keys, kind="stable")
    wanted = outages.source * hosts + outages.destination
    low = np.searchsorted(keys[order], wanted)
    count = np.searchsorted(keys[order], wanted, side="right") - low
    outage = np.repeat(np.arange(len(wanted)), count)
    nth = np.arange(len(outage)) - np.repeat(np.cumsum(count) - count, count)
    pair = order[np.repeat(low, count) + nth]
    flow = pair[:, None] * flows + np.arange(flows)
    return np.repeat(outage, flows), flow.ravel()
