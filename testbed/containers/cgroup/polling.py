"""Telemetry without kernel code: each container's counters are read right after its own CFS period ended.

For: period records on any kernel with cgroups. Not for: deciding or writing anything. CPU in cores, memory in
bytes, times in nanoseconds of CLOCK_MONOTONIC.

A group's periods end at a phase of their own, which stays the same (kernel/sched/core.c,
`cfs_b->period_timer`); it is learnt once, from the moment when nr_periods grows. If reads and writes come
right after that end, each record is about one period, and no quota write refills a period that is half over.
Groups whose periods end close together are read together, at the latest of these ends. Idle groups have no
periods; their records are made up. The unused part of a quota is the quota less the usage, and 0 where the
group was throttled. Source: Documentation/scheduler/sched-bwc.rst of the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace

import numpy as np

from control.allocator.model import NO_IDS, Ids
from testbed.containers.cgroup.meter import Meter, Reading
from testbed.containers.ports import GroupGoneError, LimitedGroup, Records

SLOT_NS_PER_GROUP = 100_000
SLOT_MOST_NS = 10_000_000
"""Largest distance between period ends that are served together, ns.

A period then has about ten slots for any number of groups. Twice as many slots cost a third more CPU with 100
groups; with half as many, a quota write would come when much of the new period has been used.
"""

MARGIN_NS = 200_000
"""Wait after a period's end, ns, after which the kernel's own timer has run."""

PROBE_NS = 500_000
"""Time between two reads of nr_periods while phases are learned, ns."""

_SHARP_NS = 3_000_000
"""A phase is trusted if two reads this close together, ns, saw a period end between them."""

_PATIENCE = 3
"""Number of attempts after which a phase is used that was not measured sharply."""

_NEVER_NS = 1 << 62
_INF = float("inf")

Row = tuple[int, int, int, float, float, float, float, bool, bool]
"""One record: id, end_ns, memory_bytes, quota, unused, usage, throttled_s, throttled, idle (see Records)."""


class Polling:
    """`ports.TelemetrySource` over cgroup files.

    period_s: the groups' CFS period, s. clock: nanoseconds, monotonic.
    interval_s: time between two records of a group, s; 0: one CFS period.
    lost: number of intervals that ended unread. The next record is the mean over them and its own interval.
    """

    descriptor = -1

    def __init__(
        self, period_s: float, clock: Callable[[], int] = time.monotonic_ns, *, interval_s: float = 0.0
    ) -> None:
        self._period_ns = round(period_s * 1e9)
        self._interval_ns = round((interval_s or period_s) * 1e9)
        self._clock = clock
        self.watched: dict[int, _Watched] = {}
        self._learners: list[_Watched] = []
        self._probe_due_ns = _NEVER_NS
        self._slots: list[tuple[int, int, _Slot]] = []
        self._served_ns = clock()
        self._gone: list[int] = []
        self._missing: list[int] = []
        self.lost = 0

    @property
    def gone(self) -> Ids:
        """See TelemetrySource."""
        return np.array(self._gone, np.int64) if self._gone else NO_IDS

    @property
    def settled(self) -> bool:
        """Whether the phases of all groups are known."""
        return not self._learners

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """See TelemetrySource. A group that is removed already is reported as gone by the next `collect`."""
        now_ns = self._clock()
        if not self.watched:
            self._served_ns = now_ns
        for number, group in zip(ids.tolist(), groups, strict=True):
            try:
                container = _Watched(number, group, now_ns)
            except GroupGoneError:
                self._missing.append(number)
                continue
            self.watched[number] = container
            self._learn(container, now_ns)
        self._arrange()

    def remove(self, ids: Ids) -> None:
        """See TelemetrySource."""
        for number in ids.tolist():
            container = self.watched.pop(number, None)
            if container is not None:
                container.meter.close()
        self._learners = [container for container in self._learners if container.number in self.watched]
        self._arrange()

    def due_ns(self) -> int:
        """See TelemetrySource. It is the next slot's end, or the next read that learns a phase."""
        return min(self._slots[0][0], self._probe_due_ns) if self._slots else self._probe_due_ns

    def collect(self, now_ns: int) -> Records:
        """See TelemetrySource."""
        self._gone, self._missing = self._missing, []
        self._served_ns = now_ns
        rows: list[Row] = []
        known: Ids | None = None
        slots = self._slots
        while slots and slots[0][0] <= now_ns:
            _, place, slot = slots[0]
            known = None if rows else slot.ids
            for container in slot.members:
                self._poll(container, now_ns, rows)
            heapreplace(slots, (self._next_ns(slot.offset_ns, now_ns), place, slot))
        if now_ns >= self._probe_due_ns:
            self._probe()
        if self._gone:
            self.remove(np.array(self._gone, np.int64))
        return as_records(rows, known)

    def close(self) -> None:
        """See TelemetrySource."""
        for container in self.watched.values():
            container.meter.close()
        self.watched.clear()
        self._learners.clear()
        self._slots.clear()

    # --- phases ----------------------------------------------------------------------------------

    def _learn(self, container: _Watched, now_ns: int) -> None:
        if container.group.quota_cores == np.inf:
            return
        container.seen, container.seen_ns, container.learning_since_ns = None, now_ns, now_ns
        container.attempts += 1
        self._learners.append(container)
        self._probe_due_ns = min(self._probe_due_ns, now_ns)

    def _probe(self) -> None:
        """Read the groups whose phase is being learned. A period's end between two reads shows it."""
        began_ns = self._clock()
        still: list[_Watched] = []
        for container in self._learners:
            try:
                learnt = self._look(container)
            except GroupGoneError:
                self._gone.append(container.number)
                continue
            # A group without periods for this time is idle; its phase is learned once it has some.
            waited = container.seen_ns - container.learning_since_ns > 1.2 * self._period_ns
            if not learnt and not waited:
                still.append(container)
        changed = len(still) < len(self._learners)
        self._learners = still
        ended_ns = self._clock()
        # Probing takes at most half of the time, however many groups there are.
        self._probe_due_ns = max(began_ns + PROBE_NS, 2 * ended_ns - began_ns) if still else _NEVER_NS
        if changed:
            self._arrange()

    def _look(self, container: _Watched) -> bool:
        before_ns = self._clock()
        seen = container.meter.nr_periods()
        after_ns = self._clock()
        if container.seen is not None and seen != container.seen:
            if after_ns - container.seen_ns <= _SHARP_NS or container.attempts >= _PATIENCE:
                container.phase_ns = after_ns % self._period_ns
                if container.fresh:
                    container.restart(after_ns)
                return True
            container.attempts += 1
            container.learning_since_ns = before_ns
        container.seen, container.seen_ns = seen, before_ns
        return False

    def _arrange(self) -> None:
        """Put groups whose periods end close together into a slot, and all without a known phase into one."""
        phases = sorted(
            (entry.phase_ns, entry.number) for entry in self.watched.values() if entry.phase_ns is not None
        )
        width_ns = min(SLOT_NS_PER_GROUP * len(phases), SLOT_MOST_NS)
        clusters: list[list[tuple[int, int]]] = []
        for entry in phases:
            if clusters and entry[0] - clusters[-1][0][0] <= width_ns:
                clusters[-1].append(entry)
            else:
                clusters.append([entry])
        unknown = [(0, entry.number) for entry in self.watched.values() if entry.phase_ns is None]
        if unknown:
            clusters.append(unknown)
        self._slots = []
        for cluster in clusters:
            offset_ns = cluster[-1][0] + MARGIN_NS
            members = [self.watched[number] for _, number in cluster]
            # Counted from the last served record, not from now: records that are due by now must still be
            # served.
            due_ns = self._next_ns(offset_ns, self._served_ns)
            self._slots.append((due_ns, len(self._slots), _Slot(members, offset_ns)))
        heapify(self._slots)

    def _next_ns(self, offset_ns: int, now_ns: int) -> int:
        """Return the first time after `now_ns` at this offset in an interval, ns."""
        return now_ns + self._interval_ns - (now_ns - offset_ns) % self._interval_ns

    # --- records ---------------------------------------------------------------------------------

    def _poll(self, container: _Watched, now_ns: int, rows: list[Row]) -> None:
        """Append the record of the intervals that ended since the last one, if any did."""
        end_ns = now_ns - (now_ns - (container.phase_ns or 0)) % self._interval_ns
        periods = (end_ns - container.end_ns + self._interval_ns // 2) // self._interval_ns
        if periods < 1:
            return
        try:
            reading = container.meter.read()
            inactive_bytes = container.meter.recent_inactive_file_bytes()
        except GroupGoneError:
            self._gone.append(container.number)
            return
        nr_periods, nr_throttled, throttled_ns, cpu_ns, charged_bytes = reading
        periods_before, throttled_before, throttled_ns_before, cpu_ns_before, _ = container.reading
        container.reading, container.end_ns = reading, end_ns
        active = nr_periods > periods_before
        if active and container.phase_ns is None and container not in self._learners:
            self._learn(container, now_ns)
        if container.fresh:
            # The use since the container was added does not cover a whole period.
            container.fresh = False
            return
        self.lost += periods - 1
        quota = container.group.quota_cores
        usage = (cpu_ns - cpu_ns_before) / (periods * self._interval_ns)
        throttled = nr_throttled > throttled_before
        rows.append(
            (
                container.number,
                end_ns,
                max(charged_bytes - inactive_bytes, 0),
                quota,
                0.0 if throttled or usage >= quota else quota - usage,
                usage,
                (throttled_ns - throttled_ns_before) / 1e9,
                throttled,
                not active and (quota < _INF or usage == 0.0),
            )
        )


class _Watched:
    """A polled group.

    number: its id. phase_ns: offset in a period at which its own periods end; None: not known.
    seen, seen_ns: nr_periods at the last read, and the time of it.
    learning_since_ns, attempts: begin of the present learning, ns, and number of its attempts.
    reading, end_ns: the counters at its last record, and the end of that record's period.
    fresh: whether no whole period was read yet.
    """

    def __init__(self, number: int, group: LimitedGroup, now_ns: int) -> None:
        self.number, self.group = number, group
        self.meter = Meter(group.directories, reads=number)
        self.phase_ns: int | None = None
        self.seen: int | None = None
        self.seen_ns = self.learning_since_ns = now_ns
        self.attempts = 0
        self.fresh = True
        self.reading = Reading(0, 0, 0, 0, 0)
        self.end_ns = now_ns

    def restart(self, end_ns: int) -> None:
        """Count from now on. A period of the group has just ended."""
        self.reading, self.end_ns, self.fresh = self.meter.read(), end_ns, False


class _Slot:
    """Groups that are polled together, `offset_ns` into every period."""

    def __init__(self, members: list[_Watched], offset_ns: int) -> None:
        self.members, self.offset_ns = members, offset_ns
        self.ids: Ids = np.array([container.number for container in members], np.int64)
        # Allocators cache the look-up of an id array that is not writeable.
        self.ids.setflags(write=False)


def as_records(rows: Sequence[Row], known: Ids | None = None) -> Records:
    """Return the rows as arrays. known: an existing array of exactly the rows' ids, which is then reused;
    None: no such array exists."""
    if not rows:
        return NOTHING_ENDED
    # Few arrays are made, because after a sleep one call of NumPy costs as much as many lines of Python. Each
    # type has its own array, because fields that are not contiguous would slow their users down.
    number, end_ns, memory_bytes, quota, unused, usage, throttled_s, throttled, idle = zip(*rows, strict=True)
    whole = np.array(number + end_ns + memory_bytes, np.int64).reshape(3, -1)
    real = np.array(quota + unused + usage + throttled_s, np.float64).reshape(4, -1)
    flags = np.array(throttled + idle, np.bool_).reshape(2, -1)
    ids = known if known is not None and len(known) == len(rows) else whole[0]
    return Records(ids, whole[1], real[0], real[1], flags[0], real[2], whole[2], real[3], flags[1])


_NO_FLOATS, _NO_FLAGS = np.empty(0), np.empty(0, np.bool_)
NOTHING_ENDED = Records(
    NO_IDS, NO_IDS, _NO_FLOATS, _NO_FLOATS, _NO_FLAGS, _NO_FLOATS, NO_IDS, _NO_FLOATS, _NO_FLAGS
)
"""Records without a row."""
