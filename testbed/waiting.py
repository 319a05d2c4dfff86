"""Wait for a condition that nothing announces.

For: conditions of other processes and of the kernel. Not for: conditions that a descriptor can announce.
"""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 0.02
"""Usual time between two checks, s."""


def until(reached: Callable[[], bool], within_s: float, every_s: float = EVERY_S) -> bool:
    """Wait until `reached` returns True. Return False if it does not do so in time.

    within_s: longest wait, s. every_s: time between two checks, s.
    """
    deadline_s = time.monotonic() + within_s
    while not reached():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(every_s)
    return True
