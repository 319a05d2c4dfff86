"""Collective operations in the α–β model: their times and bandwidths, and fitting α and β.

For: times and bus bandwidths of ring collectives; α and β of a machine from measured times. Not for: the
effect of an outage on collectives (interruption.py). α is the latency of a step, β the rate of a rank. Sizes,
algorithm bandwidth and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md there): the size is what one
rank has at the end of an all-gather, has at the start of a reduce-scatter, and exchanges in total in an
all-to-all.
Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005,
for rings. Broadcast and reduce are pipelined along the ring in chunks, as NCCL does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from twin.fabric.model import Floats
from twinbed import ScenarioError, TraceError

CHUNK_BYTES = 1 << 19
"""Chunk of NCCL's pipelines, B: a buffer of 4 MiB (default of NCCL_BUFFSIZE) in 8 steps (NCCL_STEPS)."""


class Collective(StrEnum):
    """Collective operations by their names in nccl-tests."""

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
    """Return the numbers of latencies, and of bytes, that follow one another until the operation's end.

    The inputs broadcast. Raises ScenarioError below two ranks.
    """
    size, count = np.broadcast_arrays(np.asarray(size_bytes, np.float64), _ranks(ranks))
    sent = size * bus_factor(kind, count)
    match kind:
        case Collective.ALL_REDUCE:
            return 2 * (count - 1), sent
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return count - 1, sent
        case Collective.BROADCAST | Collective.REDUCE:
            # The first chunk goes all the way. The other chunks follow it back to back.
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
    """Return the time of one operation, s. All inputs are broadcast.

    alpha_s: latency of a step, s. rate_bps: rate of a rank in each direction. Raises ScenarioError below two
    ranks.
    """
    latencies, sent = steps_and_bytes(kind, size_bytes, ranks, chunk_bytes)
    return np.asarray(latencies * np.asarray(alpha_s) + sent * 8 / np.asarray(rate_bps), np.float64)


def algorithm_bandwidth_bps(size_bytes: ArrayLike, duration_s: ArrayLike) -> Floats:
    """Return nccl-tests' algbw: size divided by time, bit/s."""
    return np.asarray(np.asarray(size_bytes, np.float64) * 8 / np.asarray(duration_s), np.float64)


def bus_bandwidth_bps(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, duration_s: ArrayLike
) -> Floats:
    """Return nccl-tests' busbw, bit/s. It is comparable to the rate of a link for any number of ranks."""
    return algorithm_bandwidth_bps(size_bytes, duration_s) * bus_factor(kind, ranks)


def bus_factor(kind: Collective, ranks: ArrayLike) -> Floats:
    """Return busbw / algbw, the number of times that the busiest link carries the size. Raises ScenarioError
    below two ranks."""
    count = _ranks(ranks)
    match kind:
        case Collective.ALL_REDUCE:
            return 2 * (count - 1) / count
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return (count - 1) / count
        case Collective.BROADCAST | Collective.REDUCE | Collective.SEND_RECV:
            return np.ones_like(count)


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A protocol. alpha_s: latency of a step, s. rate_bps: rate of a rank in each direction, bit/s (inf: size
    costs no time)."""

    alpha_s: float
    rate_bps: float


def predict(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, protocols: Sequence[AlphaBeta]
) -> Floats:
    """Return the time of one operation with the fastest of `protocols`, s. Inputs are broadcast."""
    times = [time_s(kind, size_bytes, ranks, protocol.alpha_s, protocol.rate_bps) for protocol in protocols]
    return np.asarray(np.min(times, axis=0), np.float64)


def fit(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, duration_s: ArrayLike, protocols: int = 1
) -> tuple[AlphaBeta, ...]:
    """Return α and β of each protocol, neither negative, with the least sum of squared relative errors.

    size_bytes, ranks, duration_s: [n], measured. A library with several protocols uses the fastest for each
    size (NCCL's LL has the least latency, Simple the full bandwidth, LL128 lies between), so each of
    `protocols` gets a range of sizes. The ranges are cut where the fit is best, with at least two times in
    each. Raises TraceError for fewer times, and for times that are not above zero.
    """
    measured = np.asarray(duration_s, np.float64)
    size, count = (
        np.broadcast_to(np.asarray(values, np.float64), measured.shape) for values in (size_bytes, ranks)
    )
    if len(measured) < 2 * protocols or not np.all(measured > 0):
        raise TraceError(f"collective times: {protocols} protocols need {2 * protocols} times above zero")
    latencies, sent = steps_and_bytes(kind, size, count)
    columns = np.column_stack((latencies, sent * 8))
    order = np.argsort(size, kind="stable")
    best: tuple[AlphaBeta, ...] = ()
    least = np.inf
    for cuts in combinations(range(2, len(order) - 1), protocols - 1):
        ranges = np.split(order, cuts)
        if min(map(len, ranges)) < 2:
            continue
        lines = tuple(_line(columns[rows], measured[rows]) for rows in ranges)
        error = float(np.square(predict(kind, size, count, lines) / measured - 1).sum())
        if error < least:
            best, least = lines, error
    return best


def _line(columns: Floats, measured: Floats) -> AlphaBeta:
    # The solver's tolerance is absolute, so the units make both unknowns close to one.
    scale = (columns / measured[:, None]).max(axis=0)
    (alpha, per_bit), _ = nnls(columns / measured[:, None] / scale, np.ones(len(measured)))
    return AlphaBeta(float(alpha / scale[0]), float(scale[1] / per_bit) if per_bit > 0 else np.inf)


def _ranks(ranks: ArrayLike) -> Floats:
    count = np.asarray(ranks, np.float64)
    if np.any(count < 2):
        raise ScenarioError(f"ranks: a collective needs at least two, got {count.min():g}")
    return count
