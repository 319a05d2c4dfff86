"""A controller and agents in one process, over loopback, on pretended hosts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from control.allocator import make
from control.allocator.model import Application
from control.allocator.ports import Allocator
from testbed.containers.remote import certificates
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.certificates import Identity
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.origin import Watcher
from testbed.containers.remote.revocations import Revocations
from tests.testbed.containers.remote.fake_host import FakePlace, FakeSource

GIB = 1 << 30
DEADLINE_S = 20.0


def deployment(agents: int = 2, each: int = 2, cores: float = 4.0) -> Deployment:
    """Return a deployment of one application with `each` attached containers on every agent, named a0-c0 …"""
    placed = tuple(
        Placed(f"a{agent}-c{index}", f"a{agent}", 0, attach={"": f"a{agent}-c{index}"})
        for agent in range(agents)
        for index in range(each)
    )
    return Deployment((Application("shop", cores, 4 * GIB),), placed)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for the condition; fails the test when it does not come true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.01)


@dataclass
class Running:
    """A task and what stops it. kill: as kill -9 would, without any good-bye."""

    task: asyncio.Task[None]
    stop: asyncio.Event

    async def end(self) -> None:
        self.stop.set()
        await self.task

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Host:
    """A pretended host; its groups outlive its agents."""

    name: str
    place: FakePlace = field(default_factory=FakePlace)
    use_cores: dict[str, float] = field(default_factory=dict)


class Cluster:
    """Hosts a0, a1, …; controllers come and go on one port. root: folder below which watched ones are."""

    def __init__(self, pki: Path, deployed: Deployment, policy: str = "escra") -> None:
        self.pki, self.deployed, self.policy = pki, deployed, policy
        self.hosts = {name: Host(name) for name in sorted(deployed.agents)}
        self.port, self.root = 0, Path("/nonexistent")
        self.latencies_s: list[float] = []
        self._running: list[Running] = []

    def identity(self, name: str) -> Identity:
        return certificates.enroll(self.pki, name)

    async def controller(self, allocator: Allocator | None = None) -> tuple[Controller, Running]:
        controller = Controller(
            self.deployed,
            allocator or make(self.policy, {}),
            lambda: certificates.controller_identity(self.pki),
            revoked=Revocations(self.pki),
            on_latency=self.latencies_s.append,
        )
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = asyncio.create_task(controller.run(f"127.0.0.1:{self.port}", stop, ready.set_result))
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        self.port = ready.result()
        running = Running(task, stop)
        self._running.append(running)
        return controller, running

    def agent(self, name: str, identity: Identity | None = None) -> tuple[Agent, Running]:
        host = self.hosts[name]
        stop = asyncio.Event()
        agent = Agent(
            f"127.0.0.1:{self.port}",
            identity or self.identity(name),
            Hosting(host.place, None),
            lambda: FakeSource(host.use_cores),
            Watcher(self.root),
            host_cores=4.0,
        )
        running = Running(asyncio.create_task(agent.run(stop)), stop)
        self._running.append(running)
        return agent, running

    def quotas(self) -> dict[str, float]:
        return {
            name: group.quota_cores
            for host in self.hosts.values()
            for name, group in host.place.groups.items()
            if not group.removed
        }

    async def close(self) -> None:
        for made in reversed(self._running):
            if not made.task.done():
                made.stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await made.task


@contextlib.asynccontextmanager
async def cluster(pki: Path, deployed: Deployment, policy: str = "escra") -> AsyncIterator[Cluster]:
    certificates.init(pki)
    running = Cluster(pki, deployed, policy)
    try:
        yield running
    finally:
        await running.close()
