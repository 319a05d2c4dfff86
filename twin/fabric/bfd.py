"""Bidirectional Forwarding Detection: when a session notices silence, and how often it is wrong.

For: the session's state machine, and detection times and false downs as distributions, for arrays of faults.
Not for: what routing does next (failover.py), nor sessions packet by packet in time (sessions.py).
Source: RFC 5880, §6.2 (state machine), §6.8.3 (slow while not up), §6.8.4 (detection time), §6.8.7 (jitter).
"""

from __future__ import annotations

import numpy as np

from control.fabric import BfdState, BfdTimers, Direction
from twin.fabric.model import Floats, Stalls
from twinbed import ScenarioError

SLOW_INTERVAL_S = 1.0
"""RFC 5880 §6.8.3: a session that is not up sends no more often than this."""

_SECONDS_PER_HOUR = 3600.0
_STEPS = 1 << 12
"""Of the integral over ages: its error is far below anything that stalls are known to."""


RECEIVED: dict[tuple[BfdState, BfdState], BfdState] = {
    (BfdState.DOWN, BfdState.DOWN): BfdState.INIT,
    (BfdState.DOWN, BfdState.INIT): BfdState.UP,
    (BfdState.DOWN, BfdState.UP): BfdState.DOWN,
    (BfdState.INIT, BfdState.DOWN): BfdState.INIT,
    (BfdState.INIT, BfdState.INIT): BfdState.UP,
    (BfdState.INIT, BfdState.UP): BfdState.UP,
    (BfdState.UP, BfdState.DOWN): BfdState.DOWN,
    (BfdState.UP, BfdState.INIT): BfdState.UP,
    (BfdState.UP, BfdState.UP): BfdState.UP,
}
"""(own state, state in the packet received) → own state after it. Silence for the detection time: DOWN.
ADMIN_DOWN is left out, because nobody in the twin shuts a session down on purpose."""


def check_timers(timers: BfdTimers) -> None:
    """Raises ScenarioError for timers that RFC 5880 does not allow."""
    if not (np.isfinite(timers.interval_s) and timers.interval_s > 0.0):
        raise ScenarioError(
            f"bfd: interval_s: {timers.interval_s} would send without end: give 0.003 or more"
        )
    if not 1 <= timers.multiplier <= 255:
        raise ScenarioError(f"bfd: multiplier: {timers.multiplier} is not in 1 to 255")


def spacing(multiplier: int) -> tuple[float, float]:
    """(least, greatest) time between packets as shares of the interval: less 0–25 %, 10–25 % if one lost
    packet is a fault already."""
    return 0.75, 0.9 if multiplier == 1 else 1.0


def silence_s(timers: BfdTimers, count: int, random: np.random.Generator) -> Floats:
    """float64[count], how long ago the last packet came, at a moment that knows nothing of the packets.

    The moment falls into a spacing the likelier the longer it is, and evenly within it.
    """
    least, greatest = spacing(timers.multiplier)
    squares = random.uniform(least**2, greatest**2, count)
    return np.asarray(np.sqrt(squares) * random.random(count) * timers.interval_s, np.float64)


def detection_s(timers: BfdTimers, count: int, random: np.random.Generator) -> Floats:
    """float64[count, 2], from a silent fault until the host's end ([:, OUT], which it sends by) and the
    ToR's ([:, IN]) have heard nothing for the detection time, counted from the last packet received.

    Raises ScenarioError as check_timers.
    """
    check_timers(timers)
    return timers.detection_s - np.stack([silence_s(timers, count, random) for _ in Direction], axis=1)


def false_downs_per_hour(timers: BfdTimers, stalls: Stalls, sessions: int) -> float:
    """How many of `sessions` of one machine go down in an hour because it stalls.

    A stalled machine neither sends nor reads: each end's silence is the stall and what had passed before.
    The session goes down at the end that reaches the detection time first (on the stalled machine a timer
    that expired is served before the packets that wait). Raises ScenarioError as check_timers, and for
    stalls that are none.
    """
    return sessions * _stalls_that_reach(timers, stalls, 0)


def isolations_per_hour(timers: BfdTimers, stalls: Stalls, uplinks: int) -> float:
    """How often in an hour a stall brings all of a host's `uplinks` sessions down at once.

    Then nothing reaches the host until a session is up and used again, though every link works. Errors as
    false_downs_per_hour.
    """
    return _stalls_that_reach(timers, stalls, uplinks - 1)


def _stalls_that_reach(timers: BfdTimers, stalls: Stalls, others: int) -> float:
    """Stalls per hour that bring down a session and `others` besides: the one that last heard decides."""
    check_timers(timers)
    if not (stalls.per_s >= 0.0 and stalls.floor_s > 0.0 and stalls.excess_s > 0.0):
        raise ScenarioError(f"stalls: {stalls}: per_s of zero or more, floor_s and excess_s above zero")
    least, greatest = spacing(timers.multiplier)
    age_s = np.linspace(0.0, greatest * timers.interval_s, _STEPS + 1)
    # Of a session's two ends the one counts that has heard nothing for longer: F².
    below = 1 - (1 - _silence_below(age_s / timers.interval_s, least, greatest) ** 2) ** (1 + others)
    longer = np.exp(np.minimum((stalls.floor_s + age_s - timers.detection_s) / stalls.excess_s, 0.0))
    share = float(np.sum((longer[1:] + longer[:-1]) / 2 * np.diff(below)))
    return _SECONDS_PER_HOUR * stalls.per_s * share


def _silence_below(age: Floats, least: float, greatest: float) -> Floats:
    """The distribution of silence_s in intervals: ∫ P(spacing > x) dx up to `age`, over the mean spacing."""
    long = np.minimum(age, least)
    beyond = np.clip(age, least, greatest) - least
    area = long + beyond - beyond**2 / (2 * (greatest - least))
    return np.asarray(area / ((least + greatest) / 2), np.float64)
