"""Collective operations in the α–β model: how long they take and what bandwidth that is.

For: `time_s` and `bus_bandwidth_bps` of ring collectives. Not for: what an outage does to them
(interruption.py).

Sizes, algorithm and bus bandwidth are nccl-tests' (doc/PERFORMANCE.md there): all-gather's, reduce-scatter's
and all-to-all's size is what one rank ends up with, starts with and exchanges in all. α is a step's latency,
β a rank's rate. Rings: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005; broadcast and reduce are pipelined along the ring in chunks, as NCCL does.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from twin.fabric.model import Floats
from twinbed import ScenarioError

CHUNK_BYTES = 1 << 19
"""NCCL's pipelines: a buffer of 4 MiB (NCCL_BUFFSIZE's default) in 8 steps (NCCL_STEPS)."""


class Collective(StrEnum):
    """What ranks do together, by the names of nccl-tests."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "alltoall"
    SEND_RECV = "sendrecv"


def steps_and_bytes(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, chunk_bytes: int = CHUNK_BYTES
) -> tuple[Floats, Floats]:
    """How many latencies, and how many bytes' sending, follow one another until the end (broadcast inputs).

    Raises ScenarioError below two ranks.
    """
    size, count = np.broadcast_arrays(np.asarray(size_bytes, np.float64), _ranks(ranks))
    sent = size * bus_factor(kind, count)
    match kind:
        case Collective.ALL_REDUCE:
            return 2 * (count - 1), sent
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return count - 1, sent
        case Collective.BROADCAST | Collective.REDUCE:
            # The first chunk goes all the way; the others follow it back to back, each a chunk behind.
            return count - 1, sent + (count - 2) * np.minimum(size, chunk_bytes)
        case Collective.SEND_RECV:
            return np.ones_like(size), sent


def time_s(
    kind: Collective,
    size_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    rate_bps: ArrayLike,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Floats:
    """Seconds one operation takes (broadcast over all inputs).

    alpha_s: of a step; rate_bps: of a rank, each way. Raises ScenarioError below two ranks.
    """
    latencies, sent = steps_and_bytes(kind, size_bytes, ranks, chunk_bytes)
    return np.asarray(latencies * np.asarray(alpha_s) + sent * 8 / np.asarray(rate_bps), np.float64)


def algorithm_bandwidth_bps(size_bytes: ArrayLike, duration_s: ArrayLike) -> Floats:
    """nccl-tests' algbw: size over time, bits per second."""
    return np.asarray(np.asarray(size_bytes, np.float64) * 8 / np.asarray(duration_s), np.float64)


def bus_bandwidth_bps(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, duration_s: ArrayLike
) -> Floats:
    """nccl-tests' busbw, bits per second: what to compare with a link's rate, whatever the ranks."""
    return algorithm_bandwidth_bps(size_bytes, duration_s) * bus_factor(kind, ranks)


def bus_factor(kind: Collective, ranks: ArrayLike) -> Floats:
    """busbw / algbw: how often the busiest link carries the size. Raises ScenarioError below two ranks."""
    count = _ranks(ranks)
    match kind:
        case Collective.ALL_REDUCE:
            return 2 * (count - 1) / count
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return (count - 1) / count
        case Collective.BROADCAST | Collective.REDUCE | Collective.SEND_RECV:
            return np.ones_like(count)


def _ranks(ranks: ArrayLike) -> Floats:
    count = np.asarray(ranks, np.float64)
    if np.any(count < 2):
        raise ScenarioError(f"ranks: a collective needs at least two, got {count.min():g}")
    return count
