"""Reads the input of an advice: traces with the settings in force, and replicas grouped into workloads.

For: `read` of any source, and `of_cluster` for a history from a server. Not for: advising. In a trace without
owners, every container is a workload of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.advice.model import Kills, Sizes, Usage
from lab.containers.input.workload import content_sha256
from traces.load import load_history
from traces.prometheus.history import ClusterHistory
from traces.prometheus.in_force import NOTHING, SETTINGS, UNSEEN
from traces.prometheus.workloads import Owner
from traces.refine import aggregate
from traces.schema import Floats
from twinbed import TraceError

PERIOD_S = 0.1
"""The kernel's CFS period, s, to which a history is refined."""

_MOST_BYTES = 1 << 50
"""Largest memory of a container, bytes. A larger value is in another unit, or a defect of the measurement."""


@dataclass(frozen=True, slots=True)
class Named:
    """Names of a row. members: containers of the trace. replicas: the largest number that ran at a time.
    is_init: whether it is an init container."""

    name: str
    namespace: str
    kind: str
    workload: str
    container: str
    members: tuple[str, ...]
    replicas: int
    is_init: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """A history ready for advice.

    source: path or address. usage: arrays of the rows' members (containers of the trace), in the order of the
    rows. unseen: bool[N, T], whether a member ran in an interval without data. rows: names by row. start_s:
    begin of the history, s. sha256: hash of its content. notes: what was done to the data.
    """

    source: str
    usage: Usage
    unseen: NDArray[np.bool_]
    rows: tuple[Named, ...]
    start_s: float
    sha256: str
    notes: tuple[str, ...]

    def part(self, begin: int, end: int) -> Told:
        """Return the history restricted to the intervals [begin, end)."""
        return replace(self, usage=self.usage.part(begin, end), unseen=self.unseen[:, begin:end])

    @property
    def running(self) -> Floats:
        """Replicas that ran on average, float64[R]."""
        return self.usage.by_row((self.usage.present | self.unseen).mean(axis=1))


def read(source: str, options: Mapping[str, Any] | None = None) -> Told:
    """Return the history at a path, of a public data set's folder, or of a shipped recording's name.

    options: those of traces.load. The second file of an imported history is read, too. Raises TraceError.
    """
    return of_cluster(source, load_history(source, **(options or {})))


def of_cluster(source: str, history: ClusterHistory) -> Told:
    """Return a cluster's history by workload. Raises TraceError for one that cannot be advised on."""
    trace = history.trace
    if trace.interval_s < PERIOD_S * (1 - 1e-6):
        trace = aggregate(trace, PERIOD_S)
    ever = np.flatnonzero(trace.present.any(axis=0))
    if not ever.size:
        raise TraceError(f"{source}: no container runs at any time")
    keys = [_key(history.owners[column]) for column in ever]
    order = sorted(range(len(ever)), key=lambda index: (keys[index], index))
    columns = ever[order]
    names = list(dict.fromkeys(keys[index] for index in order))
    number = {key: row for row, key in enumerate(names)}
    row = np.array([number[keys[index]] for index in order], np.int64)
    present = np.ascontiguousarray(trace.present.T[columns])
    first = np.searchsorted(row, np.arange(len(names)))
    at_once = np.add.reduceat(present.astype(np.int32), first, axis=0)
    memory = np.ascontiguousarray(trace.memory_bytes.T[columns])
    if memory.max() > _MOST_BYTES:
        name = trace.containers[columns[np.argmax(memory.max(axis=1))]]
        raise TraceError(f"{source}: container {name} holds {memory.max():.3g} bytes; is it in bytes?")
    usage = Usage(
        cores=np.ascontiguousarray(trace.cpu_cores.T[columns]),
        memory_bytes=memory,
        present=present,
        interval_s=trace.interval_s,
        row=row,
        current=_current(history, columns, first),
        memory_known=np.logical_or.reduceat(memory.any(axis=1), first),
        kills=_kills(history, columns, row, trace.interval_s),
    )
    rows = []
    for index, key in enumerate(names):
        last = first[index + 1] if index + 1 < len(first) else len(columns)
        members = tuple(trace.containers[column] for column in columns[first[index] : last])
        rows.append(
            Named(
                "/".join(filter(None, (key[0], key[2], key[3]))) or members[0],
                *key,
                members,
                int(at_once[index].max()),
                history.owners[columns[first[index]]].is_init,
            )
        )
    name, count = Counter(named.name for named in rows).most_common(1)[0]
    if count > 1:
        raise TraceError(f"{source}: two workloads are called {name!r}; select one of their kinds")
    unseen = _unseen(history, columns, present, trace.interval_s)
    return Told(source, usage, unseen, tuple(rows), trace.start_s, content_sha256(trace), trace.notes)


def _key(owner: Owner) -> tuple[str, str, str, str]:
    """Return namespace, kind, workload and container of the row that a container belongs to."""
    container = "" if owner.container == owner.workload and not owner.kind else owner.container
    return owner.namespace, owner.kind, owner.workload, container


def _current(history: ClusterHistory, columns: NDArray[np.int64], first: NDArray[np.int64]) -> Sizes:
    """Return the present settings by row: the latest member's last known ones, NaN if unknown."""
    last_seen = np.where(history.trace.present.T[columns], np.arange(len(history.trace.present)), -1).max(
        axis=1
    )
    values = []
    for fact in SETTINGS:
        known = history.in_force(fact)[columns]
        if fact.endswith(("limit_cores", "limit_bytes")):
            known = np.where(known == 0, np.inf, known)
        by_row = np.full(len(first), np.nan)
        for row, begin in enumerate(first):
            end = first[row + 1] if row + 1 < len(first) else len(columns)
            told = np.flatnonzero(~np.isnan(known[begin:end]))
            if told.size:
                by_row[row] = known[begin + told[np.argmax(last_seen[begin:end][told])]]
        values.append(by_row)
    return Sizes(*values)


def _kills(
    history: ClusterHistory, columns: NDArray[np.int64], row: NDArray[np.int64], interval_s: float
) -> Kills:
    """Return the OOM events of the members, with the limit that was in force. interval_s: length of the
    usage's intervals, s. A limit that is first seen after an event counts as the limit at the event, because
    settings are read less often than usage.
    """
    row_of = np.full(len(history.owners), -1)
    row_of[columns] = row
    kills, limits = (history.facts.get(fact, NOTHING) for fact in ("oom_events", "memory_limit_bytes"))
    length = len(history.trace.present)
    place = limits.container.astype(np.int64) * length + limits.interval
    order = np.argsort(place, kind="stable")
    owner, place, value = limits.container[order], place[order], limits.value[order]
    limit_bytes = np.zeros(len(kills.value))
    if len(value):
        at = np.searchsorted(place, kills.container.astype(np.int64) * length + kills.interval, "right")
        # A limit known at the event replaces a limit that was first seen afterwards.
        for near in (at.clip(max=len(value) - 1), (at - 1).clip(0)):
            own = owner[near] == kills.container
            limit_bytes[own] = value[near[own]]
    interval = kills.interval.astype(np.int64) // max(1, round(interval_s / history.trace.interval_s))
    row = row_of[kills.container]
    happened = (kills.value > 0) & (row >= 0)
    return Kills(row[happened], interval[happened], kills.value[happened], limit_bytes[happened])


def _unseen(
    history: ClusterHistory, columns: NDArray[np.int64], present: NDArray[np.bool_], interval_s: float
) -> NDArray[np.bool_]:
    """Return whether each member ran in an interval without data, bool[N, T]."""
    entries = history.facts.get(UNSEEN, NOTHING)
    interval = entries.interval // max(1, round(interval_s / history.trace.interval_s))
    inside = interval < present.shape[1]
    whole = np.zeros((len(history.owners), present.shape[1]), np.bool_)
    whole[entries.container[inside], interval[inside]] = True
    return whole[columns] & ~present
