"""One container's counters as a poll reads them: three small files kept open, parsed by hand.

For: what is read for every container in every period, for whichever version of cgroups the directories are
of. Not for: limits (cgroups.py). Sources as in cgroups.py; oom_kill counts in v1's memory.oom_control and
v2's memory.events.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from testbed.containers.ports import GroupGoneError

_SMALL_BYTES = 1024
_STAT_BYTES = 16_384


class Counters(NamedTuple):
    """Since the group was made: CFS periods elapsed and throttled, throttled time and CPU time (ns)."""

    nr_periods: int
    nr_throttled: int
    throttled_ns: int
    cpu_ns: int


class Meter:
    """Reads the group that has these directories (one per v1 hierarchy, one in v2).

    Every method raises GroupGoneError once the group was removed.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._name = str(directories[0])
        self._descriptors: list[int] = []
        self._stat = self._open(directories, "cpu.stat")
        self._v1 = any((each / "cpuacct.usage").exists() for each in directories)
        if self._v1:
            self._usage = self._open(directories, "cpuacct.usage")
            self._memory = self._open(directories, "memory.usage_in_bytes")
        else:
            self._usage = self._stat
            self._memory = self._open(directories, "memory.current")
        self._memory_stat = self._open(directories, "memory.stat")
        self._cache_key = b"\ntotal_inactive_file " if self._v1 else b"\ninactive_file "

    def nr_periods(self) -> int:
        """CFS periods elapsed, and nothing else: the cheapest way to see one end."""
        return _field(self._read(self._stat), b"nr_periods ")

    def counters(self) -> Counters:
        """All of them now; the CPU time is read last, as close to the return as can be."""
        stat = self._read(self._stat)
        periods = _field(stat, b"nr_periods "), _field(stat, b"nr_throttled ")
        if self._v1:
            return Counters(*periods, _field(stat, b"throttled_time "), int(self._read(self._usage)))
        throttled_ns = _field(stat, b"throttled_usec ") * 1_000
        return Counters(*periods, throttled_ns, _field(stat, b"usage_usec ") * 1_000)

    def charged_bytes(self) -> int:
        """What counts against the memory limit, page cache included."""
        return int(self._read(self._memory))

    def inactive_file_bytes(self) -> int:
        """Page cache that the kernel would drop first; this file costs ten times what the others do."""
        return _field(b"\n" + self._read(self._memory_stat, _STAT_BYTES), self._cache_key)

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

    def _read(self, descriptor: int, size: int = _SMALL_BYTES) -> bytes:
        return _pread(descriptor, size, self._name)


class OomKills:
    """How many processes the kernel's OOM killer has ended in a group. Raises as Meter does."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._name = str(directories[0])
        self._descriptor = _open(directories, "memory.oom_control", "memory.events")

    def count(self) -> int:
        """Since the group was made."""
        return _field(_pread(self._descriptor, _SMALL_BYTES, self._name), b"oom_kill ")

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


def _pread(descriptor: int, size: int, name: str) -> bytes:
    try:
        return os.pread(descriptor, size, 0)
    except OSError as error:
        raise GroupGoneError(f"{name}: was removed ({error.strerror})") from error


def _field(text: bytes, key: bytes) -> int:
    """The number after `key`; 0 where the kernel does not count it."""
    start = text.find(key)
    if start < 0:
        return 0
    start += len(key)
    end = text.find(b"\n", start)
    return int(text[start:] if end < 0 else text[start:end])
