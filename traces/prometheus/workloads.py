"""Finds the workload of a pod: by kube-state-metrics, or by the rule of pod names.

For: owners. Not for: usage (history.py).

kube-state-metrics is exact: kube_pod_owner names the pod's owner, kube_replicaset_owner the Deployment
above a ReplicaSet, and kube_job_owner the CronJob above a Job. Without them the name decides. Kubernetes
appends generated text: to pods of a Deployment a hash of the template and five characters, to pods of a
CronJob the minute and five characters, to pods of a DaemonSet, Job or bare ReplicaSet five characters, to
pods of a StatefulSet their number. The characters are those of Kubernetes' own alphabet, which has no
vowels. Any other name is a pod by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

POD_OWNER = "kube_pod_owner"
OWNERS_ABOVE = {"kube_replicaset_owner": ("ReplicaSet", "replicaset"), "kube_job_owner": ("Job", "job_name")}
"""Metric → the kind of a pod's owner whose own owner it names, and the label with that owner's name."""

INIT_CONTAINER = "kube_pod_init_container_info"
TOLD = (POD_OWNER, *OWNERS_ABOVE, INIT_CONTAINER)
"""Metrics of kube-state-metrics whose labels describe a pod."""

_MADE_UP = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of rand.SafeEncodeString in k8s.io/apimachinery."""

_RULES = (
    ("CronJob", re.compile(rf"(?P<name>.+)-\d{{8,10}}-[{_MADE_UP}]{{5}}")),
    ("Deployment", re.compile(rf"(?P<name>.+)-[{_MADE_UP}]{{6,10}}-[{_MADE_UP}]{{5}}")),
    ("DaemonSet or Job", re.compile(rf"(?P<name>.+)-[{_MADE_UP}]{{5}}")),
    ("StatefulSet", re.compile(r"(?P<name>.+)-\d+")),
)
_ABOVE = {
    "ReplicaSet": ("Deployment", re.compile(rf"(?P<name>.+)-[{_MADE_UP}]{{6,10}}")),
    "Job": ("CronJob", re.compile(r"(?P<name>.+)-\d{8,10}")),
}
"""Kind of a pod's owner → the usual kind above it, and the rule of names that it makes."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a container. kind, workload: kind and name of the pod's owner, e.g. Deployment, web.
    is_init: whether the container is an init container of the pod; sidecars, which run as long as the pod,
    are init containers too."""

    namespace: str
    pod: str
    container: str
    kind: str
    workload: str
    is_init: bool = False


def by_name(pod: str) -> tuple[str, str]:
    """Return (kind, workload) of a pod by its name, by the rules above."""
    for kind, rule in _RULES:
        match = rule.fullmatch(pod)
        if match:
            return kind, match["name"]
    return "Pod", pod


def by_state(labels: Iterable[tuple[str, Mapping[str, str]]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return (kind, workload) by (namespace, pod), from the (metric, labels) of kube-state-metrics.

    A pod without an owner is a workload by itself. A ReplicaSet without a known owner counts as a
    Deployment's if its name ends in a hash, and a Job as a CronJob's if its name ends in a minute.
    """
    above: dict[tuple[str, str, str], tuple[str, str]] = {}
    direct: dict[tuple[str, str], tuple[str, str]] = {}
    for metric, own in labels:
        namespace = label(own, "namespace")
        owner = (own.get("owner_kind", ""), own.get("owner_name", ""))
        if metric in OWNERS_ABOVE:
            kind, name = OWNERS_ABOVE[metric]
            above[namespace, kind, label(own, name)] = owner
        elif metric == POD_OWNER:
            pod = label(own, "pod")
            direct[namespace, pod] = owner if owner[1] not in ("", "<none>") else ("Pod", pod)
    return {key: _top(key[0], owner, above) for key, owner in direct.items()}


def init_containers(labels: Iterable[tuple[str, Mapping[str, str]]]) -> set[tuple[str, str, str]]:
    """Return (namespace, pod, container) of the init containers, from the (metric, labels) of
    kube-state-metrics."""
    return {
        (label(own, "namespace"), label(own, "pod"), label(own, "container"))
        for metric, own in labels
        if metric == INIT_CONTAINER
    }


def _top(
    namespace: str, owner: tuple[str, str], above: Mapping[tuple[str, str, str], tuple[str, str]]
) -> tuple[str, str]:
    kind, name = owner
    if kind not in _ABOVE:
        return owner
    kind_above, name_above = above.get((namespace, kind, name), ("", ""))
    if name_above not in ("", "<none>"):
        return kind_above, name_above
    usual, rule = _ABOVE[kind]
    match = rule.fullmatch(name)
    return (usual, match["name"]) if match and not kind_above else owner


def label(labels: Mapping[str, str], name: str) -> str:
    """Return a label of the described object: `exported_…` if the scraper's own label has the same name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")
