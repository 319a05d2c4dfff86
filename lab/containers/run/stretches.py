"""Combines the periods of a recorded series: one row for many periods.

For: the stored series of a trace that is coarser than a period. Not for: the figures of a run, which use all
periods (figures.py).

A row has the means of CPU demand and use over its periods. Of the periods in which the container is up it has
the means of limits and of memory, and of all periods if it never is. No limit in one of them means no limit.
Throttled time is added up. Backlog and request are those at the row's end, and the reason is the last one.
`up` and `throttled` are true if they are true in any of the periods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.containers.metrics import UNLIMITED_BYTES
from twin.containers.model import Floats, Series

_CELLS = 1 << 20
"""Container-periods that are put together at once, so that memory stays small."""

Counts = dict[str, NDArray[np.int32]]

Stretches = tuple[NDArray[np.int32], Series, Counts]
"""Last period of each row, the series, and how many periods of each row are there, up, and throttled while
up."""


def stretches(series: Series, together: int) -> Stretches:
    """Return the series with so many periods in a row. The last row has what is left."""
    length, count = series.up.shape
    parts = list(_parts(series, together, max(1, _CELLS // max(1, together * count))))
    last = np.append(np.arange(together, length, together), length)[: -(-length // together)] - 1
    return last.astype(np.int32), *_joined(parts)


def joined(blocks: Sequence[Stretches]) -> Stretches:
    """Return blocks of a run, one after the other, as one."""
    if any(series.request_cores is not None for _, series, _ in blocks):
        for _, series, _ in blocks:
            if series.request_cores is None:
                series.request_cores = np.full(series.up.shape, np.nan, np.float32)
    last, begin = [], 0
    for rows, _, _ in blocks:
        last.append(rows + np.int32(begin))
        begin += int(rows[-1]) + 1
    return np.concatenate(last), *_joined([(series, counts) for _, series, counts in blocks])


def _joined(parts: Sequence[tuple[Series, Counts]]) -> tuple[Series, Counts]:
    names = [name for name in Series.__slots__ if getattr(parts[0][0], name) is not None]
    made = {name: np.concatenate([getattr(part, name) for part, _ in parts]) for name in names}
    return Series(**made), {name: np.concatenate([count[name] for _, count in parts]) for name in parts[0][1]}


def _parts(series: Series, together: int, rows: int) -> Iterator[tuple[Series, Counts]]:
    """Yield `rows` rows at a time, and then the remainder for the last row."""
    length = len(series.up)
    whole = length // together
    for first in range(0, whole, rows):
        count = min(rows, whole - first)
        yield _together(series, first * together, count, together)
    if length > whole * together:
        yield _together(series, whole * together, 1, length - whole * together)


def _together(series: Series, first: int, rows: int, together: int) -> tuple[Series, Counts]:
    def blocks(name: str) -> NDArray[Any]:
        values: NDArray[Any] = getattr(series, name)[first : first + rows * together]
        return values.reshape(rows, together, -1)

    up, throttled, reason = blocks("up"), blocks("throttled"), blocks("cpu_reason")
    changed = together - 1 - np.argmax(reason[:, ::-1] != 0, axis=1)
    ups = up.sum(axis=1, dtype=np.int32)
    # For a row in which the container is never up, all periods count.
    counted = up | (ups == 0)[:, None]
    unlimited = (counted & (blocks("limit_bytes") == UNLIMITED_BYTES)).any(axis=1)
    limit = np.where(unlimited, 0.0, np.rint(_mean_where(counted, blocks("limit_bytes"))))
    made = Series(
        demand_cores=_mean(blocks("demand_cores")),
        usage_cores=_mean(blocks("usage_cores")),
        quota_cores=_mean_where(counted, blocks("quota_cores")).astype(np.float32),
        backlog_s=blocks("backlog_s")[:, -1].astype(np.float32),
        throttled=np.asarray(throttled.any(axis=1), np.bool_),
        throttled_s=blocks("throttled_s").sum(axis=1, dtype=np.float64).astype(np.float32),
        memory_bytes=np.rint(_mean_where(counted, blocks("memory_bytes"))).astype(np.int64),
        limit_bytes=np.where(unlimited, UNLIMITED_BYTES, limit.astype(np.int64)),
        cpu_reason=np.take_along_axis(reason, changed[:, None], axis=1)[:, 0].astype(np.uint8),
        up=np.asarray(up.any(axis=1), np.bool_),
    )
    if series.request_cores is not None:
        made.request_cores = blocks("request_cores")[:, -1].astype(np.float32)
    hits = (throttled & up).sum(axis=1, dtype=np.int32)
    return made, {"periods": np.full_like(ups, together), "up_periods": ups, "throttled_periods": hits}


def _mean(values: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(values.mean(axis=1, dtype=np.float64), np.float32)


def _mean_where(counted: NDArray[np.bool_], values: NDArray[Any]) -> Floats:
    total = np.where(counted, values, 0).sum(axis=1, dtype=np.float64)
    return np.asarray(total / counted.sum(axis=1), np.float64)
