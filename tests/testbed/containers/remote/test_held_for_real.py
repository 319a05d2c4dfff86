"""A real command that needs more memory than its limit, through agent and controller; needs root."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from control.allocator.model import Application
from testbed.containers.cgroup.drivers import detect
from testbed.containers.cgroup.polling import Polling
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.origin import Watcher
from testbed.containers.remote.place import CgroupPlace, sweep
from tests.testbed.containers.remote.cluster import cluster, until

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("cgroups")]
MIB = 1 << 20
EATER = f"""\
import mmap, os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
taken = []
for _ in range(12):
    taken.append(mmap.mmap(-1, {16 * MIB}))
    for page in range(0, {16 * MIB}, 4096):
        taken[-1][page] = 1
open(sys.argv[1], "w").write("done")
time.sleep(1000)
"""


@pytest.mark.slow
async def test_a_command_grows_through_its_limit_and_is_never_killed(tmp_path: Path) -> None:
    name = f"memory-{os.getpid()}"
    eater = (sys.executable, "-c", EATER, str(tmp_path / "mark"), str(tmp_path / "go"))
    placed = (Placed("eater", name, 0, eater), Placed("calm", name, 0, ("sleep", "1000")))
    deployed = Deployment((Application("shop", 1.0, 512 * MIB),), placed)
    async with AsyncExitStack() as undo:
        undo.callback(sweep, detect(), tmp_path / "agents")
        here = await undo.enter_async_context(cluster(tmp_path / "pki", deployed))
        controller, running = await here.controller()
        place, stop = CgroupPlace(name, detect(), tmp_path / "agents"), asyncio.Event()
        hosting = Hosting(place, None)
        address = f"127.0.0.1:{here.port}"
        agent = Agent(address, here.identity(name), hosting, lambda: Polling(0.1), Watcher(place.root))
        task = asyncio.create_task(agent.run(stop))
        undo.push_async_callback(asyncio.wait_for, task, None)
        undo.callback(stop.set)
        await until(lambda: controller.books.reports > 0, "it runs")
        hosting.containers["eater"].write_memory(64 * MIB)
        (tmp_path / "go").touch()
        pids = hosting.containers["eater"].group.pids()
        await running.kill()
        await until(lambda: hosting.executor.look(hosting.containers["eater"]), "held")
        await asyncio.sleep(1.5)  # nobody answers in this time, and nobody may be killed
        assert hosting.containers["eater"].group.pids() == pids

        controller, _ = await here.controller()
        await until((tmp_path / "mark").exists, "it has all that it wanted")
        assert hosting.containers["eater"].group.pids() == pids
        assert controller.books.kills == 0
