"""One measurement, inside a network namespace of its own: `python -m studies.wire.inside CONTAINERS SECONDS`.

For: measure.py, which starts it; it prints one JSON line. Not for: use by hand. The controller is a separate
process, so that its CPU is counted apart from that of the agents, which are three hosts in this process.
Bytes are those that the namespace's loopback device has sent: gRPC with TLS and datagrams, with IP and
Ethernet headers.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from studies.wire.hosts import USES_CORES, PretendedPlace, PretendedTelemetry
from testbed.containers.remote import certificates
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.origin import Watcher
from twinbed import BackendError

HOSTS = 3
_GAMMA = 0.02
_DEVICES = Path("/proc/self/net/dev")
"""Counters of this namespace's devices; those below /sys are of the namespace in which it was mounted."""

_START_S = 30.0
_SETTLE_S = 3.0


def deployment(containers: int) -> Deployment:
    """Return one application of `containers` containers, placed on the hosts in turn."""
    placed = tuple(
        Placed(f"c{index}", f"host{index % HOSTS}", 0, attach={"": f"c{index}"})
        for index in range(containers)
    )
    return Deployment((Application("app", max(USES_CORES) * containers, containers << 30),), placed)


async def _control(pki: Path, containers: int) -> None:
    """Act as the controller, and print its port once it listens."""
    controller = Controller(
        deployment(containers),
        make("escra", {"gamma": _GAMMA}),
        lambda: certificates.controller_identity(pki),
    )
    await controller.run("127.0.0.1:0", asyncio.Event(), lambda port: print(port, flush=True))


async def _measure(folder: Path, containers: int, seconds: int) -> dict[str, Any]:
    pki = folder / "pki"
    certificates.init(pki)
    command = (sys.executable, "-m", "studies.wire.inside", "--controller", str(pki), str(containers))
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert controller.stdout is not None
    stop, places = asyncio.Event(), []
    agents: list[asyncio.Task[None]] = []
    try:
        port = int(await asyncio.to_thread(controller.stdout.readline) or 0)
        for host in range(HOSTS):
            (folder / f"host{host}").mkdir()
            places.append(PretendedPlace(folder / f"host{host}"))
            agent = Agent(
                f"127.0.0.1:{port}",
                certificates.enroll(pki, f"host{host}"),
                Hosting(cast(Any, places[-1]), None),
                PretendedTelemetry,
                Watcher(Path("/nonexistent")),
                host_cores=64.0,
            )
            agents.append(asyncio.create_task(agent.run(stop)))
        await _limited(places, agents, containers)
        await asyncio.sleep(_SETTLE_S)
        return await _counted(controller.pid, seconds)
    finally:
        stop.set()
        await asyncio.gather(*agents, return_exceptions=True)
        controller.kill()
        controller.wait()


async def _limited(places: list[PretendedPlace], agents: list[asyncio.Task[None]], containers: int) -> None:
    """Wait until every container has a limit. Raises BackendError when an agent or the time ends."""
    deadline_s = time.monotonic() + _START_S
    while (
        sum(np.isfinite(group.quota_cores) for place in places for group in place.groups.values())
        < containers
    ):
        for agent in agents:
            if agent.done():
                agent.result()
        if time.monotonic() > deadline_s:
            raise BackendError(f"{containers} pretended containers have no limits after {_START_S:g} s")
        await asyncio.sleep(0.05)


async def _counted(controller: int, seconds: int) -> dict[str, Any]:
    """Return bytes in each second, and the CPU of both processes, cores."""
    sent, began_s = [_sent()], time.monotonic()
    before = _cpu_s(controller), _cpu_s(os.getpid())
    for second in range(1, seconds + 1):
        await asyncio.sleep(max(began_s + second - time.monotonic(), 0.0))
        sent.append(_sent())
    wall_s = time.monotonic() - began_s
    after = _cpu_s(controller), _cpu_s(os.getpid())
    controller_cores, agent_cores = ((b - a) / wall_s for a, b in zip(before, after, strict=True))
    return {
        "bytes_s": (sent[-1] - sent[0]) / wall_s,
        "most_bytes_s": float(np.diff(sent).max()),
        "controller_cores": controller_cores,
        "agent_cores": agent_cores,
    }


def _sent() -> int:
    """Return the bytes that the loopback device has sent (proc(5), net/dev)."""
    (line,) = [line for line in _DEVICES.read_text().splitlines() if line.strip().startswith("lo:")]
    return int(line.partition(":")[2].split()[8])


def _cpu_s(process: int) -> float:
    """Return the CPU seconds of a process's threads so far (proc(5), schedstat)."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) * 1e-9


def main() -> None:
    """Run the measurement, or the controller's process if the arguments say so."""
    if sys.argv[1] == "--controller":
        asyncio.run(_control(Path(sys.argv[2]), int(sys.argv[3])))
        return
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_measure(Path(folder), int(sys.argv[1]), int(sys.argv[2])))))


if __name__ == "__main__":
    main()
