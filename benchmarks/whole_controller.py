"""A whole controller as a process: gRPC with mutual TLS, the door, UDP, signatures, books and decisions.

For: its CPU use, which `bench_controller` prints. Not for: real agents, which need a host each. One process
speaks for all agents over loopback: a call per agent, signed records of all its containers once a period,
agents evenly spread over the period, and an answer to each order. In each period, 5 % of the containers are
throttled and 20 % leave runtime unused; the choice changes. With a folder as its argument this module runs
the controller.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from control.allocator import make
from control.allocator.model import Application
from testbed.containers.cgroup.group import QUOTA_PERIOD_US
from testbed.containers.ports import Records
from testbed.containers.remote import certificates, service
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.datagrams import Sealer
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.messages_pb2 import Hello, Joined, Report
from twinbed import BackendError

CORES_PER_CONTAINER, HOST_CORES, PERIOD_S = 1.5, 64.0, QUOTA_PERIOD_US / 1e6
_AT_ONCE = 16
"""Agents that connect at the same time: the door lets 32 connections of one address wait."""

_SLICES = 20
"""Parts of a period; the agents of a part send together."""

_REGISTER_S = 60.0
"""Longest time until all agents are there, s."""

_WARM_S, _MEASURED_S = 5.0, 10.0


class _Agent:
    """One agent's call, and the records that it sends."""

    def __init__(self, name: str, each: int, seed: int) -> None:
        self.name, self.orders = name, 0
        self._rng = np.random.default_rng(seed)
        self._ids = np.zeros(0, np.int64)
        self._quota = np.zeros(0)
        self._place: dict[int, int] = {}
        self._each = each
        self._writing = asyncio.Lock()
        self._registered = False
        self.ready = asyncio.Event()

    async def talk(self, address: str, pki: Path, gate: asyncio.Semaphore) -> None:
        """Register, report the containers, and answer orders until the call ends. If the door closes a
        waiting connection because many agents come, this agent connects again, as a real agent does."""
        identity = certificates.enroll(pki, self.name)
        while not self._registered:
            async with gate:
                with suppress(grpc.aio.AioRpcError):
                    await self._register(address, identity)
        beating = asyncio.create_task(self._beat())
        try:
            while hasattr(order := await self._call.read(), "number"):
                self._obey(order)
                await self._say(order.number)
        finally:
            beating.cancel()

    async def _register(self, address: str, identity: certificates.Identity) -> None:
        self._connection = service.channel(address, identity)
        self._call = service.attend(self._connection)
        hello = Hello(version=service.PROTOCOL_VERSION, name=self.name, instance=1, host_cores=HOST_CORES)
        await self._call.write(Report(hello=hello))
        more = welcome = (await self._call.read()).welcome
        while more.more:
            more = (await self._call.read()).welcome
        self._session, self.sealer = welcome.session, Sealer(welcome.session, welcome.key)
        self.port = welcome.telemetry_port
        joined = Joined(complete=True)
        for container in range(self._each):
            joined.containers.add(name=f"c{container}", incarnation=7)
        await self._call.write(Report(session=self._session, joined=joined))
        self._registered = True

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(service.HEARTBEAT_S)
            await self._say(0)

    async def _say(self, applied: int) -> None:
        async with self._writing:
            await self._call.write(Report(session=self._session, applied=applied))

    def _obey(self, order: Any) -> None:
        if order.named:
            self._ids = np.array([named.id for named in order.named], np.int64)
            self._place = {id_: place for place, id_ in enumerate(self._ids.tolist())}
            self._quota = np.full(len(self._ids), CORES_PER_CONTAINER)
        for id_, cores in zip(order.cpu.ids, order.cpu.cores, strict=True):
            self._quota[self._place[id_]] = cores
        self.orders += bool(order.number)
        if self._place:
            self.ready.set()

    def datagrams(self) -> list[bytes]:
        """Return this period's records, signed."""
        count, now_ns = len(self._ids), time.monotonic_ns()
        kind = self._rng.random(count)
        held = kind < 0.05
        left = np.where(held, 0.0, np.minimum(np.where(kind < 0.25, 0.4, 0.05), self._quota))
        records = Records(
            ids=self._ids,
            end_ns=np.full(count, now_ns),
            quota_cores=self._quota,
            unused_cores=left,
            throttled=held,
            usage_cores=self._quota - left,
            memory_bytes=np.full(count, 1 << 20),
            throttled_s=np.zeros(count),
            idle=np.zeros(count, np.bool_),
        )
        return self.sealer.seal(records, now_ns)


async def _send(agents: Sequence[_Agent], counts: dict[str, int]) -> None:
    """Send every agent's records once a period, for as long as this process keeps up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        target = ("127.0.0.1", agents[0].port)
        due_s, part = time.monotonic(), 0
        while True:
            for agent in agents[part % _SLICES :: _SLICES]:
                for datagram in agent.datagrams():
                    with suppress(OSError):
                        wire.sendto(datagram, target)
                    counts["sent"] += 1
            due_s, part = due_s + PERIOD_S / _SLICES, part + 1
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def _drive(pki: Path, child: subprocess.Popen[str], count: int, each: int) -> dict[str, float]:
    assert child.stdin is not None
    assert child.stdout is not None
    output, asked = child.stdout, child.stdin

    async def state() -> dict[str, float]:
        asked.write("\n")
        asked.flush()
        told: dict[str, float] = json.loads(await asyncio.to_thread(output.readline))
        return told | {"sent": counts["sent"], "orders": sum(agent.orders for agent in agents)}

    counts, gate = {"sent": 0}, asyncio.Semaphore(_AT_ONCE)
    agents = [_Agent(f"a{number}", each, number) for number in range(count)]
    address = f"127.0.0.1:{int(output.readline())}"
    calls = [asyncio.create_task(agent.talk(address, pki, gate)) for agent in agents]
    ready = asyncio.gather(*(agent.ready.wait() for agent in agents))
    tasks: list[asyncio.Future[Any]] = [ready, *calls]
    try:
        await asyncio.wait(tasks, timeout=_REGISTER_S, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise BackendError("not all were there in time, or stayed; this machine is too busy for so many")
        tasks.append(asyncio.create_task(_send(agents, counts)))
        await asyncio.sleep(_WARM_S)
        before, began_s = await state(), time.monotonic()
        await asyncio.sleep(_MEASURED_S)
        after, took_s = await state(), time.monotonic() - began_s
        per_s = {name: (after[name] - before[name]) / took_s for name in after}
        return per_s | {"lost_calls": float(sum(call.done() for call in calls))}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def measure(count: int, each: int) -> dict[str, float]:
    """Return rates per second with `count` agents of `each` containers, and the number of lost calls.

    cpu_s: of the controller's process; sent, received: datagrams; reports: records that counted; orders: that
    agents received. Calls are lost where this process does not keep up with its agents, so that they are
    silent for too long. Raises BackendError where the agents cannot register.
    """
    with tempfile.TemporaryDirectory() as folder:
        pki = Path(folder)
        certificates.init(pki)
        command = [sys.executable, "-m", "benchmarks.whole_controller", folder, str(count), str(each)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                return asyncio.run(_drive(pki, child, count, each))
            finally:
                child.kill()


async def _serve(pki: Path, count: int, each: int) -> None:
    """Run the controller. Print its port, then its counters for each line on standard input."""
    application = Application("shop", CORES_PER_CONTAINER * count * each, (count * each) << 28)
    placed = tuple(
        Placed(f"c{container}", f"a{agent}", 0, attach={"": "/c"})
        for agent in range(count)
        for container in range(each)
    )
    controller = Controller(
        Deployment((application,), placed), make("escra", {}), lambda: certificates.controller_identity(pki)
    )
    stop = asyncio.Event()

    def tell() -> None:
        if not os.read(0, 64):
            stop.set()
            return
        cpu_s, received = time.process_time(), controller.gate.received
        print(json.dumps({"cpu_s": cpu_s, "received": received, "reports": controller.books.reports}))
        sys.stdout.flush()

    asyncio.get_running_loop().add_reader(0, tell)
    await controller.run("127.0.0.1:0", stop, lambda port: print(port, flush=True))


if __name__ == "__main__":
    logging.getLogger("twinbed.controller").disabled = True
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
