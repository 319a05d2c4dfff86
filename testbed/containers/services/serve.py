"""One container of a service graph: `python -m testbed.containers.services.serve CONFIG.json CONTAINER`.

For: being started in a cgroup by the code that deploys the graph (deploy.py wrote CONFIG.json). Not for: any
other server: it ignores the content of requests. It needs no NumPy, so that it is small and starts quickly.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from control.services import ServiceApp
from testbed.containers.services.app_json import from_plain, to_plain
from testbed.containers.services.http1 import BACKLOG, ServerConnection, allow_many_connections
from testbed.containers.services.tracing import Teller
from testbed.containers.services.visits import Visits
from twinbed import BackendError, ScenarioError, TwinbedError


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration that all containers of a deployment share. addresses: service → (host, port) of each
    replica."""

    app: ServiceApp
    addresses: dict[str, list[tuple[str, int]]]
    seed: int

    def to_json(self) -> str:
        """Return the text of CONFIG.json."""
        return json.dumps({"app": to_plain(self.app), "addresses": self.addresses, "seed": self.seed})


def read_config(path: Path) -> Config:
    """Return the configuration in a file that deploy.py wrote. Raises ScenarioError naming file and key."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read ({error})") from None
    try:
        addresses = {
            name: [(str(host), int(port)) for host, port in replicas]
            for name, replicas in raw["addresses"].items()
        }
        app, seed = raw["app"], int(raw["seed"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ScenarioError(f"{path}: not a configuration of a deployment (app, addresses, seed)") from None
    return Config(from_plain(app, str(path)), addresses, seed)


async def serve(config: Config, container: str) -> None:
    """Serve as that container until it is ended. Raises BackendError when its address is taken."""
    containers = config.app.containers()
    if container not in containers:
        raise ScenarioError(f"{config.app.name}: no container is called {container!r}")
    service, replica = containers[container]
    host, port = config.addresses[service][replica]
    allow_many_connections()
    listening = _listen(host, port)
    seed, teller = f"{config.seed}/{container}", Teller(host)
    visits = Visits(config.app.services[service], config.addresses, seed, teller)
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ServerConnection(visits.answer), sock=listening, backlog=BACKLOG
    )
    await server.serve_forever()


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise BackendError(
            f"{host}:{port}: cannot be listened at ({error.strerror}); end what uses it"
        ) from None
    return listening


def main() -> None:
    """Serve until SIGTERM. Exit with 2 and one line about an error."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m testbed.containers.services.serve CONFIG.json CONTAINER")
    try:
        with suppress(KeyboardInterrupt):
            uvloop.run(serve(read_config(Path(sys.argv[1])), sys.argv[2]))
    except TwinbedError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
