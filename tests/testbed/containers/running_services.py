"""Services for tests: a deployment's processes without cgroups, and callees that answer as a test says."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path

from control.services import ServiceApp
from testbed.containers.services.deploy import Deployment, deploy
from testbed.containers.services.http1 import ServerConnection
from tests.testbed.containers.waiting import until


class Running:
    """A deployment and its processes by container name."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._placed = {container.spec.name: container for container in deployment.containers}

    def start(self, name: str) -> None:
        self.processes[name] = subprocess.Popen(self._placed[name].spec.command)

    def wait_ready(self, name: str) -> None:
        until(self._placed[name].ready, f"{name} answers")

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextmanager
def running(app: ServiceApp, folder: Path) -> Iterator[Running]:
    """The application's containers as plain processes, all answering."""
    with deploy(app, folder) as deployment:
        services = Running(deployment)
        names = [container.spec.name for container in deployment.containers]
        try:
            for name in names:
                services.start(name)
            for name in names:
                services.wait_ready(name)
            yield services
        finally:
            for name in list(services.processes):
                services.kill(name)


@asynccontextmanager
async def answering(answer: Callable[[str], Awaitable[HTTPStatus]]) -> AsyncIterator[tuple[str, int]]:
    """A server in this event loop that answers paths so; its address."""
    connections: list[ServerConnection] = []

    def connected() -> ServerConnection:
        connections.append(ServerConnection(answer))
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        for connection in connections:
            connection.close()
        # Clients in this loop see it and close their ends, which nothing else would.
        for _ in range(10):
            await asyncio.sleep(0.001)
