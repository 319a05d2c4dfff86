"""Wait for ticks at start + k · interval of a monotonic clock.

For: a schedule that does not drift and counts missed ticks. Not for: the work at a tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NS = 1_000_000_000


class Schedule:
    """Ticks at start + k · interval, independent of the time of the work between them.

    interval_s: time between ticks, s. clock: function that returns monotonic nanoseconds. sleep: function
    called with seconds.
    start_ns: time of tick 0, when this object is made, ns. tick: the last tick returned. missed: number
        of ticks whose whole interval passed.
    """

    def __init__(
        self,
        interval_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval_ns = round(interval_s * NS)
        self._clock = clock
        self._sleep = sleep
        self.start_ns = clock()
        self.tick = 0
        self.missed = 0

    def due_ns(self, tick: int) -> int:
        """Return the time at which a tick is due, ns."""
        return self.start_ns + tick * self._interval_ns

    def wait(self) -> int:
        """Sleep until the next tick is due, and return its number. If later ticks are due by then, too, it
        returns the latest, and the others are missed."""
        following = self.tick + 1
        while (left_ns := self.due_ns(following) - self._clock()) > 0:
            self._sleep(left_ns / NS)
        latest = (self._clock() - self.start_ns) // self._interval_ns
        self.missed += latest - following
        self.tick = latest
        return latest
