"""Which running containers a row of an advice means.

For: rows → containers, by --map or by name and labels. Not for: finding containers (ports.Places). Only what
agrees exactly counts; there is no guessing from parts of names.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lab.containers.advise.model import Advice, Row
from lab.containers.apply.ports import Candidate, Places
from testbed.containers.attach.finding import PROJECT, SERVICE
from twinbed import ScenarioError
from twinbed.text import printable

_POD, _NAMESPACE, _CONTAINER = (
    f"io.kubernetes.{part}" for part in ("pod.name", "pod.namespace", "container.name")
)


def match(advice: Advice, rows: Sequence[Row], places: Places, maps: Sequence[str]) -> dict[str, list[str]]:
    """Return the full names of the containers of each row, by the row's name.

    rows: those to be matched; maps: `ROW=NAME` texts, which may give a row several names. Candidates are
    asked for only if a row is not in `maps`. Raises ScenarioError for a row that the advice does not have,
    and for a container that two rows mean.
    """
    explicit = _explicit(advice, maps, places)
    meant = {row.name: list(explicit.get(row.name, ())) for row in rows}
    open_rows = [row for row in rows if row.name not in explicit]
    candidates = places.candidates() if open_rows else ()
    for row in open_rows:
        meant[row.name] = [candidate.name for candidate in candidates if is_of(row, candidate)]
    owner: dict[str, str] = {}
    for row_name, names in meant.items():
        for name in names:
            other = owner.setdefault(name, row_name)
            if other != row_name:
                raise ScenarioError(
                    f"{printable(name)}: rows {other!r} and {row_name!r} both match it; choose one with --map"
                )
    return meant


def is_of(row: Row, candidate: Candidate) -> bool:
    """Return whether a container is one of the row's: by its own name, by compose's labels, by Kubernetes'
    labels, or as a container of a pod that `podman play kube` made."""
    labels = candidate.labels
    if candidate.plain == row.name or candidate.plain in row.members or candidate.name in row.members:
        return True
    project, service = labels.get(PROJECT), labels.get(SERVICE)
    if project and service and f"{project}/{service}" in (row.name, f"{row.namespace}/{row.workload}"):
        return True
    if not row.workload or not row.container:
        return False
    if _POD in labels:
        pod = labels[_POD]
        same = labels.get(_NAMESPACE) == row.namespace and labels.get(_CONTAINER) == row.container
        return same and (pod == row.workload or pod.startswith(f"{row.workload}-"))
    return candidate.pod == row.workload and candidate.plain == f"{candidate.pod}-{row.container}"


def _explicit(advice: Advice, maps: Sequence[str], places: Places) -> dict[str, list[str]]:
    known = [row.name for row in advice.rows]
    explicit: dict[str, list[str]] = {}
    for text in maps:
        row, equals, name = text.rpartition("=")
        if not (row and equals and name):
            raise ScenarioError(f"--map {text[:200]!r}: expected ROW=NAME, e.g. shop/web=docker:web")
        if row not in known:
            close = difflib.get_close_matches(row, known, n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"it has {len(known)} rows, such as {known[0]!r}"
            )
            raise ScenarioError(f"--map {text[:200]!r}: the advice has no row {row[:100]!r}; {hint}")
        explicit.setdefault(row, [])
        explicit[row] += [full for full in places.named(name) if full not in explicit[row]]
    return explicit
