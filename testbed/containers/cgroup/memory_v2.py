"""The memory limit of a v2 group, with or without room for a trap. Our own writes never cause a kill.

For: `memory.max`, `memory.high`, `memory.swap.max` and `memory.reclaim` of one group. Not for: deciding
changes (control), nor events of tasks at the limit (oom_trap.py). Source:
Documentation/admin-guide/cgroup-v2.rst of the kernel: a write of memory.max below the charge reclaims, and
then *kills* until the group fits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from testbed.containers.cgroup.files import ControlFile, field
from testbed.containers.cgroup.group import NO_LIMIT_BYTES, whole_pages

HEADROOM_BYTES = 16 << 20
"""Bytes from the limit, where the trap acts, to the line where the kernel kills. With 2 MiB a held task was
killed after 2 s; with 10 MiB it was held for longer than 25 s (kernel 6.1)."""

Open = Callable[[Path, int], ControlFile]
OpenWhereCounted = Callable[[Path, int], ControlFile | None]


class MemoryV2:
    """One group's memory limits, which its trap (oom_trap.TrapV2) moves. directory: directory of the group.
    open_, open_where_counted: functions that open files, which the group closes."""

    def __init__(self, directory: Path, open_: Open, open_where_counted: OpenWhereCounted) -> None:
        self._charge = open_(directory / "memory.current", os.O_RDONLY)
        self._max = open_(directory / "memory.max", os.O_RDWR)
        self._high = open_(directory / "memory.high", os.O_RDWR)
        self._swap = open_where_counted(directory / "memory.swap.max", os.O_RDWR)
        self._reclaim = open_where_counted(directory / "memory.reclaim", os.O_WRONLY)
        self._events = open_(directory / "memory.events", os.O_RDONLY)
        self._armed = False
        self._kills_before: int | None = None
        self.read_limit()

    def read_limit(self) -> None:
        """Take the limit in the kernel's file for the one in force."""
        limit = (self._high if self._armed else self._max).read().strip()
        self.limit_bytes = NO_LIMIT_BYTES if limit == b"max" else int(limit)

    def charged_bytes(self) -> int:
        """Return the memory that counts against the limit now, page cache included, bytes."""
        return int(self._charge.read())

    def set_limit(self, limit_bytes: int) -> int:
        """Set the limit. Return the limit in force, never below the memory held after reclaiming."""
        wanted = whole_pages(limit_bytes)
        raising = wanted >= self.limit_bytes
        if not raising:
            wanted = min(self.limit_bytes, max(wanted, self._reclaim_to(wanted)))
        if self._swap is not None:
            self._swap.write("0")
            # One write is enough. A write at every grant would cost time.
            self._swap = None
        if not self._armed:
            self._max.write(_text(wanted))
        else:
            self._kills_before = None
            lines = [(self._max, _above(wanted)), (self._high, wanted)]
            for file, value in lines if raising else reversed(lines):
                file.write(_text(value))
        self.limit_bytes = wanted
        return wanted

    def arm(self) -> None:
        """Slow tasks down at the limit, and leave room above it before the kernel kills one."""
        self._max.write(_text(_above(self.limit_bytes)))
        self._high.write(_text(self.limit_bytes))
        self._armed = True

    def disarm(self) -> None:
        """Let the kernel kill at the limit again. A group above its limit keeps its memory, but gets no
        more."""
        self._armed, self._kills_before = False, None
        self.limit_bytes = max(self.limit_bytes, self._reclaim_to(self.limit_bytes))
        self._max.write(_text(self.limit_bytes))
        self._high.write("max")

    def exceeded(self) -> bool:
        """Return whether more than the limit is charged now. If `enforce` has led to a kill, it ends."""
        if self._kills_before is not None and self._kills() > self._kills_before:
            self._kills_before = None
            self._max.write(_text(_above(self.limit_bytes)))
        return self.charged_bytes() > self.limit_bytes

    def enforce(self) -> None:
        """Let the kernel kill at the limit, until it has killed or the limit is set again. The write may
        still find room in charges that a CPU caches. Then the kernel kills at the next page."""
        self._kills_before = self._kills()
        self._max.write(_text(self.limit_bytes))

    def _kills(self) -> int:
        return field(self._events.read(), b"oom_kill")

    def _reclaim_to(self, limit_bytes: int) -> int:
        """Reclaim memory above the limit as far as possible (since kernel 5.19). Returns the charged memory
        after that, bytes."""
        excess = self.charged_bytes() - limit_bytes
        if excess > 0 and self._reclaim is not None:
            self._reclaim.try_write(str(excess))
        return self.charged_bytes()


def _above(limit_bytes: int) -> int:
    return NO_LIMIT_BYTES if limit_bytes == NO_LIMIT_BYTES else limit_bytes + HEADROOM_BYTES


def _text(limit_bytes: int) -> str:
    return "max" if limit_bytes == NO_LIMIT_BYTES else str(limit_bytes)
