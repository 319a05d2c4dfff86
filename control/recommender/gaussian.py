"""Gaussian processes over configurations: the Matérn-5/2 kernel, its fit, conditioning, improvement.

For: what CherryPick and transfer from past jobs have in common. Not for: choosing a candidate (cherrypick.py,
transfer.py). Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, §2.2, §4.2, §5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtr

from control.jobs import Candidates, Real, Whole

_NEGLIGIBLE = 1e-9
"""Standard deviation of a feature below which it is left out."""
_VARIANCE_PRECISION, _LENGTH_PRECISION = 0.3, 0.7
"""1 / standard deviation of the log-normal priors. The first is that of variance and noise (a factor of 28),
the second that of lengths (a factor of 4)."""
_IMPOSSIBLE = 1e12
"""Loss of a kernel whose covariance matrix cannot be factorised."""


@dataclass(frozen=True, slots=True)
class Features:
    """Features by which the kernel compares n candidates.

    values: p features of each candidate, float64[n, p]. kind: a number per instance type, int64[n].
    """

    values: Real
    kind: Whole

    def take(self, rows: Whole | slice) -> Features:
        """Return the features of the candidates at `rows`."""
        return Features(self.values[rows], self.kind[rows])


def features(candidates: Candidates) -> Features:
    """Return natural logs of workers, vCPUs, GiB per vCPU, GPUs + 1, servers + 1, batch and parameters.

    A parameter that is ever ≤ 0 is not transformed. Columns that do not vary or hold NaN are left out.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = [
            np.log(candidates.count),
            np.log(candidates.vcpus),
            np.log(candidates.memory_gib / candidates.vcpus),
            np.log1p(candidates.gpus),
            np.log1p(candidates.servers),
            np.log(candidates.batch),
        ]
        columns += [
            np.log(values) if values.min() > 0 else values.astype(np.float64)
            for _, values in sorted(candidates.parameters.items())
        ]
    kept = [column for column in columns if np.isfinite(column).all() and column.std() > _NEGLIGIBLE]
    values = np.column_stack(kept) if kept else np.zeros((len(candidates), 1))
    return Features(values, np.unique(candidates.name, return_inverse=True)[1].astype(np.int64))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Matérn-5/2 kernel with one length scale per feature.

    variance: variance of the process.
    noise: variance of a measurement about the process.
    lengths: length scale of each feature, float64[p].
    type_share: share of the covariance that only candidates of the same instance type have, 0 ≤ share < 1.
    """

    variance: float
    noise: float
    lengths: Real
    type_share: float = 0.0

    def __call__(self, left: Features, right: Features) -> Real:
        """Return the covariance between two sets of candidates without noise, float64[n, m]."""
        r = self._distance(left, right)
        return (1 + r + r**2 / 3) * np.exp(-r) * self._height(left, right)

    def slopes(self, x: Features, weight: Real) -> Real:
        """Return the derivatives of the sum of weight × covariance, float64[1 + p], or [2 + p] with types.

        They are by the logarithms of variance and lengths, and by the logit of type_share if it is not 0.
        weight: symmetric, float64[n, n].
        """
        r, height = self._distance(x, x), self._height(x, x)
        decay = np.exp(-r) * height * weight
        covariance = (1 + r + r**2 / 3) * decay
        near, scaled = 5 / 3 * (1 + r) * decay, x.values / self.lengths
        # The sum of near[i, j] (scaled[i] - scaled[j])² over all pairs.
        by_length = 2 * (near.sum(axis=1) @ scaled**2 - (scaled * (near @ scaled)).sum(axis=0))
        slopes = np.append(covariance.sum(), by_length)
        if not self.type_share:
            return slopes
        return np.append(slopes, -self.type_share * covariance[x.kind[:, None] != x.kind[None, :]].sum())

    def _distance(self, left: Features, right: Features) -> Real:
        """Return the distance in length scales, times √5, float64[n, m]."""
        a, b = left.values / self.lengths, right.values / self.lengths
        squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
        distance: Real = np.sqrt(5 * np.maximum(squared, 0.0))
        return distance

    def _height(self, left: Features, right: Features) -> Real | float:
        """Return the covariance at distance 0, float64[n, m] or a number for all."""
        if not self.type_share:
            return self.variance
        same = left.kind[:, None] == right.kind[None, :]
        return self.variance * np.where(same, 1.0, 1.0 - self.type_share)


def fit(x: Features, draws: Sequence[tuple[Whole, Real]], start: Kernel, *, level_variance: float) -> Kernel:
    """Return the maximum-a-posteriori kernel for independent draws of one process.

    draws: for each draw positions in x, int64[k], and centred values there, float64[k].
    start: kernel at which the optimiser begins, and the prior's median; type_share is fitted only if it is
    not 0.
    level_variance: prior variance of each draw's own constant mean.

    The optimiser runs until it converges by its own tolerance. SciPy stops it after 15,000 evaluations; the
    likeliest kernel so far is returned then.
    """
    at = parameters(start)
    loss = evidence(x, draws, start, level_variance=level_variance)
    bounds = [(value - 7, value + 7) for value in at]
    fitted = minimize(loss, at, jac=True, method="L-BFGS-B", bounds=bounds)
    return _kernel(fitted.x, start)


def evidence(
    x: Features, draws: Sequence[tuple[Whole, Real]], start: Kernel, *, level_variance: float
) -> Callable[[Real], tuple[float, Real]]:
    """Return the negative log posterior of a kernel, as a function of its `parameters`, with its gradient.

    The arguments are those of `fit`. Draws at the same positions share one factorisation. Source: Rasmussen
    and Williams 2006 §5.4.1 for the gradient.
    """
    used = np.unique(np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in draws)]))
    known = x.take(used)
    together: dict[bytes, tuple[Whole, list[Real]]] = {}
    for positions, values in draws:
        place = np.searchsorted(used, positions)
        together.setdefault(place.tobytes(), (place, []))[1].append(values)
    blocks = [(np.ix_(place, place), np.column_stack(values)) for place, values in together.values()]
    at = parameters(start)
    precision = np.full(at.size, _LENGTH_PRECISION)
    precision[:2] = _VARIANCE_PRECISION

    def loss(theta: Real) -> tuple[float, Real]:
        kernel = _kernel(theta, start)
        covariance = kernel(known, known)
        away = (theta - at) * precision
        total, weight, by_noise = 0.5 * float(away @ away), np.zeros_like(covariance), 0.0
        for block, values in blocks:
            identity = np.eye(len(values))
            try:
                lower = np.linalg.cholesky(covariance[block] + level_variance + kernel.noise * identity)
            except np.linalg.LinAlgError:
                return _IMPOSSIBLE, np.zeros_like(theta)
            solved = cho_solve((lower, True), np.column_stack([values, identity]), check_finite=False)
            fitted, inverse = solved[:, : values.shape[1]], solved[:, values.shape[1] :]
            total += 0.5 * float((values * fitted).sum())
            total += values.shape[1] * float(np.log(np.diag(lower)).sum())
            by_covariance = 0.5 * (values.shape[1] * inverse - fitted @ fitted.T)
            np.add.at(weight, block, by_covariance)
            by_noise += kernel.noise * float(np.trace(by_covariance))
        return total, away * precision + np.insert(kernel.slopes(known, weight), 1, by_noise)

    return loss


def parameters(kernel: Kernel) -> Real:
    """Return the logarithms of variance, noise and lengths, and the logit of type_share if it is not 0."""
    theta = np.log(np.concatenate([[kernel.variance, kernel.noise], kernel.lengths]))
    return np.append(theta, logit(kernel.type_share)) if kernel.type_share else theta


def _kernel(theta: Real, like: Kernel) -> Kernel:
    lengths = theta[2:-1] if like.type_share else theta[2:]
    type_share = float(expit(theta[-1])) if like.type_share else 0.0
    return Kernel(float(np.exp(theta[0])), float(np.exp(theta[1])), np.exp(lengths), type_share)


def condition(
    kernel: Kernel, x: Features, positions: Whole, values: Real, *, level_variance: float
) -> tuple[Real, Real]:
    """Return the posterior mean and variance at every candidate, float64[n] each, given values at some."""
    known = x.take(positions)
    covariance = kernel(known, known) + level_variance
    covariance[np.diag_indices_from(covariance)] += kernel.noise
    lower = np.linalg.cholesky(covariance)
    cross = kernel(x, known) + level_variance
    half = solve_triangular(lower, cross.T, lower=True, check_finite=False)
    variance = kernel.variance + level_variance - (half**2).sum(axis=0)
    return cross @ cho_solve((lower, True), values), np.maximum(variance, 0.0)


def expected_improvement(best: float, mean: Real, deviation: Real) -> Real:
    """Return E[max(best − value, 0)] of normal values, in their unit and with the shape of `mean`."""
    safe = np.maximum(deviation, 1e-12)
    z = (best - mean) / safe
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    improvement: Real = (best - mean) * ndtr(z) + safe * density
    return improvement
