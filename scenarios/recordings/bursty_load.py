"""Open-loop load for bursty_service.py: a steady Poisson stream with a burst in every cycle.

For: requests that arrive when they arrive, however slow the answers are, and a report of how well the
schedule was kept. Not for: closed-loop clients. Latency counts from the scheduled arrival, so waiting for a
connection is part of it (no coordinated omission).
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import itertools
import os
import random
import time

BASE_RATE = 50.0
CYCLE_S = 20.0
BURST_S = 10.0
"""The second half of each cycle is a burst."""

ITEMS = 20_000
CONNECTIONS = 64


def arrivals(seconds: float, burst_rate: float, rng: random.Random) -> list[float]:
    """Arrival times in [0, seconds): exponential gaps at BASE_RATE, plus `burst_rate` during bursts."""
    times, at = [], 0.0
    while True:
        # Drawn at the highest rate and thinned: exact for a rate that changes over time.
        at += rng.expovariate(BASE_RATE + burst_rate)
        if at >= seconds:
            return times
        rate = BASE_RATE + (burst_rate if at % CYCLE_S >= CYCLE_S - BURST_S else 0.0)
        if rng.random() * (BASE_RATE + burst_rate) < rate:
            times.append(at)


def popularity(count: int, exponent: float = 0.8) -> list[float]:
    """Cumulative shares of items whose popularity falls with their rank (Zipf)."""
    total = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))
    return [value / total[-1] for value in total]


async def connect(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the frontend, which may still be starting."""
    for _ in range(600):
        try:
            return await asyncio.open_connection(host, 8080)
        except OSError:
            await asyncio.sleep(0.1)
    raise TimeoutError(f"no frontend at {host}:8080 within a minute")


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, item: int) -> None:
    """One GET, answered."""
    writer.write(b"GET /%d HTTP/1.1\r\nHost: frontend\r\n\r\n" % item)
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(size)


async def run(seconds: float, burst_rate: float) -> None:
    """Sends the load and prints the latency and the schedule's lateness."""
    rng = random.Random(0)
    times, shares = arrivals(seconds, burst_rate, rng), popularity(ITEMS)
    host = os.environ.get("TWINBED_ADDRESS_FRONTEND", "127.0.0.1")
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await connect(host))
    latencies: list[float] = []
    lateness: list[float] = []
    start = time.monotonic()

    async def one(due: float, item: int) -> None:
        connection = await free.get()
        await request(*connection, item)
        free.put_nowait(connection)
        latencies.append(time.monotonic() - start - due)

    async with asyncio.TaskGroup() as group:
        for due in times:
            if (left := start + due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            lateness.append(time.monotonic() - start - due)
            group.create_task(one(due, bisect.bisect(shares, rng.random())))
    print(f"{len(latencies)} requests in {time.monotonic() - start:.1f} s")
    print(f"latency {quantiles(latencies)}; sent late by {quantiles(lateness)}")


def quantiles(values: list[float]) -> str:
    """Median, 99th percentile and maximum, in ms."""
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {ordered[-1] * 1e3:.1f} ms"


def main() -> None:
    """Reads the options and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=235)
    parser.add_argument("--burst-rate", type=float, default=600, help="requests/s on top, during bursts")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.seconds, arguments.burst_rate))


if __name__ == "__main__":
    main()
