"""spotDNN's constants, fitted to short profiles of a job: contention, loss curve, computing time and batch.

For: the Training and the WorkerKinds of a job that was profiled. Not for: running profiles (testbed), nor
predicting (spotdnn.py). Source: spotDNN (IWQoS 2023), §III: a worker of each type alone, then clusters of 2,
4 and 7 workers for a few epochs. Our readings: the contention share follows from a worker's bandwidth, the
fit of the loss curve has the bounds of its constants, and a fit counts from R² = 0.5 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log2

import numpy as np
from scipy.optimize import least_squares

from control.jobs import Real, Whole
from control.recommender.spotdnn import Training
from twinbed import ScenarioError

LEAST_R2 = 0.5
"""Least R² of a fit from which plans are made (our reading)."""
_STARTS = (1.0, 30.0, 1000.0)
"""Values of γ1, pushes, from which the fit begins. The best of its ends counts."""
_NOTHING = 1e-12
"""Sum of squares of shares up to which they count as equal."""
_CONSTANTS = 5
"""Constants of the loss curve, and the fewest losses from which they follow."""

Gamma = tuple[float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Losses of one cluster.

    workers: number of workers. samples: mean samples of a push. convergence: R.
    pushes, loss: number of pushes until each loss, and the smoothed losses, float64[k].
    """

    workers: int
    samples: float
    convergence: float
    pushes: Real
    loss: Real


def contention(
    workers: Whole, bandwidth_mb_s: Real, *, server_mb_s: float, worker_mb_s: float
) -> tuple[float, float, float]:
    """Return α1, β1 and R² of the contention share P = α1 · √n + β1, fitted by least squares.

    workers: number of workers of each cluster, int64[k]. bandwidth_mb_s: bandwidth of one of its workers,
    MB/s, float64[k]. Clusters without contention are left out. Raises ScenarioError if fewer than two sizes
    are left.
    """
    equal = server_mb_s / workers
    contended = worker_mb_s > equal
    root = np.sqrt(workers[contended])
    if np.unique(root).size < 2:
        raise ScenarioError("contention: measured at one point only; measure at two or more")
    share = (worker_mb_s - bandwidth_mb_s[contended]) / (worker_mb_s - equal[contended])
    design = np.column_stack((root, np.ones_like(root)))
    fitted = np.linalg.lstsq(design, share)[0]
    around, left = ((share - share.mean()) ** 2).sum(), ((share - design @ fitted) ** 2).sum()
    r2 = 1 - left / around if around > _NOTHING else left <= _NOTHING
    return float(fitted[0]), float(fitted[1]), float(r2)


def compute_s(training: Training, gpus: int, alone_s: float) -> float:
    """Return the computing time of an iteration of a worker that trained alone, s. alone_s: time of the whole
    iteration, s.
    """
    moved_s = 2 * training.push_mb / training.worker_mb_s + 2 * gpus * training.push_mb / training.pcie_mb_s
    return alone_s - moved_s


def loss_curve(curves: Sequence[Curve]) -> tuple[Gamma, float]:
    """Return γ1 to γ5 and R² of the loss curve, fitted by least squares with γ2 ≤ 0 and the others ≥ 0.

    Raises ScenarioError for fewer losses than constants.
    """
    loss = np.concatenate([curve.loss for curve in curves])
    if loss.size < _CONSTANTS:
        raise ScenarioError(f"loss curve: {loss.size} losses; measure {_CONSTANTS} or more")
    pushes = np.concatenate([curve.pushes for curve in curves])
    sizes = [curve.loss.size for curve in curves]
    workers, samples, uneven = (
        np.repeat([float(getattr(curve, name)) for curve in curves], sizes)
        for name in ("workers", "samples", "convergence")
    )

    def apart(gamma: Real) -> Real:
        first, slope, offset, even, least = gamma
        scale = (slope * samples + offset) * np.sqrt((uneven + even) * workers)
        left: Real = scale / (pushes + first) + least - loss
        return left

    low, high = np.array([0, -np.inf, 0, 0, 0]), np.array([np.inf, 0, np.inf, np.inf, np.inf])
    ends = []
    for first in _STARTS:
        least = 0.9 * max(float(loss.min()), 0.0)
        offset = float(np.median((loss - least) * (pushes + first) / np.sqrt((uneven + 0.5) * workers)))
        begin = [first, -1e-3 * max(offset, 1.0) / samples.mean(), max(offset, 1e-6), 0.5, least]
        ends.append(least_squares(apart, begin, bounds=(low, high), x_scale="jac"))
    best = min(ends, key=lambda end: float(end.cost))
    around = float(((loss - loss.mean()) ** 2).sum())
    first, slope, offset, even, least = best.x.tolist()
    return (first, slope, offset, even, least), 1 - 2 * float(best.cost) / around if around > 0 else 0.0


def fitting_samples(gpus: int, memory_gib: float, alpha: float, beta: float) -> int:
    """Return the samples of an iteration of a worker: on each GPU, the largest power of two that fits.

    memory_gib: memory of a GPU, GiB. alpha, beta: α2 and β2 of the samples that fit, α2 · memory + β2. Raises
    ScenarioError if none fits.
    """
    most = alpha * memory_gib + beta
    if not most >= 1:
        raise ScenarioError(f"{memory_gib:g} GiB fit {most:.3g} samples by α2 and β2; expected 1 or more")
    # A product that should be a power of two may be just below it.
    return int(gpus * 2 ** floor(log2(most) + 1e-9))
