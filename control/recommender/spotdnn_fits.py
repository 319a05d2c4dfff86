"""The constants of spotDNN's predictor, fitted to short profiles of a job.

For: α2 and β2 from memory against batch, α1 and β1 from the bandwidth of workers that contend, γ1 to γ5 from
loss curves. Not for: predicting with them (spotdnn.py), running profiles, nor smoothing losses, which the
caller does. Source: spotDNN (IWQoS 2023), §III. Readings: the inversion that gives the contention share, the
bounds γ2 ≤ 0 and others ≥ 0, and the least R².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from control.jobs import Real, Whole
from twinbed import ScenarioError

LEAST_R2 = 0.5
"""Least R² of a fit that is accepted (our reading)."""
_STARTS = (10.0, 1000.0)
"""Starting values of γ1, in pushes. The fit with the smaller error is used."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants.

    what: name in messages; values: the constants, float64[c]. residuals: measured less fitted, in the unit of
    the measurements, float64[k]. r2: share of the variance that is explained; 1 if the measurements do not
    vary and the fit is exact.
    """

    what: str
    values: Real
    residuals: Real
    r2: float

    @property
    def refusal(self) -> str:
        """Reason why the constants must not be used for planning; empty if they may."""
        if self.r2 >= LEAST_R2:
            return ""
        return f"infeasible: the fit of the {self.what} explains {self.r2:.2f} of the variance; profile again"


def fit_memory(memory_gib: Real, samples: Real) -> Fit:
    """Return α2 and β2 of samples = α2 · memory + β2. memory_gib: memory of a GPU, float64[k]; samples:
    float64[k].

    Raises ScenarioError for fewer than two different sizes.
    """
    return _line("memory", memory_gib, samples)


def fit_contention(workers: Whole, bandwidth_mb_s: Real, *, server_mb_s: float, worker_mb_s: float) -> Fit:
    """Return α1 and β1 of the contention share P = α1 · √n + β1.

    workers: number of workers of each cluster, int64[k]; bandwidth_mb_s: bandwidth of one of its workers,
    MB/s, float64[k]. Clusters without contention are left out. Raises ScenarioError if fewer than two sizes
    are left.
    """
    equal = server_mb_s / workers
    told = worker_mb_s > equal
    share = (worker_mb_s - bandwidth_mb_s[told]) / (worker_mb_s - equal[told])
    return _line("contention", np.sqrt(workers[told]), share)


def fit_loss(
    iterations: Real, loss: Real, samples: Real, convergence: Real, workers: Real, *, unequal: bool = True
) -> Fit:
    """Return γ1 to γ5 of the loss curve, by non-linear least squares.

    iterations: pushes so far, float64[k]. loss: smoothed loss, float64[k].
    samples, convergence, workers: mean samples of a push, R and workers of each loss's cluster, float64[k].
    unequal: whether R counts. If not, γ4 is 1, because it cannot be distinguished from γ2 and γ3.

    Raises ScenarioError for fewer measurements than constants.
    """
    if loss.size < 5:
        raise ScenarioError(f"loss curve: {loss.size} losses; measure at least 5")

    def curve(values: Real) -> Real:
        first, slope, offset, even, last = values
        scale = (slope * samples + offset) * np.sqrt(((convergence if unequal else 0.0) + even) * workers)
        return np.asarray(scale / (iterations + first) + last)

    fixed = 0.0 if unequal else 1.0 - 1e-9
    low, high = np.array([1e-9, -np.inf, 0.0, fixed, 0.0]), np.full(5, np.inf)
    high[1], high[3] = 0.0, np.inf if unequal else 1.0 + 1e-9
    fits = []
    for first in _STARTS:
        height = max(float(loss.max()), 1e-9) * first
        begin = np.array([first, -1e-3 * height / float(samples.mean()), height, 1.0, float(loss.min()) / 2])
        scale = np.maximum(np.abs(begin), 1e-6)
        how = {"bounds": (low, high), "x_scale": scale, "max_nfev": 5000}
        fits.append(least_squares(lambda values: curve(values) - loss, begin, **how))
    best = min(fits, key=lambda fit: float(fit.cost))
    values: Real = np.array([*best.x[:3], best.x[3] if unequal else 1.0, best.x[4]])
    return _fit("loss curve", values, loss, curve(values))


def _line(what: str, across: Real, measured: Real) -> Fit:
    if np.unique(across).size < 2:
        raise ScenarioError(f"{what}: measured at one point only; measure at two or more")
    design = np.column_stack((across, np.ones_like(across)))
    values: Real = np.asarray(np.linalg.lstsq(design, measured)[0], dtype=np.float64)
    return _fit(what, values, measured, design @ values)


def _fit(what: str, values: Real, measured: Real, fitted: Real) -> Fit:
    residuals = measured - fitted
    around = float(((measured - measured.mean()) ** 2).sum())
    left = float((residuals**2).sum())
    r2 = 1 - left / around if around > 0 else float(np.allclose(measured, fitted))
    return Fit(what, values, residuals, r2)
