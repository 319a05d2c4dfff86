"""How long a failed container waits before it restarts. Both backends use it.

For: `wait_s`, and the time after which failures are forgotten. Not for: defining a failure, nor starting
anything. Source: a kubelet's CrashLoopBackOff (10 s, doubled up to 300 s, forgotten after 10 min). The waits
here are shorter because runs last minutes.
"""

from __future__ import annotations

FIRST_S = 1.0
"""Wait before the second restart, s. Each further wait is twice as long."""

MOST_S = 30.0
"""Longest wait before a restart, s."""

RESET_S = 30.0
"""A container that ran at least this long, s, did not fail at its start. Its next restart happens at once."""

_MOST_DOUBLINGS = 10


def wait_s(failures: int) -> float:
    """Return the wait before a restart, s, after `failures` + 1 failures in a row."""
    if failures == 0:
        return 0.0
    return min(FIRST_S * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), MOST_S)
