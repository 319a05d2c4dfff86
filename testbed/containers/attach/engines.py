"""Docker and Podman, asked over the UNIX sockets of their APIs.

For: the running containers, their processes, and new limits in the daemon's own record. Not for: cgroups
(limits.py), nor finding the container of a name (finding.py). An answer is bounded in size and time, and its
content is checked: a daemon's text is made printable before it appears in a message. Sources: Docker Engine
API 1.41, Podman's libpod API 4.0.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, ScenarioError
from twinbed.text import printable

Kind = Literal["docker", "podman"]

_TIMEOUT_S = 20.0
"""Longest wait for an answer, s: an update runs the OCI runtime."""

_MOST_BYTES = 64 << 20
"""Largest answer, bytes: some 50,000 containers."""

_SOCKETS: Mapping[Kind, tuple[str, str]] = {
    "docker": ("DOCKER_HOST", "/var/run/docker.sock"),
    "podman": ("CONTAINER_HOST", "/run/podman/podman.sock"),
}
_CURES = {"docker": "sudo systemctl start docker", "podman": "sudo systemctl start podman.socket"}


@dataclass(frozen=True, slots=True)
class Container:
    """A container that an engine runs.

    kind: the engine
    id: its id, 64 hexadecimal digits
    name: its name
    labels: its labels
    pod: name of its pod, "" for none
    """

    kind: Kind
    id: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A container now.

    pid: its first process, 0 if it does not run
    started: time of its start, as the engine writes it; differs between two starts
    restarts: number of restarts by the engine
    record: limits in the engine's own record (HostConfig)
    name: the container's name
    """

    pid: int
    started: str
    restarts: int
    record: Mapping[str, int]
    name: str


_RECORD = ("NanoCpus", "CpuQuota", "CpuPeriod", "CpuShares", "Memory", "MemorySwap")


@dataclass(frozen=True, slots=True)
class Engine:
    """One daemon. kind: Docker or Podman; path: path of its socket."""

    kind: Kind
    path: Path

    def containers(self) -> list[Container]:
        """Return the running containers, ordered by name, without the infra containers of pods."""
        listed = self._ask("GET", "/containers/json")
        if not isinstance(listed, list):
            raise self._nonsense("a list of containers")
        containers = [self._container(entry) for entry in listed if not _is_infra(entry)]
        return sorted(containers, key=lambda container: container.name)

    def state(self, container: Container) -> State:
        """Return the container's state. Raises GroupGoneError if the container no longer exists."""
        entry = self._ask("GET", f"/containers/{quote(container.id, safe='')}/json")
        try:
            host = entry["HostConfig"]
            return State(
                int(entry["State"]["Pid"]),
                str(entry["State"]["StartedAt"]),
                int(entry.get("RestartCount") or 0),
                {key: int(host.get(key) or 0) for key in _RECORD},
                str(entry["Name"]).removeprefix("/"),
            )
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._nonsense("a container's state") from None

    def update(self, container: Container, body: Mapping[str, Any]) -> None:
        """Change limits. body: body of POST /containers/ID/update in this engine's form. Raises BackendError
        if the engine refuses it, GroupGoneError if the container is gone."""
        self._ask("POST", f"/containers/{quote(container.id, safe='')}/update", body)

    def _container(self, entry: Any) -> Container:
        try:
            id_, name = str(entry["Id"]), str(entry["Names"][0]).removeprefix("/")
            labels = {str(key): str(value) for key, value in (entry.get("Labels") or {}).items()}
        except (TypeError, KeyError, IndexError, AttributeError):
            raise self._nonsense("a container") from None
        pod = entry.get("PodName") or labels.get("io.kubernetes.pod.name", "")
        return Container(self.kind, id_, name, labels, str(pod))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        connection, base = _Connection(self.path), "" if self.kind == "docker" else "/v4.0.0/libpod"
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, base + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise BackendError(f"{self.path}: {self._reason(error)}") from None
        finally:
            connection.close()
        if len(text) > _MOST_BYTES:
            raise BackendError(f"{self.path}: answered more than {_MOST_BYTES >> 20} MiB")
        if response.status == http.client.NOT_FOUND:
            raise GroupGoneError(f"{self.kind}: no such container any more ({_said(text)})")
        if response.status >= 400:
            raise BackendError(f"{self.path}: {self.kind} refuses ({response.status}, {_said(text)})")
        if method == "POST":
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self._nonsense("JSON") from None

    def _reason(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            variable = _SOCKETS[self.kind][0]
            return f"no daemon listens there; {_CURES[self.kind]}, or set {variable}=unix:///PATH"
        if isinstance(error, PermissionError):
            return "may not be opened; run as root"
        if isinstance(error, TimeoutError):
            return f"no answer within {_TIMEOUT_S:g} s; is {self.kind} busy?"
        return f"does not answer as {self.kind} does ({type(error).__name__})"

    def _nonsense(self, expected: str) -> BackendError:
        return BackendError(f"{self.path}: the answer is not {expected}; is it the socket of {self.kind}?")


class _Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise


def engine(kind: Kind) -> Engine:
    """Return an engine at $DOCKER_HOST or $CONTAINER_HOST, or its usual socket. Raises ScenarioError for an
    address that is no UNIX socket, because limits are set in this machine's cgroups."""
    variable, default = _SOCKETS[kind]
    address = os.environ.get(variable) or f"unix://{default}"
    path = address.removeprefix("unix://")
    if path == address or not path.startswith("/") or not path.isprintable():
        raise ScenarioError(f"{variable}={printable(address)}: expected unix:///PATH, on this machine")
    return Engine(kind, Path(path))


def present() -> list[Engine]:
    """Return the engines whose sockets are there."""
    return [known for known in (engine("docker"), engine("podman")) if known.path.is_socket()]


def _is_infra(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("IsInfra"))


def _said(text: bytes) -> str:
    try:
        document = json.loads(text)
        message = document["message"] if isinstance(document, dict) else ""
    except (ValueError, KeyError, RecursionError):
        message = text[:200].decode(errors="replace")
    return printable(str(message).strip()[:300])
