"""How long a container that failed waits before it starts again, the same on both backends.

For: `wait_s`, and after which time failures are forgotten. Not for: what a failure is, nor for starting
anything. Source: a kubelet's CrashLoopBackOff (10 s, doubled up to 300 s, forgotten after 10 min), with
shorter waits because runs last minutes.
"""

from __future__ import annotations

FIRST_S = 1.0
"""Wait before the second restart, s. Each further wait is twice as long."""

MOST_S = 30.0
"""Longest wait before a restart, s."""

RESET_S = 30.0
"""A container that ran this long did not fail at its start, s. Its next restart happens at once."""

_MOST_DOUBLINGS = 10


def wait_s(failures: int) -> float:
    """Return the wait before the restart that follows the last of `failures` + 1 failures in a row, s."""
    if failures == 0:
        return 0.0
    return min(FIRST_S * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), MOST_S)
