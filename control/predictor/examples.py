"""Training data of predictors: jobs on configurations, with their times and costs.

For: the rows of a data set as arrays, folds for cross-validation, and a job's best configurations. Not for:
encoding rows (features.py). Times are in s, costs in US$; NaN means "not known". Source: chapter 4 (cloud) of
the doctoral thesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.jobs import TOP, TOP_FACTOR, Candidates, Flags, Job, Objective, Real, Whole
from twinbed import InvariantError, ScenarioError

FEWEST_ROWS = 10
"""Least number of rows to train networks and the physical predictor."""


@dataclass(frozen=True, slots=True)
class Examples:
    """n rows, each a job on a configuration.

    jobs: the jobs.
    job: position of each row's job, int64[n].
    candidates: configuration of each row.
    time_s, cost_usd: outcome of the whole job, s and US$, float64[n].
    prior_time_s: time that an analytic model expects, s, float64[n].
    row: number of each row in its table, whose header is row 1, int64[n]; 0: it is in no table.
    unbilled_s: part of prior_time_s that is not billed, s.

    Raises InvariantError for columns of other lengths, or a position beyond the jobs.
    """

    jobs: tuple[Job, ...]
    job: Whole
    candidates: Candidates
    time_s: Real
    cost_usd: Real
    prior_time_s: Real
    row: Whole
    unbilled_s: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.candidates)
        columns = (self.job, self.time_s, self.cost_usd, self.prior_time_s, self.row)
        if any(column.shape != (count,) for column in columns):
            raise InvariantError(f"examples: {count} candidates and columns of other lengths")
        if ((self.job < 0) | (self.job >= len(self.jobs))).any():
            raise InvariantError(f"examples: a row of a job beyond the {len(self.jobs)} that there are")

    def __len__(self) -> int:
        return len(self.candidates)

    def take(self, rows: Whole | Flags) -> Examples:
        """Return the rows at `rows` (positions or a mask), in that order, with all jobs."""
        return Examples(
            self.jobs,
            self.job[rows],
            self.candidates.take(rows),
            self.time_s[rows],
            self.cost_usd[rows],
            self.prior_time_s[rows],
            self.row[rows],
            self.unbilled_s,
        )

    def objective(self, by: Objective) -> Real:
        """Return cost_usd or time_s, float64[n]."""
        return self.cost_usd if by is Objective.COST else self.time_s

    def check_known(self, by: Objective, fewest: int = 1) -> None:
        """Raise ScenarioError for fewer than `fewest` rows, and for unknown or not positive outcomes."""
        if len(self) < fewest:
            raise ScenarioError(
                f"{len(self)} rows to learn from; at least {fewest} are needed: add past runs"
            )
        wrong = np.flatnonzero(~(self.objective(by) > 0) | ~np.isfinite(self.objective(by)))
        if wrong.size:
            row = int(wrong[0])
            where = called(self.row[row], self.jobs[self.job[row]].name)
            raise ScenarioError(
                f"{where}: {by} is {self.objective(by)[row]}; leave out what was not measured"
            )


def called(row: int, job: str) -> str:
    """Return what errors call a row of a job. row: as in Examples."""
    return f"row {row} (job {job})" if row else f"job {job}"


def of_one_job(
    job: Job, candidates: Candidates, prior_time_s: Real | None = None, unbilled_s: float = 0.0
) -> Examples:
    """Return rows to predict: one job on each of n candidates, without outcomes. The rest as in Examples."""
    unknown = np.full(len(candidates), np.nan)
    zeros = np.zeros(len(candidates), np.int64)
    expected_s = unknown if prior_time_s is None else prior_time_s
    return Examples((job,), zeros, candidates, unknown, unknown, expected_s, zeros, unbilled_s)


def best(value: Real, job: Whole, *, count: int = TOP) -> Flags:
    """Return the rows among their job's `count` lowest values and within TOP_FACTOR of the lowest, bool[n].

    Rows that tie with the last one are included.
    """
    top = np.zeros(len(value), dtype=np.bool_)
    for rows in (np.flatnonzero(job == present) for present in np.unique(job)):
        lowest = np.sort(value[rows])
        top[rows] = value[rows] <= min(lowest[min(count, len(rows)) - 1], TOP_FACTOR * lowest[0])
    return top


def folds_of_rows(count: int, folds: int, rng: np.random.Generator) -> list[Whole]:
    """Return positions of the rows of each random fold. Raises ScenarioError for more folds than rows."""
    if not 2 <= folds <= count:
        raise ScenarioError(f"{folds} folds of {count} rows: expected 2 to {count}")
    return [np.sort(fold) for fold in np.array_split(rng.permutation(count), folds)]


def folds_of_jobs(job: Whole) -> list[Whole]:
    """Return the positions of each job's rows, for leaving jobs out. Raises ScenarioError for one job."""
    present: Sequence[int] = np.unique(job).tolist()
    if len(present) < 2:
        raise ScenarioError("leaving one application out needs at least two; there is one")
    return [np.flatnonzero(job == position) for position in present]
