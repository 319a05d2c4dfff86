"""Strategic-merge patches, one for each workload: `kubectl patch … --patch-file FILE`.

For: Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers and CronJobs. Not for: Jobs
and bare pods, whose template cannot change. Containers merge by their name; a null removes a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.containers.advise.forms.common import API, by_workload, resources
from lab.containers.advise.model import Row


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return a patch by file name for each workload. Raises ScenarioError if there is none."""
    return by_workload(rows, patch)


def patch(namespace: str, kind: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the patch of one workload: the new settings, and the fields that identify the workload."""
    own: dict[str, Any] = {}
    for row in rows:
        entry = {"name": row.container, "resources": resources(row)}
        own.setdefault("initContainers" if row.is_init else "containers", []).append(entry)
    pods: dict[str, Any] = {"template": {"spec": own}}
    spec = {"jobTemplate": {"spec": pods}} if kind == "CronJob" else pods
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API[kind], "kind": kind, "metadata": metadata, "spec": spec}
