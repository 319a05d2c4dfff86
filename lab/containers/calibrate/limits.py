"""Measures the time and the effect of setting limits: quota and memory writes, OOM grants, throttling
overrun, burst.

For: single cgroups that are driven by hand. Not for: the control loop (loop.py). The commands run in this
interpreter, so nothing needs to be installed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.ask.calibration import Value, distribution
from testbed.containers.cgroup.drivers import Driver, Group
from testbed.containers.host.identity import own
from testbed.containers.ownership import new_run

QUOTAS_MS = (5, 10, 20, 50, 100, 150)
_PERIOD_MS = 100.0
_WARM_S = 0.3
_GRANT_BYTES = 1 << 20
_LEAST_BYTES = 24 << 20
_DEADLINE_S = 20.0
_BURN = """
import hashlib, sys, threading
chunk = bytes(1 << 16)
def burn():
    while True:
        hashlib.sha256(chunk)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=burn, daemon=True).start()
burn()
"""
_GROW = """
import mmap, sys
size = int(sys.argv[1])
held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(0, size, mmap.PAGESIZE):
    held[page] = 1
"""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured. writes: number of quota writes; grants: number of grants after OOM events;
    burn_s: time of burning CPU under each quota, s; quotas_ms: those quotas, ms per period."""

    writes: int
    grants: int
    burn_s: float
    quotas_ms: tuple[int, ...] = QUOTAS_MS


def quota_writes(driver: Driver, extent: Extent) -> Value:
    """Return the time of a quota write, alternating between two values, on a group with a busy thread,
    seconds."""
    with _group(driver, "quota") as group, _running(group, _BURN, "1"):
        taken = []
        for number in range(extent.writes):
            began = time.perf_counter()
            group.set_cpu_quota(0.2 if number % 2 else 0.3)
            taken.append(time.perf_counter() - began)
            time.sleep(0.0005)
    return distribution(taken, "s", "measured: writes of a quota on a descriptor kept open")


def memory_writes(driver: Driver, extent: Extent) -> Value:
    """Return the time of lowering a memory limit that stays above the usage, as a reclaim does, seconds."""
    with _group(driver, "reclaim") as group, _running(group, _BURN, "1"):
        group.set_cpu_quota(0.1)
        taken = []
        for number in range(extent.grants):
            began = time.perf_counter()
            group.charged_bytes()
            group.set_memory_limit((200 + number % 2) << 20)
            taken.append(time.perf_counter() - began)
    return distribution(taken, "s", "measured: usage read and memory limit written, one container")


@dataclass(frozen=True, slots=True)
class Grants:
    """The result of `oom_grants`. grants: time from the kernel's event that a task is held to the raised
    limit being in force, s; kills: number of tasks that the OOM killer ended although they should have
    been held."""

    grants: Value
    kills: int


def oom_grants(driver: Driver, extent: Extent) -> Grants:
    """Run a process that takes memory page by page and is held and granted 1 MiB again and again."""
    size = _LEAST_BYTES + extent.grants * _GRANT_BYTES
    kills = 0
    taken: list[float] = []
    with _group(driver, "oom") as group:
        limit_bytes = group.set_memory_limit(_LEAST_BYTES)
        trap = group.trap()
        poll = select.epoll()
        poll.register(trap.descriptor, select.EPOLLIN)
        try:
            with _running(group, _GROW, str(size)) as process:
                deadline = time.monotonic() + _DEADLINE_S
                while process.poll() is None and time.monotonic() < deadline:
                    if not poll.poll(0.05):
                        continue
                    began = time.perf_counter()
                    if trap.held():
                        limit_bytes = group.set_memory_limit(limit_bytes + _GRANT_BYTES)
                        taken.append(time.perf_counter() - began)
                kills = int(process.poll() == -signal.SIGKILL)
        finally:
            poll.close()
            trap.close()
    return Grants(distribution(taken, "s", "measured: OOM trap's event read to raised limit written"), kills)


def throttling(driver: Driver, extent: Extent, threads: int) -> dict[str, Value]:
    """Return, per quota, the CPU used per period (ms), which shows the overrun, and the share of throttled
    periods."""
    values: dict[str, Value] = {}
    for quota_ms in extent.quotas_ms:
        with _group(driver, f"burn{quota_ms}") as group:
            group.set_cpu_quota(quota_ms / _PERIOD_MS)
            with _running(group, _BURN, str(threads)):
                time.sleep(_WARM_S)
                before = group.read()
                time.sleep(extent.burn_s)
                after = group.read()
        periods = max(after.nr_periods - before.nr_periods, 1)
        used_ms = (after.cpu_ns - before.cpu_ns) / 1e6 / periods
        throttled = (after.nr_throttled - before.nr_throttled) / periods
        name = f"{quota_ms}ms_{threads}t"
        text = f"measured: {threads} busy thread{'s' if threads > 1 else ''} at a quota of {quota_ms} ms"
        values[f"used_{name}"] = Value(used_ms, "ms", text, periods)
        values[f"throttled_{name}"] = Value(throttled, "1", text, periods)
    return values


def burst(driver: Driver) -> Value:
    """Return the burst credit of new groups as the kernel reports it; 0 if the kernel has none."""
    with _group(driver, "burst") as group:
        for directory in group.directories:
            for name in ("cpu.cfs_burst_us", "cpu.max.burst"):
                file = directory / name
                if file.exists():
                    return Value(int(file.read_text()) * 1e-6, "s", f"measured: {name} of a new group")
    return Value(0.0, "s", "measured: this kernel has no burst")


@contextmanager
def _group(driver: Driver, name: str) -> Iterator[Group]:
    run = new_run()
    group = driver.create(run, name)
    try:
        yield group
    finally:
        group.remove()
        driver.finish(run)


@contextmanager
def _running(group: Group, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program inside the group without capabilities, and end and await it when the block ends."""
    command = (sys.executable, "-S", "-c", program, *arguments)
    runs_as = own(os.environ)

    def enter() -> None:
        group.enter()
        runs_as.become()

    process = subprocess.Popen(command, preexec_fn=enter, env=dict(runs_as.environment))
    try:
        yield process
    finally:
        process.kill()
        process.wait()
