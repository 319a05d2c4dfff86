"""Facts about this machine for a recording, and the use of its CPUs.

For: metadata, a core's speed, and CPU use of other processes. Not for: data that names the host, its user or
its folders. Source: proc(5).
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from hashlib import pbkdf2_hmac
from pathlib import Path
from statistics import median
from typing import NamedTuple

_ITERATIONS = 5_000
"""Iterations of one call, 1 to 3 ms: long against the clock's resolution."""


def facts() -> dict[str, str]:
    """Return cpu_model, cpus (logical CPUs online), machine_memory_bytes and kernel (name and release)."""
    system = os.uname()
    return {
        "cpu_model": _value(Path("/proc/cpuinfo"), "model name") or system.machine,
        "cpus": str(os.cpu_count()),
        "machine_memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "kernel": f"{system.sysname} {system.release}",
    }


class CpuTimes(NamedTuple):
    """CPU seconds since the machine started, summed over its CPUs. stolen_s: time that the hypervisor took.
    Source: proc(5)."""

    user_s: float
    nice_s: float
    system_s: float
    idle_s: float
    iowait_s: float
    irq_s: float
    softirq_s: float
    stolen_s: float

    @property
    def used_s(self) -> float:
        """Time that was neither idle nor stolen, s."""
        return self.user_s + self.nice_s + self.system_s + self.irq_s + self.softirq_s


def cpu_times() -> CpuTimes:
    """Return the times of all CPUs, from /proc/stat."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = file.readline().split()[1 : 1 + len(CpuTimes._fields)]
    per_s = os.sysconf("SC_CLK_TCK")
    return CpuTimes(*(int(tick) / per_s for tick in ticks))


def switches_of(*words: str) -> tuple[int, int]:
    """Return (changes of the CPU, voluntary switches) of the first threads of all processes whose command
    lines contain these words; zeros if this kernel does not count them. Source: /proc/PID/sched."""
    moved = switched = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
            if all(word in command for word in words):
                text = (folder / "sched").read_text(encoding="ascii", errors="replace")
                counts = dict(re.findall(r"^(\S+)\s*:\s*(\d+)$", text, re.MULTILINE))
                moved += int(counts.get("se.nr_migrations", 0))
                switched += int(counts.get("nr_voluntary_switches", 0))
    return moved, switched


def core_speed(about_s: float) -> float:
    """Return a core's speed: iterations of PBKDF2-SHA256 per CPU second of one thread. This is the work of
    the service program (services/burn.py). The speed is the median of short calls over about_s seconds,
    because other users of the core's caches and of its other thread slow single calls down."""
    end_s = time.monotonic() + about_s
    speeds: list[float] = []
    while not speeds or time.monotonic() < end_s:
        began_s = time.thread_time()
        pbkdf2_hmac("sha256", b"demand", b"", _ITERATIONS)
        speeds.append(_ITERATIONS / (time.thread_time() - began_s))
    return median(speeds)


def _value(path: Path, key: str) -> str | None:
    """Return the value of the first line `key : value` in a file; None if there is no such line."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None
