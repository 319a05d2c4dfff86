"""Assembles series of cAdvisor and kube-state-metrics into a trace and the settings in force.

For: series of any source (a server, a saved answer, a text). Not for: getting them (lab.connect, readers).

A container of the trace is a container of one pod, named namespace/pod/container. Its app is the namespace,
because that is what a ResourceQuota limits. A pod that comes late or goes early is absent outside its life.
CPU use is a counter's growth over what was seen of an interval; an interval that was seen for less than half
is absent. Memory is the last working set of an interval. Pause containers (`POD`) and the sums over a pod (an
empty `container`) are left out, and so are series of a single CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traces.prometheus import names
from traces.prometheus.counters import at_ends, growth, mean_rate, went_on
from traces.prometheus.in_force import LISTED, NOTHING, UNSEEN, Entries, events, settings, shares
from traces.prometheus.series import REPLICA_LABELS, Samples, Series, Window, merged
from traces.prometheus.workloads import Owner, by_name, by_state, init_containers, label
from traces.schema import MOST_READ_CELLS, Floats, UsageTrace, select, validate
from twinbed import TraceError
from twinbed.text import are, counted

HOLD_S = 300.0
"""Longest time without a sample over which a counter's growth counts, s: Prometheus' own look-back."""

_LATE = 1.5
"""Least hold, in distances of samples: a sample that comes late ends no container."""

Key = tuple[str, str, str]
"""Namespace, pod and container."""

_PAUSE = ("", "POD")

_OF_A_CGROUP = ("id", "image", "name")
"""Labels that change when a container restarts."""


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    """A trace of a cluster's containers, and further data about them.

    trace: the usage
    owners: N owners, in the order of trace.containers
    facts: settings and events, by name (traces/prometheus/in_force.py lists the names)
    """

    trace: UsageTrace
    owners: tuple[Owner, ...]
    facts: Mapping[str, Entries]

    def in_force(self, fact: str) -> Floats:
        """Return a setting's last value in each container, float64[N]; NaN: unknown, 0: no limit."""
        entries = self.facts.get(fact)
        last = np.full(len(self.owners), np.nan)
        if entries is not None:
            last[entries.container] = entries.value
        return last

    def total(self, fact: str) -> Floats:
        """Return how often an event happened in each container, float64[N]."""
        entries = self.facts.get(fact)
        sums = np.zeros(len(self.owners))
        if entries is not None:
            np.add.at(sums, entries.container, entries.value)
        return sums


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the containers, before all parts are assembled. Arrays are [containers, T].

    has: names of the metrics that the series have
    listed: the settings that kube-state-metrics lists for at least one container
    stated: bool[containers], whether kube-state-metrics knows the container
    dropped: number of samples that were left out because they are no number
    held: number of intervals whose memory is that of a sample further away than hold_s
    hold_s: longest time without a sample over which a counter's growth counted, s
    """

    keys: list[Key]
    cpu_cores: Floats
    memory_bytes: Floats
    throttled_s: Floats
    present: NDArray[np.bool_]
    facts: dict[str, Entries]
    has: frozenset[str]
    listed: frozenset[str]
    stated: NDArray[np.bool_]
    dropped: int = 0
    held: int = 0
    hold_s: float = HOLD_S


def part(
    series: Iterable[Series],
    window: Window,
    source: str,
    replica_labels: Collection[str] = REPLICA_LABELS,
    hold_s: float = HOLD_S,
) -> Part:
    """Return the containers of these series; all series of a container must be among them.

    hold_s: longest time without a sample over which growth counts, s; at least one and a half intervals.
    Raises TraceError, which begins with `source`, for containers that only another label distinguishes.
    """
    told: dict[Key, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    dropped, held, hold_s = 0, 0, longest_hold(hold_s, window.step_s)
    for entry in series:
        key = key_of(entry)
        dropped += entry.dropped if key is not None else 0
        if key is not None and entry.times_s.size:
            told[key][entry.metric].append(entry)
    keys = sorted(key for key, own in told.items() if names.CPU in own)
    shape = (len(keys), window.intervals)
    cpu, memory, throttled_s = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    present = np.zeros(shape, np.bool_)
    entries: dict[str, list[tuple[int, Entries]]] = defaultdict(list)
    edges, step_s = window.edges, window.step_s
    for row, key in enumerate(keys):
        own = told[key]

        def samples(metric: str, own: dict[str, list[Series]] = own) -> Samples:
            return merged(own.get(metric, ()), step_s, replica_labels)

        _refuse_mixed(source, key, own[names.CPU], replica_labels)
        used = _fresh(samples(names.CPU), samples(names.CPU_SEEN))
        used = _from_the_start(used, own.get(names.STARTED, ()), hold_s)
        cpu[row], present[row] = mean_rate(edges, used, hold_s)
        hidden = np.flatnonzero(went_on(edges, used, hold_s) & ~present[row]).astype(np.int32)
        if hidden.size:
            entries[UNSEEN].append((row, Entries(hidden, np.zeros_like(hidden), np.ones(hidden.size))))
        last, away_s = at_ends(edges, samples(names.MEMORY))
        memory[row] = np.where(present[row], last, 0.0)
        held += int((present[row] & (away_s > hold_s)).sum())
        throttled, _ = growth(edges, samples(names.THROTTLED_S), hold_s)
        throttled_s[row] = np.where(present[row], throttled, 0.0)
        began = bool(used.times_s.size) and used.times_s[0] > edges[0] + step_s
        for name, changes in (
            *settings(samples, own, window, replica_labels).items(),
            *events(samples, own, window, began, replica_labels).items(),
            *shares(samples, window, present[row], hold_s).items(),
        ):
            entries[name].append((row, changes))
    facts = {name: _together(changes) for name, changes in entries.items()}
    has = frozenset(metric for own in told.values() for metric in own)
    listed = frozenset(
        fact
        for fact, (metric, resource) in LISTED.items()
        if any(
            entry.labels.get("resource") == resource for own in told.values() for entry in own.get(metric, ())
        )
    )
    stated = np.array([not told[key].keys().isdisjoint(names.STATE) for key in keys], np.bool_)
    return Part(keys, cpu, memory, throttled_s, present, facts, has, listed, stated, dropped, held, hold_s)


def longest_hold(hold_s: float, apart_s: float) -> float:
    """Return the longest hold for samples that lie apart_s seconds apart, s."""
    return max(hold_s, _LATE * apart_s)


def assembled(
    parts: Sequence[Part],
    window: Window,
    source: str,
    told: Sequence[tuple[str, Mapping[str, str]]] = (),
    notes: Sequence[str] = (),
    max_cells: int = MOST_READ_CELLS,
) -> ClusterHistory:
    """Return the history of all parts' containers that were seen in the window.

    source: origin of the series, with which messages begin; told: (metric, labels) of what
    kube-state-metrics says of pods. Raises TraceError if no container was seen, or for too many cells.
    """
    kept = [np.flatnonzero(piece.present.any(axis=1)) for piece in parts]
    keys = [piece.keys[row] for piece, rows in zip(parts, kept, strict=True) for row in rows]
    check_cells(source, window, len(keys), max_cells)
    hold_s = max((piece.hold_s for piece in parts), default=HOLD_S)
    if not keys:
        raise TraceError(
            f"{source}: no container has two samples of {names.CPU} that are at most {hold_s:g} s apart in "
            "the window; are the time range and the step right?"
        )
    has = frozenset[str]().union(*(piece.has for piece in parts))
    dropped, held = (sum(getattr(piece, name) for piece in parts) for name in ("dropped", "held"))
    unseen = sum(len(piece.keys) for piece in parts) - len(keys)

    def dense(name: str) -> Floats:
        values = np.zeros((window.intervals, len(keys)))
        first = 0
        for piece, rows in zip(parts, kept, strict=True):
            values[:, first : first + len(rows)] = getattr(piece, name)[rows].T
            first += len(rows)
        return values

    of_pods, inits = by_state(told), init_containers(told)
    owners = [_owner(key, of_pods, inits) for key in keys]
    trace = UsageTrace(
        containers=tuple("/".join(filter(None, key)) for key in keys),
        apps=tuple(namespace or "default" for namespace, _, _ in keys),
        start_s=window.start_s,
        interval_s=window.step_s,
        cpu_cores=dense("cpu_cores"),
        memory_bytes=dense("memory_bytes"),
        present=dense("present") > 0,
        throttled_s=dense("throttled_s") if names.THROTTLED_S in has else None,
        metadata={"source": source, "format": "Prometheus"},
    )
    validate(trace, source)
    own = _notes(trace, owners, of_pods, has, dropped, held, hold_s, unseen)
    trace = replace(trace, notes=(*notes, *own))
    listed = frozenset[str]().union(*(piece.listed for piece in parts))
    stated = np.concatenate([piece.stated[rows] for piece, rows in zip(parts, kept, strict=True)])
    facts = _joined(parts, kept)
    return ClusterHistory(trace, tuple(owners), facts | _not_set(facts, stated, listed, trace.present))


def selected(
    history: ClusterHistory,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
) -> ClusterHistory:
    """Return a part of a history, as traces.schema.select does. Settings made before this part hold from its
    begin. Raises TraceError.
    """
    trace = select(history.trace, containers, start_s, end_s)
    column = {name: index for index, name in enumerate(history.trace.containers)}
    old = np.array([column[name] for name in trace.containers])
    number = np.full(len(column), -1, np.int32)
    number[old] = np.arange(len(old), dtype=np.int32)
    first = round((trace.start_s - history.trace.start_s) / trace.interval_s)
    facts = {}
    for fact, own in history.facts.items():
        interval = own.interval - np.int32(first)
        if fact in LISTED:
            interval = np.maximum(interval, 0)
        there = (number[own.container] >= 0) & (interval >= 0) & (interval < len(trace.present))
        facts[fact] = Entries(interval[there], number[own.container[there]], own.value[there])
    return ClusterHistory(trace, tuple(history.owners[index] for index in old), facts)


def check_cells(source: str, window: Window, containers: int, max_cells: int = MOST_READ_CELLS) -> None:
    """Raise TraceError if the trace would have more than max_cells."""
    if window.intervals * containers > max_cells:
        raise TraceError(
            f"{source}: {counted(window.intervals, 'interval')} × {counted(containers, 'container')} are "
            f"more than {max_cells} cells; take a longer step, a shorter time or a narrower selector"
        )


def key_of(entry: Series) -> Key | None:
    """Return whose series this is, or None if it is not a container's."""
    own = entry.labels
    key = (label(own, "namespace"), label(own, "pod"), label(own, "container"))
    if not key[1] or key[2] in _PAUSE or own.get("cpu", "total") != "total":
        return None
    return key


def _refuse_mixed(source: str, key: Key, series: list[Series], replica_labels: Collection[str]) -> None:
    """Raise TraceError if two series with different values of a label such as `cluster` run at the same time.

    The old series of a restarted container may overlap the new one for Prometheus' look-back. These two
    differ in `id`.
    """
    series = sorted(series, key=lambda entry: entry.times_s[0])
    for entry, other in pairwise(series):
        if entry.times_s[-1] - other.times_s[0] <= 2 * HOLD_S:
            continue
        for name in sorted(entry.labels.keys() | other.labels.keys()):
            values = entry.labels.get(name, ""), other.labels.get(name, "")
            if values[0] != values[1] and name not in replica_labels and name not in _OF_A_CGROUP:
                raise TraceError(
                    f"{source}: two series of container {'/'.join(key)!r} at the same time differ in label "
                    f"{name} ({values[0]!r}, {values[1]!r}); select one of them, or name {name} as the "
                    "label of replicas"
                )


def _fresh(used: Samples, seen: Samples) -> Samples:
    """Return CPU samples with the times at which they were read, where `seen` has these times.

    A sample that was read no later than the one before it is a repetition, and is left out.
    """
    if not seen.times_s.size:
        return used
    place = np.searchsorted(seen.times_s, used.times_s).clip(0, len(seen.times_s) - 1)
    told = seen.times_s[place] == used.times_s
    read_s = np.where(told, np.minimum(seen.values[place], used.times_s), used.times_s)
    fresh = read_s > np.maximum.accumulate(np.concatenate([[-np.inf], read_s[:-1]]))
    return Samples(
        used.times_s[fresh], used.values[fresh], used.replica[fresh], used.life[fresh], read_s[fresh]
    )


def _from_the_start(used: Samples, started: Iterable[Series], hold_s: float) -> Samples:
    """Return the samples with a zero at the container's start, if it started at most hold_s before the first
    sample."""
    if not used.times_s.size:
        return used
    starts = [float(entry.values[0]) for entry in started if entry.values.size]
    before_s = [used.read_s[0] - start_s for start_s in starts if 0 < used.read_s[0] - start_s <= hold_s]
    if not before_s:
        return used
    shortest_s = min(before_s)
    return Samples(
        np.insert(used.times_s, 0, used.times_s[0] - shortest_s),
        np.insert(used.values, 0, 0.0),
        np.insert(used.replica, 0, used.replica[0]),
        np.insert(used.life, 0, used.life[0]),
        np.insert(used.read_s, 0, used.read_s[0] - shortest_s),
    )


def _owner(key: Key, owners: Mapping[tuple[str, str], tuple[str, str]], inits: Collection[Key]) -> Owner:
    namespace, pod, container = key
    kind, workload = owners.get((namespace, pod)) or by_name(pod)
    return Owner(namespace, pod, container, kind, workload, key in inits)


def _together(rows: Sequence[tuple[int, Entries]]) -> Entries:
    return Entries(
        np.concatenate([entries.interval for _, entries in rows]),
        np.concatenate([np.full(len(entries.interval), row, np.int32) for row, entries in rows]),
        np.concatenate([entries.value for _, entries in rows]),
    )


def _joined(parts: Sequence[Part], kept: Sequence[NDArray[np.int64]]) -> dict[str, Entries]:
    """Return the facts of all parts, with containers numbered as in the trace."""
    joined: dict[str, list[Entries]] = defaultdict(list)
    first = 0
    for piece, rows in zip(parts, kept, strict=True):
        column = np.full(len(piece.keys), -1, np.int32)
        column[rows] = first + np.arange(len(rows), dtype=np.int32)
        for name, own in piece.facts.items():
            number = column[own.container]
            there = number >= 0
            joined[name].append(Entries(own.interval[there], number[there], own.value[there]))
        first += len(rows)
    return {
        name: Entries(*(np.concatenate(column) for column in zip(*map(Entries.columns, own), strict=True)))
        for name, own in sorted(joined.items())
    }


def _not_set(
    facts: Mapping[str, Entries],
    stated: NDArray[np.bool_],
    listed: Collection[str],
    present: NDArray[np.bool_],
) -> dict[str, Entries]:
    """Return the entries of the listed settings, with the value 0 added for stated containers.

    A container is stated if kube-state-metrics knows it. If kube-state-metrics lists a setting for other
    containers but not for this one, the setting is not set.
    """
    made = {}
    for fact in listed:
        own, lacking = facts.get(fact, NOTHING), stated.copy()
        lacking[own.container] = False
        column = np.flatnonzero(lacking).astype(np.int32)
        first = present[:, column].argmax(axis=0).astype(np.int32)
        made[fact] = Entries(
            np.concatenate([own.interval, first]),
            np.concatenate([own.container, column]),
            np.concatenate([own.value, np.zeros(column.size)]),
        )
    return made


def _notes(
    trace: UsageTrace,
    owners: Sequence[Owner],
    known: Mapping[tuple[str, str], object],
    has: Collection[str],
    dropped: int,
    held: int,
    hold_s: float,
    unseen: int,
) -> list[str]:
    workloads = {(owner.namespace, owner.workload, owner.container) for owner in owners}
    notes = [
        f"{counted(len(owners), 'container')} of pods, which {are(len(owners))} "
        f"{counted(len(workloads), 'container')} of workloads; "
        "each pod's container is a column, absent before it starts and after it ends."
    ]
    rows = np.arange(len(trace.present))[:, None]
    first = np.where(trace.present, rows, len(rows)).min(axis=0)
    last = np.where(trace.present, rows, -1).max(axis=0)
    hidden = int((last - first + 1).sum() - trace.present.sum())
    if hidden:
        notes.append(
            f"{counted(hidden, 'interval')} ({100 * hidden / (hidden + trace.present.sum()):.2g} %) in holes "
            f"longer than {hold_s:g} s {are(hidden)} absent; over shorter holes a counter's growth is even."
        )
    guessed = len({(own.namespace, own.pod) for own in owners} - set(known))
    if unseen:
        notes.append(
            f"{counted(unseen, 'container')} {are(unseen)} left out: "
            f"no two samples at most {hold_s:g} s apart."
        )
    if guessed:
        notes.append(
            f"No kube_pod_owner names the workload of {counted(guessed, 'pod')}; the pod's name shows it "
            "instead."
        )
    if dropped:
        notes.append(
            f"{counted(dropped, 'sample')} {are(dropped)} NaN or infinite, "
            "and left out as if nothing had been scraped."
        )
    if held:
        notes.append(
            f"The memory of {counted(held, 'interval')} is that of a sample more than {hold_s:g} s away."
        )
    if names.MEMORY not in has:
        notes.append(f"There is no {names.MEMORY}: memory is 0 throughout.")
    return notes
