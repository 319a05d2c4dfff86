"""Laws of how a job's time scales with a cluster: serial share, overhead per machine, a cliff of memory.

For: hypotheses about a job of which little was measured; transfer.py weighs thousands of them by what past
jobs and trials say. Not for: absolute times (a law is known up to a factor) nor what no law explains.
    t ∝ s + (1 − s) · (W₀ / W) · e^(p · [memory < need]) + o · m / m₀
with W the cluster's vCPUs, m its machines, s the serial share and o the overhead of a machine at a reference
cluster (W₀, m₀). Memory that a worker's system keeps for itself does not count, and the cliff is a logistic
step. Sources: Ernest (NSDI 2016) §3 for the terms without the cliff; Spark's unified memory management for
what is recomputed or spilled where a working set does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import expit
from scipy.stats import qmc

from control.recommender.model import Candidates, Real, Whole

_SERIAL = (1e-3, 10.0)
"""Odds of the serial share at the reference cluster, log-uniform: from all parallel to all serial."""
_NO_OVERHEAD, _OVERHEAD = 0.3, (1e-3, 1.0)
"""How many laws have no overhead per machine; of the others it is log-uniform, relative to the rest."""
_CLIFFS, _PENALTY = 0.5, (0.2, 2.2)
"""How many laws have a cliff; the logarithm of the slow-down below it, uniform: a factor of 1.2 to 9."""
_RESERVED_GIB = (0.0, 1.5)
_LEAST_USABLE = 0.25
"""A worker's usable memory is at least this share of what it has."""
_WIDTH = (0.03, 0.2)
"""Half-width of the step in the logarithm of memory: sudden where a cache fits or not, gradual otherwise."""
_DISTANCE = (1.0, 1.0, 0.5, 0.7, 1.5, 0.2)
"""Per column of `_Laws.distances`: how far apart two laws are that differ about as jobs of a kind do."""
_BANDWIDTH = np.array([0.4, 0.4, 0.4, 0.6, 0.4, 0.8])
"""Of the kernel in law space, in units of _DISTANCE: past jobs stand for jobs like them."""


@dataclass(frozen=True, slots=True)
class Laws:
    """k laws, float64[k] each.

    serial: share of the time at the reference cluster; overhead: per machine, relative; penalty: logarithm of
    the slow-down where memory is short (0: no cliff); need_log_gib: logarithm of the whole cluster's usable
    memory at the cliff; reserved_gib: of each worker; width: of the step.
    """

    serial: Real
    overhead: Real
    penalty: Real
    need_log_gib: Real
    reserved_gib: Real
    width: Real

    def __len__(self) -> int:
        return int(self.serial.size)

    def take(self, rows: Whole) -> Laws:
        """The laws at `rows`."""
        return Laws(*(getattr(self, each.name)[rows] for each in fields(self)))

    def place(self) -> Real:
        """Coordinates in which a distance of 1 is about that of jobs of a kind, float64[k, 6]."""
        columns = np.column_stack(
            [
                np.log10(self.serial / (1 - self.serial)),
                np.log10(np.maximum(self.overhead, 3e-4)),
                self.penalty,
                self.need_log_gib,
                self.reserved_gib,
                self.width,
            ]
        )
        placed: Real = columns / np.array(_DISTANCE)
        return placed


@dataclass(frozen=True, slots=True)
class Reference:
    """The cluster at which shares are stated: geometric means over the candidates."""

    vcpus: float
    machines: float


def reference(candidates: Candidates) -> Reference:
    """The geometric mean of the candidates."""
    return Reference(
        vcpus=float(np.exp(np.log(candidates.vcpus * candidates.count).mean())),
        machines=float(np.exp(np.log(candidates.count).mean())),
    )


def sample(candidates: Candidates, count: int) -> Laws:
    """`count` laws spread evenly (Sobol') over all that seem possible before any job was seen.

    Needs are log-uniform over the memory that the candidates have. count: a power of two.
    """
    u = qmc.Sobol(6, scramble=False).random(count)
    memory = candidates.memory_gib * candidates.count
    known = memory[np.isfinite(memory)]
    low, high = (np.log(known.min()), np.log(known.max())) if known.size else (0.0, 1.0)
    odds = _SERIAL[0] * (_SERIAL[1] / _SERIAL[0]) ** u[:, 0]
    beyond = (u[:, 1] - _NO_OVERHEAD) / (1 - _NO_OVERHEAD)
    overhead = _OVERHEAD[0] * (_OVERHEAD[1] / _OVERHEAD[0]) ** np.maximum(beyond, 0.0)
    size = _PENALTY[0] + (_PENALTY[1] - _PENALTY[0]) * u[:, 2] / _CLIFFS
    return Laws(
        serial=odds / (1 + odds),
        overhead=np.where(beyond > 0, overhead, 0.0),
        penalty=np.where(u[:, 2] < _CLIFFS, size, 0.0),
        need_log_gib=low + (high - low) * u[:, 3],
        reserved_gib=_RESERVED_GIB[0] + (_RESERVED_GIB[1] - _RESERVED_GIB[0]) * u[:, 4],
        width=np.where(u[:, 5] < 0.5, *_WIDTH),
    )


def log_time(laws: Laws, candidates: Candidates, at: Reference) -> Real:
    """The natural logarithm of each law's time at each candidate, up to a constant of the law, [k, n].

    Where a candidate's vCPUs are not known it is taken to be as the reference; unknown memory is enough.
    """
    machines = candidates.count.astype(np.float64)
    speed = np.nan_to_num(machines * candidates.vcpus / at.vcpus, nan=1.0)
    memory = np.nan_to_num(candidates.memory_gib, nan=np.inf)
    usable = np.maximum(memory[None, :] - laws.reserved_gib[:, None], _LEAST_USABLE * memory[None, :])
    short = (laws.need_log_gib[:, None] - np.log(machines * usable)) / laws.width[:, None]
    parallel = (1 - laws.serial)[:, None] / speed[None, :] * np.exp(laws.penalty[:, None] * expit(short))
    time: Real = np.log(
        laws.serial[:, None] + parallel + laws.overhead[:, None] * (machines / at.machines)[None, :]
    )
    return time


def alike(place: Real, weights: Real, least: float = 1e-3) -> Real:
    """Weights over laws, spread from each law to those near it in law space, float64[k], summing to 1.

    place: see Laws.place; weights: float64[k]; those below `least` are not spread.
    """
    rows = np.flatnonzero(weights > least)
    if not rows.size:
        return np.full(len(place), 1 / len(place))
    scaled = place / _BANDWIDTH
    squared = (scaled**2).sum(axis=1)
    apart = squared[rows][:, None] + squared[None, :] - 2 * scaled[rows] @ scaled.T
    near = np.exp(-0.5 * np.maximum(apart, 0.0))
    spread = weights[rows] @ (near / near.sum(axis=1, keepdims=True))
    found: Real = spread / spread.sum()
    return found
