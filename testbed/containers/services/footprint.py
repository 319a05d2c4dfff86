"""The memory of a container as real pages: its base, the memory that visits hold, and caches that grow.

For: pages that are really touched, so that the container's cgroup is charged for them, and an OOM trap holds
the process that touches a page above the limit. Not for: limits. Memory that a visit gave back is kept for
later visits for TRIM_S (touching fresh pages costs 0.6 µs per KiB in a virtual machine), and then returned to
the kernel, as allocators do. So the charge follows the largest number of visits of the last TRIM_S.
"""

from __future__ import annotations

import asyncio
import mmap
import re
from pathlib import Path

from control.services import Memory

TRIM_S = 1.0
"""Time for which memory that no visit needs is kept, s. It is much longer than the gaps between requests, and
much shorter than the time between changes of memory limits."""

_MAP_NORESERVE = 0x4000  # not in Python's mmap; <asm-generic/mman.h>
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


class Footprint:
    """A container's memory. Make it last, when the process has its final size, in the process's event
    loop."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._base = _touched(memory.base_bytes - _anonymous_bytes())
        self._cache = mmap.mmap(-1, memory.cache_bytes, flags=_PRIVATE) if memory.cache_bytes else None
        self._cached_bytes = 0
        self._kept: list[mmap.mmap | None] = []
        self._held = self._most_held = 0
        self._trim_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def hold(self) -> mmap.mmap | None:
        """Return the memory that a visit holds from now on; None if that is 0."""
        self._held += 1
        self._most_held = max(self._most_held, self._held)
        return self._kept.pop() if self._kept else _touched(self._memory.request_bytes)

    def give_back(self, held: mmap.mmap | None) -> None:
        """End a visit: its memory is free, and the cache grows."""
        self._held -= 1
        if held is not None:
            self._kept.append(held)
            if self._timer is None or asyncio.get_running_loop().time() >= self._trim_s:
                self._trim()
        self._grow()

    def _grow(self) -> None:
        if self._cache is None or self._cached_bytes >= self._memory.cache_bytes:
            return
        before = self._cached_bytes
        self._cached_bytes = min(before + self._memory.cache_request_bytes, self._memory.cache_bytes)
        first = -(-before // mmap.PAGESIZE) * mmap.PAGESIZE
        for page in range(first, self._cached_bytes, mmap.PAGESIZE):
            self._cache[page] = 1

    def _trim(self) -> None:
        """Return what no visit needed since the last trim. Visits do this, and the timer only once they have
        stopped: a container that a timer wakes every second uses CPU that no visit explains."""
        self._return(self._held + len(self._kept) - self._most_held)
        self._most_held = self._held
        loop = asyncio.get_running_loop()
        self._trim_s = loop.time() + TRIM_S
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._trim_s + TRIM_S, self._end)

    def _end(self) -> None:
        self._timer = None
        self._return(len(self._kept))

    def _return(self, count: int) -> None:
        for _ in range(min(count, len(self._kept))):
            held = self._kept.pop()
            if held is not None:
                held.close()


def _touched(size_bytes: int) -> mmap.mmap | None:
    """Return memory whose pages are present; None for size 0. It is touched page by page: if the kernel
    populated it, it would not be held at a limit, but fail silently."""
    if size_bytes <= 0:
        return None
    memory = mmap.mmap(-1, size_bytes, flags=_PRIVATE)
    pages = -(-size_bytes // mmap.PAGESIZE)
    memory[:: mmap.PAGESIZE] = b"\x01" * pages
    return memory


def _anonymous_bytes() -> int:
    """Return this process's own memory. Pages of files are shared, and mostly charged to others."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
