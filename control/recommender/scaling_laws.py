"""Laws of how a job's time scales with its cluster: serial share, overhead per machine, a memory cliff.

For: hypotheses about a job of which little was measured; prior.py weighs thousands of laws by past jobs, and
trials then update the weights. Not for: absolute times (a law is known up to a factor), nor residuals, which
no law explains.

    t ∝ s + (1 − s) · (W₀ / W) · e^(p · [memory < need]) + o · m / m₀

W: vCPUs of the cluster; m: its machines; s: serial share; o: overhead per machine; W₀ and m₀: those of a
reference cluster; p: penalty where memory is short. The memory that a worker's system keeps for itself does
not count, and the bracket is a logistic step. Sources: Ernest (NSDI 2016) §3 for the terms without the cliff;
Spark's unified memory management for what is recomputed or spilled if a working set does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import scipy
from scipy.special import expit

from control.jobs import Candidates, Real, Whole

_SERIAL = (1e-3, 10.0)
"""Range of the odds s / (1 − s), log-uniform: from all parallel to all serial."""
_NO_OVERHEAD, _OVERHEAD = 0.3, (1e-3, 1.0)
"""Share of laws without overhead, and the range of the others' overhead, log-uniform, relative to the rest.
"""
_CLIFFS, _PENALTY = 0.5, (0.2, 2.2)
"""Share of laws with a cliff, and the range of their penalty, uniform: a slow-down by a factor of 1.2 to 9.
"""
_RESERVED_GIB = (0.0, 1.5)
"""Range of the memory that each worker's system keeps, GiB, uniform."""
_LEAST_USABLE = 0.25
"""Least share of a worker's memory that is usable."""
_WIDTH = (0.03, 0.2)
"""Half-widths of the step in log memory: sudden if a cache either fits or does not, else gradual."""
_UNITS = np.array([1.0, 1.0, 0.5, 0.7, 1.5, 0.2])
"""Typical difference between jobs of a kind in each coordinate of a law."""
_BANDWIDTH = np.array([0.4, 0.4, 0.4, 0.6, 0.4, 0.8])
"""Bandwidth of the kernel in law space, in the units of Laws.coordinates."""
_LEAST_WEIGHT = 1e-3
"""Weight of a law up to which smoothing drops the law."""


@dataclass(frozen=True, slots=True)
class Laws:
    """k laws, one float64[k] per quantity.

    serial: serial share of the time at the reference cluster.
    overhead: overhead per machine, relative to the rest.
    penalty: logarithm of the slow-down if memory is short; 0 means no cliff.
    need_log_gib: logarithm of the cluster's usable memory at the cliff, GiB.
    reserved_gib: memory that each worker's system keeps, GiB.
    width: half-width of the step in log memory.
    """

    serial: Real
    overhead: Real
    penalty: Real
    need_log_gib: Real
    reserved_gib: Real
    width: Real

    def take(self, rows: Whole) -> Laws:
        """Return the laws at `rows`."""
        return Laws(*(getattr(self, column.name)[rows] for column in fields(self)))

    def coordinates(self) -> Real:
        """Return points in a space where a distance of 1 is typical for jobs of a kind, float64[k, 6]."""
        log_odds = np.log10(self.serial / (1 - self.serial))
        log_overhead = np.log10(np.maximum(self.overhead, 3e-4))
        columns = (log_odds, log_overhead, self.penalty, self.need_log_gib, self.reserved_gib, self.width)
        points: Real = np.column_stack(columns) / _UNITS
        return points


@dataclass(frozen=True, slots=True)
class Reference:
    """The cluster at which shares are stated. vcpus: its total vCPUs. machines: its number of machines."""

    vcpus: float
    machines: float


def reference(candidates: Candidates) -> Reference:
    """Return the geometric mean of the candidates' vCPUs, where they are known, and machines."""
    vcpus = candidates.vcpus * candidates.count
    known = vcpus[np.isfinite(vcpus)]
    return Reference(
        vcpus=float(np.exp(np.log(known).mean())) if known.size else 1.0,
        machines=float(np.exp(np.log(candidates.count).mean())),
    )


def sample(candidates: Candidates, count: int) -> Laws:
    """Return `count` laws (a power of two) spread by a Sobol' sequence over this module's ranges.

    The memory need is log-uniform over the range of the candidates' memory.
    """
    u = scipy.stats.qmc.Sobol(6, scramble=False).random(count)
    memory = candidates.memory_gib * candidates.count
    known = memory[np.isfinite(memory)]
    low, high = (np.log(known.min()), np.log(known.max())) if known.size else (0.0, 1.0)
    odds = _SERIAL[0] * (_SERIAL[1] / _SERIAL[0]) ** u[:, 0]
    beyond = (u[:, 1] - _NO_OVERHEAD) / (1 - _NO_OVERHEAD)
    overhead = _OVERHEAD[0] * (_OVERHEAD[1] / _OVERHEAD[0]) ** np.maximum(beyond, 0.0)
    penalty = _PENALTY[0] + (_PENALTY[1] - _PENALTY[0]) * u[:, 2] / _CLIFFS
    return Laws(
        serial=odds / (1 + odds),
        overhead=np.where(beyond > 0, overhead, 0.0),
        penalty=np.where(u[:, 2] < _CLIFFS, penalty, 0.0),
        need_log_gib=low + (high - low) * u[:, 3],
        reserved_gib=_RESERVED_GIB[0] + (_RESERVED_GIB[1] - _RESERVED_GIB[0]) * u[:, 4],
        width=np.where(u[:, 5] < 0.5, *_WIDTH),
    )


def log_time(laws: Laws, candidates: Candidates, at: Reference) -> Real:
    """Return the log of each law's time at each candidate, up to a constant per law, float64[k, n].

    Unknown vCPUs count as those of the reference. Unknown memory counts as sufficient.
    """
    machines = candidates.count.astype(np.float64)
    speed = np.nan_to_num(machines * candidates.vcpus / at.vcpus, nan=1.0)
    memory = np.nan_to_num(candidates.memory_gib, nan=np.inf)
    cliff = np.flatnonzero(laws.penalty)
    left_gib = memory[None, :] - laws.reserved_gib[cliff, None]
    usable = np.maximum(left_gib, _LEAST_USABLE * memory[None, :])
    short = (laws.need_log_gib[cliff, None] - np.log(machines * usable)) / laws.width[cliff, None]
    parallel = (1 - laws.serial)[:, None] / speed[None, :]
    parallel[cliff] *= np.exp(laws.penalty[cliff, None] * expit(short))
    return np.log(
        laws.serial[:, None] + parallel + laws.overhead[:, None] * (machines / at.machines)[None, :]
    )


def smoothed(points: Real, weights: Real) -> Real:
    """Return weights over k laws after smoothing by a Gaussian kernel in law space, float64[k], summing to 1.

    A past job thus stands for jobs like it. points: Laws.coordinates, float64[k, 6]; weights: float64[k], of
    which those up to _LEAST_WEIGHT are dropped.
    """
    rows = np.flatnonzero(weights > _LEAST_WEIGHT)
    if not rows.size:
        return np.full(len(points), 1 / len(points))
    # Single precision suffices for weights and takes a third of the time. Most of the learning time is spent
    # here.
    scaled = (points / _BANDWIDTH).astype(np.float32)
    squared = (scaled**2).sum(axis=1)
    distance = squared[rows][:, None] + squared[None, :] - 2 * scaled[rows] @ scaled.T
    kernel = np.exp(-0.5 * np.maximum(distance, 0.0))
    spread = (weights[rows] / kernel.sum(axis=1)).astype(np.float32) @ kernel
    normalised: Real = spread.astype(np.float64) / float(spread.sum())
    return normalised
