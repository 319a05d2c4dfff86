"""Counts of refused messages by kind, with at most one log line per kind and second.

For: datagrams, certificates and messages that are refused. Not for: deciding what is refused.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

Kind = Literal[
    "another session",
    "certificate",
    "container failed",
    "container twice",
    "does not fit",
    "forged",
    "foreign",
    "impossible record",
    "malformed",
    "malformed message",
    "not deployed",
    "not its container",
    "oversized",
    "protocol",
    "registration",
    "replayed",
    "too many connections",
    "too old",
    "version",
]
"""Every kind of refusal. No kind comes from outside, so their number is bounded."""

KINDS: tuple[Kind, ...] = get_args(Kind)

LOG_INTERVAL_S = 1.0
"""Shortest time between two log lines of one kind, s."""


class RefusedError(Exception):
    """Raised when an agent may not register, or may not continue its call. The text goes to the agent and to
    the log."""


class Refusals:
    """Counts refusals. counts: kind → number since the start. clock: returns monotonic seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[Kind] = Counter()
        self._log = log
        self._clock = clock
        self._logged: dict[Kind, tuple[float, int]] = {}

    def add(self, kind: Kind, detail: str, count: int = 1) -> None:
        """Count a refusal. Writes `detail` to the log, unless this kind was logged within the last second."""
        self.counts[kind] += count
        now = self._clock()
        at, told = self._logged.get(kind, (-LOG_INTERVAL_S, 0))
        if now - at < LOG_INTERVAL_S:
            return
        unsaid = self.counts[kind] - told - count
        self._logged[kind] = (now, self.counts[kind])
        more = f" ({unsaid} more since the last line)" if unsaid else ""
        self._log.warning("refused, %s: %s%s", kind, detail, more)
