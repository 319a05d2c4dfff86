"""Linear programmes over shares of time: the share of its time for which each job runs on each GPU type.

For: Gavel's policies (control.scheduler.gavel). Not for: turning shares into rounds. Everywhere X is
float64[n, r] with X[i, j] in [0, 1], a job's shares sum to at most 1, and Σᵢ gpusᵢ·Xᵢⱼ ≤ capacityⱼ. Source:
Narayanan et al., OSDI 2020, and the code of Gavel. The programmes are solved exactly, by HiGHS through scipy.
Equal jobs may be one row with a count: some solution treats them alike, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from control.scheduler.model import Flags, Real, Whole
from twinbed import InvariantError

Sparse = Any
"""A scipy.sparse.csr_array. Parts of scipy are loaded at their first use: every command reads this file."""

SLACK = 1e-6
"""Relative slack of a level found before, so that rounding cannot make the next programme infeasible."""

EASIEST = 1e6
"""A row whose rates exceed those of the hardest row by this factor need not reach a higher level."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand for GPUs, in n rows.

    gpus: GPUs of a gang, int64[n]. count: number of equal jobs that the row stands for, int64[n]. capacity:
    GPUs of each type, int64[r]. able: whether a job can run on a type at all, bool[n, r].
    """

    gpus: Whole
    count: Whole
    capacity: Whole
    able: Flags

    def fits(self) -> Flags:
        """Return the types on which a job can run and its gang fits, bool[n, r]."""
        fits: Flags = self.able & (self.gpus[:, None] <= self.capacity)
        return fits


@dataclass(frozen=True, slots=True)
class Level:
    """A solved max-min programme.

    x: the shares. z: the level reached.
    tight: the rows that no solution lifts above z while the others keep it, bool[n].
    """

    x: Real
    z: float
    tight: Flags


def isolated(demand: Demand) -> Real:
    """Return the shares of a cluster that is divided equally: capacity / (jobs · gpus), rows cut to sum 1."""
    jobs = max(int(demand.count.sum()), 1)
    x = demand.capacity / (jobs * demand.gpus[:, None])
    return np.asarray(x / np.maximum(x.sum(axis=1, keepdims=True), 1.0))


def max_min(
    demand: Demand,
    rate: Real,
    least: Real | None = None,
    raised: Flags | None = None,
    needs: Real | None = None,
) -> Level:
    """Return the largest z with Σⱼ rateᵢⱼ·Xᵢⱼ ≥ z for the raised rows, and ≥ leastᵢ for the others.

    rate: float64[n, r]; least: float64[n], None: 0; raised: bool[n], None: all. Rows that fit nowhere are
    left out of the raised ones. needs: rates with which Σⱼ needsᵢⱼ·Xᵢⱼ ≥ 1 must hold, too, float64[n, r].
    """
    fits = demand.fits()
    rate = np.where(fits, rate, 0.0)
    rows, kinds = rate.shape
    raised = np.ones(rows, np.bool_) if raised is None else raised
    raised = raised & (rate > 0).any(axis=1)
    if not raised.any():
        return Level(np.zeros_like(rate), 0.0, np.ones(rows, np.bool_))
    least = np.zeros(rows) if least is None else least
    # The hardest row sets the scale, so that the solver's tolerance is small relative to every level.
    hardest = rate.max(axis=1)
    scale = float(hardest[raised].min())
    unit = np.maximum(scale, hardest / EASIEST)
    # The scale of a row that is not raised is its own level.
    unit = np.where(raised, unit, np.where(least > 0, least, np.inf))
    floor = np.where(raised | (least <= 0), 0.0, SLACK - 1)
    uses = scipy.sparse.vstack((_by_row(np.ones_like(rate)), _by_type(demand, rows, kinds)), format="csr")
    most = np.concatenate((np.ones(rows), demand.capacity.astype(float)))
    upper = np.where(fits, 1.0, 0.0).ravel()
    reach = _by_row(rate / unit[:, None])
    if needs is not None:
        needs = np.where(fits, needs, 0.0)
        fastest = needs.max(axis=1)
        reach = scipy.sparse.vstack(
            (reach, _by_row(needs / np.where(fastest > 0, fastest, 1.0)[:, None])), format="csr"
        )
        least_of = np.divide(1.0, fastest, out=np.zeros(rows), where=fastest > 0)
        raised, floor = np.append(raised, np.zeros(rows, np.bool_)), np.append(floor, (SLACK - 1) * least_of)
    x, z, tight = raise_level(reach, uses, most, upper, raised, floor)
    return Level(x.reshape(rows, kinds).clip(0, 1), z * scale, tight[:rows])


def raise_level(
    reach: Sparse, uses: Sparse, most: Real, upper: Real, raised: Flags, floor: Real
) -> tuple[Real, float, Flags]:
    """Return x in [0, upper], the largest z, and the rows that hold z: reach·x ≥ z in the raised rows and ≥
    −floor in the others, with uses·x ≤ most.

    reach: [n, m]; uses: [l, m]; most: float64[l]; upper: float64[m]; raised: bool[n]; floor: float64[n].
    """
    rows = reach.shape[0]
    matrix = scipy.sparse.vstack(
        (_with_column(-reach, raised.astype(float)), _with_column(uses, np.zeros(uses.shape[0]))),
        format="csr",
    )
    bounds = np.column_stack((np.zeros(upper.size + 1), np.append(upper, np.inf)))
    goal = np.zeros(upper.size + 1)
    goal[-1] = -1.0
    limits = np.concatenate((floor, most))
    solved = scipy.optimize.linprog(goal, matrix, limits, bounds=bounds, method="highs")
    if solved.status != 0:
        raise InvariantError(f"a max-min programme of {rows} rows has no solution: {solved.message}")
    prices = -solved.ineqlin.marginals[:rows]
    tight = raised & (prices > max(1e-9, 1e-6 * float(prices[raised].max())))
    return solved.x[:-1], float(solved.x[-1]), tight


def water_filled(demand: Demand, rate: Real) -> Real:
    """Return the shares whose sorted levels Σⱼ rateᵢⱼ·Xᵢⱼ are lexicographically largest, float64[n, r].

    The least level is raised as far as possible. The rows that hold it, known by their dual prices, keep it,
    and the other rows are raised further. The levels are unique; the shares need not be.
    """
    raised: Flags = np.asarray((np.where(demand.fits(), rate, 0.0) > 0).any(axis=1))
    return filled(lambda reached, rows: max_min(demand, rate, reached, rows), raised, np.zeros_like(rate))


def filled(solve: Callable[[Real, Flags], Level], raised: Flags, nothing: Real) -> Real:
    """Return the shares of the last of the programmes that raise these rows one after the other.

    solve: (levels so far, float64[n]; rows to raise, bool[n]) → level. nothing: the shares if no row is
    raised.
    """
    reached, x = np.zeros(raised.size), nothing
    while raised.any():
        level = solve(reached, np.asarray(raised))
        if not level.tight.any():
            raise InvariantError("a max-min programme ended without a row that holds it")
        x = level.x
        reached = np.where(level.tight, level.z, reached)
        raised = raised & ~level.tight
    return x


def least_worth(demand: Demand, worth: Real, rate: Real, least: Real) -> Real | None:
    """Return shares with the largest Σ countᵢ·worthᵢⱼ·Xᵢⱼ under Σⱼ rateᵢⱼ·Xᵢⱼ ≥ leastᵢ; None if no shares
    satisfy it.

    worth, rate: float64[n, r], value and speed of row i on type j. least: float64[n], in the unit of rate.
    """
    fits = demand.fits()
    rows, kinds = rate.shape
    scale = np.maximum(np.where(fits, rate, 0.0).max(axis=1), 1e-300)
    matrix = scipy.sparse.vstack(
        (
            _by_row(-np.where(fits, rate, 0.0) / scale[:, None]),
            _by_row(np.ones_like(rate)),
            _by_type(demand, rows, kinds),
        ),
        format="csr",
    )
    limits = np.concatenate((-least / scale, np.ones(rows), demand.capacity.astype(float)))
    bounds = np.column_stack((np.zeros(rate.size), np.where(fits, 1.0, 0.0).ravel()))
    value = (demand.count[:, None] * worth).ravel()
    value /= -max(value.max(), 1e-300)
    solved = scipy.optimize.linprog(value, matrix, limits, bounds=bounds, method="highs")
    return solved.x.reshape(rows, kinds).clip(0, 1) if solved.status == 0 else None


def _by_row(values: Real) -> Sparse:
    """Return the matrix that sums values[i, j]·X[i, j] over j."""
    rows, kinds = values.shape
    return scipy.sparse.csr_array(
        (values.ravel(), np.arange(values.size), np.arange(0, values.size + 1, kinds)),
        shape=(rows, values.size),
    )


def _by_type(demand: Demand, rows: int, kinds: int) -> Sparse:
    """Return the matrix that sums count·gpus·X[i, j] over i."""
    weight = np.repeat((demand.count * demand.gpus).astype(float), kinds)
    kind = np.tile(np.arange(kinds), rows)
    return scipy.sparse.csr_array((weight, (kind, np.arange(rows * kinds))), shape=(kinds, rows * kinds))


def _with_column(matrix: Sparse, column: Real) -> Sparse:
    return scipy.sparse.hstack((matrix, scipy.sparse.csr_array(column[:, None])), format="csr")
