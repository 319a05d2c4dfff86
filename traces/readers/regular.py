"""Turn samples with jitter, duplicates and holes into a dense regular trace, and note every change.

For: monitoring data (one stamp per container and sample). Not for: users' own data, for which plain_csv.py
refuses irregular times unless the user asks for filling.

The rules are the same for all readers. A sample belongs to the nearest multiple of the interval after the
first stamp. If two samples fall into one interval, the later one counts. A missing CPU value repeats the last
one for at most max_hold_s. A container with a longer hole is left out. A container that appears late or
vanishes early is absent before and after, unless max_hold_s reaches the end. Other quantities repeat their
last value as long as needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.schema import MOST_READ_CELLS, Floats, UsageTrace
from twinbed import TraceError
from twinbed.text import are, counted

CPU = "cpu_cores"


@dataclass(frozen=True, slots=True)
class Grid:
    """Samples on a regular grid of T intervals × N containers.

    containers: N names, sorted
    start_s: start of the first interval, s
    interval_s: length of an interval, s
    values: quantity → float64[T, N]
    present: bool[T, N], whether the container runs
    notes: changes made to the samples, one sentence each
    """

    containers: tuple[str, ...]
    start_s: float
    interval_s: float
    values: dict[str, Floats]
    present: NDArray[np.bool_]
    notes: tuple[str, ...]

    def trace(self, app: str, metadata: dict[str, str], *notes: str, prefix: str = "") -> UsageTrace:
        """Return the trace of one application. Memory is 0 if the source has none.

        prefix: text put before the containers' names. notes: notes put before those of the grid.
        """
        return UsageTrace(
            containers=tuple(prefix + name for name in self.containers),
            apps=(app,) * len(self.containers),
            start_s=self.start_s,
            interval_s=self.interval_s,
            present=self.present,
            metadata=metadata,
            notes=(*notes, *self.notes),
            **{"memory_bytes": np.zeros(self.present.shape), **self.values},
        )


def onto_grid(
    path: Path,
    container: pd.Series[Any],
    time_s: Floats,
    values: Mapping[str, Floats],
    *,
    interval_s: float,
    max_hold_s: float,
) -> Grid:
    """Return samples (arrays of one length, any order; NaN = missing) as a Grid. `values` must hold CPU.

    Raises TraceError for a max_hold_s below zero, when nothing is left, or when the grid is larger than
    MOST_READ_CELLS.
    """
    if not max_hold_s >= 0:
        raise TraceError(f"{path}: max_hold_s is {max_hold_s:g}, expected zero or above")
    code, names = pd.factorize(container.astype("str"), sort=True)
    seen = ~np.isnan(values[CPU])
    if not seen.any():
        raise TraceError(f"{path}: no CPU sample in the part that was selected")
    # The rows are bounded before they become integers, because a far-off stamp would not fit.
    slots = np.rint((time_s - time_s[seen].min()) / interval_s).clip(-1, 2**40)
    slot = slots.astype(np.int64)
    rows = int(slot[seen].max()) + 1
    if rows * len(names) > MOST_READ_CELLS:
        raise TraceError(
            f"{path}: {counted(rows, 'interval')} × {counted(len(names), 'container')} are more than "
            f"{MOST_READ_CELLS} cells"
        )
    inside = (slot >= 0) & (slot < rows)
    order = np.flatnonzero(inside)[np.argsort(time_s[inside], kind="stable")]
    dense = {}
    for name, samples in values.items():
        dense[name] = np.full((rows, len(names)), np.nan)
        dense[name][slot[order], code[order]] = samples[order]
    doubles = len(order) - len(np.unique(slot[order] * len(names) + code[order]))
    source, present, kept, filled = _hold(dense[CPU], int(min(max_hold_s, rows * interval_s) // interval_s))
    if not kept.any():
        raise TraceError(f"{path}: every container has a hole above max_hold_s, {max_hold_s:g} s; give more")
    notes = _notes(doubles, filled, int(present[:, kept].sum()), max_hold_s, list(names[~kept]))
    held = {CPU: np.take_along_axis(dense[CPU], source, axis=0)}
    for name in values.keys() - {CPU}:
        held[name] = np.nan_to_num(_repeat(dense[name]), nan=0.0)
    return Grid(
        containers=tuple(names[kept]),
        start_s=float(time_s[seen].min()),
        interval_s=interval_s,
        values={name: np.where(present, held[name], 0.0)[:, kept] for name in values},
        present=np.ascontiguousarray(present[:, kept]),
        notes=notes,
    )


def _hold(cpu: Floats, limit: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], int]:
    """Return (row from which each cell is taken, whether each cell is present, containers without a long
    hole, number of cells filled in those)."""
    valid = ~np.isnan(cpu)
    rows = np.arange(len(cpu))[:, None]
    first = np.argmax(valid, axis=0)
    last = len(cpu) - 1 - np.argmax(valid[::-1], axis=0)
    begin = np.where(first <= limit, 0, first)
    end = np.where(len(cpu) - 1 - last <= limit, len(cpu) - 1, last)
    present = (rows >= begin) & (rows <= end)
    source = np.maximum.accumulate(np.where(valid, rows, -1), axis=0)
    source = np.where(source < 0, first, source)
    too_far = present & (np.abs(rows - source) > limit)
    kept = np.asarray(valid.any(axis=0) & ~too_far.any(axis=0), np.bool_)
    return source, present, kept, int((present & ~valid)[:, kept].sum())


def _repeat(values: Floats) -> Floats:
    return np.asarray(pd.DataFrame(values).ffill().bfill(), np.float64)


def _notes(doubles: int, filled: int, cells: int, max_hold_s: float, dropped: list[str]) -> tuple[str, ...]:
    notes = []
    if doubles:
        left_out = f"{are(doubles)} left out"
        notes.append(f"{counted(doubles, 'sample')} shared an interval with a later one, and {left_out}.")
    if filled:
        notes.append(
            f"{counted(filled, 'missing sample')} ({100 * filled / cells:.2g} %) filled with the one before "
            f"(at a start, the one after), for at most {max_hold_s:g} s."
        )
    if dropped:
        shown = ", ".join(dropped[:5]) + (", …" if len(dropped) > 5 else "")
        notes.append(
            f"{counted(len(dropped), 'container')} left out, without a sample or with a hole longer than "
            f"{max_hold_s:g} s ({shown})."
        )
    return tuple(notes)
