"""Spot machines: what a price history costs a job, and how often what is held is taken away.

For: prices that hold from a time until the next (a history of changes), and traces of how many machines
could be had. Not for: reading either (traces/readers), nor bidding (spot prices of today are not bid for).
Times are seconds since the start of the history. Source: SkyPilot's spot traces for the form; the time lost
to interruptions that come at random is Daly's (2006, eq. 13).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinbed import ScenarioError

Real = NDArray[np.float64]

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Levels:
    """A value that holds from `t_s` until the next: t_s ascending, float64[n]; value float64[n].

    Raises ScenarioError if there is none, times do not ascend, or a value is NaN or negative.
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
        """The value that holds at times (the first before the history begins)."""
        found: Real = self.value[np.maximum(np.searchsorted(self.t_s, t_s, side="right") - 1, 0)]
        return found

    def mean(self, start_s: float, end_s: float) -> float:
        """Mean over time between two times, start < end."""
        inner = self.t_s[(self.t_s > start_s) & (self.t_s < end_s)]
        edges = np.concatenate([[start_s], inner, [end_s]])
        return float(np.average(self.at(edges[:-1]), weights=np.diff(edges)))


def cost_usd(price_usd_h: Levels, machines: int, start_s: float, held_s: float) -> float:
    """Of holding machines from start_s for held_s at the prices that held meanwhile."""
    if held_s <= 0:
        return 0.0
    return machines * held_s / SECONDS_PER_HOUR * price_usd_h.mean(start_s, start_s + held_s)


def preemptions(available: Levels, wanted: int) -> Real:
    """Times at which a cluster of `wanted` machines loses one or more: fewer can be had than are held.

    A cluster holds what it can get, up to `wanted`, and takes what comes back at once.
    """
    held = np.minimum(available.value, wanted)
    found: Real = available.t_s[1:][np.diff(held) < 0]
    return found


def preemptions_per_h(available: Levels, wanted: int) -> float:
    """Losses per hour in which the cluster held any machine; 0 if it never did (see `share_held`)."""
    held_s = float((np.diff(available.t_s) * (np.minimum(available.value, wanted)[:-1] > 0)).sum())
    return preemptions(available, wanted).size / held_s * SECONDS_PER_HOUR if held_s else 0.0


def share_held(available: Levels, wanted: int) -> float:
    """Share of the machines wanted that was there, over time, 0–1."""
    if available.t_s.size < 2:
        return float(min(available.value[0], wanted) / wanted)
    held = np.minimum(available.value, wanted)[:-1]
    return float(np.average(held, weights=np.diff(available.t_s)) / wanted)


def expected_s(work_s: float, per_h: float, checkpoint_s: float, every_s: float, restart_s: float) -> float:
    """Expected time of a job that saves every `every_s` and starts anew after losses that come at random.

    checkpoint_s: to save; restart_s: to be at work again. A piece of length w between saves takes, under
    losses at rate λ with restart r, (e^{λw} − 1)(1/λ + r). Raises ScenarioError if every_s ≤ 0.
    """
    if every_s <= 0:
        raise ScenarioError("spot: the time between checkpoints must be above zero")
    rate = per_h / SECONDS_PER_HOUR
    whole, rest = divmod(work_s, every_s)
    pieces = [(whole, every_s + checkpoint_s), (1.0, rest)]
    if rate == 0:
        return sum(count * length for count, length in pieces)
    return float(sum(count * np.expm1(rate * length) * (1 / rate + restart_s) for count, length in pieces))
