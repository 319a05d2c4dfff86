"""Turns samples of a counter or a gauge into one value per interval.

For: one series after merging. Not for: choosing series (series.py), nor their meaning (history.py).

A counter only grows. If its value falls, or the sample is of another cgroup, the counter was reset to zero,
and the whole new value was added since the sample before. A small fall between samples of two replicas is no
reset: the second replica scraped a little earlier. Nothing is known between samples that were read further
apart than the longest hold: the intervals there count as not seen.

Between two samples the growth is assumed to be even. It is divided by the time between the readings and
assigned to the time between the moments at which the samples count. A server's answer at a step is the sample
read last, some seconds before. So an interval's mean is over a stretch as long as the interval that lies up
to one scrape earlier, and peaks keep their height. Moving it into place by interpolation would mix two
intervals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.prometheus.series import Samples
from traces.schema import Floats

RESET = 0.5
"""Share of the value before, below which the value of another replica counts as a reset of the counter."""

SEEN = 0.5
"""Least share of an interval that must be seen for the interval's mean to count."""


def growth(edges_s: Floats, samples: Samples, hold_s: float) -> tuple[Floats, Floats]:
    """Return (growth, seconds seen) of a counter in each interval between edges, two float64[T].

    hold_s: longest time between two samples over which the growth counts.
    """
    times_s, values = samples.times_s, samples.values
    if times_s.size < 2:
        return np.zeros(len(edges_s) - 1), np.zeros(len(edges_s) - 1)
    apart_s, told_s, added = np.diff(samples.read_s), np.diff(times_s), np.diff(values)
    anew = np.diff(samples.life) != 0
    fell = (added < 0) & ~anew
    same = fell & (np.diff(samples.replica) != 0) & (values[1:] > RESET * values[:-1])
    added = np.where(fell | anew, values[1:], added)
    known = apart_s <= hold_s
    added = np.where(same | ~known, 0.0, added * told_s / apart_s)
    seen_s = np.where(known, told_s, 0.0)

    def between(total: Floats) -> Floats:
        at_samples = np.concatenate([[0.0], np.cumsum(total)])
        return np.diff(np.interp(edges_s, times_s, at_samples))

    return between(added), between(seen_s)


def went_on(edges_s: Floats, samples: Samples, hold_s: float) -> NDArray[np.bool_]:
    """Return the intervals in which the container ran although its use is unknown, bool[T].

    At least the share SEEN of such an interval lies in holes through which the counter grew.
    """
    times_s = samples.times_s
    if times_s.size < 2:
        return np.zeros(len(edges_s) - 1, np.bool_)
    same = (np.diff(samples.values) >= 0) & (np.diff(samples.life) == 0)
    hidden_s = np.where(same & (np.diff(samples.read_s) > hold_s), np.diff(times_s), 0.0)
    in_holes = np.interp(edges_s, times_s, np.concatenate([[0.0], np.cumsum(hidden_s)]))
    return np.asarray(np.diff(in_holes) >= (SEEN - 1e-9) * np.diff(edges_s))


def mean_rate(edges_s: Floats, samples: Samples, hold_s: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (a counter's mean growth per second in each interval, float64[T]; whether it is known, bool[T]).

    edges_s: bounds of the intervals, s, float64[T + 1], ascending. hold_s: longest distance of two samples
    between which the growth counts, s. An interval is known if its seen share is at least SEEN; else it is 0.
    """
    added, seen_s = growth(edges_s, samples, hold_s)
    # The tolerance is a billionth, because edges such as 0.1 · 3 are not exact.
    enough = seen_s >= (SEEN - 1e-9) * np.diff(edges_s)
    return np.divide(added, seen_s, out=np.zeros_like(added), where=enough), enough


def at_ends(edges_s: Floats, samples: Samples) -> tuple[Floats, Floats]:
    """Return (a gauge's last value at the end of each interval, time since its sample, s), two float64[T].

    Before the first sample, the first value counts. Without samples both are 0.
    """
    if not samples.times_s.size:
        return np.zeros(len(edges_s) - 1), np.zeros(len(edges_s) - 1)
    before = (np.searchsorted(samples.times_s, edges_s[1:] * (1 + 1e-15), side="right") - 1).clip(0)
    return samples.values[before].astype(np.float64), np.abs(edges_s[1:] - samples.times_s[before])
