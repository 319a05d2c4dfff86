"""Combines the periods of a recorded series: one row for many periods.

For: the stored series of a trace that is coarser than a period. Not for: the figures of a run, which use all
periods (figures.py).

A row has the means of CPU demand and use over its periods. It has the means of limits and of memory over the
periods in which the container is up, or over all periods if the container is never up. If one period has no
limit, the row has none. Throttled time is added up. Backlog and request are those at the row's end, and the
reason is the last one. `up` and `throttled` are true if they are true in any of the periods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.containers.metrics import UNLIMITED_BYTES
from twin.containers import cfs
from twin.containers.compiled import released
from twin.containers.model import Series

Counts = dict[str, NDArray[np.int32]]

Stretches = tuple[NDArray[np.int32], Series, Counts]
"""Last period of each row, the series, and three counts per row: periods, periods up, and periods throttled
while up."""


def stretches(series: Series, together: int) -> Stretches:
    """Return the series with `together` periods in a row. The last row may have fewer."""
    length, count = series.up.shape
    last = np.append(np.arange(together, length, together), length)[: -(-length // together)] - 1
    made = cfs.new_series(len(last), count)
    counts = {
        name: np.zeros(made.up.shape, np.int32) for name in ("periods", "up_periods", "throttled_periods")
    }
    _put_together(cfs.rows_of(series), together, cfs.rows_of(made), *counts.values())
    if series.request_cores is not None:
        made.request_cores = series.request_cores[last].astype(np.float32)
    return last.astype(np.int32), made, counts


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


@released
def _put_together(
    series: cfs.Rows,
    together: int,
    made: cfs.Rows,
    periods: NDArray[np.int32],
    ups: NDArray[np.int32],
    hits: NDArray[np.int32],
) -> None:
    """Write the rows of `made`, and each row's number of periods, of periods up, and of periods throttled
    while up."""
    length, count = series.up.shape
    sums = np.empty((6, count))
    demand, usage, throttled_s, quota, memory, limit = sums
    unlimited = np.empty(count, np.bool_)
    for row in range(len(made.up)):
        begin, end = row * together, min((row + 1) * together, length)
        sums[:], unlimited[:] = 0.0, False
        _add_rows(series.up, begin, end, ups[row])
        # One quantity at a time, because the compiler then adds several containers at once.
        _add_rows(series.demand_cores, begin, end, demand)
        _add_rows(series.usage_cores, begin, end, usage)
        _add_rows(series.throttled_s, begin, end, throttled_s)
        always = True
        for i in range(count):
            always &= ups[row, i] == end - begin
        if always:
            _add_rows(series.quota_cores, begin, end, quota)
            _add_rows(series.memory_bytes, begin, end, memory)
            _add_rows(series.limit_bytes, begin, end, limit)
            _add_rows(series.throttled, begin, end, hits[row])
        for t in range(begin, end):
            for i in range(count):
                made.throttled[row, i] |= series.throttled[t, i]
            for i in range(count):
                reason = series.cpu_reason[t, i]
                made.cpu_reason[row, i] = reason if reason != 0 else made.cpu_reason[row, i]
            for i in range(count):
                # For a row in which the container is never up, all periods count.
                unlimited[i] |= (series.limit_bytes[t, i] == UNLIMITED_BYTES) & (
                    series.up[t, i] | (ups[row, i] == 0)
                )
            for i in range(0 if always else count):
                up = series.up[t, i]
                if up or ups[row, i] == 0:
                    quota[i] += series.quota_cores[t, i]
                    memory[i] += np.float64(series.memory_bytes[t, i])
                    limit[i] += np.float64(series.limit_bytes[t, i])
                hits[row, i] += up and series.throttled[t, i]
        for i in range(count):
            counted = ups[row, i] if ups[row, i] > 0 else end - begin
            made.up[row, i] = ups[row, i] > 0
            periods[row, i] = end - begin
            made.demand_cores[row, i] = demand[i] / (end - begin)
            made.usage_cores[row, i] = usage[i] / (end - begin)
            made.throttled_s[row, i] = throttled_s[i]
            made.quota_cores[row, i] = quota[i] / counted
            made.memory_bytes[row, i] = np.int64(np.rint(memory[i] / counted))
            made.limit_bytes[row, i] = (
                UNLIMITED_BYTES if unlimited[i] else np.int64(np.rint(limit[i] / counted))
            )
            made.backlog_s[row, i] = series.backlog_s[end - 1, i]


@released
def _add_rows(values: NDArray[np.generic], begin: int, end: int, sums: NDArray[np.generic]) -> None:
    """Add the rows begin … end - 1 of values[t, N] to sums[N]."""
    for t in range(begin, end):
        for i in range(len(sums)):
            sums[i] += values[t, i]
