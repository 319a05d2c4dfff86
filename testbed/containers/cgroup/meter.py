"""One container's counters as a poll reads them: three small files kept open, parsed by position.

For: what is read for every container in every period, for whichever version of cgroups the directories are
of. Not for: limits (drivers.py). Sources as in drivers.py; oom_kill counts in v1's memory.oom_control and
v2's memory.events.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from testbed.containers.ports import GroupGoneError

_SMALL_BYTES = 448
"""More than there is in any of these files; with Python's own head it fits what Python keeps for small
objects, which is quicker to have than what it must ask the C library for."""
_STAT_BYTES = 16_384


class Reading(NamedTuple):
    """Of a group, at one moment. Since it was made: CFS periods elapsed and throttled, throttled time and CPU
    time (ns); now: what counts against its memory limit, page cache included (bytes)."""

    nr_periods: int
    nr_throttled: int
    throttled_ns: int
    cpu_ns: int
    charged_bytes: int


class Meter:
    """Reads the group that has these directories (one per v1 hierarchy, one in v2).

    Every method raises GroupGoneError once the group was removed. What the kernel does not count is 0.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._name = str(directories[0])
        self._descriptors: list[int] = []
        self._stat = self._open(directories, "cpu.stat")
        self._v1 = any((each / "cpuacct.usage").exists() for each in directories)
        self._memory = self._open(directories, "memory.usage_in_bytes" if self._v1 else "memory.current")
        self._memory_stat = self._open(directories, "memory.stat")
        self._cache_key = b"\ntotal_inactive_file " if self._v1 else b"\ninactive_file "
        # Which line a field is in does not change for as long as the kernel runs.
        words = _pread(self._stat, self._name).split()
        self._periods, self._throttles = _after(words, b"nr_periods"), _after(words, b"nr_throttled")
        if self._v1:
            self._usage = self._open(directories, "cpuacct.usage")
            self._throttled = _after(words, b"throttled_time")
        else:
            self._used = _after(words, b"usage_usec")
            self._throttled = _after(words, b"throttled_usec")

    def nr_periods(self) -> int:
        """CFS periods elapsed, and nothing else: the cheapest way to see one end."""
        return int((*_pread(self._stat, self._name).split(), b"0")[self._periods])

    def read(self) -> Reading:
        """All of them now, the counters of CPU first."""
        # In one piece, without a function in between: this is done for each container in each period.
        try:
            words = os.pread(self._stat, _SMALL_BYTES, 0).split()
            words.append(b"0")
            if self._v1:
                cpu_ns = int(os.pread(self._usage, _SMALL_BYTES, 0))
                throttled_ns = int(words[self._throttled])
            else:
                cpu_ns = int(words[self._used]) * 1_000
                throttled_ns = int(words[self._throttled]) * 1_000
            return Reading(
                int(words[self._periods]),
                int(words[self._throttles]),
                throttled_ns,
                cpu_ns,
                int(os.pread(self._memory, _SMALL_BYTES, 0)),
            )
        except OSError as error:
            raise _removed(self._name, error) from error

    def charged_bytes(self) -> int:
        """What counts against the memory limit, page cache included."""
        return int(_pread(self._memory, self._name))

    def inactive_file_bytes(self) -> int:
        """Page cache that the kernel would drop first; this file costs ten times what the others do."""
        return _field(b"\n" + _pread(self._memory_stat, self._name, _STAT_BYTES), self._cache_key)

    def close(self) -> None:
        """Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _open(self, directories: Sequence[Path], name: str) -> int:
        try:
            descriptor = _open(directories, name)
        except GroupGoneError:
            self.close()
            raise
        self._descriptors.append(descriptor)
        return descriptor


class AnyOomKills:
    """Whether the kernel's OOM killer has ended anything on this machine: one file instead of everybody's."""

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._descriptor = os.open(vmstat, os.O_RDONLY | os.O_CLOEXEC)
        self._seen = self._before = -1

    def lately(self) -> bool:
        """Since the last but one time that this was asked: the machine's counter moves before the group's.
        Always where this kernel does not count it."""
        text = os.pread(self._descriptor, _STAT_BYTES, 0)
        before, self._before = self._before, self._seen
        self._seen = _field(text, b"\noom_kill ")
        return self._seen != before or b"\noom_kill " not in text

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OomKills:
    """How many processes the kernel's OOM killer has ended in a group. Raises as Meter does."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._name = str(directories[0])
        self._descriptor = _open(directories, "memory.oom_control", "memory.events")
        self._text = b""
        self._seen = 0
        self.grew()

    def grew(self) -> bool:
        """Whether there were more since this was last asked, or since it was made."""
        text = _pread(self._descriptor, self._name)
        # Compared before it is parsed: it hardly ever changes, and is read as often as the counters.
        if text == self._text:
            return False
        self._text = text
        before, self._seen = self._seen, _field(text, b"oom_kill ")
        return self._seen > before

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open(directories: Sequence[Path], *names: str) -> int:
    """The first of these files that is in one of the directories."""
    for name in names:
        for each in directories:
            with suppress(FileNotFoundError, NotADirectoryError):
                return os.open(each / name, os.O_RDONLY | os.O_CLOEXEC)
    raise GroupGoneError(f"{directories[0]}: has no {names[0]}; the cgroup was removed")


def _pread(descriptor: int, name: str, size: int = _SMALL_BYTES) -> bytes:
    try:
        return os.pread(descriptor, size, 0)
    except OSError as error:
        raise _removed(name, error) from error


def _removed(name: str, error: OSError) -> GroupGoneError:
    return GroupGoneError(f"{name}: was removed ({error.strerror})")


def _after(words: list[bytes], key: bytes) -> int:
    """Where the word after `key` is; −1, where a reader appends 0, if there is none."""
    return words.index(key) + 1 if key in words else -1


def _field(text: bytes, key: bytes) -> int:
    """The number after `key`; 0 where the kernel does not count it."""
    start = text.find(key)
    if start < 0:
        return 0
    start += len(key)
    end = text.find(b"\n", start)
    return int(text[start:] if end < 0 else text[start:end])
