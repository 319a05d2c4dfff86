"""Gaussian processes over configurations: the Matérn-5/2 kernel, its fit, conditioning, improvement.

For: what CherryPick and transfer from past jobs have in common. Not for: choosing a candidate (cherrypick.py,
transfer.py). Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, §2.2, §4.2, §5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_ITERATIONS = 25
"""Most steps of the optimiser. The evidence is flat near its maximum, and more steps change no ranking."""


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
        a, b = left.values / self.lengths, right.values / self.lengths
        squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
        r = np.sqrt(5 * np.maximum(squared, 0.0))
        covariance: Real = self.variance * (1 + r + r**2 / 3) * np.exp(-r)
        if self.type_share:
            same = left.kind[:, None] == right.kind[None, :]
            covariance *= np.where(same, 1.0, 1.0 - self.type_share)
        return covariance


def fit(x: Features, draws: Sequence[tuple[Whole, Real]], start: Kernel, *, level_variance: float) -> Kernel:
    """Return the maximum-a-posteriori kernel for independent draws of one process.

    draws: for each draw positions in x, int64[k], and centred values there, float64[k].
    start: kernel at which the optimiser begins, and the prior's median; type_share is fitted only if it is
    not 0.
    level_variance: prior variance of each draw's own constant mean.

    Draws at the same positions share one factorisation.
    """
    together: dict[bytes, tuple[Whole, list[Real]]] = {}
    for positions, values in draws:
        together.setdefault(positions.tobytes(), (positions, []))[1].append(values)
    blocks = [
        (np.ix_(positions, positions), np.diag_indices(positions.size), np.column_stack(values))
        for positions, values in together.values()
    ]
    at = _theta(start)
    precision = np.full(at.size, _LENGTH_PRECISION)
    precision[:2] = _VARIANCE_PRECISION

    def loss(theta: Real) -> float:
        kernel = _kernel(theta, start)
        covariance = kernel(x, x)
        total = 0.5 * float((((theta - at) * precision) ** 2).sum())
        for block, diagonal, values in blocks:
            a = covariance[block] + level_variance
            a[diagonal] += kernel.noise
            try:
                lower = np.linalg.cholesky(a)
            except np.linalg.LinAlgError:
                return _IMPOSSIBLE
            z = solve_triangular(lower, values, lower=True, check_finite=False)
            total += 0.5 * float((z**2).sum()) + values.shape[1] * float(np.log(np.diag(lower)).sum())
        return total

    bounds = [(value - 7, value + 7) for value in at]
    fitted = minimize(loss, at, method="L-BFGS-B", bounds=bounds, options={"maxiter": _ITERATIONS})
    return _kernel(fitted.x, start)


def _theta(kernel: Kernel) -> Real:
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
