"""A load that follows an array: CPU work and memory per period, like the twin's fluid containers.

For: giving real containers the demand of the twin's containers (twin.containers.model.Workload). Not for:
requests. Run as `python -m testbed.containers.load.stress SCRIPT.json`. It imports the standard library only,
so that a hundred of them start quickly.

The script has the keys "period_s", "demand_cores" and "memory_bytes" (a value per period), "threads", and
"begin", "ready" and "done" (a path or null). Work arrives evenly within a period, waits while it cannot be
done, and is done on up to `threads` CPUs at once. A period's memory is taken at its start, and held until its
end. With `begin`, the script waits for that file, which has the time at which period 0 begins
(CLOCK_MONOTONIC, ns), and its process stays after the end of the script. Without `begin`, it begins at once
and then ends. `done` stores the work done, for a process that is restarted in its place.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
import threading
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

NS = 1_000_000_000

_SECONDS = struct.Struct("d")
_CHUNK = bytes(1 << 18)
_PAUSE_S = 0.002
_WAIT_S = 0.02


class Demand:
    """The CPU demand of a script that began at `begin_ns`. The work done is all CPU time of this process, so
    the program's own cost is part of the demand. done: file that stores the work done; None: it is not
    stored."""

    def __init__(
        self, demand_cores: list[float], period_s: float, begin_ns: int, done: Path | None = None
    ) -> None:
        self._demand, self._period_s, self._begin_ns = demand_cores, period_s, begin_ns
        self._before = [0.0, *accumulate(cores * period_s for cores in demand_cores)]
        self._kept = None if done is None else _kept(done)
        self._base_s = 0.0 if self._kept is None else _SECONDS.unpack_from(self._kept)[0]
        if self._base_s == 0.0:
            # At the first start, the cost of starting is not part of the demand.
            self._base_s = -time.process_time()

    def period(self, now_ns: int) -> float:
        """Return the number of periods since the beginning, as a real number."""
        return (now_ns - self._begin_ns) / NS / self._period_s

    def over(self, now_ns: int) -> bool:
        """Return whether the script has ended."""
        return self.period(now_ns) >= len(self._demand)

    def arrived_s(self, now_ns: int) -> float:
        """Return the work that has arrived since the beginning, core-seconds."""
        at = min(max(self.period(now_ns), 0.0), float(len(self._demand)))
        whole = min(int(at), len(self._demand) - 1)
        return self._before[whole] + (at - whole) * self._demand[whole] * self._period_s

    def backlog_s(self) -> float:
        """Return the work that has arrived and is not done yet, core-seconds."""
        done_s = self._base_s + time.process_time()
        if self._kept is not None:
            _SECONDS.pack_into(self._kept, 0, done_s)
        return self.arrived_s(time.monotonic_ns()) - done_s


class Memory:
    """Memory of this process. `hold` sets how many bytes the process holds in all."""

    def __init__(self, most_bytes: int) -> None:
        self._base = own_bytes()
        self._touched = 0
        self._size = max(most_bytes, mmap.PAGESIZE) // mmap.PAGESIZE * mmap.PAGESIZE
        self._map = mmap.mmap(-1, self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_NOHUGEPAGE)

    def hold(self, wanted_bytes: int) -> None:
        """Take or release pages. It blocks for as long as the kernel holds this process at a limit."""
        wanted = min(max(wanted_bytes - self._base, 0), self._size) // mmap.PAGESIZE * mmap.PAGESIZE
        if wanted > self._touched:
            pages = (wanted - self._touched) // mmap.PAGESIZE
            self._map[self._touched : wanted : mmap.PAGESIZE] = b"\1" * pages
        elif wanted < self._touched:
            self._map.madvise(mmap.MADV_DONTNEED, wanted, self._touched - wanted)
        self._touched = wanted


def main(path: str) -> None:
    """Run the script of CPU and memory demand in the file `path`."""
    script: dict[str, Any] = json.loads(Path(path).read_text())
    memory = Memory(max(script["memory_bytes"], default=0))
    if script["ready"]:
        _say_ready(Path(script["ready"]))
    begin_ns = time.monotonic_ns() if script["begin"] is None else _await_begin(Path(script["begin"]))
    demand = Demand(script["demand_cores"], script["period_s"], begin_ns, _path(script["done"]))
    workers = [threading.Thread(target=_work, args=(demand,), daemon=True) for _ in range(script["threads"])]
    for worker in workers:
        worker.start()
    _follow(memory, script["memory_bytes"], demand, begin_ns, script["period_s"])
    if script["begin"] is not None:
        threading.Event().wait()


def _work(demand: Demand) -> None:
    """Burn CPU, with the interpreter unlocked, while there is work."""
    while not demand.over(time.monotonic_ns()):
        if demand.backlog_s() > 0.0:
            hashlib.sha256(_CHUNK)
        else:
            time.sleep(_PAUSE_S)


def _follow(memory: Memory, wanted: list[int], demand: Demand, begin_ns: int, period_s: float) -> None:
    """Hold the memory of each period, until the script is over."""
    while not demand.over(now_ns := time.monotonic_ns()):
        row = max(int(demand.period(now_ns)), 0)
        memory.hold(wanted[row])
        changes = next((later for later in range(row + 1, len(wanted)) if wanted[later] != wanted[row]), None)
        until_ns = begin_ns + round((len(wanted) if changes is None else changes) * period_s * NS)
        time.sleep(max(until_ns - time.monotonic_ns(), 0) / NS)


def _say_ready(path: Path) -> None:
    """Write this process's id to the file, which gets its name when it is complete."""
    whole = path.with_suffix(".new")
    whole.write_text(str(os.getpid()))
    whole.rename(path)


def _await_begin(path: Path) -> int:
    while True:
        try:
            return int(path.read_text())
        except (FileNotFoundError, ValueError):
            time.sleep(_WAIT_S)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _kept(path: Path) -> mmap.mmap:
    """Map a file with one number, which is 0 at first and outlives the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _SECONDS.size)
        return mmap.mmap(descriptor, _SECONDS.size)
    finally:
        os.close(descriptor)


def own_bytes() -> int:
    """Return the memory that is charged to this process alone, bytes."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


if __name__ == "__main__":
    main(sys.argv[1])
