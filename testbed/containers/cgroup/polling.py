"""Telemetry without kernel code: each container's counters are read right after its own CFS period ended.

For: period records on any kernel with cgroups. Not for: deciding or writing anything. CPU in cores,
memory in bytes, times in nanoseconds of CLOCK_MONOTONIC.

A group's periods end at a phase of their own, which stays (kernel/sched/core.c, `cfs_b->period_timer`; it
is learnt once from when nr_periods grows). Reading and writing right after that end is what keeps a record
about one period and a quota write from refilling one that is half over. Groups whose ends lie close
together are read together, at the latest of their ends. Idle groups have no periods; their records are made
up. What is left of a quota is what was not used of it, and nothing where the group was throttled.
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
"""Ends at most this far apart are served together: about ten times a period, however many groups there are,
and each eleven of them within 1.1 ms. Twice as often cost a third more CPU with 100 groups; half as often, a
quota write would add much to what the new period has used already."""

MARGIN_NS = 200_000
"""After an end, so that the kernel's own timer has been served by then."""

PROBE_NS = 500_000
"""Between two looks at nr_periods while phases are learnt."""

_SHARP_NS = 3_000_000
_PATIENCE = 3
_CACHE_REFRESH = 10
_NEVER_NS = 1 << 62
_INF = float("inf")

_Row = tuple[int, int, int, float, float, float, float, bool, bool]
"""Of a container: id, end_ns and memory_bytes; quota, unused, usage and throttled_s; throttled and idle."""


class Polling:
    """`ports.TelemetrySource` over cgroup files. period_s: the groups' CFS period.

    clock: nanoseconds, monotonic. lost: periods that ended unread and are part of the next record, which
    then is the mean of all of them.
    """

    descriptor = -1

    def __init__(self, period_s: float, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._period_ns = round(period_s * 1e9)
        self._period_s = period_s
        self._clock = clock
        self._watched: dict[int, _Watched] = {}
        self._learners: list[_Watched] = []
        self._probe_due_ns = _NEVER_NS
        self._slots: list[tuple[int, int, _Slot]] = []
        self._served_ns = clock()
        self._gone: list[int] = []
        self._missing: list[int] = []
        self.lost = 0

    @property
    def gone(self) -> Ids:
        """As the port says."""
        return np.array(self._gone, np.int64) if self._gone else NO_IDS

    @property
    def settled(self) -> bool:
        """No phase is being learnt now."""
        return not self._learners

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """As the port says. A group that is removed already is reported as gone by the next `collect`."""
        now_ns = self._clock()
        if not self._watched:
            self._served_ns = now_ns
        for number, group in zip(ids.tolist(), groups, strict=True):
            try:
                each = _Watched(number, group, now_ns)
            except GroupGoneError:
                self._missing.append(number)
                continue
            self._watched[number] = each
            self._learn(each, now_ns)
        self._arrange()

    def remove(self, ids: Ids) -> None:
        """As the port says."""
        for number in ids.tolist():
            each = self._watched.pop(number, None)
            if each is not None:
                each.meter.close()
        self._learners = [each for each in self._learners if each.number in self._watched]
        self._arrange()

    def due_ns(self) -> int:
        """As the port says: the next slot's end, or the next look at what is being learnt."""
        return min(self._slots[0][0], self._probe_due_ns) if self._slots else self._probe_due_ns

    def collect(self, now_ns: int) -> Records:
        """As the port says."""
        self._gone, self._missing = self._missing, []
        self._served_ns = now_ns
        rows: list[_Row] = []
        known: Ids | None = None
        slots = self._slots
        while slots and slots[0][0] <= now_ns:
            _, place, slot = slots[0]
            known = None if rows else slot.ids
            for each in slot.members:
                self._poll(each, now_ns, rows)
            heapreplace(slots, (self._next_ns(slot.offset_ns, now_ns), place, slot))
        if now_ns >= self._probe_due_ns:
            self._probe()
        if self._gone:
            self.remove(np.array(self._gone, np.int64))
        return _records(rows, known)

    def close(self) -> None:
        """As the port says."""
        for each in self._watched.values():
            each.meter.close()
        self._watched.clear()
        self._learners.clear()
        self._slots.clear()

    # --- phases ----------------------------------------------------------------------------------

    def _learn(self, each: _Watched, now_ns: int) -> None:
        if each.group.quota_cores == np.inf:
            return
        each.seen, each.seen_ns, each.learning_since_ns = None, now_ns, now_ns
        each.attempts += 1
        self._learners.append(each)
        self._probe_due_ns = min(self._probe_due_ns, now_ns)

    def _probe(self) -> None:
        """Looks at everyone whose phase is not known: it ended a period between two looks."""
        began_ns = self._clock()
        still: list[_Watched] = []
        for each in self._learners:
            try:
                learnt = self._look(each)
            except GroupGoneError:
                self._gone.append(each.number)
                continue
            # Without periods for so long it is idle; it is asked again once it has some.
            waited = each.seen_ns - each.learning_since_ns > 1.2 * self._period_ns
            if not learnt and not waited:
                still.append(each)
        changed = len(still) < len(self._learners)
        self._learners = still
        ended_ns = self._clock()
        # Never more than half of the time, however many there are.
        self._probe_due_ns = max(began_ns + PROBE_NS, 2 * ended_ns - began_ns) if still else _NEVER_NS
        if changed:
            self._arrange()

    def _look(self, each: _Watched) -> bool:
        before_ns = self._clock()
        seen = each.meter.nr_periods()
        after_ns = self._clock()
        if each.seen is not None and seen != each.seen:
            if after_ns - each.seen_ns <= _SHARP_NS or each.attempts >= _PATIENCE:
                each.phase_ns = after_ns % self._period_ns
                if each.fresh:
                    each.restart(after_ns)
                return True
            each.attempts += 1
            each.learning_since_ns = before_ns
        each.seen, each.seen_ns = seen, before_ns
        return False

    def _arrange(self) -> None:
        """Slots of groups whose ends lie close together, and one for those whose phase is not known."""
        phases = sorted(
            (each.phase_ns, each.number) for each in self._watched.values() if each.phase_ns is not None
        )
        width_ns = min(SLOT_NS_PER_GROUP * len(phases), SLOT_MOST_NS)
        clusters: list[list[tuple[int, int]]] = []
        for each in phases:
            if clusters and each[0] - clusters[-1][0][0] <= width_ns:
                clusters[-1].append(each)
            else:
                clusters.append([each])
        unknown = [(0, each.number) for each in self._watched.values() if each.phase_ns is None]
        if unknown:
            clusters.append(unknown)
        self._slots = []
        for cluster in clusters:
            offset_ns = cluster[-1][0] + MARGIN_NS
            members = [self._watched[number] for _, number in cluster]
            # After what was served last, and not after now: what is due by now is still to be served.
            due_ns = self._next_ns(offset_ns, self._served_ns)
            self._slots.append((due_ns, len(self._slots), _Slot(members, offset_ns)))
        heapify(self._slots)

    def _next_ns(self, offset_ns: int, now_ns: int) -> int:
        """The first moment after `now_ns` at this offset in a period."""
        return now_ns + self._period_ns - (now_ns - offset_ns) % self._period_ns

    # --- records ---------------------------------------------------------------------------------

    def _poll(self, each: _Watched, now_ns: int, rows: list[_Row]) -> None:
        """Appends the record of what ended since the last one; nothing where that was within a period."""
        end_ns = now_ns - (now_ns - (each.phase_ns or 0)) % self._period_ns
        periods = (end_ns - each.end_ns + self._period_ns // 2) // self._period_ns
        if periods < 1:
            return
        try:
            reading = each.meter.read()
            inactive_bytes = each.inactive_bytes()
        except GroupGoneError:
            self._gone.append(each.number)
            return
        nr_periods, nr_throttled, throttled_ns, cpu_ns, charged_bytes = reading
        periods_before, throttled_before, throttled_ns_before, cpu_ns_before, _ = each.reading
        each.reading, each.end_ns = reading, end_ns
        active = nr_periods > periods_before
        if active and each.phase_ns is None and each not in self._learners:
            self._learn(each, now_ns)
        if each.fresh:
            # Since it was added is no whole period.
            each.fresh = False
            return
        self.lost += periods - 1
        quota = each.group.quota_cores
        usage = (cpu_ns - cpu_ns_before) / (periods * self._period_ns)
        throttled = nr_throttled > throttled_before
        rows.append(
            (
                each.number,
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
    """A group that is polled. phase_ns: where in a period its own end, None: not known; end_ns: the end that
    its counters are of; fresh: nothing was read of it for a whole period yet."""

    def __init__(self, number: int, group: LimitedGroup, now_ns: int) -> None:
        self.number, self.group = number, group
        self.meter = Meter(group.directories)
        self.phase_ns: int | None = None
        self.seen: int | None = None
        self.seen_ns = self.learning_since_ns = now_ns
        self.attempts = 0
        self.fresh = True
        self._reads = number
        self._inactive_bytes = 0
        self.reading = Reading(0, 0, 0, 0, 0)
        self.end_ns = now_ns

    def restart(self, end_ns: int) -> None:
        """Counts from here, where a period of its own has just ended."""
        self.reading, self.end_ns, self.fresh = self.meter.read(), end_ns, False

    def inactive_bytes(self) -> int:
        """What the kernel would drop first; it is looked up once in a while."""
        if self._reads % _CACHE_REFRESH == 0:
            self._inactive_bytes = self.meter.inactive_file_bytes()
        self._reads += 1
        return self._inactive_bytes


class _Slot:
    """Groups that are polled together at `offset_ns` of every period."""

    def __init__(self, members: list[_Watched], offset_ns: int) -> None:
        self.members, self.offset_ns = members, offset_ns
        self.ids: Ids = np.array([each.number for each in members], np.int64)
        # Allocators remember where they found the ids of an array that nobody will write to.
        self.ids.setflags(write=False)


def _records(rows: list[_Row], known: Ids | None) -> Records:
    """rows as arrays; known: the array that holds just their ids, if there is one."""
    if not rows:
        return NOTHING_ENDED
    # Few arrays, for after a sleep a call of NumPy costs as much as many lines of Python; but one for each
    # type, because its users would pay for fields that are not side by side.
    number, end_ns, memory_bytes, quota, unused, usage, throttled_s, throttled, idle = zip(*rows, strict=True)
    whole = np.array(number + end_ns + memory_bytes, np.int64)
    real = np.array(quota + unused + usage + throttled_s, np.float64)
    flags = np.array(throttled + idle, np.bool_)
    one, two, three = len(rows), 2 * len(rows), 3 * len(rows)
    return Records(
        known if known is not None and len(known) == one else whole[:one],
        whole[one:two],
        real[:one],
        real[one:two],
        flags[:one],
        real[two:three],
        whole[two:],
        real[three:],
        flags[one:],
    )


NOTHING_ENDED = Records(
    NO_IDS,
    NO_IDS,
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    np.empty(0),
    NO_IDS,
    np.empty(0),
    np.empty(0, np.bool_),
)
"""Nobody's period."""
