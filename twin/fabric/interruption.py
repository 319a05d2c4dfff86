"""Collective operations, one after another, through outages of some of their flows.

For: how long each takes, and when a queue pair breaks: step by step, so that a flow that stalls holds up
whoever waits for it, and nobody else. Not for: operations without outages (collectives.py, which these are
equal to while no path is lost), nor for which flows an outage hits (failover.py, ecmp.py).

A flow is what one rank sends to another over its queue pair. What it loses, and how long it is silent, is
recovery.py's rule. A message longer than a window stands still without acknowledgements, too: the outages of
their path belong to a flow's outages as much as those of its packets'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from twin.fabric import recovery
from twin.fabric.collectives import CHUNK_BYTES, Collective, time_s
from twin.fabric.model import Floats, QueuePair
from twin.fabric.rdma import NO_OUTAGES, in_order, patience
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class CollectiveSeries:
    """duration_s: float64[n], of each operation, NaN from the one on in which a queue pair broke;
    error_at_s: when that was (NaN: never)."""

    duration_s: Floats
    error_at_s: float


def series(
    kind: Collective,
    size_bytes: int,
    ranks: int,
    *,
    alpha_s: float,
    rate_bps: float,
    operations: int,
    outages: Mapping[tuple[int, int], Floats],
    qp: QueuePair,
    rtt_s: float = 0.0,
    chunk_bytes: int = CHUNK_BYTES,
) -> CollectiveSeries:
    """`operations` of one kind, each begun when all ranks have finished the one before.

    alpha_s, rate_bps, chunk_bytes: as in collectives.time_s; outages: per flow (source rank, destination
    rank) float64[m, 2], begin and end in seconds after the series' begin; flows that the operation does not
    use lose nothing. Raises ScenarioError for ranks that there are not and what collectives and rdma refuse.
    """
    if min(size_bytes, operations, chunk_bytes) < 1 or alpha_s < 0 or not 0 < rate_bps < np.inf:
        raise ScenarioError(
            "a series needs size_bytes, operations, chunk_bytes and rate_bps above 0, and alpha_s from 0"
        )
    typical_s = float(time_s(kind, size_bytes, ranks, alpha_s, rate_bps, chunk_bytes=chunk_bytes))
    for source, destination in outages:
        if not (0 <= source < ranks and 0 <= destination < ranks):
            raise ScenarioError(
                f"outages: flow {source} → {destination} is not between ranks 0 … {ranks - 1}"
            )
    flows = sorted(outages)
    rows = [in_order(outages[flow]) for flow in flows]
    every = np.concatenate([NO_OUTAGES, *rows])
    duration_s = np.full(operations, np.nan)
    error_at_s = recovery.operations(
        _steps(kind, size_bytes, ranks, alpha_s, rate_bps, chunk_bytes, typical_s),
        patience(qp, rtt_s, rate_bps, 0),
        np.searchsorted([source for source, _ in flows], np.arange(ranks + 1)),
        np.array([destination for _, destination in flows], np.int64),
        np.cumsum([0, *map(len, rows)]),
        every,
        in_order(every),
        duration_s,
    )
    return CollectiveSeries(duration_s, error_at_s)


def _steps(
    kind: Collective,
    size_bytes: int,
    ranks: int,
    alpha_s: float,
    rate_bps: float,
    chunk_bytes: int,
    typical_s: float,
) -> recovery.Steps:
    share_s = size_bytes / ranks * 8 / rate_bps
    whole_s = size_bytes * 8 / rate_bps
    match kind:
        case Collective.ALL_REDUCE:
            shape, rounds, chunks, message_s, last_s = recovery.RING, 2 * (ranks - 1), 1, share_s, share_s
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            shape, rounds, chunks, message_s, last_s = recovery.RING, ranks - 1, 1, share_s, share_s
        case Collective.ALL_TO_ALL:
            shape, rounds, chunks, message_s, last_s = recovery.PAIRWISE, ranks - 1, 1, share_s, share_s
        case Collective.SEND_RECV:
            shape, rounds, chunks, message_s, last_s = recovery.RING, 1, 1, whole_s, whole_s
        case Collective.BROADCAST | Collective.REDUCE:
            shape, chunks = recovery.CHAIN, max(ceil(size_bytes / chunk_bytes), 1)
            rounds = chunks + ranks - 2
            message_s = min(size_bytes, chunk_bytes) * 8 / rate_bps
            last_s = whole_s - (chunks - 1) * message_s
    return recovery.Steps(shape, ranks, rounds, chunks, message_s, last_s, alpha_s, typical_s)
