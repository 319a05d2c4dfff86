"""Restarts of containers: the wait before a start, and the CPU time of the start.

For: the back-off of containers that fail repeatedly, and the duration of a start that needs CPU (an
interpreter that imports, a JVM): ten times as long under a tenth of a core. Not for: taking containers down
(lives.py). One thread does a start, from the pool that the period's refill gave. A quota write in the
middle of a period adds nothing to it.
"""

from __future__ import annotations

import numpy as np

from control.allocator.backoff import RESET_S, wait_s
from twin.containers.cfs import DOWN
from twin.containers.members import Columns
from twin.containers.model import Floats, Machine
from twin.containers.physics import Physics


class BackOff:
    """The waits of `count` containers before their next start, as on the testbed
    (testbed.containers.host.life)."""

    def __init__(self, count: int) -> None:
        self._failures = np.zeros(count, np.int64)
        self._began_s = np.zeros(count)

    def waits_s(self, columns: Columns, now_s: float, *, failed: bool) -> Floats:
        """Return the waits of containers that go down now, s, float64[k]. failed: they were killed."""
        long_enough = now_s - self._began_s[columns] >= RESET_S
        self._failures[columns[long_enough]] = 0
        if not failed:
            self._failures[columns] = 0
        waits_s = np.array([wait_s(count) for count in self._failures[columns].tolist()], np.float64)
        self._failures[columns] += failed
        self._began_s[columns] = now_s + waits_s
        return waits_s

    def begin(self, columns: Columns, now_s: float) -> None:
        """Reset the containers that join now."""
        self._failures[columns] = 0
        self._began_s[columns] = now_s


class StartUps:
    """Starts of the containers of `physics`: restart_cpu_s of CPU after the rest of restart_s has passed."""

    def __init__(self, physics: Physics, machine: Machine) -> None:
        self._physics, self._fleet = physics, physics.fleet
        self._period_s = physics.population.period_s
        self._cpu_s = machine.restart_cpu_s
        self._idle_s = max(machine.restart_s - machine.restart_cpu_s, 0.0)
        self._left_s = np.zeros(len(self._fleet.status))
        self._from_s = np.zeros(len(self._fleet.status))

    def begin(self, columns: Columns, at_s: Floats) -> None:
        """Let the starts of containers (int64[k]) that were just taken down begin at `at_s` (float64[k])."""
        self._left_s[columns] = self._cpu_s
        self._from_s[columns] = at_s + self._idle_s

    def burn(self, columns: Columns, now_s: float) -> None:
        """Burn the CPU that the starts used in a period of `columns` that ends at now_s.

        Call it before the period's end.
        """
        columns = self._starting(columns)
        if columns.size == 0:
            return
        wall_s = np.clip(now_s - self._from_s[columns], 0.0, self._period_s)
        burnt_s = self._spend(columns, np.minimum(wall_s, self._left_s[columns]))
        throttled = (self._left_s[columns] > 0.0) & (burnt_s < wall_s)
        self._fleet.throttled[columns] |= throttled
        self._fleet.throttled_s[columns] += np.where(throttled, wall_s - burnt_s, 0.0)

    def ending(self, columns: Columns, now_s: float) -> tuple[Columns, Floats]:
        """Return the containers whose starts end before the next refill, and the seconds until then
        (float64[k]).

        The pools of `columns` must just have been refilled.
        """
        columns = self._starting(columns)
        idle_s = np.maximum(self._from_s[columns] - now_s, 0.0)
        left_s = self._left_s[columns]
        ends = (left_s <= self._fleet.pool[columns]) & (idle_s + left_s < self._period_s)
        return columns[ends], (idle_s + left_s)[ends]

    def complete(self, columns: Columns) -> None:
        """End the starts of `columns` (int64[k]) now. Their last work is charged to this period."""
        self._spend(columns, self._left_s[columns])
        self._left_s[columns] = 0.0

    def _starting(self, columns: Columns) -> Columns:
        down: Columns = columns[self._fleet.status[columns] == DOWN]
        return down

    def _spend(self, columns: Columns, wanted_s: Floats) -> Floats:
        burnt_s: Floats = np.minimum(wanted_s, np.maximum(self._fleet.pool[columns], 0.0))
        self._physics.burn(columns, burnt_s)
        self._left_s[columns] -= burnt_s
        return burnt_s
