"""What was refused, counted by kind, with at most one log line per kind and second.

For: datagrams, certificates and messages that do not belong here. Not for: deciding what is refused.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

LOG_INTERVAL_S = 1.0
"""Shortest time between two log lines of one kind, s."""


class RefusedError(Exception):
    """Raised when an agent may not register, or may not go on. The text goes to the agent and to the log."""


class Refusals:
    """Counts refusals. counts: by kind, since the start; clock: seconds, monotonic."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def add(self, kind: str, detail: str, count: int = 1) -> None:
        """Count a refusal; write `detail` to the log unless this kind was logged within the last second."""
        self.counts[kind] += count
        now = self._clock()
        at, told = self._logged.get(kind, (-LOG_INTERVAL_S, 0))
        if now - at < LOG_INTERVAL_S:
            return
        unsaid = self.counts[kind] - told - count
        self._logged[kind] = (now, self.counts[kind])
        more = f" ({unsaid} more since the last line)" if unsaid else ""
        self._log.warning("refused, %s: %s%s", kind, detail, more)
