"""Histories of a spot market as step functions of time.

For: probing traces of how many machines were available, and price histories. Not for: reading either
(traces/readers), nor simulating policies over them (twin/cloud). Source: SkyPilot's spot traces for the form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.market.ports import Real, Whole
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Levels:
    """A step function of time.

    t_s: times of change, s, ascending, float64[n].
    value: value from each time until the next, float64[n].

    Raises ScenarioError if it is empty, times are NaN or do not ascend, or a value is NaN or
    negative.
    """

    t_s: Real
    value: Real

    def __post_init__(self) -> None:
        if not self.t_s.size or self.t_s.shape != self.value.shape:
            raise ScenarioError("spot history: it needs as many times as values, and at least one")
        if not np.isfinite(self.t_s).all() or (np.diff(self.t_s) <= 0).any():
            raise ScenarioError("spot history: times must ascend, and none may be NaN")
        if not np.isfinite(self.value).all() or (self.value < 0).any():
            raise ScenarioError("spot history: a value is NaN or negative")

    def least(self, tick_s: float) -> Real:
        """Return the least value within each whole tick from the first time to the last, float64[ticks]."""
        ticks = int((self.t_s[-1] - self.t_s[0]) // tick_s)
        edges = self.t_s[0] + tick_s * np.arange(ticks)
        times = np.union1d(edges, self.t_s)
        values = self.value[self._place(times)]
        end = np.searchsorted(times, self.t_s[0] + tick_s * ticks)
        return np.minimum.reduceat(values[:end], np.searchsorted(times, edges))

    def cut(self, begin_s: float, end_s: float) -> Levels:
        """Return the part between two times, which are its first and its last time."""
        inside = self.t_s[(self.t_s > begin_s) & (self.t_s < end_s)]
        times = np.concatenate([[begin_s], inside, [end_s]])
        return Levels(times, self.value[self._place(times)])

    def at(self, t_s: float) -> float:
        """Return the value that holds at t_s, s."""
        return float(self.value[self._place(t_s)])

    def least_between(self, begin_s: float, end_s: float) -> float:
        """Return the least value from a time to a later one, both included."""
        first, last = self._place(np.array([begin_s, end_s])).tolist()
        return float(self.value[first : last + 1].min())

    def within(self, begin_s: float, end_s: float) -> Real:
        """Return the values from a time until before a later one, float64[k]."""
        first = int(self._place(begin_s))
        return self.value[first : max(int(np.searchsorted(self.t_s, end_s)), first + 1)]

    def integral(self, begin_s: float, end_s: float) -> float:
        """Return the integral over a span of time, value · s."""
        inside = self.t_s[(self.t_s > begin_s) & (self.t_s < end_s)]
        edges = np.concatenate([[begin_s], inside, [end_s]])
        return float(self.value[self._place(edges[:-1])] @ np.diff(edges))

    def falls_below(self, level: float) -> Real:
        """Return the times at which the value falls below a level, s."""
        below = self.value < level
        return self.t_s[1:][below[1:] & ~below[:-1]]

    def _place(self, t_s: Real | float) -> Whole:
        """Return the positions of the values at some times; before the first time, that is the first one."""
        return np.maximum(np.searchsorted(self.t_s, t_s, side="right") - 1, 0)
