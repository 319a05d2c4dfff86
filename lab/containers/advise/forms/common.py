"""Quantities, file names and workloads, as several forms write them. Not for: any one form."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from math import ceil
from typing import Any

import yaml

from lab.containers.advise.model import Row
from twinbed import ScenarioError

_MIB = 1 << 20

LEAST_BYTES = 6 * _MIB
"""Least memory limit and reservation that Docker takes (linuxMinMemory in its daemon_unix.go)."""

API = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "CronJob": "batch/v1",
}
"""apiVersion of the workloads whose pods one may change through their template. A Job's cannot change."""

Resources = dict[str, dict[str, str | None]]


def millicores(cores: float) -> str:
    """Return cores as Kubernetes' quantity, rounded up to whole millicores: 250m."""
    return f"{ceil(round(cores * 1000, 6))}m"


def mebibytes(size: float) -> str:
    """Return bytes as Kubernetes' quantity, rounded up to whole MiB: 512Mi."""
    return f"{ceil(size / _MIB)}Mi"


def resources(row: Row) -> Resources:
    """Return a row's `resources` in Kubernetes' form. None removes a setting; a setting without an opinion is
    left out.
    """
    advised = row.advised
    made: Resources = {}
    for section, name, value, text in (
        ("requests", "cpu", advised.cpu_request_cores, millicores),
        ("requests", "memory", advised.memory_request_bytes, mebibytes),
        ("limits", "cpu", advised.cpu_limit_cores, millicores),
        ("limits", "memory", advised.memory_limit_bytes, mebibytes),
    ):
        if value is not None:
            made.setdefault(section, {})[name] = None if value == "none" else text(value)
    return made


def workloads(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Return the rows by (namespace, kind, workload), of the kinds in API. Raises ScenarioError if there is
    none."""
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.kind in API:
            grouped.setdefault((row.namespace, row.kind, row.workload), []).append(row)
    if not grouped:
        raise ScenarioError(
            "no row is of a Kubernetes workload whose pods can be changed "
            f"({', '.join(API)}); take --as docker, compose or systemd"
        )
    return grouped


def by_workload(rows: Sequence[Row], make: Callable[[str, str, str, list[Row]], Any]) -> dict[str, str]:
    """Return a document by file name for each workload. make: namespace, kind, name, rows → its content.

    Raises ScenarioError if there is none.
    """
    made: dict[str, str] = {}
    for (namespace, kind, name), own in workloads(rows).items():
        file = unique(made, plain(namespace, kind.lower(), name), ".yaml")
        made[file] = document(make(namespace, kind, name, own))
    return made


def plain(*parts: str) -> str:
    """Return a file name made from any text: letters, digits, dots and dashes; no path, not hidden."""
    joined = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(filter(None, parts))).strip(".-")
    return joined[:200] or "advice"


def unique(taken: Container[str], name: str, suffix: str = "") -> str:
    """Return the name and its suffix, with a number between them if it is taken already."""
    number, other = 2, name + suffix
    while other in taken:
        other, number = f"{name}-{number}{suffix}", number + 1
    return other


def document(data: Any) -> str:
    """Return a YAML document with its separator; texts are quoted where YAML would read something else."""
    return "---\n" + yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=100)
