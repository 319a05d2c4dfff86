"""Telemetry from hooks in the kernel, which takes each record as the period ends.

For: period records where BPF tracing is allowed. They are the records of polling.py, but the kernel itself
reports the end of a period and whether a quota write fell into it. Not for: deciding or writing anything. CPU
in cores, memory in bytes, times in nanoseconds of CLOCK_MONOTONIC.

Memory is read from the cgroup's files as each record arrives. Groups without a quota and idle groups have no
periods: their records are synthesised half a period after one was due. Source: kernel/ (the BPF programs).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from control.allocator.model import Ids
from kernel.loader import Hooks
from testbed.containers.cgroup.files import gone, inode
from testbed.containers.cgroup.meter import Meter
from testbed.containers.cgroup.polling import Row, as_records
from testbed.containers.ports import GroupGoneError, LimitedGroup, Records
from twinbed import BackendError

_NEVER_NS = 1 << 62
_TOGETHER_NS = 3_000_000


def available() -> tuple[bool, str]:
    """Try to load the hooks. Returns whether that works, and the way they attach or the reason why not."""
    try:
        with Hooks() as hooks:
            return True, f"{len(hooks.overhead())} BPF programs attach"
    except BackendError as error:
        return False, str(error)


class HookTelemetry:
    """`ports.TelemetrySource` over the kernel's ring buffer. period_s: the groups' CFS period, s; clock:
    nanoseconds, monotonic. Raises BackendError where this kernel refuses them."""

    def __init__(self, period_s: float, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._period_ns = round(period_s * 1e9)
        self._clock = clock
        self._hooks = Hooks()
        self._watched: dict[int, _Watched] = {}
        self._by_cpu: dict[int, _Watched] = {}
        self._gone: list[int] = []
        self._missing: list[int] = []
        self._merged = 0
        self._due_ns = _NEVER_NS

    @property
    def descriptor(self) -> int:
        """See TelemetrySource."""
        return self._hooks.descriptor

    @property
    def gone(self) -> Ids:
        """See TelemetrySource."""
        return np.array(self._gone, np.int64)

    @property
    def lost(self) -> int:
        """See TelemetrySource. These periods found no room in the kernel's buffer, or were merged into the
        record of a later one."""
        return self._hooks.lost() + self._merged

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """See TelemetrySource. A group that is removed already is reported as gone by the next `collect`."""
        for number, group in zip(ids.tolist(), groups, strict=True):
            try:
                container = _Watched(number, group, self._clock())
            except GroupGoneError:
                self._missing.append(number)
                continue
            self._watched[number] = self._by_cpu[container.cpu] = container
            self._hooks.watch([container.cpu])
        self._set_due()

    def remove(self, ids: Ids) -> None:
        """See TelemetrySource."""
        for number in ids.tolist():
            container = self._watched.pop(number, None)
            if container is None:
                continue
            container.meter.close()
            self._by_cpu.pop(container.cpu, None)
            self._hooks.unwatch([container.cpu])
        self._set_due()

    def due_ns(self) -> int:
        """See TelemetrySource. It is the time at which the next container counts as idle."""
        return self._due_ns

    def collect(self, now_ns: int) -> Records:
        """See TelemetrySource."""
        self._gone, self._missing = self._missing, []
        by_cgroup: dict[int, list[np.void]] = {}
        for record in self._hooks.read().periods:
            by_cgroup.setdefault(int(record["id"]), []).append(record)
        rows: list[Row] = []
        for cgroup, records in by_cgroup.items():
            about = self._by_cpu.get(cgroup)
            if about is not None:
                self._append(rows, about, partial(self._period, about, records))
        for container in self._watched.values():
            if (
                container.cpu not in by_cgroup
                and container.silent_ns(self._period_ns) <= now_ns + _TOGETHER_NS
            ):
                self._append(rows, container, partial(self._silent, container, now_ns))
        if self._gone:
            self.remove(np.array(self._gone, np.int64))
        self._set_due()
        return as_records(rows)

    def close(self) -> None:
        """See TelemetrySource."""
        for container in self._watched.values():
            container.meter.close()
        self._watched.clear()
        self._by_cpu.clear()
        self._hooks.close()

    def _append(self, rows: list[Row], container: _Watched, row: Callable[[], Row]) -> None:
        try:
            rows.append(row())
        except GroupGoneError:
            if container.number not in self._gone:
                self._gone.append(container.number)

    def _period(self, container: _Watched, records: Sequence[np.void]) -> Row:
        """Return the record of a period, or, as polling does, the mean of several read together."""
        last = records[-1]
        elapsed = sum(int(record["elapsed"]) for record in records)
        used_ns = sum(int(record["used_ns"]) for record in records)
        self._merged += elapsed - 1
        container.end_ns = int(last["end_ns"])
        throttled = any(record["throttled"] for record in records)
        quota = int(last["quota_ns"]) / self._period_ns
        usage = used_ns / (elapsed * self._period_ns)
        # Runtime that a quota write or a late timer restored does not change that a period was throttled.
        # With several periods, the unused rest of the last period says nothing about the others.
        unused = int(last["unused_ns"]) / self._period_ns if elapsed == 1 else max(quota - usage, 0.0)
        return (
            container.number,
            container.end_ns,
            container.memory_bytes(),
            quota,
            0.0 if throttled else unused,
            usage,
            container.throttled_s() if throttled else 0.0,
            throttled,
            False,
        )

    def _silent(self, container: _Watched, now_ns: int) -> Row:
        """Return a synthesised record: a silent group has no quota, or was idle."""
        periods = max(1, (now_ns - container.end_ns) // self._period_ns)
        container.end_ns += periods * self._period_ns
        quota = container.group.quota_cores
        usage = container.usage_cores(now_ns) if quota == np.inf else 0.0
        idle = quota < np.inf or usage == 0.0
        memory_bytes = container.memory_bytes()
        end_ns = container.end_ns
        return container.number, end_ns, memory_bytes, quota, quota - usage, usage, 0.0, False, idle

    def _set_due(self) -> None:
        self._due_ns = min(
            (container.silent_ns(self._period_ns) for container in self._watched.values()), default=_NEVER_NS
        )


class _Watched:
    """A container that is watched. number: its id. cpu: the kernel's id of its cgroup in the cpu hierarchy.
    end_ns: end of its last record's period, ns."""

    def __init__(self, number: int, group: LimitedGroup, now_ns: int) -> None:
        self.number, self.group = number, group
        self.cpu = _id(group, "cpu.stat")
        self.meter = Meter(group.directories, reads=number)
        self.end_ns = self._read_ns = now_ns
        try:
            counters = self.meter.read()
        except GroupGoneError:
            self.meter.close()
            raise
        self._cpu_ns, self._throttled_ns = counters.cpu_ns, counters.throttled_ns

    def silent_ns(self, period_ns: int) -> int:
        """Return the time at which the container counts as silent for a whole period, ns."""
        return self.end_ns + period_ns + period_ns // 2

    def memory_bytes(self) -> int:
        """Return the working set, bytes."""
        return max(0, self.meter.charged_bytes() - self.meter.recent_inactive_file_bytes())

    def throttled_s(self) -> float:
        """Return the throttled time since the last call, s."""
        before, self._throttled_ns = self._throttled_ns, self.meter.read().throttled_ns
        return (self._throttled_ns - before) / 1e9

    def usage_cores(self, now_ns: int) -> float:
        """Return the mean CPU use since the last call, cores."""
        before, self._cpu_ns = self._cpu_ns, self.meter.read().cpu_ns
        elapsed_ns, self._read_ns = max(1, now_ns - self._read_ns), now_ns
        return (self._cpu_ns - before) / elapsed_ns


def _id(group: LimitedGroup, file: str) -> int:
    """Return the kernel's id of the group in the hierarchy that has this file: its directory's inode."""
    for directory in group.directories:
        if (directory / file).exists():
            return inode(directory)
    raise gone(group.directories[0])
