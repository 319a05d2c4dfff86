"""Read one container's counters from small files that stay open and are parsed by position.

For: the counters read for every container in every period, for either version of cgroups. Not for: limits
(v1.py, v2.py). Sources: Documentation/admin-guide/cgroup-v1/{cpuacct,memory}.rst, cgroup-v2.rst and
scheduler/sched-bwc.rst of the kernel. oom_kill counts in v1's memory.oom_control and in v2's memory.events.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.containers.cgroup.files import field, gone, open_file, refused
from testbed.containers.ports import GroupGoneError

_SMALL_BYTES = 448
"""Number of bytes read of a small file, more than any of them has. With Python's own header this fits
Python's allocator for small objects, which is faster than the C library's."""

_STAT_BYTES = 16_384
"""Number of bytes read of memory.stat and /proc/vmstat, more than they have."""

_CACHE_REFRESH = 10
"""Number of reads between two reads of memory.stat, which costs ten times as much as the other files."""


class Reading(NamedTuple):
    """A group's counters at one moment.

    nr_periods, nr_throttled: numbers of CFS periods elapsed and throttled since the group was made.
    throttled_ns, cpu_ns: throttled time and CPU time since then, ns. charged_bytes: memory that counts
    against the limit now, page cache included, bytes.
    """

    nr_periods: int
    nr_throttled: int
    throttled_ns: int
    cpu_ns: int
    charged_bytes: int


class Meter:
    """Reads the group with these directories (one per v1 hierarchy, one in v2). reads: number of reads that
    count as done since the last refresh of the page cache, so that many groups do not refresh at once. Every
    method raises GroupGoneError once the group was removed. A counter that the kernel does not have is 0."""

    def __init__(self, directories: Sequence[Path], reads: int = 0) -> None:
        self._name = str(directories[0])
        self._descriptors: list[int] = []
        self._reads, self._inactive_bytes = reads, 0
        try:
            self._open_files(directories)
        except BaseException:
            self.close()
            raise

    def _open_files(self, directories: Sequence[Path]) -> None:
        self.stat = self._open(directories, "cpu.stat")
        self._v1 = any((directory / "cpuacct.usage").exists() for directory in directories)
        self._memory = self._open(directories, "memory.usage_in_bytes" if self._v1 else "memory.current")
        self._memory_stat = self._open(directories, "memory.stat")
        self._cache_key = b"total_inactive_file" if self._v1 else b"inactive_file"
        # The line that a field is in does not change for as long as the kernel runs.
        words = _pread(self.stat, self._name).split()
        self._periods, self._throttles = _after(words, b"nr_periods"), _after(words, b"nr_throttled")
        if self._v1:
            self._usage = self._open(directories, "cpuacct.usage")
            self._throttled = _after(words, b"throttled_time")
        else:
            self._used = _after(words, b"usage_usec")
            self._throttled = _after(words, b"throttled_usec")

    def nr_periods(self) -> int:
        """Return the number of CFS periods elapsed. This is the cheapest way to see that a period ended."""
        return int((*_pread(self.stat, self._name).split(), b"0")[self._periods])

    def read(self) -> Reading:
        """Return all counters now. The CPU counters are read first."""
        # This is one block without helper functions, because it runs for each container in each period.
        try:
            words = os.pread(self.stat, _SMALL_BYTES, 0).split()
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
            raise gone(self._name) from error

    def charged_bytes(self) -> int:
        """Return the memory that counts against the limit, page cache included, bytes."""
        return int(_pread(self._memory, self._name))

    def inactive_file_bytes(self) -> int:
        """Return the page cache that the kernel would drop first, bytes."""
        return field(_pread(self._memory_stat, self._name, _STAT_BYTES), self._cache_key)

    def recent_inactive_file_bytes(self) -> int:
        """Return inactive_file_bytes, bytes. The file is read again only once in _CACHE_REFRESH calls."""
        if self._reads % _CACHE_REFRESH == 0:
            self._inactive_bytes = self.inactive_file_bytes()
        self._reads += 1
        return self._inactive_bytes

    def close(self) -> None:
        """Close the files. Later reads are refused, and never reach another file. Idempotent."""
        self.stat = self._memory = self._memory_stat = self._usage = -1
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _open(self, directories: Sequence[Path], name: str) -> int:
        self._descriptors.append(_open(directories, name))
        return self._descriptors[-1]


class _OneFile:
    """Keeps one file open, until it is closed."""

    _descriptor: int

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class AnyOomKills(_OneFile):
    """Tells from a single file whether the kernel's OOM killer acted on this machine."""

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._descriptor = os.open(vmstat, os.O_RDONLY | os.O_CLOEXEC)
        self._seen = self._before = -1

    def lately(self) -> bool:
        """Return whether the OOM killer has killed since the last call but one; True if the kernel does not
        count kills. The last two calls are covered, because the machine's counter moves before the
        group's."""
        text = os.pread(self._descriptor, _STAT_BYTES, 0)
        before, self._before = self._before, self._seen
        self._seen = field(text, b"oom_kill")
        return self._seen != before or b"\noom_kill " not in text


class OomKills(_OneFile):
    """Counts the processes that the kernel's OOM killer ended in a group. Raises as Meter does.

    seen: their number at the last call.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._name = str(directories[0])
        self._descriptor = _open(directories, "memory.oom_control", "memory.events")
        self._text = b""
        self.seen = 0
        try:
            self.grew()
        except GroupGoneError:
            self.close()
            raise

    def grew(self) -> bool:
        """Return whether the count grew since the last call, or since this object was made."""
        text = _pread(self._descriptor, self._name)
        # The text is compared before it is parsed. It hardly ever changes, and it is read as often as the
        # counters.
        if text == self._text:
            return False
        self._text = text
        before, self.seen = self.seen, field(text, b"oom_kill")
        return self.seen > before


def oom_kills(directories: Sequence[Path]) -> int:
    """Return how many processes of a group the OOM killer has ended. Raises as Meter does."""
    counter = OomKills(directories)
    counter.close()
    return counter.seen


def _open(directories: Sequence[Path], *names: str) -> int:
    """Open the first of these files that one of the directories has."""
    for name in names:
        for directory in directories:
            try:
                return open_file(directory / name, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise refused(directory / name, "opening it", error) from error
    raise gone(directories[0])


def _pread(descriptor: int, name: str, size: int = _SMALL_BYTES) -> bytes:
    try:
        return os.pread(descriptor, size, 0)
    except OSError as error:
        raise gone(name) from error


def _after(words: list[bytes], key: bytes) -> int:
    """Return the position of the word after `key`. If there is none it is −1, where readers append 0."""
    return words.index(key) + 1 if key in words else -1
