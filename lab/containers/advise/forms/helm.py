"""Values for Helm: `resources` under each workload's name, or under its containers if it has several.

For: a file for each namespace, for `helm upgrade --values`. Not for: a particular chart. Charts name their
values differently, so move the keys that do not fit. A null removes a chart's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.containers.advise.forms.common import document, plain, resources, unique, workloads
from lab.containers.advise.model import Row


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return values by file name for each namespace. Raises ScenarioError if there are none."""
    by_namespace: dict[str, dict[str, Any]] = {}
    for (namespace, kind, name), own in workloads(rows).items():
        values = by_namespace.setdefault(namespace, {})
        key = name if name not in values else unique(values, f"{name}-{kind.lower()}")
        if len(own) == 1:
            values[key] = {"resources": resources(own[0])}
        else:
            values[key] = {row.container: {"resources": resources(row)} for row in own}
    made: dict[str, str] = {}
    for namespace, values in by_namespace.items():
        made[unique(made, plain("values", namespace), ".yaml")] = document(values)
    return made
