"""The load generator's process: `python -m testbed.containers.load.main PLAN.npz`.

For: generator.py, which starts it. Not for: a terminal. It prints `ready` when it could begin, and reads from
its input when to begin (CLOCK_MONOTONIC, ns). It writes PLAN.progress.json every second, and PLAN.level.npz
at the end of each interval of the plan. It writes PLAN.result.npz when all requests have ended, when the
plan's time is over, or on SIGTERM. If permitted, it runs at a raised priority, because it shares the machine
with the measured containers, and its own delays would count against them.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from testbed.containers.load.plan import LoadPlan, read_plan, write_level, write_result
from testbed.containers.load.sender import Sender
from testbed.containers.services.http1 import allow_many_connections
from testbed.containers.services.tracing import PORT
from twinbed import BackendError, TwinbedError
from twinbed.writing import whole

PRIORITY = -10
"""Nice value of the process, where the kernel allows it."""

_PROGRESS_EVERY_S = 1.0
_PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def progress_path(plan: Path) -> Path:
    """Return the path of the file with the progress of that plan's generator."""
    return plan.with_suffix(".progress.json")


def level_path(plan: Path) -> Path:
    """Return the path of the file with the service level of the last interval of that plan's generator."""
    return plan.with_suffix(".level.npz")


def result_path(plan: Path) -> Path:
    """Return the path of the file with the result of that plan's generator."""
    return plan.with_suffix(".result.npz")


async def generate(plan: LoadPlan, begins_ns: int, path: Path) -> None:
    """Send the plan and write the result."""
    sender = Sender(plan, begins_ns)
    loop = asyncio.get_running_loop()
    telling = [asyncio.create_task(_tell(sender, progress_path(path)))]
    if plan.service_interval_s:
        telling.append(asyncio.create_task(_tell_level(sender, plan, begins_ns, level_path(path))))
    if plan.spans_wanted:
        host = urlsplit(plan.entries[0][0]).hostname or ""
        await loop.create_datagram_endpoint(lambda: sender.tracing, (host, PORT))
    loop.add_signal_handler(signal.SIGTERM, sender.stop)
    # The input carries no more data. It becomes readable when the process that started this one has ended.
    loop.add_reader(sys.stdin.fileno(), sender.stop)
    complete = await sender.send()
    for task in telling:
        task.cancel()
    loop.remove_reader(sys.stdin.fileno())
    write_result(sender.result(complete=complete), result_path(path))


async def _tell(sender: Sender, path: Path) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_EVERY_S)
        values = sender.latencies.get_percentile_to_value_dict(_PERCENTILES)
        latencies = {f"p{key:g}": value * 1e-6 for key, value in values.items()}
        told = {"arrived": sender.arrived, "ended": sender.ended, "latency_s": latencies}
        # A full disk must not stop the load.
        with suppress(OSError), whole(path) as file:
            file.write(json.dumps(told).encode())


async def _tell_level(sender: Sender, plan: LoadPlan, begins_ns: int, path: Path) -> None:
    """Write the service level at the end of each interval."""
    for number in itertools.count(1):
        ends_ns = begins_ns + round(number * plan.service_interval_s * 1e9)
        await asyncio.sleep((ends_ns - time.monotonic_ns()) * 1e-9)
        with suppress(BackendError):
            write_level(sender.level(), path)


def main() -> None:
    """Exit with 0 and a result written, or with 2 and one line about the error."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m testbed.containers.load.main PLAN.npz")
    path = Path(sys.argv[1])
    try:
        plan = read_plan(path)
        allow_many_connections()
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        begins = sys.stdin.readline()
        if begins:
            uvloop.run(generate(plan, int(begins), path))
    except TwinbedError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
