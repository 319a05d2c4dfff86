"""A service graph deployed on this machine: the containers' addresses and start commands.

For: the commands, ready-checks and clients' addresses of a `ServiceApp`, for the code that starts containers
(host/). Not for: starting them.

Each deployment has a loopback address of its own in 127.64.0.0/10, held by a socket for as long as it is
open; the kernel frees it even when the process is killed. So ports can be the same in every deployment,
parallel runs do not collide, and a restarted container has the same address.
"""

from __future__ import annotations

import errno
import random
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from control.services import ServiceApp
from testbed.containers.host.container import ContainerSpec
from testbed.containers.services.serve import Config
from testbed.containers.services.tracing import FIRST_PORT
from testbed.containers.services.visits import READY_PATH
from twinbed import BackendError

_HELD_PORT = 9000
_ATTEMPTS = 100
_CONNECT_S = 0.05
SERVE = "testbed.containers.services.serve"
"""Module that a container's process runs."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A container to start. ready: function to poll; returns whether the container answers by now, without
    waiting."""

    spec: ContainerSpec
    ready: Callable[[], bool]


@dataclass(slots=True)
class Deployment:
    """A deployed graph. Close it when its containers have ended. containers: in the order of
    `ServiceApp.containers`; entries: for each kind of request (in the app's order) the URLs of the replicas
    for clients, in turn."""

    containers: tuple[Placed, ...]
    entries: tuple[tuple[str, ...], ...]
    _held: socket.socket = field(repr=False)

    def close(self) -> None:
        """Free the address. Idempotent."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def deploy(app: ServiceApp, folder: Path, *, seed: int = 0) -> Deployment:
    """Lay the application out, and write CONFIG.json for its containers into the folder, which must exist.
    seed: seed of the containers' draws. Raises BackendError when the file cannot be written or no loopback
    address is free."""
    host, held = loopback_address()
    try:
        return _laid_out(app, folder.resolve(), seed, host, held)
    except BaseException:
        held.close()
        raise


def loopback_address() -> tuple[str, socket.socket]:
    """Return a loopback address that no other deployment has, and the socket that holds it until it is
    closed."""
    # The seed of the run does not decide the address, because two runs of the same seed may run side by side.
    draws = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        host = f"127.{draws.randrange(64, 128)}.{draws.randrange(256)}.{draws.randrange(1, 255)}"
        held = socket.socket()
        try:
            held.bind((host, _HELD_PORT))
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise BackendError(
                f"{host}: cannot be used ({error.strerror}); is the loopback device up (`ip link set lo up`)?"
            ) from None
        return host, held
    raise BackendError("127.64.0.0/10: no loopback address is free; end other deployments")


def _laid_out(app: ServiceApp, folder: Path, seed: int, host: str, held: socket.socket) -> Deployment:
    addresses: dict[str, list[tuple[str, int]]] = {name: [] for name in app.services}
    containers = app.containers()
    for port, (service, _) in enumerate(containers.values(), FIRST_PORT):
        addresses[service].append((host, port))
    path = folder / f"{app.name}.json"
    try:
        path.write_text(Config(app, addresses, seed).to_json(), encoding="utf-8")
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); choose another folder") from None
    placed = [
        Placed(
            ContainerSpec(
                name=name,
                command=(sys.executable, "-m", SERVE, str(path), name),
                app=app.name,
            ),
            _Answers(*addresses[service][replica]),
        )
        for name, (service, replica) in containers.items()
    ]
    entries = tuple(
        tuple(f"http://{address}:{port}/{handler}" for address, port in addresses[service])
        for service, _, handler in (target.partition(".") for target in app.requests.values())
    )
    return Deployment(tuple(placed), entries, held)


class _Answers:
    """Tells whether a container answers at its address. It never waits, because its caller has a control loop
    to run."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._asked: socket.socket | None = None

    def __call__(self) -> bool:
        """Send a request, or check whether the last one has been answered."""
        try:
            if self._asked is None:
                self._asked = self._ask()
            answer = self._asked.recv(64)
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        return answer.startswith(b"HTTP/1.1 204")

    def _ask(self) -> socket.socket:
        # On loopback, the kernel connects at once, even if the other process is busy.
        connection = socket.create_connection(self._address, timeout=_CONNECT_S)
        message = f"GET {READY_PATH} HTTP/1.1\r\nHost: {self._address[0]}\r\nConnection: close\r\n\r\n"
        connection.sendall(message.encode("ascii"))
        connection.setblocking(False)
        return connection
