"""Spot machines: what a job costs under a price history, and how often its machines are taken away.

For: histories of prices, and traces of how many machines were available. Not for: reading either
(traces/readers), nor bidding (today's spot markets have none). Times are seconds since the start of the
history. Sources: SkyPilot's spot traces for the form; Daly (2006, eq. 13) for the time lost to random
interruptions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import Real
from twin.cloud.pricing import SECONDS_PER_HOUR
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Levels:
    """A step function of time.

    t_s: times of change, s, ascending, float64[n].
    value: value from each time until the next, float64[n].

    Raises ScenarioError if it is empty, times do not ascend, or a value is NaN or negative.
    """

    t_s: Real
    value: Real

    def __post_init__(self) -> None:
        if not self.t_s.size or self.t_s.shape != self.value.shape:
            raise ScenarioError("spot history: it needs as many times as values, and at least one")
        if (np.diff(self.t_s) <= 0).any():
            raise ScenarioError("spot history: times must ascend")
        if not np.isfinite(self.value).all() or (self.value < 0).any():
            raise ScenarioError("spot history: a value is NaN or negative")

    def at(self, t_s: Real) -> Real:
        """Return the values at times; before the history begins its first value holds."""
        return self.value[np.maximum(np.searchsorted(self.t_s, t_s, side="right") - 1, 0)]

    def mean(self, start_s: float, end_s: float) -> float:
        """Return the mean between two times, start < end."""
        inner = self.t_s[(self.t_s > start_s) & (self.t_s < end_s)]
        edges = np.concatenate([[start_s], inner, [end_s]])
        return float(np.average(self.at(edges[:-1]), weights=np.diff(edges)))


def cost_usd(price_usd_h: Levels, machines: int, start_s: float, held_s: float) -> float:
    """Return the cost of holding machines from start_s for held_s at the prices of that time, US$."""
    if held_s <= 0:
        return 0.0
    return machines * held_s / SECONDS_PER_HOUR * price_usd_h.mean(start_s, start_s + held_s)


def preemptions(available: Levels, wanted: int) -> Real:
    """Return the times at which a cluster of `wanted` machines loses one or more, s.

    A cluster holds as many machines as are available, up to `wanted`, and takes returning ones at once.
    """
    held = np.minimum(available.value, wanted)
    return available.t_s[1:][np.diff(held) < 0]


def preemptions_per_h(available: Levels, wanted: int) -> float:
    """Return the losses per hour in which the cluster held any machine; 0 if it never did."""
    held_s = float((np.diff(available.t_s) * (np.minimum(available.value, wanted)[:-1] > 0)).sum())
    return preemptions(available, wanted).size / held_s * SECONDS_PER_HOUR if held_s else 0.0


def share_held(available: Levels, wanted: int) -> float:
    """Return the mean share of the wanted machines that the cluster held, 0–1."""
    if available.t_s.size < 2:
        return float(min(available.value[0], wanted) / wanted)
    held = np.minimum(available.value, wanted)[:-1]
    return float(np.average(held, weights=np.diff(available.t_s)) / wanted)


def expected_s(work_s: float, per_h: float, checkpoint_s: float, every_s: float, restart_s: float) -> float:
    """Return the expected time of a job under random losses, s.

    work_s: time of the job without losses, s; per_h: losses per hour.
    checkpoint_s: time to save, s; every_s: time between saves, s; restart_s: time to be at work again, s.

    A piece of length w between saves takes (e^{λw} − 1)(1/λ + r) under losses at rate λ with restart time r.
    Raises ScenarioError if every_s ≤ 0.
    """
    if every_s <= 0:
        raise ScenarioError("spot: the time between checkpoints must be above zero")
    rate = per_h / SECONDS_PER_HOUR
    whole, rest = divmod(work_s, every_s)
    pieces = [(whole, every_s + checkpoint_s), (1.0, rest)]
    if rate == 0:
        return sum(count * length for count, length in pieces)
    return float(sum(count * np.expm1(rate * length) * (1 / rate + restart_s) for count, length in pieces))
