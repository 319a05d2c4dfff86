"""Predict step times on an accelerator from a profile on another one, and times from a table of similar runs.

For: `across` predicts the step of a job that was profiled on one accelerator, operation by operation, on
another one on which other jobs were measured. `Forest` predicts a job's time from a table of runs. Not for:
scaling over GPUs and nodes (scaling.py).

`across` takes the geometric mean of three models of different stiffness. The first is a speed-up factor per
operation (non-negative least squares of relative errors). The second is a roofline, the longer of the
accelerator's part and the host's part. The accelerator's part has a factor for each of six kinds of
operation, drawn towards a common factor. Trees correct the result. The third is extremely randomised trees on
the ratio of both steps. Every job weighs the same, however many of its rows were measured. The penalty of the
first is chosen by leaving out the other jobs in turn. Sources: PROFET (CLOUD 2022) for the task; Lawson and
Hanson 1974; Williams et al. 2009 (roofline); Geurts, Ernst and Wehenkel 2006. Needs scikit-learn (extra
[cloud]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from control.jobs import Real
from twinbed import BackendError, InvariantError

Names = NDArray[np.object_]

TREES = 80
"""Number of trees. More trees take more time and change little."""
PULLS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Penalties on factors that differ from the common one, relative to the squared relative errors."""
LAUNCH_S = 0.005
"""Constant part of a step that no operation explains, s; its factor is fitted."""
KINDS = ("Depthwise", "Conv2D", "MatMul", "BatchNorm", "Send", "Recv", "")
"""Substrings of operations' names that show how they use an accelerator; the first match counts. Depthwise
convolutions and normalisations are bound by memory, other convolutions and matrix products by compute."""
_STIFFNESS, _NOISE = 0.4, 0.08
"""Standard deviations, in logarithms, of a kind's factor from the common one, and of a step from the
roofline."""
_HOST, _FIXED_S = (0.5, 1.0), (3e-3, 1.0)
"""Usual factor of the idle time, and usual constant time of the host, s, each with its standard deviation in
logarithms. Another host's CPU is about as fast, and half of the idle time is due to the host."""
_LONGER = 3.0
"""Exponent that joins the accelerator's and the host's part: nearly the longer of the two."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """Steps profiled on one accelerator. A row is a job and a batch size.

    step_s: time of a step, s, float64[n].
    operation_s: accelerator time by kind of operation, s, float64[n, k].
    idle_s: idle time of the accelerator, s, float64[n].
    features: further features such as log batch and log input size, float64[n, f].
    operations: names of the k operations; without them all are of one kind.
    """

    step_s: Real
    operation_s: Real
    idle_s: Real
    features: Real
    operations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = self.step_s.size
        if not rows == self.operation_s.shape[0] == self.idle_s.size == self.features.shape[0]:
            raise InvariantError("profiles have columns of different lengths")

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Profiles:
        """Return the profiles at `rows`."""
        return Profiles(
            self.step_s[rows], self.operation_s[rows], self.idle_s[rows], self.features[rows], self.operations
        )

    def kinds(self) -> Real:
        """Return the time of a step in each of KINDS, s, float64[n, len(KINDS)]."""
        names = self.operations or ("",) * self.operation_s.shape[1]
        which = [next(at for at, part in enumerate(KINDS) if part in name) for name in names]
        return self.operation_s @ np.eye(len(KINDS))[which]

    def parts(self) -> Real:
        """Return a step's operations, idle time, a constant and the step itself, float64[n, k + 3]."""
        constant = np.full(self.step_s.size, LAUNCH_S)
        return np.column_stack([self.operation_s, self.idle_s, constant, self.step_s])

    def table(self) -> Real:
        """Return the trees' input: logs of absolute and relative times, and features."""
        busy = self.operation_s.sum(axis=1, keepdims=True)
        return np.column_stack(
            [
                np.log(self.kinds() / busy + 0.02),
                np.log(self.idle_s / self.step_s + 0.02),
                np.log(self.step_s),
                self.features,
                np.log1p(self.operation_s * 1e6),
                self.operation_s / busy,
                np.log((self.idle_s[:, None] + 1e-3) / busy),
                np.log(busy / self.step_s[:, None]),
            ]
        )


def across(others: Profiles, jobs: Names, target_s: Real, asked: Profiles, seed: int = 0) -> Real:
    """Return the seconds per step of the asked profiles on the target accelerator, float64[m].

    others: profiles of other jobs. jobs: name of each row's job, [n]. target_s: their steps on the target
    accelerator, s, float64[n].
    """
    ratio = np.log(target_s / others.step_s)
    weight = _same_for_every_job(jobs)
    factors = _factors(others.parts(), target_s, _pull(others, jobs, target_s))
    linear = np.clip(np.log(asked.parts() @ factors / asked.step_s), ratio.min(), ratio.max())
    point = _roofline(others, target_s)
    here, there = _log_roofline(point, others), _log_roofline(point, asked)
    tables = [
        np.column_stack([own.table(), line - np.log(own.step_s)])
        for own, line in ((others, here), (asked, there))
    ]
    corrected = there + Forest(tables[0], np.log(target_s) - here, seed, weight).predict(tables[1])
    corrected = np.clip(corrected - np.log(asked.step_s), ratio.min(), ratio.max())
    learned = Forest(tables[0], ratio, seed, weight).predict(tables[1])
    return asked.step_s * np.exp((linear + corrected + learned) / 3)


def _same_for_every_job(jobs: Names) -> Real:
    _, job, rows = np.unique(jobs.astype(str), return_inverse=True, return_counts=True)
    return np.asarray(1 / rows[job], np.float64)


def _log_roofline(point: Real, profiles: Profiles) -> Real:
    """Return the logarithm of a step: the accelerator's operations, or the host's part if it is longer."""
    device = profiles.kinds() @ np.exp(point[0] + point[1:-2])
    host = np.exp(point[-2]) * profiles.idle_s + np.exp(point[-1])
    return np.asarray(np.log(device**_LONGER + host**_LONGER) / _LONGER)


def _roofline(others: Profiles, target_s: Real) -> Real:
    """Return the roofline's logarithms: common factor, deviations by kind, the host's factor and constant."""
    common = np.median(np.log(target_s / others.kinds().sum(axis=1)))
    usual = np.array([common, *[0.0] * len(KINDS), np.log(_HOST[0]), np.log(_FIXED_S[0])])
    spread = np.array([np.inf, *[_STIFFNESS] * len(KINDS), _HOST[1], _FIXED_S[1]])

    def left(point: Real) -> Real:
        off = (np.log(target_s) - _log_roofline(point, others)) / _NOISE
        soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([soft, (point - usual) / spread])

    point: Real = least_squares(left, usual).x
    return point


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
    """Return factors ≥ 0 that minimise squared relative errors plus a penalty on the distance from a common
    factor.
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

    def __init__(self, table: Real, target: Real, seed: int = 0, weight: Real | None = None) -> None:
        """Train on table, float64[n, f], and target, weight, float64[n]. Needs scikit-learn."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise BackendError("scikit-learn is not installed; pip install 'twinbed[cloud]'") from None
        self._trees: Any = ExtraTreesRegressor(TREES, random_state=seed, n_jobs=1).fit(table, target, weight)

    def predict(self, table: Real) -> Real:
        """Return predictions for rows of a table, float64[m]."""
        return np.asarray(self._trees.predict(table), np.float64)
