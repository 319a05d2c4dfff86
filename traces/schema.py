"""The schema of a usage trace: CPU, memory and network use of containers over time.

For: the in-memory form that every reader produces and the Parquet form that we write. Not for: parsing
foreign files (traces/readers), nor refining coarse traces (traces/refine).

A trace is dense: T regular intervals × N containers. A container that does not run in an interval (before it
starts, after it ends) has `present = False` and usage 0 there. A value that is missing while its container
runs is an error in which the reader names the row. On request, the reader fills it instead and says so in
`notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import ceil, isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinbed import TraceError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UsageTrace:
    """Usage in T intervals × N containers. Arrays are [T, N], time-major (row t, column i), C-contiguous.

    containers: N distinct non-empty names
    apps: N application names
    start_s: time stamp of the first interval's start, s, any epoch
    interval_s: length of an interval, s, > 0
    cpu_cores: mean CPU use in the interval, cores, ≥ 0
    memory_bytes: working set at the interval's end, bytes, ≥ 0
    present: whether the container runs, bool
    rx_bytes, tx_bytes: network bytes received and sent in the interval; None if the source has no counters
    throttled_s: CFS throttled time in the interval, s; None if the source does not have it
    metadata: the source's own facts (machine, kernel, command, licence…)
    notes: changes that readers and refinements made, one sentence for each, shown to the user
    """

    containers: tuple[str, ...]
    apps: tuple[str, ...]
    start_s: float
    interval_s: float
    cpu_cores: Floats
    memory_bytes: Floats
    present: NDArray[np.bool_]
    rx_bytes: Floats | None = None
    tx_bytes: Floats | None = None
    throttled_s: Floats | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of intervals and of containers: (T, N)."""
        return self.cpu_cores.shape

    @property
    def duration_s(self) -> float:
        """Length of the trace: T · interval_s, in seconds."""
        return len(self.cpu_cores) * self.interval_s

    def each(self, change: Callable[[Floats], Floats]) -> dict[str, Any]:
        """Return quantity → its array after `change`; None stays None."""
        arrays = {name: getattr(self, name) for name in QUANTITIES}
        return {name: None if values is None else change(values) for name, values in arrays.items()}


QUANTITIES = ("cpu_cores", "memory_bytes", "rx_bytes", "tx_bytes", "throttled_s")
"""The names of the [T, N] quantities of a trace, in the order in which they are written and checked."""

MAX_CELLS = 50_000_000
"""Largest number of intervals × containers that `refine` makes: 2 GiB with all five quantities."""

MOST_READ_CELLS = 12_000_000
"""Largest number of intervals × containers that is read, unless the user gives a larger one. A week of 500
containers every 30 s has 10.08 million. Reading the most with all five quantities takes some 1.2 GB."""

LATEST_S = 1e11
"""Latest time stamp, s since 1970: the year 5138. Milliseconds of our days are later."""

LARGEST = 1e30
"""Largest value of a trace, in any unit. Sums and squares of larger values would overflow."""

SHORTEST_S, LONGEST_S = 1e-9, 1e9
"""Bounds of an interval's length, s."""


def validate(trace: UsageTrace, source: str) -> None:
    """Check every promise of `UsageTrace`. source: path or name with which the error begins.

    Raises TraceError for the first value, in time order, that is NaN, negative, above LARGEST, or not zero
    while its container is absent: it names the interval (counted from 1), its time stamp, the column and the
    container.
    Otherwise it names the wrong fact of the header (no rows, no containers, a container twice, a length).
    """
    _validate_header(trace, source)
    for name in QUANTITIES:
        values: Floats | None = getattr(trace, name)
        if values is None:
            continue
        if values.shape != trace.present.shape:
            raise TraceError(
                f"{source}: {name} has shape {values.shape}, the trace has {trace.present.shape}"
            )
        if values.dtype != np.float64:
            raise TraceError(f"{source}: {name} is {values.dtype}, expected float64")
        # NaN fails the first comparison and infinity the second, so one pass finds every bad value.
        good = (values >= 0) & (values <= LARGEST) & (trace.present | (values == 0))
        if not good.all():
            row, column = (int(i) for i in np.argwhere(~good)[0])
            raise TraceError(_cell_message(trace, source, name, row, column))


def _validate_header(trace: UsageTrace, source: str) -> None:
    rows, columns = trace.present.shape
    if rows == 0:
        raise TraceError(f"{source}: no intervals (0 rows), expected at least one")
    if columns == 0:
        raise TraceError(f"{source}: no containers, expected at least one")
    for noun, names in (("container", trace.containers), ("app", trace.apps)):
        if len(names) != columns:
            raise TraceError(f"{source}: {len(names)} {noun} names for {columns} columns")
        for index, name in enumerate(names):
            if not name.strip():
                raise TraceError(f"{source}: {noun} name of column {index + 1} is empty")
    seen: set[str] = set()
    for name in trace.containers:
        if name in seen:
            raise TraceError(f"{source}: container {name!r} appears twice")
        seen.add(name)
    if not SHORTEST_S <= trace.interval_s <= LONGEST_S:
        raise TraceError(
            f"{source}: interval is {trace.interval_s} s, expected a number above zero, from "
            f"{SHORTEST_S:g} to {LONGEST_S:g}"
        )
    if not abs(trace.start_s) <= LARGEST:
        raise TraceError(f"{source}: start is {trace.start_s}, expected seconds")
    if trace.present.dtype != np.bool_:
        raise TraceError(f"{source}: present is {trace.present.dtype}, expected bool")


def _cell_message(trace: UsageTrace, source: str, name: str, row: int, column: int) -> str:
    value = float(getattr(trace, name)[row, column])
    expected = "a finite number, zero or above" if trace.present[row, column] else "0: it is absent there"
    at_s = trace.start_s + row * trace.interval_s
    return (
        f"{source}: interval {row + 1} (time {at_s:.10g} s), column {name}, "
        f"container {trace.containers[column]!r}: {value:g}, expected {expected}"
    )


def select(
    trace: UsageTrace,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
) -> UsageTrace:
    """Return a part of a trace: these containers, in this order, and the intervals in [start_s, end_s).

    start_s, end_s: seconds from the trace's own start; an interval belongs to the window in which it begins.
    A container that never runs in the window stays, absent. Adds a note if anything is left out. Raises
    TraceError for an unknown container (it names close ones), a container named twice, and a window without
    intervals.
    """
    columns = _columns(trace, containers)
    rows = len(trace.present)
    if any(at_s is not None and isnan(at_s) for at_s in (start_s, end_s)):
        raise TraceError("start_s and end_s: expected seconds, and not NaN")
    # If a window edge misses an interval's start by rounding only, that start is meant.
    first = 0 if start_s is None else ceil(max(0, min(start_s / trace.interval_s, rows)) - 1e-6)
    last = rows if end_s is None else ceil(max(0, min(end_s / trace.interval_s, rows)) - 1e-6)
    if first >= last:
        window = f"from {start_s or 0:g} s" + ("" if end_s is None else f" to {end_s:g} s")
        raise TraceError(f"no interval begins {window}: the trace is {trace.duration_s:g} s long")
    if (first, last) == (0, rows) and columns == list(range(len(trace.containers))):
        return trace

    def part(values: Floats) -> Floats:
        return np.ascontiguousarray(values[first:last, columns])

    note = (
        f"Selected {len(columns)} of {len(trace.containers)} containers and intervals "
        f"{first + 1} to {last} of {rows}."
    )
    return replace(
        trace,
        containers=tuple(trace.containers[i] for i in columns),
        apps=tuple(trace.apps[i] for i in columns),
        start_s=trace.start_s + first * trace.interval_s,
        present=np.ascontiguousarray(trace.present[first:last, columns]),
        notes=(*trace.notes, note),
        **trace.each(part),
    )


def _columns(trace: UsageTrace, containers: Sequence[str] | None) -> list[int]:
    if containers is None:
        return list(range(len(trace.containers)))
    column_of = {name: i for i, name in enumerate(trace.containers)}
    for name in containers:
        if name not in column_of:
            close = get_close_matches(name, trace.containers, n=3) or list(trace.containers[:3])
            raise TraceError(f"no container {name!r} in the trace; close: {', '.join(close)}")
    if len(set(containers)) != len(containers) or not containers:
        raise TraceError(f"containers to select must be distinct and at least one: {', '.join(containers)}")
    return [column_of[name] for name in containers]
