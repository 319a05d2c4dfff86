"""Connections that say nothing: how many may wait for how long, and who comes in all the same."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from tests.testbed.containers.remote.cluster import Cluster, cluster, deployment, until

FILES = 256


async def agent_comes_in(here: Cluster) -> None:
    agent, running = here.agent("a0")
    await until(lambda: agent.connected, "registered")
    await running.end()


def test_silent_connections_do_not_keep_an_agent_out(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, deployment(agents=1)) as here:
            command = [sys.executable, "-m", "tests.testbed.containers.remote.limited_controller"]
            with subprocess.Popen(
                [*command, str(tmp_path), str(FILES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                assert process.stdout is not None
                here.port = int(await asyncio.to_thread(process.stdout.readline))
                await agent_comes_in(here)
                silent = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(FILES + 50)]
                await agent_comes_in(here)
                for connection in silent:
                    connection.close()

    asyncio.run(scene())
