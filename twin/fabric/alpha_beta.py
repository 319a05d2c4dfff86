"""α and β of a machine's collectives from measured times, and what they say of other sizes and ranks.

For: `fit` and `predict`. Not for: the times themselves (collectives.py). A library that has several protocols
takes the fastest for each size (NCCL's LL has the least latency, Simple the whole bandwidth, LL128 lies
between), so a machine is described by as many pairs of α and β, and the least time counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from twin.fabric.collectives import Collective, steps_and_bytes, time_s
from twin.fabric.model import Floats
from twinbed import TraceError


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """alpha_s: of a step; rate_bps: of a rank, each way (inf: size costs nothing)."""

    alpha_s: float
    rate_bps: float


def predict(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, protocols: Sequence[AlphaBeta]
) -> Floats:
    """Seconds one operation takes with the fastest of `protocols` (broadcast over inputs)."""
    times = [time_s(kind, size_bytes, ranks, each.alpha_s, each.rate_bps) for each in protocols]
    return np.asarray(np.min(times, axis=0), np.float64)


def fit(
    kind: Collective, size_bytes: ArrayLike, ranks: ArrayLike, duration_s: ArrayLike, protocols: int = 1
) -> tuple[AlphaBeta, ...]:
    """Each protocol's α and β, neither negative, with the least sum of squared relative errors.

    size_bytes, ranks, duration_s: [n], measured. Of several protocols each has a range of sizes to itself;
    they are cut where that fits best, at least two times in each. Raises TraceError for fewer, and for times
    that are not above zero.
    """
    measured = np.asarray(duration_s, np.float64)
    size, count = (
        np.broadcast_to(np.asarray(each, np.float64), measured.shape) for each in (size_bytes, ranks)
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
    # In units in which both unknowns are near one, as the solver's tolerance is absolute.
    scale = (columns / measured[:, None]).max(axis=0)
    (alpha, per_bit), _ = nnls(columns / measured[:, None] / scale, np.ones(len(measured)))
    return AlphaBeta(float(alpha / scale[0]), float(scale[1] / per_bit) if per_bit > 0 else np.inf)
