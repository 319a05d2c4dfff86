"""A call that is over reads and writes nothing more, however close to its end a message came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from testbed.containers.remote import controller as controllers
from testbed.containers.remote.messages_pb2 import Order, Report
from tests.testbed.containers.remote.cluster import Cluster, cluster, deployment

PASSES = 6
"""Passes of the loop between a message and the end of its call; a message is dealt with in fewer."""

END_S = 10.0


class Call:
    """One side of a call. It reads messages that a test puts in, and keeps messages that are written."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self) -> Any:
        return await self.messages.get()

    async def write(self, message: Any) -> None:
        del message


Part = tuple[Coroutine[Any, Any, Any], Callable[[], None]]
"""What one side does while its call lasts, and what brings it a message."""


async def of_controller(here: Cluster) -> tuple[controllers.Controller, controllers._Connection]:
    controller, running = await here.controller()
    await running.end()
    hello = controllers.Hello(name="a0", instance=1, host_cores=4.0)
    controller.books.register(hello, 1, 0.0)
    return controller, controllers._Connection("a0", 1, 1)


async def controller_reads(here: Cluster, call: Call) -> Part:
    controller, connection = await of_controller(here)
    return controller._listen(connection, call), lambda: call.messages.put_nowait(Report(session=1))


async def controller_writes(here: Cluster, call: Call) -> Part:
    controller, connection = await of_controller(here)
    return controller._speak(connection, call), connection.wake.set


async def agent_reads(here: Cluster, call: Call) -> Part:
    agent, running = here.agent("a0")
    await running.end()
    return agent._listen(call), lambda: call.messages.put_nowait(Order())


async def agent_writes(here: Cluster, call: Call) -> Part:
    agent, running = here.agent("a0")
    await running.end()
    return agent._speak(call, 1), lambda: agent._reports.put_nowait(Report())


@pytest.mark.parametrize("part", [controller_reads, controller_writes, agent_reads, agent_writes])
async def test_no_message_keeps_a_call_alive_that_is_over(part: Any, tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        for passes in range(PASSES):
            work, say = await part(here, Call())
            task = asyncio.create_task(work)
            for _ in range(PASSES):
                await asyncio.sleep(0)
            say()
            for _ in range(passes):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=END_S)
            assert task.cancelled(), f"it goes on {passes} passes after a message"
