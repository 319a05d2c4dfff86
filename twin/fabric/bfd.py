"""Bidirectional Forwarding Detection: the time until a session notices silence, and the rate of false alarms.

For: the session's state machine; detection times and false downs as distributions over many faults. Not for:
the reaction of routing (failover.py), nor sessions packet by packet in time (sessions.py). Source: RFC 5880,
§6.2 (state machine), §6.8.3 (slow while not up), §6.8.4 (detection time), §6.8.7 (jitter).
"""

from __future__ import annotations

import numpy as np

from control.fabric import BfdState, BfdTimers, Direction
from twin.fabric.model import Floats, Stalls
from twinbed import ScenarioError

SLOW_INTERVAL_S = 1.0
"""Shortest interval of a session that is not up, s (RFC 5880 §6.8.3)."""

_SECONDS_PER_HOUR = 3600.0
_STEPS = 1 << 12
"""Number of steps of the integral over the age of the last packet. Its error is far below the uncertainty of
any measured stalls."""


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
"""(own state, state in the received packet) → own state after it. After silence for the detection time the
state is DOWN. ADMIN_DOWN is left out, because nobody in the twin shuts a session down on purpose."""


def check_timers(timers: BfdTimers) -> None:
    """Raise ScenarioError for timers that RFC 5880 does not allow."""
    if not (np.isfinite(timers.interval_s) and timers.interval_s > 0.0):
        raise ScenarioError(
            f"bfd: interval_s: {timers.interval_s} is not a finite time above zero: give 0.003 or more"
        )
    if not 1 <= timers.multiplier <= 255:
        raise ScenarioError(f"bfd: multiplier: {timers.multiplier} is not in 1 to 255")


def spacing(multiplier: int) -> tuple[float, float]:
    """Return (least, greatest) time between two packets as shares of the interval.

    A sender takes off 0–25 % at random, or 10–25 % if a single lost packet is already a fault (RFC 5880
    §6.8.7).
    """
    return 0.75, 0.9 if multiplier == 1 else 1.0


def silence_s(timers: BfdTimers, count: int, random: np.random.Generator) -> Floats:
    """Return float64[count]: time since the last packet at a moment that is independent of the packets, s.

    Such a moment falls into a long spacing more often than into a short one, and evenly within it.
    """
    least, greatest = spacing(timers.multiplier)
    squares = random.uniform(least**2, greatest**2, count)
    return np.asarray(np.sqrt(squares) * random.random(count) * timers.interval_s, np.float64)


def detection_s(timers: BfdTimers, count: int, random: np.random.Generator) -> Floats:
    """Return float64[count, 2]: time from a silent fault until each end has heard nothing for the detection
    time, s.

    [:, OUT] is the host's end, [:, IN] the ToR's. The detection time counts from the last packet received.
    Raises ScenarioError as check_timers does.
    """
    check_timers(timers)
    return timers.detection_s - np.stack([silence_s(timers, count, random) for _ in Direction], axis=1)


def false_downs_per_hour(timers: BfdTimers, stalls: Stalls, sessions: int) -> float:
    """Return the number of a machine's `sessions` that go down in an hour because the machine stalls.

    A stalled machine neither sends nor reads. Each end's silence is the stall plus the age of its last
    packet, and the session goes down at the end that reaches the detection time first. (After a stall, the
    stalled machine serves an expired timer before the packets that wait.) Raises ScenarioError as
    check_timers does, and for stalls with impossible values.
    """
    check_timers(timers)
    if not (stalls.per_s >= 0.0 and stalls.floor_s > 0.0 and stalls.excess_s > 0.0):
        raise ScenarioError(
            f"stalls: {stalls}: give per_s of zero or more, and floor_s and excess_s above zero"
        )
    least, greatest = spacing(timers.multiplier)
    age_s = np.linspace(0.0, greatest * timers.interval_s, _STEPS + 1)
    # The end that has heard nothing for longer decides, so the distribution of its silence is F².
    below = _silence_below(age_s / timers.interval_s, least, greatest) ** 2
    longer = np.exp(np.minimum((stalls.floor_s + age_s - timers.detection_s) / stalls.excess_s, 0.0))
    share = float(np.sum((longer[1:] + longer[:-1]) / 2 * np.diff(below)))
    return sessions * _SECONDS_PER_HOUR * stalls.per_s * share


def _silence_below(age: Floats, least: float, greatest: float) -> Floats:
    """Return the distribution function of silence_s at `age` intervals: ∫ P(spacing > x) dx up to `age`,
    divided by the mean spacing."""
    long = np.minimum(age, least)
    beyond = np.clip(age, least, greatest) - least
    area = long + beyond - beyond**2 / (2 * (greatest - least))
    return np.asarray(area / ((least + greatest) / 2), np.float64)
