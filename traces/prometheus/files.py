"""Makes a cluster's history from the series in a file.

For: the readers of saved answers, texts and tables. Not for: parsing (traces/readers), nor servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np

from traces.prometheus import names
from traces.prometheus.history import (
    HOLD_S,
    ClusterHistory,
    assembled,
    check_cells,
    key_of,
    longest_hold,
    part,
)
from traces.prometheus.series import REPLICA_LABELS, Series, Window, shown
from traces.prometheus.workloads import TOLD
from traces.schema import Floats
from twinbed import TraceError
from twinbed.files import MIB
from twinbed.text import are, counted, printable

MOST_BYTES = 16 * 1024 * MIB
"""Largest file, bytes. Files are read in pieces, and their samples are counted."""


_JITTER = 0.1
"""Share of their distance by which scrapes may come late or early."""

_REGULAR = 0.9
"""Share of the distances between new values that must be close to the usual one for it to be the scrapes'."""

_ROUNDS = 5
"""Number of times that the mean is taken. The first value is arbitrary where all distances differ."""


def history(
    path: Path,
    series: Sequence[Series],
    max_cells: int,
    step_s: float | None = None,
    replica_label: str | None = None,
    hold_s: float = HOLD_S,
    repeats: bool = False,
) -> ClusterHistory:
    """Return the history of all containers in a file.

    step_s: length of an interval; None: the most frequent distance of CPU samples; replica_label: label of
    the replicas of one Prometheus; None: the usual labels. repeats: whether the file has a server's answers,
    which repeat the last scrape at every step. Raises TraceError.
    """
    cpu = [entry for entry in series if entry.metric == names.CPU and entry.times_s.size]
    if not cpu:
        told = sorted({entry.metric for entry in series})
        raise TraceError(
            f"{path}: no series {names.CPU} with samples, without which nothing is known of CPU; "
            f"the file has {printable(', '.join(told[:5])[:300]) or 'no series'}"
        )
    if not any(key_of(entry) for entry in cpu):
        raise TraceError(
            f"{path}: no series {names.CPU} is of a pod's container: it needs the labels pod and container "
            f"(not empty, not POD), and no single CPU; the first has {shown(cpu[0].labels)}"
        )
    window, apart_s = _window(path, cpu, step_s)
    check_cells(str(path), window, 1, max_cells)
    check_cells(str(path), window, len({frozenset(_own(entry).items()) for entry in cpu}), max_cells)
    of_pods = [(entry.metric, entry.labels) for entry in series if entry.metric in TOLD]
    labels = REPLICA_LABELS if replica_label is None else (replica_label,)
    note = f"Read {path.name}: intervals of {window.step_s:g} s, the samples' own distance."
    if step_s is not None:
        note = f"Read {path.name}: intervals of {window.step_s:g} s, as asked."
    notes, hold_s = [note], longest_hold(hold_s, apart_s)
    if repeats:
        scraped = [_scraped(entry, hold_s) for entry in series]
        seldom = sum(
            old.metric == names.CPU and old is not new for old, new in zip(series, scraped, strict=True)
        )
        if seldom:
            notes.append(
                f"{seldom} of {counted(len(cpu), 'counter')} of CPU {are(seldom)} scraped less often than "
                f"every {apart_s:g} s; growth is even between scrapes."
            )
        series = scraped
    containers = part(series, window, str(path), labels, hold_s)
    return assembled([containers], window, str(path), of_pods, notes, max_cells)


def _scraped(entry: Series, hold_s: float) -> Series:
    """Return a counter of CPU time without the repeats of a scrape, if it is scraped less often than asked.

    A counter that is scraped every second step changes at every second step. Without its repeats its growth
    is even; with them an interval would have all of the growth, and the next one nothing. A container that
    idles changes at no regular distance, and is returned as it is. Repeats for longer than hold_s are none: a
    server does not repeat a scrape for so long.
    """
    if entry.metric not in (names.CPU, names.THROTTLED_S) or len(entry.values) < 3:
        return entry
    changed = np.diff(entry.values, prepend=np.nan) != 0
    at = np.flatnonzero(changed)
    steps = np.diff(at)
    if steps.size < 2 or (usual := float(np.median(steps))) < 1.5:
        return entry
    if np.mean(np.abs(steps - usual) <= 1) < _REGULAR:
        return entry
    following = np.searchsorted(at, np.arange(len(changed)), side="right").clip(max=len(at) - 1)
    gap_s = entry.times_s[at[following]] - entry.times_s[at[following - 1]]
    kept = changed | (gap_s > hold_s) | (np.arange(len(changed)) > at[-1])
    return replace(entry, times_s=entry.times_s[kept], values=entry.values[kept])


def _window(path: Path, cpu: Sequence[Series], step_s: float | None) -> tuple[Window, float]:
    """Return the window, and the usual distance of CPU samples, s (the step if there is none)."""
    first_s = min(float(entry.times_s[0]) for entry in cpu)
    last_s = max(float(entry.times_s[-1]) for entry in cpu)
    steps = np.concatenate([np.diff(entry.times_s) for entry in cpu])
    if step_s is None and not steps.size:
        raise TraceError(f"{path}: every series of {names.CPU} has one sample; a counter needs two")
    apart_s = usual(steps) if steps.size else float(step_s or 0.0)
    step_s = apart_s if step_s is None else step_s
    if not (np.isfinite(step_s) and step_s >= 1e-3):
        raise TraceError(f"{path}: a step of {step_s:g} s, expected a millisecond or more")
    intervals = (last_s - first_s) / step_s
    # The number is bounded before it becomes an integer. A last interval seen for less than half would be
    # absent.
    return Window(first_s, step_s, max(1, ceil(min(intervals, 1e12) - 0.5))), apart_s


def usual(steps: Floats) -> float:
    """Return the usual distance of samples, s: the mean of the distances close to the most frequent one.

    Scrapes come late or early, so distances vary. From one second on the result is rounded to tenths of a
    second, because trace intervals of any length are multiples of a tenth.
    """
    values, counts = np.unique(np.round(steps, 3), return_counts=True)
    apart_s = float(values[np.argmax(counts)])
    for _ in range(_ROUNDS):
        near = steps[np.abs(steps - apart_s) <= _JITTER * apart_s]
        apart_s = float(np.mean(near)) if near.size else apart_s
    return round(apart_s, 1 if apart_s >= 1 else 6)


def _own(entry: Series) -> dict[str, str]:
    return {key: entry.labels.get(key, "") for key in ("namespace", "pod", "container")}
