"""An agent that has a certificate and misbehaves: it harms itself at most. Over loopback, without agents of
ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from testbed.containers.ports import Records
from testbed.containers.remote import door, service
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.datagrams import Sealer
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report
from tests.testbed.containers.remote.cluster import Cluster, Running, cluster, deployment, until
from tests.testbed.containers.remote.fake_host import made_up


class Speaker:
    """One call of an agent, made by hand. done: the containers' limits as the agent's host has them."""

    def __init__(self, connection: grpc.aio.Channel, name: str) -> None:
        self.connection = connection
        self.call: Any = service.attend(connection)
        self.name = name
        self.session, self.key, self.applied = 0, b"", 0
        self.ids: dict[str, int] = {}
        self.quotas: dict[int, float] = {}

    async def hello(self, instance: int = 1) -> None:
        hello = Hello(version=service.PROTOCOL_VERSION, name=self.name, instance=instance, host_cores=4.0)
        await self.call.write(Report(hello=hello))
        while not self.session:
            order = await self.call.read()
            if order.HasField("welcome"):
                self.session, self.key = order.welcome.session, order.welcome.key

    async def join(self, *names: str, quota_cores: float = 0.0) -> None:
        joined = Joined(complete=True)
        for name in names:
            joined.containers.add(
                name=name,
                incarnation=7,
                running=quota_cores > 0,
                quota_cores=quota_cores,
                limit_bytes=1 << 20,
            )
        await self.say(Report(joined=joined))

    async def say(self, report: Report) -> None:
        report.session = report.session or self.session
        await self.call.write(report)

    async def read(self) -> Order:
        order: Order = await self.call.read()
        for named in order.named:
            self.ids[named.name] = named.id
        self.quotas |= dict(zip(order.cpu.ids, order.cpu.cores, strict=True))
        if order.number:
            assert order.number == self.applied + 1, "no order is left out"
            self.applied = order.number
        return order

    async def obey(self, count: int) -> None:
        """Carries orders out until it has limits for so many containers."""
        while len(self.quotas) < count:
            await self.read()
            await self.say(Report(applied=self.applied))


@contextlib.asynccontextmanager
async def speaker(here: Cluster, name: str) -> AsyncIterator[Speaker]:
    connection = service.channel(f"127.0.0.1:{here.port}", here.identity(name))
    try:
        yield Speaker(connection, name)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def served(here: Cluster) -> AsyncIterator[tuple[Controller, Running]]:
    yield await here.controller()


async def send(here: Cluster, sealer: Sealer, records: Records) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=("127.0.0.1", here.port)
    )
    for datagram in sealer.seal(records, 1):
        transport.sendto(datagram)
    transport.close()


def bound(controller: Controller) -> float:
    return float(controller.books.cpu.bounds()[0])


async def test_an_agent_that_reads_late_gets_every_container_s_latest_limit(tmp_path: Path) -> None:
    """Thousands of decisions come while it reads nothing. What it then confirms is what it has."""
    async with (
        cluster(tmp_path, deployment(agents=2, each=1)) as here,
        served(here) as (controller, _),
        speaker(here, "a0") as slow,
        speaker(here, "a1") as quick,
    ):
        for one in (slow, quick):
            await one.hello()
            await one.join(f"{one.name}-c0")
        for one in (slow, quick):
            await one.obey(1)
        await until(lambda: controller.books.cpu.waiting() == 0, "limits are in force")
        (mine,), (other,) = slow.ids.values(), quick.ids.values()
        sealers = {one: Sealer(one.session, one.key) for one in (slow, quick)}
        # Its quota swings by turns, so that each record makes a decision.
        for number in range(1, 3_001):
            quota = float(controller.books.cpu.wanted(np.array([mine]))[0])
            idle = number % 2 == 0
            left = quota * 0.9 if idle else 0.0
            await send(here, sealers[slow], made_up([mine], number, quota, quota - left, throttled=not idle))
            assert bound(controller) <= 4.0 + 1e-6
            if number % 100 == 0:
                for one in (slow, quick):
                    await one.say(Report(applied=one.applied))  # a heartbeat
        await until(lambda: controller.books.reports >= 3_000, "taken in")
        await slow.say(Report(applied=slow.applied))
        quota = float(controller.books.cpu.wanted(np.array([other]))[0])
        await send(here, sealers[quick], made_up([other], 1, quota, quota, throttled=True))
        await until(lambda: controller.books.reports >= 3_001, "asked for more")

        async def hear(one: Speaker) -> None:
            while True:
                await one.read()
                await one.say(Report(applied=one.applied))
                assert slow.quotas[mine] + quick.quotas[other] <= 4.0 + 1e-6

        hearing = [asyncio.create_task(hear(one)) for one in (slow, quick)]
        wanted = controller.books.cpu.wanted
        await until(
            lambda: (
                slow.quotas[mine] == wanted(np.array([mine]))[0]
                and quick.quotas[other] == wanted(np.array([other]))[0]
                and controller.books.cpu.waiting() == 0
            ),
            "every host has the latest limits",
        )
        for task in hearing:
            assert not task.done() or task.result() is None
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)


async def test_what_a_superseded_call_confirms_does_not_count(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, deployment(agents=1, each=1)) as here,
        served(here) as (controller, _),
        speaker(here, "a0") as former,
    ):
        await former.hello()
        await former.join("a0-c0", quota_cores=1.0)
        await former.obey(1)
        async with speaker(here, "a0") as latter:
            await latter.hello()
            await latter.join("a0-c0", quota_cores=3.0)
            await until(lambda: controller.books.agents["a0"].complete, "joined again")
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await former.say(Report(applied=1))
            assert await former.call.code() is grpc.StatusCode.ABORTED
            assert "another call" in await former.call.details()
            # Its session is over for datagrams, and on the new call, too.
            await send(here, Sealer(former.session, former.key), made_up([*former.ids.values()], 1))
            await until(lambda: controller.refusals.counts["foreign"] == 1, "refused")
            assert controller.books.reports == 0
            before = controller.refusals.counts["another session"]
            await latter.say(Report(applied=1, session=former.session))
            await until(lambda: controller.refusals.counts["another session"] > before, "ignored")
            (id_,) = controller.books.members
            assert not controller.books.cpu.in_force(np.array([id_]))[0]
            await latter.obey(1)
            await until(lambda: bool(controller.books.cpu.in_force(np.array([id_]))[0]), "confirmed")


@pytest.mark.parametrize("unused", [np.inf, 0.0])
async def test_a_record_of_a_container_without_a_limit_ends_nothing(tmp_path: Path, unused: float) -> None:
    async with (
        cluster(tmp_path, deployment(agents=1)) as here,
        served(here) as (controller, running),
        speaker(here, "a0") as speaks,
    ):
        await speaks.hello()
        await speaks.join("a0-c0", "a0-c1")
        await speaks.obey(2)
        ids = list(speaks.ids.values())
        sealer = Sealer(speaks.session, speaks.key)
        await send(here, sealer, made_up(ids, 1, np.inf, 1.5, unused_cores=unused))
        await until(lambda: controller.books.unlimited == 2 or running.task.done(), "taken in")
        assert not running.task.done()
        assert controller.books.latest.usage_cores(np.array(ids)).tolist() == [1.5, 1.5]
        await send(here, sealer, made_up(ids, 2, 2.0))
        await until(lambda: controller.books.limit_changes > 4, "decided on the next ones")


async def test_an_agent_that_confirms_what_was_not_sent_is_told_so(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, deployment()) as here,
        served(here) as (controller, running),
        speaker(here, "a0") as liar,
    ):
        here.agent("a1")
        await liar.hello()
        await liar.join("a0-c0", "a0-c1")
        await liar.obey(2)
        await liar.say(Report(applied=2**64 - 1))
        assert await liar.call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "was not sent" in await liar.call.details()
        await until(lambda: controller.refusals.counts["protocol"] == 1, "counted")
        before = controller.books.reports
        await until(lambda: controller.books.reports > before + 4, "the other goes on")
        assert not running.task.done()


async def test_bytes_that_are_no_report_end_a_registered_agents_call(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here, served(here) as (controller, _):
        connection = service.channel(f"127.0.0.1:{here.port}", here.identity("a0"))
        call = connection.stream_stream("/twinbed.Control/Attend")()
        hello = Hello(version=service.PROTOCOL_VERSION, name="a0", instance=1, host_cores=4.0)
        await call.write(Report(hello=hello).SerializeToString())
        await call.write(b"\xff" * 3)
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                """What was sent before."""
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == "it sent an invalid message"
        assert controller.refusals.counts == {"malformed message": 1}
        await connection.close()


async def test_one_connection_has_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []
    present, hello = 0, Controller._hello

    async def counted(controller: Controller, context: Any) -> Hello:
        nonlocal present
        present += 1
        came.append(present)
        try:
            return await hello(controller, context)
        finally:
            present -= 1

    monkeypatch.setattr(Controller, "_hello", counted)
    monkeypatch.setattr(service, "SILENCE_S", 0.5)
    monkeypatch.setattr(door, "WAIT_S", 300.0)
    async with cluster(tmp_path, deployment(agents=1)) as here, served(here), speaker(here, "a0") as first:
        calls = [service.attend(first.connection) for _ in range(5 * service.MOST_CALLS)]

        def more_came() -> bool:
            # gRPC refuses a call that begins before both sides know the end of another. Such a call does not
            # wait, so it is made again.
            calls[:] = [service.attend(first.connection) if call.done() else call for call in calls]
            return len(came) > 2 * service.MOST_CALLS

        await until(more_came, "more calls came")
        # The next call may come before the one that made room for it has left the count.
        assert max(came) <= 2 * service.MOST_CALLS
        for call in calls:
            call.cancel()
