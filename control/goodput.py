"""Goodput of data-parallel training: throughput times statistical efficiency, and how both are measured.

For: the scheduler Pollux and the recommender Scavenger, which share this model. Not for: choosing GPUs or
clusters. A larger batch makes a step carry more, and the noise scale says how much more: it is the trace of
the gradients' covariance over the squared norm of the true gradient. Sources: McCandlish et al. 2018
(arXiv 1812.06162) §2.2 for the noise scale; Pollux (Qiao et al., OSDI 2021) §3 and its code
(petuum/adaptdl) for the estimator from replicas, the model of throughput, its fit and the candidate batches.

Arguments may be arrays that broadcast. Batches and noise scales are in samples, times in s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from control.jobs import Flags, Real

LEAST = 1e-8
"""Least value of a coefficient, and the value of one that no run can determine (adaptdl)."""
MOST_GAMMA = 10.0
CANDIDATES = 50
"""Number of batch sizes that are compared, in geometric progression (adaptdl)."""
_MEMORY = 0.999
"""Weight of a past gradient relative to the newest one, per batch of size B0 between them (adaptdl)."""
_ACROSS = 1.1
"""Least ratio of the network's time between machines to that inside one, if no run shows it (adaptdl)."""
_GAMMA_WEIGHT, _GROWTH_WEIGHT = 1e-3, 1e-2
"""Weights of the fit's preferences for a small gamma and for slow growth with the GPUs (adaptdl)."""
_FIRST_GAMMA = 2.0
"""Value of gamma at which the fit begins. At its bound of 1 the optimiser would not leave it."""
_DIFFERENCE = 1e-8
"""Difference of a value from which a slope of the fit's loss is taken (SciPy)."""
_BLUNT = (0.1, 0.01, 1e-4)
"""Errors below which the fit is smoothed, in turn: an RMS error has a kink at 0, where optimisers get
stuck."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Gradient moments of a job.

    sqr: squared norm of the true gradient. trace: trace of the covariance of a sample's gradient. Both are
    unbiased estimates, so each may be below 0.
    """

    sqr: float
    trace: float

    @property
    def noise(self) -> float:
        """The noise scale in samples. NaN means not known yet: both estimates must be above 0."""
        return self.trace / self.sqr if self.sqr > 0 and self.trace > 0 else float("nan")


def of_replicas(
    local: ArrayLike, total: ArrayLike, replicas: int, batch: float, base: float | None = None
) -> Moments:
    """Return the moments from k steps of n ≥ 2 replicas, each average weighted towards the newest step.

    local: mean squared norm of the replicas' gradients, float64[k]. total: squared norm of their mean,
    float64[k]. batch: samples of all replicas together. base: B0, by default the batch. A single replica uses
    its last two gradients as two replicas of twice the batch. With Adam the gradients are divided by √v̂ + ε.
    """
    mean_sqr, of_mean = np.atleast_1d(np.asarray(local, float)), np.atleast_1d(np.asarray(total, float))
    sqr = (replicas * of_mean - mean_sqr) / (replicas - 1)
    trace = (mean_sqr - of_mean) * batch / (replicas - 1)
    age = np.arange(sqr.size)[::-1]
    weight = _MEMORY ** (age * batch / (base or batch))
    return Moments(float(np.average(sqr, weights=weight)), float(np.average(trace, weights=weight)))


def efficiency(noise: ArrayLike, batch: ArrayLike, base: ArrayLike) -> Real:
    """Return the value of a sample in this batch relative to one in a batch of B0: (φ + B0) / (φ + B)."""
    scale, size, first = (np.asarray(value, np.float64) for value in (noise, batch, base))
    with np.errstate(invalid="ignore"):
        worth = (scale + first) / (scale + size)
    return np.asarray(np.where(np.isinf(scale), 1.0, worth), np.float64)


def gain(noise: ArrayLike, batch: ArrayLike, base: ArrayLike) -> Real:
    """Return the progress of one step with this batch, in steps with a batch of B0."""
    steps: Real = np.asarray(batch, np.float64) / np.asarray(base, np.float64)
    return steps * efficiency(noise, batch, base)


@dataclass(frozen=True, slots=True)
class Speed:
    """Time of a step. With K GPUs, b samples on each of them at once and a further passes for accumulation:
    T_acc = α_c + β_c·b; T_net = 0 for one GPU, α_r + β_r·(K−2)⁺ in a machine, α_n + β_n·(K−2)⁺ across;
    step = a·T_acc + (T_acc^γ + T_net^γ)^(1/γ).

    alpha_*: s. beta_c: s per sample; beta_n, beta_r: s per GPU. gamma: overlap, 1 (none) to 10.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float = LEAST
    beta_n: float = LEAST
    alpha_r: float = LEAST
    beta_r: float = LEAST
    gamma: float = 1.0

    def accumulate_s(self, local: ArrayLike) -> Real:
        """Return T_acc, s. local: samples per GPU and pass."""
        return np.asarray(self.alpha_c + self.beta_c * np.asarray(local, float))

    def network_s(self, machines: ArrayLike, gpus: ArrayLike) -> Real:
        """Return T_net, s."""
        count, more = np.asarray(gpus), np.maximum(np.asarray(gpus) - 2, 0)
        across = np.asarray(machines) > 1
        exchange = np.where(across, self.alpha_n + self.beta_n * more, self.alpha_r + self.beta_r * more)
        return np.where(count == 1, 0.0, exchange)

    def step_s(self, machines: ArrayLike, gpus: ArrayLike, local: ArrayLike, passes: ArrayLike = 0) -> Real:
        """Return the time of a step, s. passes: accumulation steps before the one that exchanges."""
        computing, exchange = np.broadcast_arrays(self.accumulate_s(local), self.network_s(machines, gpus))
        long = np.maximum(np.maximum(computing, exchange), 1e-300)
        both = (computing / long) ** self.gamma + (exchange / long) ** self.gamma
        step: Real = np.asarray(passes) * computing + long * both ** (1 / self.gamma)
        return step

    def throughput(
        self, machines: ArrayLike, gpus: ArrayLike, local: ArrayLike, passes: ArrayLike = 0
    ) -> Real:
        """Return samples per second."""
        samples = np.asarray(gpus) * np.asarray(local, float) * (np.asarray(passes) + 1)
        rate: Real = samples / self.step_s(machines, gpus, local, passes)
        return rate


@dataclass(frozen=True, slots=True)
class Steps:
    """k measured steps, float64[k].

    machines, gpus: number of machines and GPUs. local: samples per GPU. step_s: time of the step.
    accumulate_s: time of its computation alone, NaN where unknown; on one GPU it is the whole step.
    """

    machines: Real
    gpus: Real
    local: Real
    step_s: Real
    accumulate_s: Real


def fit(steps: Steps) -> Speed:
    """Return the speed with the least RMS error of the logarithms of both times, and small penalties.

    Coefficients that no run can determine stay at LEAST. Networks between machines are then assumed to be
    slower than inside one.
    """
    computing = np.where(steps.gpus == 1, steps.step_s, steps.accumulate_s)
    seen = np.isfinite(computing)
    inside = bool(((steps.machines == 1) & (steps.gpus > 1)).any())
    across, many = bool((steps.machines > 1).any()), bool((steps.gpus > 2).any())
    mean_s = float((computing[seen] if seen.any() else steps.step_s).mean())
    varied = np.unique(steps.local).size > 1
    extra = np.maximum(steps.step_s - np.where(seen, computing, mean_s), 0.0)[steps.gpus > 1]
    net_s = max(float(extra.mean()) if extra.size else 0.0, mean_s / 100)
    # Coefficients are fitted as logarithms, because they differ by many orders of magnitude.
    start = np.log([mean_s / 2, mean_s / 2 / float(steps.local.mean()), net_s, net_s / 20, net_s, net_s / 20])
    free = np.array([varied, True, across, across and many, inside, inside and many])
    bounds = [(np.log(LEAST), 20.0) if part else (np.log(LEAST),) * 2 for part in free]
    start = np.where(free, start, np.log(LEAST))
    if not varied:
        # One batch size does not show which part of the time grows with it. Half of it is the optimistic
        # guess.
        start[0] = np.log(mean_s / 2)
        bounds[0] = (start[0], start[0])

    low, high = np.array([*bounds, (1.0, MOST_GAMMA)]).T
    values = np.append(start, _FIRST_GAMMA)
    moved = np.flatnonzero(low < high)

    def losses(logs: Real, gamma: float, blunt: float) -> Real:
        """Return the losses of k points, float64[k]. logs: their six logarithms, float64[k, 6]."""
        points = np.maximum(np.exp(logs), LEAST)
        guess = _speed(points.T[..., None], gamma)
        whole = _rms(guess.step_s(steps.machines, steps.gpus, steps.local) / steps.step_s, blunt)
        alone = _rms(guess.accumulate_s(steps.local[seen]) / computing[seen], blunt)
        growth = [
            (grow_n / n) ** 2 * across + (grow_r / r) ** 2 * inside
            for n, grow_n, r, grow_r in points[:, 2:].tolist()
        ]
        return whole + alone + _GAMMA_WEIGHT * (gamma - 1) ** 2 + _GROWTH_WEIGHT * np.array(growth)

    def loss(part: Real, blunt: float) -> tuple[float, Real]:
        """Return the loss and its slopes by forward differences. part: the values that are not fixed."""
        points = np.tile(values, (part.size + 1, 1))
        points[:, moved] = part
        points[1:, moved] += np.diag(np.where(part + _DIFFERENCE > high[moved], -_DIFFERENCE, _DIFFERENCE))
        # Only the last point has another gamma.
        told = losses(points[:-1, :6], float(points[0, 6]), blunt)
        told = np.append(told, losses(points[-1:, :6], float(points[-1, 6]), blunt))
        return float(told[0]), (told[1:] - told[0]) / (points[1:, moved].diagonal() - part)

    limits = list(zip(low[moved], high[moved], strict=True))
    for blunt in _BLUNT:
        ended = minimize(loss, values[moved], (blunt,), "L-BFGS-B", jac=True, bounds=limits)
        values[moved] = ended.x
    found = _speed(np.maximum(np.exp(values[:6]), LEAST).tolist(), float(values[6]))
    if across:
        return found
    # No step ran across machines.
    slower = max(found.alpha_n, _ACROSS * found.alpha_r), max(found.beta_n, _ACROSS * found.beta_r)
    return replace(found, alpha_n=slower[0], beta_n=slower[1])


def _speed(coefficients: Iterable[Any], gamma: float) -> Speed:
    """Return the speed of six coefficients: one, or float64[k, 1] for k at once."""
    c, per_sample, n, grow_n, r, grow_r = coefficients
    return Speed(c, per_sample, n, grow_n, r, grow_r, gamma)


def _rms(ratio: Real, blunt: float) -> Real:
    """Return float64[k]. ratio: float64[k, n]."""
    if not ratio.size:
        return np.zeros(len(ratio))
    return np.asarray(np.sqrt(np.mean(np.log(ratio) ** 2, axis=1) + blunt**2))


@dataclass(frozen=True, slots=True)
class Goodput:
    """A job's goodput.

    speed: time of its steps. noise: noise scale. base: B0, the batch with which it was tuned.
    most: largest batch of all GPUs. most_local: largest batch that a GPU's memory holds.
    """

    speed: Speed
    noise: float
    base: float
    most: float
    most_local: float

    def best(self, machines: ArrayLike, gpus: ArrayLike) -> tuple[Real, Real]:
        """Return the largest goodput over the candidate batches, samples of B0 per second, and its batch.

        Both are float64[m] for m counts of GPUs; the goodput is 0 where the GPUs are more than the batch.
        """
        across, count = (np.atleast_1d(np.asarray(value, float))[:, None] for value in (machines, gpus))
        wanted = np.geomspace(np.minimum(self.base, self.most), self.most, CANDIDATES)[None, :] / count
        passes = np.maximum(np.ceil(wanted / self.most_local - 1e-9), 1.0) - 1
        local = np.ceil(wanted / (passes + 1) - 1e-9)
        batch = count * local * (passes + 1)
        # Whole samples per GPU may need a batch slightly above B0.
        smallest = count * (passes + 1) * np.ceil(self.base / (count * (passes + 1)))
        fits: Flags = (local <= self.most_local) & (batch <= np.maximum(self.most, smallest)) & (wanted >= 1)
        rate = self.speed.throughput(across, count, local, passes)
        value = np.where(fits, rate * efficiency(self.noise, batch, self.base), 0.0)
        place = value.argmax(axis=1)[:, None]
        return np.take_along_axis(value, place, 1)[:, 0], np.take_along_axis(batch, place, 1)[:, 0]
