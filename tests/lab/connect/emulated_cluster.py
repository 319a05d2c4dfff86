"""An emulated API server (kmock) that keeps pods, and resizes them as the real one is documented to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kmock

from lab.connect.kubernetes import amount
from tests.patience import PATIENCE_S

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me, namespace: shop}}}}]
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
"""


def _owned(pod: str) -> dict[str, Any]:
    """The owner of a pod WORKLOAD-HASH-END of a Deployment; none for a pod of another name."""
    workload, _, rest = pod.partition("-")
    hash_, dash, _ = rest.partition("-")
    if not dash:
        return {}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{workload}-{hash_}",
        "uid": "u",
        "controller": True,
    }
    return {"labels": {"pod-template-hash": hash_}, "ownerReferences": [owner]}


class Emulated:
    """pods: by (namespace, name), as JSON; refusals: (status, message) that the next patches get; condition:
    what each patched pod says of its resize; patches: what was asked for."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.refusals: list[tuple[int, str]] = []
        self.condition: dict[str, str] | None = None
        self.patches: list[tuple[str, Any]] = []

    def add(self, name: str, container: str = "app", namespace: str = "shop", **resources: Any) -> None:
        status = {"name": container, "restartCount": 0, "containerID": "c://1", "image": "i", "imageID": "i"}
        self.pods[namespace, name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **_owned(name)},
            "spec": {"containers": [{"name": container, "resources": resources}]},
            "status": {"phase": "Running", "containerStatuses": [{**status, "ready": True}]},
        }

    def resources(self, name: str) -> dict[str, Any]:
        return self.pods["shop", name]["spec"]["containers"][0]["resources"]

    def serve(self, request: Any) -> Any:
        parts = request.url.path.strip("/").split("/")
        if parts == ["api", "v1", "pods"]:
            return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": list(self.pods.values())}
        _, _, _, namespace, _, name, *subresource = parts
        pod = self.pods.get((namespace, name))
        if pod is None:
            return _status(404, f'pods "{name}" not found')
        if request.method.value.lower() == "patch":
            assert subresource == ["resize"]
            self.patches.append((name, request.data))
            if self.refusals:
                return _status(*self.refusals.pop(0))
            if request.data["metadata"]["uid"] != pod["metadata"]["uid"]:
                return _status(409, "the UID in the precondition does not match")
            if why := self._forbidden(pod, request.data["spec"]["containers"]):
                return _status(422, why)
            self._resize(pod, request.data["spec"]["containers"])
        return pod

    def _forbidden(self, pod: dict[str, Any], wanted: list[dict[str, Any]]) -> str:
        """Why the real one (pkg/apis/core/validation) would refuse a resize, "" if it would not."""
        for entry in wanted:
            (container,) = [each for each in pod["spec"]["containers"] if each["name"] == entry["name"]]
            then = {group: container["resources"].get(group, {}) for group in ("requests", "limits")}
            for group, values in entry["resources"].items():
                if None in [value for key, value in values.items() if key in then[group]]:
                    return f"resource {group} cannot be removed"
                then[group] = then[group] | values
            for key, request in then["requests"].items():
                if amount(request) > amount(then["limits"].get(key, request)):
                    return f"must be less than or equal to {key} limit"
        return ""

    def _resize(self, pod: dict[str, Any], wanted: list[dict[str, Any]]) -> None:
        for entry in wanted:
            (container,) = [each for each in pod["spec"]["containers"] if each["name"] == entry["name"]]
            for group, values in entry["resources"].items():
                kept = container["resources"].setdefault(group, {})
                for key, value in values.items():
                    kept.pop(key, None)
                    if value is not None:
                        kept[key] = value
        pod["status"]["conditions"] = [self.condition] if self.condition else []


def _whole(answer: Any, code: int = 200) -> kmock.Response:
    """A status and a type are given each time: kmock would keep those of the answer before."""
    if isinstance(answer, kmock.Response):
        return answer
    kind = {"Content-Type": "application/json"}
    return kmock.Response(status=code, payload=json.dumps(answer).encode(), headers=kind)


def _status(code: int, message: str) -> kmock.Response:
    body = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code}
    return _whole(body, code)


@contextmanager
def served(kubeconfig: Path) -> Iterator[Emulated]:
    """Serve an emulated cluster for the length of the block, and write the file that leads to it."""
    emulated, ready = Emulated(), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        handler = kmock.RawHandler()
        handler.fallback << (lambda request: _whole(emulated.serve(request)))
        async with kmock.Server(handler) as server:
            kubeconfig.write_text(KUBECONFIG.format(url=str(server.url).rstrip("/")))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield emulated
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
