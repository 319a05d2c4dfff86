"""Autothrottle's Tower: one application's throttle targets, chosen every minute from its clients' latency.

For: which pair of targets (for busy and for idle containers) is tried next, and which containers are busy.
Not for: holding a target, which is the Captain's task (autothrottle_captain.py).

Source: Wang et al., "Autothrottle: A Practical Bi-Level Approach to Resource Management for SLO-Targeted
Microservices", NSDI 2024, and the authors' published code (microsoft/autothrottle, utils.py). These parts are
the source's: the ladder of nine targets; two classes of services, by 2-means on their mean CPU usage; a
contextual bandit over the 81 pairs, whose context is the request rate and whose cost is

    (A − A_min) / (A_max − A_min)            where the p99 latency met the SLO, over the samples that met it
    2 + (L − L_min) / (L_max − L_min)        where it did not, over the samples that did not

(A: cores allocated; L: p99 latency; the middle, 0.5 or 2.5, where the extremes are equal). A sample is the
pair, the rate it was chosen at, and the latency and allocation of the minute after. The bandit leaves the
pair it thinks best only for the pair's neighbours on the ladder.

The following is ours, because an allocator draws no random numbers and a run lasts minutes, not the source's
twelve hours of exploring before the measurement:

- The source predicts costs by a small neural network (Vowpal Wabbit) and explores with a probability of 0.1.
  We estimate the cost of pair a at rate ρ from its own samples. Each has the weight of its nearness
  2^−(|ln(ρ/ρ_i)| / ln 1.25); together they weigh n. A quarter of a sample is added for what the other pairs
  suggest: their mean, by the same nearness times 4^−(steps on the ladder from a). Among the best pair tried
  and its neighbours we play the pair with the lowest optimistic cost, estimate − e/√(n + ¼) (a lower
  confidence bound). So pairs with few samples are tried first, and this preference fades.
- The first pair is the one nearest to the configured targets. Ties go to the best pair, then to the lower sum
  of targets, then to the lower target of the busy containers: the more cautious choice.
- A minute in which requests came and none was answered costs 3, the most. A minute without requests gives no
  sample.
- Samples older than the last 1440 (a day) are forgotten. The source keeps all and takes medians of them.
- Classes follow the usage so far. The source fixes them before the measurement.
"""

from __future__ import annotations

from collections import deque
from math import inf, isnan, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Floats

LADDER = (0.0, 0.02, 0.04, 0.06, 0.10, 0.15, 0.20, 0.25, 0.30)
"""The targets to choose from: shares of periods throttled."""

EVERYONE_BUSY = -1.0
"""A boundary below every usage: all containers are busy."""

_REMEMBERED = 1440
_NEAR_RATE = log(1.25)
_NEAR_STEP = 4.0
_SUGGESTED = 0.25
_DIGITS = 9
"""Digits to which optimistic costs are compared, so that rounding does not decide between equal costs."""
_SAME = 1e-9
"""Relative difference up to which two extremes or two usages count as equal, for the same reason.

An application that uses all of Ω is allocated Ω in every interval, except for the last bit of a sum in the
containers' order.
"""
_LEAST_RATE = 1e-3
"""Lowest request rate, 1/s. It keeps the logarithm of an idle application's rate finite."""


class Pair(NamedTuple):
    """Two positions on the ladder: the targets of busy and of idle containers."""

    busy: int
    idle: int


class Sample(NamedTuple):
    """One interval.

    pair: the pair in force. log_rate: logarithm of the rate at which the pair was chosen. latency_s: p99
    latency, s (inf: no request was answered). cores: mean allocation.
    """

    pair: Pair
    log_rate: float
    latency_s: float
    cores: float


class Tower:
    """The bandit of one application."""

    def __init__(self, slo_p99_s: float, exploration: float, busy: float, idle: float) -> None:
        self._slo_p99_s = slo_p99_s
        self._exploration = exploration
        self._pair = Pair(_nearest(busy), _nearest(idle))
        self._chosen_at: float | None = None
        self.samples: deque[Sample] = deque(maxlen=_REMEMBERED)

    @property
    def targets(self) -> tuple[float, float]:
        """The targets in force, of busy and of idle containers."""
        return LADDER[self._pair.busy], LADDER[self._pair.idle]

    def learn(self, rate_rps: float, latency_p99_s: float, cores: float) -> None:
        """Learn from an interval and choose the targets of the next one.

        rate_rps: request rate, 1/s. latency_p99_s: p99 latency of its clients, s (NaN: no request was
        answered). cores: mean allocation.
        """
        if self._chosen_at is not None and rate_rps > 0:
            latency = inf if isnan(latency_p99_s) else latency_p99_s
            self.samples.append(Sample(self._pair, self._chosen_at, latency, cores))
        self._chosen_at = log(max(rate_rps, _LEAST_RATE))
        if self.samples:
            self._pair = self.choose(self._chosen_at)

    def choose(self, log_rate: float) -> Pair:
        """Return the pair of targets with the lowest estimated cost at a logarithm of the request rate."""
        cost = costs(self.samples, self._slo_p99_s)
        rates = np.array([sample.log_rate for sample in self.samples])
        at = np.array([sample.pair for sample in self.samples])
        near = np.exp2(-np.abs(rates - log_rate) / _NEAR_RATE)

        def estimate(pair: Pair, urge: float) -> float:
            steps = np.abs(at - pair).sum(axis=1)
            own = near * (steps == 0)
            others = near * _NEAR_STEP**-steps * (steps > 0)
            known, heard = float(own.sum()), float(others.sum())
            suggested = float(others @ cost) / heard if heard > 0 else float(own @ cost) / known
            mean = (float(own @ cost) + _SUGGESTED * suggested) / (known + _SUGGESTED)
            return round(mean - urge / sqrt(known + _SUGGESTED), _DIGITS)

        tried = _cautious({sample.pair for sample in self.samples})
        best = min(tried, key=lambda pair: estimate(pair, 0.0))
        candidates = [best, *_cautious(_neighbours(best))]
        return min(candidates, key=lambda pair: estimate(pair, self._exploration))


def costs(samples: deque[Sample], slo_p99_s: float) -> Floats:
    """Return the source's cost of each sample, float64[n]: in [0, 1] if the SLO was met, else in [2, 3]."""
    latency = np.array([sample.latency_s for sample in samples])
    cores = np.array([sample.cores for sample in samples])
    met = latency <= slo_p99_s
    cost = np.full(len(latency), 3.0)
    answered = ~met & np.isfinite(latency)
    cost[met] = _normalised(cores[met])
    cost[answered] = 2.0 + _normalised(latency[answered])
    return cost


def boundary(usage_cores: Floats) -> float:
    """Return the usage (cores) above which a container is busy.

    The boundary is half way between the means of the two classes of usage_cores (float64[n]) with the least
    squared distance from their means (2-means, exactly). Among equally good boundaries, the lowest is taken.
    If all containers use the same, it is `EVERYONE_BUSY`.
    """
    values = np.sort(usage_cores)
    count = np.arange(1, len(values))
    below = np.cumsum(values)[:-1]
    above = values.sum() - below
    # The squared distance from the means is least where the weighted squares of the means sum to most.
    between = below**2 / count + above**2 / (len(values) - count)
    apart = np.flatnonzero(values[1:] - values[:-1] > _SAME * values[1:])
    if apart.size == 0:
        return EVERYONE_BUSY
    between = between[apart]
    cut = int(apart[between >= (1.0 - _SAME) * between.max()][0])
    return float(values[: cut + 1].mean() + values[cut + 1 :].mean()) / 2


def _normalised(values: Floats) -> Floats:
    if values.size == 0 or values.max() - values.min() <= _SAME * values.max():
        return np.full(len(values), 0.5)
    return np.asarray((values - values.min()) / (values.max() - values.min()), np.float64)


def _neighbours(pair: Pair) -> set[Pair]:
    last = len(LADDER) - 1
    near = {Pair(pair.busy + a, pair.idle + b) for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1))}
    return {close for close in near if 0 <= close.busy <= last and 0 <= close.idle <= last}


def _cautious(pairs: set[Pair]) -> list[Pair]:
    """Return the pairs in order, the most cautious first. The first one wins a tie."""
    return sorted(pairs, key=lambda pair: (LADDER[pair.busy] + LADDER[pair.idle], pair.busy))


def _nearest(target: float) -> int:
    distance: NDArray[np.float64] = np.abs(np.array(LADDER) - target)
    return int(np.argmin(distance))
