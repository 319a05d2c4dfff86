"""Reports the progress of a simulation, not too often.

For: the control loop (simulation.py). Not for: showing it (lab.cli.progress).
"""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[float], None]

_INTERVAL_S = 0.05


class Told:
    """The receiver of a simulation's progress. progress: function called with the finished share; None: no
    receiver.
    periods: number of periods of the simulation.
    """

    def __init__(self, progress: Progress | None, periods: int) -> None:
        self._progress, self._periods = progress, periods
        self._at, self._said = time.monotonic(), 0

    def tell(self, done: int) -> None:
        """Report that `done` periods are done, if the last report is long enough ago or all are done. The end
        is reported only once."""
        if self._progress is None or self._said == self._periods:
            return
        now = time.monotonic()
        if now - self._at >= _INTERVAL_S or done == self._periods:
            self._at, self._said = now, done
            self._progress(done / self._periods)
