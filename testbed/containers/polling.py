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

import numpy as np

from control.allocator.model import NO_IDS, Ids
from testbed.containers.meter import Counters, Meter
from testbed.containers.ports import GroupGoneError, LimitedGroup, Records

SLOT_NS_PER_GROUP = 50_000
SLOT_MOST_NS = 5_000_000
"""Ends at most this far apart are served together: about 20 times a period, however many groups there are.
Later than that, a quota write would add much to what the new period has used already."""

MARGIN_NS = 200_000
"""After an end, so that the kernel's own timer has been served by then."""

PROBE_NS = 500_000
"""Between two looks at nr_periods while phases are learnt."""

_SHARP_NS = 3_000_000
_PATIENCE = 3
_CACHE_REFRESH = 10
_NEVER_NS = 1 << 62

_Row = tuple[int, int, float, float, bool, float, int, float, bool]


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
        self._slots: list[_Slot] = []
        self._served_ns = clock()
        self._gone: list[int] = []
        self._missing: list[int] = []
        self.lost = 0

    @property
    def gone(self) -> Ids:
        """As the port says."""
        return np.array(self._gone, np.int64)

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
        return min([self._probe_due_ns, *(slot.due_ns for slot in self._slots)])

    def collect(self, now_ns: int) -> Records:
        """As the port says."""
        self._gone, self._missing = self._missing, []
        self._served_ns = now_ns
        rows: list[_Row] = []
        known: Ids | None = None
        for slot in self._slots:
            if slot.due_ns <= now_ns:
                before = len(rows)
                for each in slot.members:
                    self._poll(each, now_ns, rows)
                slot.due_ns = self._next_ns(slot.offset_ns, now_ns)
                known = slot.ids if before == 0 else None
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
            self._slots.append(_Slot(members, offset_ns, self._next_ns(offset_ns, self._served_ns)))

    def _next_ns(self, offset_ns: int, now_ns: int) -> int:
        """The first moment after `now_ns` at this offset in a period."""
        return now_ns + self._period_ns - (now_ns - offset_ns) % self._period_ns

    # --- records ---------------------------------------------------------------------------------

    def _poll(self, each: _Watched, now_ns: int, rows: list[_Row]) -> None:
        """Appends the record of what ended since the last one; nothing where that was within a period."""
        offset_ns = 0 if each.phase_ns is None else each.phase_ns
        end_ns = now_ns - (now_ns - offset_ns) % self._period_ns
        periods = round((end_ns - each.end_ns) / self._period_ns)
        if periods < 1:
            return
        try:
            counters = each.meter.counters()
            memory_bytes = each.memory_bytes()
        except GroupGoneError:
            self._gone.append(each.number)
            return
        before = each.counters
        each.counters, each.end_ns = counters, end_ns
        if each.phase_ns is None and counters.nr_periods > before.nr_periods and each not in self._learners:
            self._learn(each, now_ns)
        if each.fresh:
            # Since it was added is no whole period.
            each.fresh = False
            return
        self.lost += periods - 1
        quota = each.group.quota_cores
        usage = (counters.cpu_ns - before.cpu_ns) / (periods * self._period_ns)
        throttled = counters.nr_throttled > before.nr_throttled
        idle = counters.nr_periods == before.nr_periods and (quota < np.inf or usage == 0.0)
        rows.append(
            (
                each.number,
                end_ns,
                quota,
                0.0 if throttled else max(quota - usage, 0.0),
                throttled,
                usage,
                memory_bytes,
                (counters.throttled_ns - before.throttled_ns) / 1e9,
                idle,
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
        self.counters = Counters(0, 0, 0, 0)
        self.end_ns = now_ns

    def restart(self, end_ns: int) -> None:
        """Counts from here, where a period of its own has just ended."""
        self.counters, self.end_ns, self.fresh = self.meter.counters(), end_ns, False

    def memory_bytes(self) -> int:
        """The working set; what the kernel would drop first is looked up once in a while."""
        if self._reads % _CACHE_REFRESH == 0:
            self._inactive_bytes = self.meter.inactive_file_bytes()
        self._reads += 1
        return max(0, self.meter.charged_bytes() - self._inactive_bytes)


class _Slot:
    """Groups that are polled together at `offset_ns` of every period."""

    def __init__(self, members: list[_Watched], offset_ns: int, due_ns: int) -> None:
        self.members, self.offset_ns, self.due_ns = members, offset_ns, due_ns
        self.ids: Ids = np.array([each.number for each in members], np.int64)
        # Allocators remember where they found the ids of an array that nobody will write to.
        self.ids.setflags(write=False)


def _records(rows: list[_Row], known: Ids | None) -> Records:
    """rows as arrays; known: the array that holds just their ids, if there is one."""
    if not rows:
        return NOTHING_ENDED
    ids, end_ns, quota, unused, throttled, usage, memory, throttled_s, idle = zip(*rows, strict=True)
    if known is None or len(known) != len(rows):
        known = np.array(ids, np.int64)
    return Records(
        known,
        np.array(end_ns, np.int64),
        np.array(quota, np.float64),
        np.array(unused, np.float64),
        np.array(throttled, np.bool_),
        np.array(usage, np.float64),
        np.array(memory, np.int64),
        np.array(throttled_s, np.float64),
        np.array(idle, np.bool_),
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
