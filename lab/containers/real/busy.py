"""How busy the machine was during a run, and how much the hypervisor took away.

For: telling a run on a quiet machine from one that had company. Not for: the containers' own usage, which
their cgroups tell.
"""

from __future__ import annotations

from testbed.containers.machine import cpu_times

_EVERY_S = 1.0


class Busy:
    """CPU use of the whole machine between the first and the last `note`, which may be called often."""

    def __init__(self) -> None:
        self._first: tuple[float, float, float] | None = None
        self._last = (0.0, 0.0, 0.0)

    def note(self, elapsed_s: float) -> None:
        """Note the counters at a moment of the run; they are read once a second at most."""
        if self._first is None or elapsed_s >= self._last[0] + _EVERY_S:
            self._last = (elapsed_s, *_read())
            self._first = self._first or self._last

    def cores(self) -> tuple[float, float]:
        """Return (used, stolen by the hypervisor), mean cores; both 0 for less than a second."""
        if self._first is None or self._last[0] <= self._first[0]:
            return 0.0, 0.0
        wall_s = self._last[0] - self._first[0]
        return (self._last[1] - self._first[1]) / wall_s, (self._last[2] - self._first[2]) / wall_s


def _read() -> tuple[float, float]:
    """Return (seconds used, seconds stolen) since the machine started, summed over CPUs."""
    times = cpu_times()
    return times.used_s, times.stolen_s
