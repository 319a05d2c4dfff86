"""Equal-cost paths between two hosts, and the path that a flow takes.

For: the shortest paths of a pair, and per-flow hashing as switches and kernels do it, so that all packets of
a flow take the same path. Not for: which paths work (failover.py). Hosts with a ToR in common meet there;
others meet at a spine.
Source: RFC 2992 for the hashing of flows; the finalizer of SplitMix64 for its bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twin.fabric.model import NO_SPINE, Topology, Whole

NO_SPINE_USED = -1
"""The spine of a path with only one ToR."""


def paths(topology: Topology, source: int, destination: int) -> Whole:
    """Return int64[P, 3]: the source's uplink, the spine (NO_SPINE_USED: one ToR connects the hosts) and the
    destination's uplink of each shortest path. P is 0 if there is no path."""
    same = topology.tor_of[source][:, None] == topology.tor_of[destination][None, :]
    if same.any():
        first, last = np.nonzero(same)
        return np.stack([first, np.full(len(first), NO_SPINE_USED), last], axis=1)
    uplinks, spines = np.arange(topology.uplinks), np.arange(max(topology.spines, NO_SPINE))
    grid = np.meshgrid(uplinks, spines, uplinks, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1)


def flow_hash(flows: Whole, paths: int, seed: int) -> Whole:
    """Return int64[n]: the path, 0 … paths - 1, that each flow takes.

    flows: int64[n, k], the fields that a switch hashes (addresses, ports). seed: the switch's own.
    """
    mixed = np.full(len(flows), np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15), np.uint64)
    for column in np.atleast_2d(flows.T).astype(np.uint64):
        mixed = _mix(mixed ^ column)
    # The high bits are scaled, because a remainder would favour the first paths.
    return np.asarray(((mixed >> np.uint64(32)) * np.uint64(paths)) >> np.uint64(32), np.int64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
