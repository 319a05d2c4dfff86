"""Telemetry from hooks in the kernel: each record is the kernel's own, taken as the period ends.

For: period records where BPF tracing is allowed; the same records that polling.py makes, without its question
of when a period ended and whether a write fell into it. Not for: deciding or writing anything. CPU in cores,
memory in bytes, times in nanoseconds of CLOCK_MONOTONIC.

Memory is read from the cgroup's files as each record comes. A group without a quota has no periods, and one
that is idle has none either: their records are made up half a period after one was due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Ids
from kernel.loader import Hooks, Overhead
from kernel.records import KILL
from testbed.containers.cgroup.meter import Meter
from testbed.containers.cgroup.polling import NOTHING_ENDED
from testbed.containers.ports import GroupGoneError, LimitedGroup, Records
from twinbed import BackendError

_CACHE_REFRESH = 10
_NEVER_NS = 1 << 62
_TOGETHER_NS = 3_000_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_Row = tuple[int, int, float, float, bool, float, int, float, bool]


@dataclass(frozen=True, slots=True)
class Pressure:
    """A container that hit its memory limit. killed: whether this is the kill, and pid whom it hit; else pid
    is the process that asked for memory, and nothing is killed yet."""

    container: int
    at_ns: int
    limit_bytes: int
    usage_bytes: int
    pid: int
    killed: bool


def available() -> tuple[bool, str]:
    """Whether the hooks can be loaded here, tried out; and if not, why not."""
    try:
        with Hooks() as hooks:
            return True, f"{len(hooks.overhead())} BPF programs attach"
    except BackendError as error:
        return False, str(error)


class HookTelemetry:
    """`ports.TelemetrySource` over the kernel's ring buffer. period_s: the groups' CFS period.

    clock: nanoseconds, monotonic; measure: let the kernel count what the programs cost. Raises BackendError
    where this kernel refuses them.
    """

    def __init__(
        self, period_s: float, clock: Callable[[], int] = time.monotonic_ns, *, measure: bool = False
    ) -> None:
        self._period_ns = round(period_s * 1e9)
        self._clock = clock
        self._hooks = Hooks(measure=measure)
        self._watched: dict[int, _Watched] = {}
        self._by_cpu: dict[int, _Watched] = {}
        self._by_memory: dict[int, _Watched] = {}
        self._pressures: list[Pressure] = []
        self._gone: list[int] = []
        self._missing: list[int] = []
        self._merged = 0
        self._due_ns = _NEVER_NS

    @property
    def descriptor(self) -> int:
        """As the port says."""
        return self._hooks.descriptor

    @property
    def gone(self) -> Ids:
        """As the port says."""
        return np.array(self._gone, np.int64)

    @property
    def lost(self) -> int:
        """As the port says: records that the kernel had no room for, and periods that ended at once."""
        return self._hooks.lost() + self._merged

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """As the port says. A group that is removed already is reported as gone by the next `collect`."""
        for number, group in zip(ids.tolist(), groups, strict=True):
            try:
                each = _Watched(number, group, self._clock())
            except GroupGoneError:
                self._missing.append(number)
                continue
            self._watched[number] = self._by_cpu[each.cpu] = self._by_memory[each.memory] = each
            self._hooks.watch({each.cpu, each.memory})
        self._set_due()

    def remove(self, ids: Ids) -> None:
        """As the port says."""
        for number in ids.tolist():
            each = self._watched.pop(number, None)
            if each is None:
                continue
            each.meter.close()
            self._by_cpu.pop(each.cpu, None)
            self._by_memory.pop(each.memory, None)
            # In v1 another group's directory may have this number in the other hierarchy.
            self._hooks.unwatch({each.cpu, each.memory} - self._by_cpu.keys() - self._by_memory.keys())
        self._set_due()

    def due_ns(self) -> int:
        """As the port says: when the next container counts as idle."""
        return self._due_ns

    def collect(self, now_ns: int) -> Records:
        """As the port says."""
        self._gone, self._missing = self._missing, []
        reported = self._hooks.read()
        for record in reported.pressures:
            about = self._by_memory.get(int(record["id"]))
            if about is not None:
                self._pressures.append(_pressure(about.number, record))
        by_cgroup: dict[int, list[np.void]] = {}
        for record in reported.periods:
            by_cgroup.setdefault(int(record["id"]), []).append(record)
        rows: list[_Row] = []
        for cgroup, records in by_cgroup.items():
            about = self._by_cpu.get(cgroup)
            if about is not None:
                self._append(rows, about, partial(self._period, about, records))
        for each in self._watched.values():
            if each.cpu not in by_cgroup and each.silent_ns(self._period_ns) <= now_ns + _TOGETHER_NS:
                self._append(rows, each, partial(self._silent, each, now_ns))
        if self._gone:
            self.remove(np.array(self._gone, np.int64))
        self._set_due()
        return _records(rows)

    def pressures(self) -> list[Pressure]:
        """Memory limits hit, and kills, among what `collect` has read since this was last called."""
        taken, self._pressures = self._pressures, []
        return taken

    def overhead(self) -> dict[str, Overhead]:
        """What each program cost so far; zeros where it is not measured."""
        return self._hooks.overhead()

    def close(self) -> None:
        """As the port says."""
        for each in self._watched.values():
            each.meter.close()
        self._watched.clear()
        self._by_cpu.clear()
        self._by_memory.clear()
        self._hooks.close()

    def _append(self, rows: list[_Row], each: _Watched, row: Callable[[], _Row]) -> None:
        try:
            rows.append(row())
        except GroupGoneError:
            if each.number not in self._gone:
                self._gone.append(each.number)

    def _period(self, each: _Watched, records: Sequence[np.void]) -> _Row:
        """The record of a period; of several that were read at once it is the mean, as it is in polling."""
        last = records[-1]
        elapsed = sum(int(record["elapsed"]) for record in records)
        used_ns = sum(int(record["used_ns"]) for record in records)
        self._merged += elapsed - 1
        each.end_ns = int(last["end_ns"])
        throttled = any(record["throttled"] for record in records)
        quota = int(last["quota_ns"]) / self._period_ns
        usage = used_ns / (elapsed * self._period_ns)
        # What a quota write or a late timer put back does not undo that a period was throttled; and what was
        # left at the end of the last of several says nothing of the others.
        unused = int(last["unused_ns"]) / self._period_ns if elapsed == 1 else max(quota - usage, 0.0)
        return (
            each.number,
            each.end_ns,
            quota,
            0.0 if throttled else unused,
            throttled,
            usage,
            each.memory_bytes(),
            each.throttled_s() if throttled else 0.0,
            False,
        )

    def _silent(self, each: _Watched, now_ns: int) -> _Row:
        """Nothing was heard for so long: it has no quota, or was idle."""
        periods = max(1, (now_ns - each.end_ns) // self._period_ns)
        each.end_ns += periods * self._period_ns
        quota = each.group.quota_cores
        usage = each.usage_cores(now_ns) if quota == np.inf else 0.0
        idle = quota < np.inf or usage == 0.0
        return each.number, each.end_ns, quota, quota - usage, False, usage, each.memory_bytes(), 0.0, idle

    def _set_due(self) -> None:
        self._due_ns = min(
            (each.silent_ns(self._period_ns) for each in self._watched.values()), default=_NEVER_NS
        )


class _Watched:
    """A container that is watched. cpu, memory: its cgroup ids; end_ns: end of its last record's period."""

    def __init__(self, number: int, group: LimitedGroup, now_ns: int) -> None:
        self.number, self.group = number, group
        self.meter = Meter(group.directories)
        self.cpu = _id(group, "cpu.stat")
        self.memory = _id(group, "memory.stat")
        self.end_ns = self._read_ns = now_ns
        counters = self.meter.read()
        self._cpu_ns, self._throttled_ns = counters.cpu_ns, counters.throttled_ns
        self._reads = number
        self._inactive_bytes = 0

    def silent_ns(self, period_ns: int) -> int:
        """When it counts as having been silent for a period."""
        return self.end_ns + period_ns + period_ns // 2

    def memory_bytes(self) -> int:
        """The working set; what the kernel would drop first is looked up once in a while."""
        if self._reads % _CACHE_REFRESH == 0:
            self._inactive_bytes = self.meter.inactive_file_bytes()
        self._reads += 1
        return max(0, self.meter.charged_bytes() - self._inactive_bytes)

    def throttled_s(self) -> float:
        """Throttled time since it was last asked."""
        before, self._throttled_ns = self._throttled_ns, self.meter.read().throttled_ns
        return (self._throttled_ns - before) / 1e9

    def usage_cores(self, now_ns: int) -> float:
        """CPU used since it was last asked."""
        before, self._cpu_ns = self._cpu_ns, self.meter.read().cpu_ns
        elapsed_ns, self._read_ns = max(1, now_ns - self._read_ns), now_ns
        return (self._cpu_ns - before) / elapsed_ns


def _id(group: LimitedGroup, file: str) -> int:
    """The kernel's id of the group in the hierarchy that has this file: its directory's inode number."""
    for directory in group.directories:
        if (directory / file).exists():
            return directory.stat().st_ino
    raise GroupGoneError(f"{group.directories[0]}: has no {file}; the cgroup was removed")


def _pressure(number: int, record: np.void) -> Pressure:
    return Pressure(
        number,
        int(record["at_ns"]),
        int(record["limit_pages"]) * _PAGE_BYTES,
        int(record["usage_pages"]) * _PAGE_BYTES,
        int(record["pid"]),
        bool(record["kind"] == KILL),
    )


def _records(rows: list[_Row]) -> Records:
    if not rows:
        return NOTHING_ENDED
    ids, end_ns, quota, unused, throttled, usage, memory, throttled_s, idle = zip(*rows, strict=True)
    return Records(
        np.array(ids, np.int64),
        np.array(end_ns, np.int64),
        _floats(quota),
        _floats(unused),
        np.array(throttled, np.bool_),
        _floats(usage),
        np.array(memory, np.int64),
        _floats(throttled_s),
        np.array(idle, np.bool_),
    )


def _floats(values: Sequence[float]) -> NDArray[np.float64]:
    return np.array(values, np.float64)
