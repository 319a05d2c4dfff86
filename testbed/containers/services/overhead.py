"""What the service program costs by itself: CPU of a visit and of a call without any demand.

For: calibration, and `python -m testbed.containers.services.overhead`, which prints one JSON line. Not for:
the demands that a graph declares, which come on top. It is measured on processes as they are deployed, by the
scheduler's own account (/proc/PID/task/*/schedstat), with as many requests in flight as asked for: the busier
a process is, the more it does at each wake-up and the less a visit costs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import uvloop

from control.services import Call, Handler, Service, ServiceApp
from testbed.containers.services.deploy import Deployment, deploy
from testbed.containers.services.http1 import Peer, request
from twinbed import BackendError

CALLS = 8
"""Number of calls of the visits from which a call's cost is derived."""

_START_S = 60.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Overhead:
    """CPU seconds, medians over rounds. visit_s: a visit that makes no calls, in one part; call_s: a call of
    a stage of its own, in its caller, with the part of the visit that follows; parallel_call_s: a call of a
    stage of CALLS, in its caller; wait_s: wall time of the visit that makes no calls, seen by its client."""

    visit_s: float
    call_s: float
    parallel_call_s: float
    wait_s: float


def measure(requests: int = 500, rounds: int = 5, concurrency: int = 1) -> Overhead:
    """Run two containers for a few seconds and return their costs. Raises BackendError when they do not
    start. requests: per round and kind of visit; concurrency: requests in flight."""
    single = (Call("leaf.visit"),)
    caller = {
        "sequence": Handler(0.0, stages=(single,) * CALLS),
        "fan": Handler(0.0, stages=(single * CALLS,)),
    }
    app = ServiceApp(
        "overhead",
        {"caller": Service(caller), "leaf": Service({"visit": Handler(0.0)})},
        {"sequence": "caller.sequence", "fan": "caller.fan", "visit": "leaf.visit"},
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        deploy(app, Path(folder)) as deployment,
        _started(deployment) as pids,
    ):
        sequence, fan, leaf = (urls[0] for urls in deployment.entries)
        seen = [
            (
                _cost(sequence, pids["caller"], requests, concurrency)[0],
                _cost(fan, pids["caller"], requests, concurrency)[0],
                *_cost(leaf, pids["leaf"], requests, concurrency),
            )
            for _ in range(rounds + 1)
        ][1:]  # the first opens the connections
    sequence_s, fan_s, visit_s, wait_s = (median(column) for column in zip(*seen, strict=True))
    return Overhead(visit_s, (sequence_s - visit_s) / CALLS, (fan_s - visit_s) / CALLS, wait_s)


@contextmanager
def _started(deployment: Deployment) -> Iterator[dict[str, int]]:
    """Yield the process ids of the containers, once all answer."""
    processes = {
        container.spec.name: subprocess.Popen(container.spec.command) for container in deployment.containers
    }
    try:
        deadline = time.monotonic() + _START_S
        while not all(container.ready() for container in deployment.containers):
            if time.monotonic() > deadline or any(
                process.poll() is not None for process in processes.values()
            ):
                raise BackendError("the service program does not start; see its messages")
            time.sleep(_POLL_S)
        yield {name: process.pid for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _cost(url: str, pid: int, requests: int, concurrency: int) -> tuple[float, float]:
    """Return (CPU seconds that process `pid` used, wall seconds) per request to the URL."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80

    async def ask() -> float:
        peer, message, left = Peer(host, port), request(host, parts.path), iter(range(requests))

        async def client() -> float:
            waited_s = 0.0
            for _ in left:
                began_s = time.perf_counter()
                await peer.ask(message)
                waited_s += time.perf_counter() - began_s
            return waited_s

        waited_s = sum(await asyncio.gather(*(client() for _ in range(concurrency))))
        peer.close()
        await asyncio.sleep(0)  # the loop closes connections in its next turn
        return waited_s

    before_s = _cpu_s(pid)
    waited_s = uvloop.run(ask())
    return (_cpu_s(pid) - before_s) / requests, waited_s / requests


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) * 1e-9


if __name__ == "__main__":
    print(json.dumps(asdict(measure())))
