"""Run collective operations one after another, through outages of some of their flows.

For: the time of each operation, and when a queue pair breaks, step by step. A flow that stalls holds up only
the ranks that wait for it. Not for: operations without outages (collectives.py, which gives the same times
while no path is lost), nor which flows an outage hits (failover.py, topology.py). A flow is what one rank
sends to another over its queue pair. recovery.py has the rule for its losses and its silence. A message
longer than a window also stops without acknowledgements, so outages of their path count as outages of the
flow, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from twin.fabric import recovery
from twin.fabric.collectives import CHUNK_BYTES, Collective, time_s
from twin.fabric.model import Floats, QueuePair
from twin.fabric.rdma import NO_OUTAGES, Link, in_order, patience
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class CollectiveSeries:
    """The times of a series of operations.

    duration_s: float64[n], time of each operation, s; NaN from the operation on in which a queue pair broke.
    error_at_s: time at which it broke, s (NaN: never).
    """

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
    """Run `operations` of one kind. Each begins when all ranks have finished the one before.

    alpha_s, rate_bps, chunk_bytes: as in collectives.time_s.
    outages: (source rank, destination rank) of a flow → float64[m, 2], begins and ends, s after the begin of
    the series. Flows that the operation does not use are ignored.
    Raises ScenarioError for ranks that do not exist and for values that collectives and rdma refuse.
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
    rows = [in_order(outages[flow]) if len(outages[flow]) else NO_OUTAGES for flow in flows]
    every = np.concatenate([NO_OUTAGES, *rows])
    duration_s = np.full(operations, np.nan)
    error_at_s = recovery.operations(
        _steps(kind, size_bytes, ranks, alpha_s, rate_bps, chunk_bytes, typical_s),
        patience(qp, Link(rate_bps, rtt_s, header_bytes=0)),
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
    whole_s = size_bytes * 8 / rate_bps
    if kind in (Collective.BROADCAST, Collective.REDUCE):
        chunks = max(ceil(size_bytes / chunk_bytes), 1)
        message_s = min(size_bytes, chunk_bytes) * 8 / rate_bps
        last_s = whole_s - (chunks - 1) * message_s
        rounds = chunks + ranks - 2
        return recovery.Steps(recovery.CHAIN, ranks, rounds, chunks, message_s, last_s, alpha_s, typical_s)
    rounds = {Collective.ALL_REDUCE: 2 * (ranks - 1), Collective.SEND_RECV: 1}.get(kind, ranks - 1)
    shape = recovery.PAIRWISE if kind is Collective.ALL_TO_ALL else recovery.RING
    message_s = whole_s if kind is Collective.SEND_RECV else size_bytes / ranks * 8 / rate_bps
    return recovery.Steps(shape, ranks, rounds, 1, message_s, message_s, alpha_s, typical_s)
