"""Connections that say nothing, to a controller or from it: agents come in all the same, and dead ones go."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.containers.remote import service
from tests.testbed.containers.remote.cluster import DEADLINE_S, Cluster, cluster, deployment, until

FILES = 256


async def agent_comes_in(here: Cluster) -> None:
    agent, running = here.agent("a0")
    await until(lambda: agent.connected, "registered")
    await running.end()


@pytest.mark.parametrize("addresses", [1, 200])
async def test_silent_connections_do_not_keep_an_agent_out(tmp_path: Path, addresses: int) -> None:
    command = [sys.executable, "-m", "tests.testbed.containers.remote.limited_controller"]
    async with cluster(tmp_path, deployment(agents=1)) as here:
        with (
            contextlib.ExitStack() as silent,
            subprocess.Popen(
                [*command, str(tmp_path), str(FILES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            silent.callback(process.stdin.close)
            here.port = int(await asyncio.to_thread(process.stdout.readline))
            await agent_comes_in(here)
            for number in range(FILES + 50):
                source = ("127.0.0.1" if addresses == 1 else f"127.0.1.{1 + number % addresses}", 0)
                silent.enter_context(
                    socket.create_connection(("127.0.0.1", here.port), source_address=source)
                )
            await agent_comes_in(here)


class Wire:
    """A network between an agent and the controller that goes dead: connections stay, and nothing passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.dead = False
        self.closed = asyncio.Event()
        """Set when the controller has closed its connection."""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            outward = asyncio.create_task(self._pass_on(reader, back))
            await self._pass_on(there, writer)
            self.closed.set()
            await outward
        finally:
            back.close()
            writer.close()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            if not self.dead:
                target.write(data)


@pytest.mark.slow
async def test_both_sides_notice_that_the_network_went_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(service, "SILENCE_S", 1.0)
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        wire = Wire(here.port)
        carrier = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
        here.port = carrier.sockets[0].getsockname()[1]
        agent, running = here.agent("a0")
        await until(lambda: len(controller.books.members) == 2, "joined")
        wire.dead = True
        await until(lambda: not agent.connected, "the agent noticed")
        await until(lambda: controller.books.agents_lost == 1, "the controller noticed")
        await asyncio.wait_for(wire.closed.wait(), DEADLINE_S)
        await running.kill()
        carrier.close()


async def test_an_agent_gives_up_on_a_controller_that_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CONNECT_S", 0.1)
    came: list[asyncio.Task[None] | None] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(asyncio.current_task())
        await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with cluster(tmp_path, deployment(agents=1)) as here:
        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        here.port = silent.sockets[0].getsockname()[1]
        _, running = here.agent("a0")
        await until(lambda: len(came) >= 3, "it tries again")
        await running.kill()
        silent.close()
        await asyncio.gather(*(task for task in came if task is not None))
