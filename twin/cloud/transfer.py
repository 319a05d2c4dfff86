"""Step times on an accelerator from a profile on another one, and times from a table of similar runs.

For: `across` predicts the step of a job that was profiled on one accelerator, operation by operation, on
another one on which other jobs were measured. `Forest` predicts a job's time from a table of runs. Not for:
scaling over GPUs and nodes (scaling.py). `across` takes the geometric mean of two models: a speed-up factor
per kind of operation (non-negative least squares of relative errors), and extremely randomised trees on the
same profile. The penalty that pulls the factors together is chosen by leaving out the other jobs in turn.
Sources: PROFET (CLOUD 2022) for the task; Lawson and Hanson 1974; Geurts, Ernst and Wehenkel 2006. Needs
scikit-learn (extra [cloud]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from control.jobs import Real
from twinbed import BackendError, InvariantError

Names = NDArray[np.object_]

TREES = 80
"""Number of trees; more of them take time and change little."""
PULLS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Penalties on factors that differ from the common one, relative to the squared relative errors."""
LAUNCH_S = 0.005
"""Constant part of a step that no operation explains, s; its factor is fitted."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """Steps profiled on one accelerator, a row per job and batch size.

    step_s: time of a step, s, float64[n].
    operation_s: accelerator time by kind of operation, s, float64[n, k].
    idle_s: idle time of the accelerator, s, float64[n].
    features: further features such as log batch and log input size, float64[n, f].
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
        """Return the profiles at `rows`."""
        return Profiles(self.step_s[rows], self.operation_s[rows], self.idle_s[rows], self.features[rows])

    def parts(self) -> Real:
        """Return the parts of a step: operations, idle time, a constant and the step itself, float64[n, k +
        3].
        """
        constant = np.full(self.step_s.size, LAUNCH_S)
        return np.column_stack([self.operation_s, self.idle_s, constant, self.step_s])

    def table(self) -> Real:
        """Return the trees' input: logs of absolute and relative times, and features."""
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
    """Return the seconds per step on the target accelerator of the asked profiles, float64[m].

    others: profiles of other jobs; jobs: name of each row's job, [n]; target_s: their steps there, s,
        float64[n].
    """
    ratio = np.log(target_s / others.step_s)
    factors = _factors(others.parts(), target_s, _pull(others, jobs, target_s))
    physical = np.clip(np.log(asked.parts() @ factors / asked.step_s), ratio.min(), ratio.max())
    learned = Forest(others.table(), ratio, seed).predict(asked.table())
    return asked.step_s * np.exp((physical + learned) / 2)


def _pull(others: Profiles, jobs: Names, target_s: Real) -> float:
    """Return the penalty of smallest median relative error on left-out jobs."""
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
    """Return factors ≥ 0 that minimise squared relative errors and the penalty on differing from a common
    one.
    """
    common = float(np.exp(np.median(np.log(target_s / parts[:, :-2].sum(axis=1)))))
    share = (parts / target_s[:, None]).mean(axis=0)
    guess = np.append(np.full(parts.shape[1] - 2, common), [0.0, 0.0])
    weight = np.sqrt(pull * target_s.size) * np.sqrt(share**2 + 1e-12)
    rows = np.vstack([parts / target_s[:, None], np.diag(weight)])
    factors: Real = nnls(rows, np.append(np.ones(target_s.size), weight * guess))[0]
    return factors


class Forest:
    """Extremely randomised trees over a table of features; a prediction is the mean of the trees."""

    def __init__(self, table: Real, target: Real, seed: int = 0) -> None:
        """table: float64[n, f]; target: float64[n]. Raises BackendError without scikit-learn."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise BackendError("scikit-learn is not installed; pip install 'twinbed[cloud]'") from None
        self._trees: Any = ExtraTreesRegressor(TREES, random_state=seed, n_jobs=1).fit(table, target)

    def predict(self, table: Real) -> Real:
        """Return predictions for rows of a table, float64[m]."""
        return np.asarray(self._trees.predict(table), np.float64)
