"""The lives of containers: kills and restarts end them, and starts begin the next ones.

For: when a container that went down comes up again. Not for: why it goes down (simulation.py), nor how long
its back-off and its start take (starting.py). A killed container is down for its back-off and restart_s. With
restart_cpu_s it is down until its quota has given it that much CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from twin.containers import cfs
from twin.containers.members import Columns
from twin.containers.model import Machine
from twin.containers.physics import Physics
from twin.containers.starting import BackOff, StartUps
from twin.containers.timers import Timers


class Lives:
    """The lives of the containers of `physics`. note: called with a kind of event and its columns."""

    def __init__(
        self, physics: Physics, machine: Machine, timers: Timers, note: Callable[[str, Columns], None]
    ) -> None:
        self._physics, self._fleet = physics, physics.fleet
        self._restart_s, self._timers, self._note = machine.restart_s, timers, note
        # Lives ended so far, by which a late restart timer is recognised.
        self._ended = np.zeros(len(physics.group), np.int64)
        self._back_off = BackOff(len(physics.group))
        self._starting = StartUps(physics, machine) if machine.restart_cpu_s > 0.0 else None

    def begin(self, columns: Columns) -> None:
        """Begin the lives of containers that join now."""
        self._back_off.begin(columns, self._timers.env.now)

    def end(self, columns: Columns) -> None:
        """End the lives of containers that leave now."""
        self._ended[columns] += 1

    def take_down(self, columns: Columns, why: str) -> None:
        """Kill or restart containers that are not down, and let those fail that depend on them.

        They come back after their back-off and start.
        """
        columns = columns[self._fleet.status[columns] <= cfs.HELD]
        if columns.size == 0:
            return
        failing = self._physics.dependents(columns)
        self._end(columns, failed=why == "kill")
        if why == "kill":
            self._note("kill", columns)
        if failing.size:
            self._end(failing, failed=True)

    def burn(self, columns: Columns, end_s: float) -> None:
        """Charge the CPU of starts to the period of `columns` that ends at end_s. Call it before the period's
        end."""
        if self._starting is not None:
            self._starting.burn(columns, end_s)

    def go_on(self, columns: Columns, now_s: float) -> None:
        """Set timers for starts that end before the next refill. Call it after the end of a period."""
        if self._starting is None:
            return
        for column, delay_s in zip(*self._starting.ending(columns, now_s), strict=True):
            starting = np.array([column])
            self._timers.after(delay_s, self._come_up, starting, self._ended[starting])

    def _end(self, columns: Columns, *, failed: bool) -> None:
        self._physics.take_down(columns)
        self._ended[columns] += 1
        now_s = self._timers.env.now
        waits_s = self._back_off.waits_s(columns, now_s, failed=failed)
        if self._starting is not None:
            self._starting.begin(columns, now_s + waits_s)
        for wait_s in np.unique(waits_s).tolist():
            waiting = columns[waits_s == wait_s]
            self._timers.after(wait_s, self._start, waiting, self._ended[waiting])

    def _start(self, columns: Columns, ended: NDArray[np.int64]) -> None:
        columns = columns[self._ended[columns] == ended]
        self._note("restart", columns)
        if self._starting is None:
            self._timers.after(self._restart_s, self._come_up, columns, self._ended[columns])

    def _come_up(self, columns: Columns, ended: NDArray[np.int64]) -> None:
        same = (self._ended[columns] == ended) & (self._fleet.status[columns] == cfs.DOWN)
        if self._starting is not None:
            self._starting.complete(columns[same])
        self._physics.release(columns[same])
