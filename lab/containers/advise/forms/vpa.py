"""Objects of the Vertical Pod Autoscaler that stay inside the advice. They change nothing: updateMode is Off.

Source: autoscaling.k8s.io/v1 (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/apis). The VPA may set at
least the advised request, and at most the advised limit, or the recorded peak if there is no limit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from lab.containers.advise.forms.common import API, by_workload, mebibytes, millicores
from lab.containers.advise.model import Row

_LONGEST_NAME = 240
"""Characters of an object's name, below Kubernetes' 253."""

_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
"""Names of Kubernetes' objects: subdomains of RFC 1123."""


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return a VerticalPodAutoscaler by file name for each workload. Raises ScenarioError if there is
    none."""
    return by_workload(rows, autoscaler)


def autoscaler(namespace: str, kind: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the object of one workload."""
    metadata = {"name": _object_name(name, kind)} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "targetRef": {"apiVersion": API[kind], "kind": kind, "name": name},
            "updatePolicy": {"updateMode": "Off"},
            "resourcePolicy": {"containerPolicies": [_policy(row) for row in rows]},
        },
    }


def _policy(row: Row) -> dict[str, Any]:
    advised = row.advised
    least: dict[str, str] = {}
    most: dict[str, str] = {}
    for name, request, limit, peak, text in (
        ("cpu", advised.cpu_request_cores, advised.cpu_limit_cores, row.peak_cores, millicores),
        ("memory", advised.memory_request_bytes, advised.memory_limit_bytes, row.peak_bytes, mebibytes),
    ):
        if request is not None:
            least[name] = text(request)
            highest = peak if limit is None or limit == "none" else limit
            most[name] = text(max(highest, request))
    unlimited = advised.cpu_limit_cores in (None, "none")
    return {
        "containerName": row.container,
        "minAllowed": least,
        "maxAllowed": most,
        "controlledResources": list(least),
        "controlledValues": "RequestsOnly" if unlimited else "RequestsAndLimits",
    }


def _object_name(name: str, kind: str) -> str:
    """Return a name that Kubernetes accepts, for any workload's name. A hash distinguishes changed names."""
    own = f"{name}-{kind.lower()}"
    if _NAME.fullmatch(own) and len(own) <= _LONGEST_NAME:
        return own
    changed = re.sub(r"[^a-z0-9]+", "-", own.lower())[:_LONGEST_NAME].strip("-")
    return f"{changed}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
