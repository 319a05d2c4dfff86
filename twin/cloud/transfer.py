"""Times on an accelerator from a profile on another one, and times of runs like others that are known.

For: `across` (a job was profiled on one accelerator, operation by operation: what will a step take on
another one, on which other jobs were measured) and `Forest` (a job's time among runs described by a table).
Not for: scaling over GPUs and nodes (scaling.py). `across` joins two views by their geometric mean:
operations that are each sped up by a factor of their own (non-negative least squares of relative errors), and
extremely randomised trees on the same profile. How far the factors are pulled together is chosen on the other
jobs, each left out in turn. Source: PROFET (CLOUD 2022) for the task; Lawson and Hanson 1974; Geurts, Ernst
and Wehenkel 2006. Needs scikit-learn (extra [cloud]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from twinbed import BackendError, InvariantError

Real = NDArray[np.float64]
Names = NDArray[np.object_]

TREES = 80
"""Trees are averaged: more of them cost time and change little."""
PULLS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Weights of the guess that all operations are sped up alike, against the measurements (relative errors)."""
LAUNCH_S = 0.005
"""Unit of the part of a step that no operation explains; its factor is fitted."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """Steps profiled on one accelerator, a row per job and batch size.

    step_s: there, float64[n]; operation_s: accelerator time by kind of operation, float64[n, k]; idle_s: of
    the accelerator in the profile; features: what else is known (log batch, log input size), float64[n, f].
    """

    step_s: Real
    operation_s: Real
    idle_s: Real
    features: Real

    def __post_init__(self) -> None:
        rows = self.step_s.size
        if not rows == self.operation_s.shape[0] == self.idle_s.size == self.features.shape[0]:
            raise InvariantError("profiles have columns of different lengths")

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Profiles:
        """The profiles at `rows`."""
        return Profiles(self.step_s[rows], self.operation_s[rows], self.idle_s[rows], self.features[rows])

    def parts(self) -> Real:
        """What a step is made of: operations, idleness, a constant, and the step itself."""
        constant = np.full(self.step_s.size, LAUNCH_S)
        return np.column_stack([self.operation_s, self.idle_s, constant, self.step_s])

    def table(self) -> Real:
        """The same for trees: absolute and relative, in logs."""
        busy = self.operation_s.sum(axis=1, keepdims=True)
        return np.column_stack(
            [
                np.log(self.step_s),
                self.features,
                np.log1p(self.operation_s * 1e6),
                self.operation_s / busy,
                np.log((self.idle_s[:, None] + 1e-3) / busy),
                np.log(busy / self.step_s[:, None]),
            ]
        )


def across(others: Profiles, jobs: Names, target_s: Real, asked: Profiles, seed: int = 0) -> Real:
    """Seconds per step on the target accelerator, float64[m], from other jobs' steps there, float64[n].

    jobs: whose each of the others' rows is, names[n] (rows of one job are left out together in choosing).
    """
    ratio = np.log(target_s / others.step_s)
    factors = _factors(others.parts(), target_s, _pull(others, jobs, target_s))
    physical = np.clip(np.log(asked.parts() @ factors / asked.step_s), ratio.min(), ratio.max())
    learned = Forest(others.table(), ratio, seed).predict(asked.table())
    found: Real = asked.step_s * np.exp((physical + learned) / 2)
    return found


def _pull(others: Profiles, jobs: Names, target_s: Real) -> float:
    """The pull under which jobs that are left out come closest, by the median relative error."""
    parts = others.parts()
    best = []
    for pull in PULLS:
        errors = [np.empty(0)]
        for name in sorted(set(jobs)):
            out = jobs == name
            if out.all():
                return PULLS[-1]
            errors.append(
                np.abs(parts[out] @ _factors(parts[~out], target_s[~out], pull) / target_s[out] - 1)
            )
        best.append(float(np.median(np.concatenate(errors))))
    return PULLS[int(np.argmin(best))]


def _factors(parts: Real, target_s: Real, pull: float) -> Real:
    """Speed factors ≥ 0 that minimise squared relative errors, pulled to a common one."""
    common = float(np.exp(np.median(np.log(target_s / parts[:, :-2].sum(axis=1)))))
    share = (parts / target_s[:, None]).mean(axis=0)
    guess = np.append(np.full(parts.shape[1] - 2, common), [0.0, 0.0])
    weight = np.sqrt(pull * target_s.size) * np.sqrt(share**2 + 1e-12)
    rows = np.vstack([parts / target_s[:, None], np.diag(weight)])
    found: Real = nnls(rows, np.append(np.ones(target_s.size), weight * guess))[0]
    return found


class Forest:
    """Extremely randomised trees over a table of features; the mean of the trees."""

    def __init__(self, table: Real, target: Real, seed: int = 0) -> None:
        """table: float64[n, f]; target: float64[n]. Raises BackendError without scikit-learn."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise BackendError("scikit-learn is not installed; pip install 'twinbed[cloud]'") from None
        self._trees: Any = ExtraTreesRegressor(TREES, random_state=seed, n_jobs=1).fit(table, target)

    def predict(self, table: Real) -> Real:
        """Means, float64[m]."""
        return np.asarray(self._trees.predict(table), np.float64)
