"""Containers of pods in a Kubernetes cluster, resized in place.

For: reading a pod's resources and changing them through the subresource `resize` (Kubernetes 1.33 and later).
Not for: the CPU throttling of a pod, which the API does not report. Tested against an emulated API server
only (kmock). Source: Kubernetes' documentation, "Resize CPU and Memory Resources assigned to Containers", and
KEP-1287: a resize that does not fit now is Deferred, one that never can is Infeasible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.containers.apply.ports import Candidate
from testbed.containers.attach.limits import Counters
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, ScenarioError
from twinbed.text import printable

if TYPE_CHECKING:
    from lightkube import Client
    from lightkube.models.core_v1 import Container, ContainerStatus
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import Pod

_PLACES: Mapping[str, tuple[str, str]] = {
    "cpu_request_cores": ("requests", "cpu"),
    "cpu_limit_cores": ("limits", "cpu"),
    "memory_request_bytes": ("requests", "memory"),
    "memory_limit_bytes": ("limits", "memory"),
}
_PARTS = {"n": 1e9, "u": 1e6, "m": 1e3}
"""Parts of one. A number is divided by them: 563 · 0.001 is above 0.563, and looks like somebody else's."""
_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
_ATTEMPTS = 5
"""Attempts to patch a pod that others change at the same time, before an error."""


class Cluster:
    """The cluster of the current kubeconfig, or of this pod's service account. client: None makes one."""

    kind = "kubernetes"

    def __init__(self, client: Client | None = None) -> None:
        import httpx2
        from lightkube import Client
        from lightkube.core.exceptions import ConfigError, LoadResourceError

        try:
            self.client = client or Client(timeout=httpx2.Timeout(20.0))
        except (ConfigError, LoadResourceError, OSError, ValueError) as error:
            raise BackendError(f"kubeconfig: {printable(str(error))}; set KUBECONFIG=FILE") from None

    def close(self) -> None:
        """See Places."""
        self.client.close()

    def candidates(self) -> list[Candidate]:
        """See Places. A container of a pod is named NAMESPACE/POD/CONTAINER."""
        from lightkube.resources.core_v1 import Pod

        pods = _asked("pods", lambda: list(self.client.list(Pod, namespace="*")))
        candidates = []
        for pod in pods:
            assert pod.metadata is not None
            assert pod.spec is not None
            running = pod.status is not None and pod.status.phase == "Running"
            for container in pod.spec.containers if running else ():
                name = f"{pod.metadata.namespace}/{pod.metadata.name}/{container.name}"
                labels = {
                    "io.kubernetes.pod.name": str(pod.metadata.name),
                    "io.kubernetes.pod.namespace": str(pod.metadata.namespace),
                    "io.kubernetes.container.name": container.name,
                }
                pod_name = str(pod.metadata.name)
                candidates.append(Candidate(name, name, labels, pod_name, _workload(pod.metadata)))
        return candidates

    def named(self, text: str) -> list[str]:
        """See Places."""
        return [self.target(text).name]

    def target(self, name: str) -> PodContainer:
        """See Places."""
        from lightkube.resources.core_v1 import Pod

        parts = name.split("/")
        if len(parts) != 3 or not all(
            part and part.replace("-", "").replace(".", "").isalnum() for part in parts
        ):
            raise ScenarioError(f"pod {printable(name[:200])}: expected NAMESPACE/POD/CONTAINER")
        namespace, pod_name, container = parts
        pod = _asked(name, lambda: self.client.get(Pod, pod_name, namespace=namespace))
        assert pod.spec is not None
        for entry in pod.spec.containers:
            if entry.name == container:
                return PodContainer(name, self, pod, entry)
        known = ", ".join(entry.name for entry in pod.spec.containers)
        raise GroupGoneError(f"{name}: the pod has no such container; it has {known}")


def _workload(metadata: ObjectMeta) -> str:
    """Return the name of the workload that owns a pod, "" for none. The owner of a Deployment's pod is a
    ReplicaSet, whose name ends in the pod's label pod-template-hash."""
    owner = next((own for own in metadata.ownerReferences or () if own.controller), None)
    if owner is None:
        return ""
    end = f"-{(metadata.labels or {}).get('pod-template-hash', '')}"
    return str(owner.name.removesuffix(end) if owner.kind == "ReplicaSet" and len(end) > 1 else owner.name)


@dataclass(frozen=True, slots=True)
class PodContainer:
    """See Target. name: NAMESPACE/POD/CONTAINER; pod, container: the API server's answers about them."""

    name: str
    cluster: Cluster
    pod: Pod
    container: Container

    def read(self) -> dict[str, float]:
        """See Target. A request that is not set counts as no limit, because there is nothing to compare."""
        resources = self._resources()
        return {
            quantity: amount(resources[group][name]) if name in resources[group] else math.inf
            for quantity, (group, name) in _PLACES.items()
        }

    def settled(self, quantity: str, value: float) -> float:
        """See Target: whole thousandths of a core, and bytes. No limit is ever removed in place
        (ValidatePodResize in kubernetes/pkg/apis/core/validation)."""
        if math.isinf(value):
            return self.read()[quantity]
        return (
            math.ceil(value * 1000 - 1e-6) / 1000 if quantity.startswith("cpu") else float(math.ceil(value))
        )

    def record(self) -> dict[str, Any]:
        """See Target."""
        return self._resources()

    def set(self, quantity: str, value: float) -> None:
        """See Target. Raises BackendError for a resize that is deferred or infeasible."""
        group, name = _PLACES[quantity]
        text = None if math.isinf(value) else _text(quantity, value)
        self._patch({group: {name: text}})

    def put_back(self, quantity: str, value: float, record: Mapping[str, Any]) -> None:  # noqa: ARG002
        """See Target. The record has the value as the user wrote it."""
        group, name = _PLACES[quantity]
        self._patch({group: {name: record[group].get(name)}})

    def floor_bytes(self) -> int:
        """See Target. It is 0 here: the API does not report a container's use, and the kubelet refuses a
        limit below that (KEP-1287)."""
        return 0

    def counters(self) -> Counters:
        """See Target: number of restarts, and whether the last one was for lack of memory."""
        status = self._status()
        if status is None:
            return Counters(0, 0, 0, 0, "")
        ended = status.lastState.terminated if status.lastState is not None else None
        killed = status.restartCount if ended is not None and ended.reason == "OOMKilled" else 0
        return Counters(0, 0, min(killed, 1), status.restartCount, str(status.containerID))

    def _status(self) -> ContainerStatus | None:
        statuses = self.pod.status.containerStatuses if self.pod.status is not None else None
        return next((status for status in statuses or () if status.name == self.container.name), None)

    def _resources(self) -> dict[str, dict[str, str]]:
        resources = self.container.resources
        groups = {} if resources is None else {"requests": resources.requests, "limits": resources.limits}
        return {group: dict(groups.get(group) or {}) for group in ("requests", "limits")}

    def _patch(self, resources: Mapping[str, Any]) -> None:
        from lightkube.resources.core_v1 import Pod
        from lightkube.types import PatchType

        metadata = self.pod.metadata
        assert metadata is not None
        # With the uid, a patch of a newer pod of the same name is a conflict.
        body = {
            "metadata": {"uid": metadata.uid},
            "spec": {"containers": [{"name": self.container.name, "resources": resources}]},
        }
        pod = _asked(
            self.name,
            lambda: self.cluster.client.patch(
                Pod.Resize,
                str(metadata.name),
                body,
                namespace=metadata.namespace,
                patch_type=PatchType.STRATEGIC,
            ),
        )
        conditions = pod.status.conditions if pod.status is not None else None
        for condition in conditions or ():
            if condition.type == "PodResizePending" and condition.status == "True":
                why = printable(condition.message or "no reason given")
                raise BackendError(f"{self.name}: the resize is {printable(condition.reason or '?')}: {why}")


def amount(text: str) -> float:
    """Return a quantity of Kubernetes', e.g. 500m or 64Mi, as a number. Raises BackendError."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return _number(text.removesuffix(suffix), text) * _SUFFIXES[suffix]
    part = text[-1:] if text[-1:] in _PARTS else ""
    return _number(text.removesuffix(part), text) / _PARTS.get(part, 1.0)


def _number(text: str, whole: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise BackendError(f"the API server says {printable(whole[:50])!r}, which is no quantity")
    return number


def _text(quantity: str, value: float) -> str:
    return f"{round(value * 1000)}m" if quantity.startswith("cpu") else str(int(value))


def _asked(name: str, ask: Any) -> Any:
    """Send a request, and send it again if the object was changed meanwhile. Raises GroupGoneError for a
    missing object, and a one-line BackendError for all other errors."""
    import httpx2
    from lightkube.core.exceptions import ApiError

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return ask()
        except ApiError as error:
            code = error.status.code or error.response.status_code
            said = printable(" ".join(str(error).split())[:300])
            if code == 404:
                raise GroupGoneError(f"{name}: does not exist ({said})") from None
            if code == 409 and attempt < _ATTEMPTS:
                continue
            cure = {
                401: "; is the kubeconfig's user still good?",
                403: "; the user needs the verbs get, list and patch of pods and pods/resize",
                409: "; others change it all the time",
            }.get(code, "")
            raise BackendError(f"{name}: the API server refuses ({code}, {said}){cure}") from None
        except httpx2.HTTPStatusError as error:
            code = error.response.status_code
            raise BackendError(f"{name}: answered {code}, not as an API server does") from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise BackendError(f"{name}: the API server does not answer ({type(error).__name__})") from None
    raise AssertionError("unreachable")
