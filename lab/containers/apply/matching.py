"""Finds the running containers that a row of an advice means.

For: rows → containers, by --map or by name and labels. Not for: finding containers (ports.Places). Only exact
matches count. Parts of names do not match.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.containers.advise.model import Advice, Row
from lab.containers.apply.ports import Candidate, Places
from testbed.containers.attach.finding import PROJECT, SERVICE
from traces.prometheus.workloads import by_name
from twinbed import ScenarioError
from twinbed.text import nearest, printable

_POD, _NAMESPACE, _CONTAINER = (
    f"io.kubernetes.{part}" for part in ("pod.name", "pod.namespace", "container.name")
)


def match(advice: Advice, rows: Sequence[Row], places: Places, maps: Sequence[str]) -> dict[str, list[str]]:
    """Return the full names of the containers of each row, by the row's name.

    rows: those to be matched; maps: `ROW=NAME` texts, which may give a row several names, and which take a
    container away from rows that match it by name. Candidates are asked for only if a row is not in `maps`.
    Raises ScenarioError for a row that the advice does not have, and for a container that two rows mean.
    """
    explicit = _explicit(advice, maps, places)
    meant = {row.name: list(explicit.get(row.name, ())) for row in rows}
    open_rows = [row for row in rows if row.name not in explicit]
    candidates = places.candidates() if open_rows else ()
    places_of: dict[tuple[str, ...], list[int]] = {}
    taken = {name for names in explicit.values() for name in names}
    for place, candidate in enumerate(candidates):
        if candidate.name in taken:
            continue
        for key in keys_of(candidate):
            places_of.setdefault(key, []).append(place)
    for row in open_rows:
        own = {place for key in keys_of_row(row) for place in places_of.get(key, ())}
        meant[row.name] = [candidates[place].name for place in sorted(own)]
    owner: dict[str, str] = {}
    for row_name, names in meant.items():
        for name in names:
            other = owner.setdefault(name, row_name)
            if other != row_name:
                raise ScenarioError(
                    f"{printable(name)}: rows {other!r} and {row_name!r} both match it; choose one with --map"
                )
    return meant


def keys_of_row(row: Row) -> set[tuple[str, ...]]:
    """Return the keys by which a row matches containers; see `keys_of`."""
    keys: set[tuple[str, ...]] = {("name", row.name), ("service", row.name)}
    keys |= {(key, member) for key in ("name", "full name") for member in row.members}
    if row.workload:
        keys.add(("service", f"{row.namespace}/{row.workload}"))
    if row.workload and row.container:
        keys.add(("workload", row.namespace, row.workload, row.container))
        keys.add(("pod", row.workload, f"{row.workload}-{row.container}"))
    return keys


def keys_of(candidate: Candidate) -> set[tuple[str, ...]]:
    """Return the keys of a container: its names, compose's labels, Kubernetes' labels with the workload that
    owns the pod (else the workload in the pod's name), and its place in a pod of `podman play kube`."""
    labels = candidate.labels
    keys: set[tuple[str, ...]] = {("name", candidate.plain), ("full name", candidate.name)}
    project, service = labels.get(PROJECT), labels.get(SERVICE)
    if project and service:
        keys.add(("service", f"{project}/{service}"))
    pod = labels.get(_POD)
    if pod:
        where = labels.get(_NAMESPACE, ""), labels.get(_CONTAINER, "")
        owner = candidate.workload or by_name(pod)[1]
        keys |= {("workload", where[0], name, where[1]) for name in (pod, owner)}
    elif candidate.pod:
        keys.add(("pod", candidate.pod, candidate.plain))
    return keys


def _explicit(advice: Advice, maps: Sequence[str], places: Places) -> dict[str, list[str]]:
    known = dict.fromkeys(row.name for row in advice.rows)
    explicit: dict[str, dict[str, None]] = {}
    for text in maps:
        row, equals, name = text.rpartition("=")
        if not (row and equals and name):
            raise ScenarioError(f"--map {text[:200]!r}: expected ROW=NAME, e.g. shop/web=docker:web")
        if row not in known:
            hint = nearest(row, known, f"it has {len(known)} rows, such as {next(iter(known))!r}")
            raise ScenarioError(f"--map {text[:200]!r}: the advice has no row {row[:100]!r}; {hint}")
        explicit.setdefault(row, {}).update(dict.fromkeys(places.named(name)))
    return {row: list(names) for row, names in explicit.items()}
