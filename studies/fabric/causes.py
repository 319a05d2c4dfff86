"""Names the probable cause of a session that went down without a fault, and bounds the rate of such sessions.

For: `python -m studies detection`. Not for: counting such sessions (detection.py, still.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from scipy import stats

from testbed.fabric.sentinel import Stall

CAUSES = ("every CPU stood still", "one CPU stood still", "no stall seen")
STALL_FLOOR_S = 0.005
"""Shortest stall that counts, s."""

_SLACK_NS = 5_000_000
"""Longest time between a stall's end and a session's end, beyond the detection time, at which the stall may
be the cause, ns."""


def cause(stalls: Sequence[Stall], at_ns: int, detection_s: float) -> str:
    """Return which of CAUSES fits a session that went down at at_ns, by the stalls in its detection time."""
    since_ns = at_ns - round(detection_s * 1e9) - _SLACK_NS
    near = [stall for stall in stalls if stall.end_ns > since_ns and stall.begin_ns < at_ns]
    if any(
        one.cpu != other.cpu and one.begin_ns < other.end_ns and other.begin_ns < one.end_ns
        for one in near
        for other in near
    ):
        return CAUSES[0]
    return CAUSES[1] if near else CAUSES[2]


def bound_per_h(count: int, hours: float) -> float:
    """Return the upper end of the exact one-sided 95 % interval of a rate, per hour (3/hours for none)."""
    return float(stats.chi2.ppf(0.95, 2 * (count + 1)) / 2 / hours) if hours else float("inf")
