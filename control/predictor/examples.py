"""What a predictor learns from: jobs on configurations, with what they took and cost.

For: the rows of a data set as arrays, choosing among them, and which configurations are a job's best. Not
for: turning them into numbers (features.py). Times are seconds, costs US dollars; NaN means "not known".
Source: SPEC §3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.recommender.model import Candidates, Flags, Job, Objective, Real, Whole
from twinbed import InvariantError, ScenarioError

BEST = 5
WITHIN = 1.5


@dataclass(frozen=True, slots=True)
class Examples:
    """n rows. job: int64[n], position in jobs; candidates: its configuration, one per row; time_s, cost_usd:
    float64[n] of the whole job; prior_time_s: float64[n], what an analytic model expects.

    Raises InvariantError for columns of other lengths, or a job that is not there.
    """

    jobs: tuple[Job, ...]
    job: Whole
    candidates: Candidates
    time_s: Real
    cost_usd: Real
    prior_time_s: Real

    def __post_init__(self) -> None:
        count = len(self.candidates)
        columns = (self.job, self.time_s, self.cost_usd, self.prior_time_s)
        if any(each.shape != (count,) for each in columns):
            raise InvariantError(f"examples: {count} candidates and columns of other lengths")
        if ((self.job < 0) | (self.job >= len(self.jobs))).any():
            raise InvariantError(f"examples: a row of a job beyond the {len(self.jobs)} that there are")

    def __len__(self) -> int:
        return len(self.candidates)

    def take(self, rows: Whole | Flags) -> Examples:
        """The rows at `rows` (positions or a mask), in that order; the jobs stay."""
        return Examples(
            self.jobs,
            self.job[rows],
            self.candidates.take(rows),
            self.time_s[rows],
            self.cost_usd[rows],
            self.prior_time_s[rows],
        )

    def objective(self, by: Objective) -> Real:
        """cost_usd or time_s."""
        return self.cost_usd if by is Objective.COST else self.time_s

    def prior(self, by: Objective) -> Real:
        """What the analytic model expects of it."""
        hours = self.prior_time_s / 3600
        return hours * self.candidates.price_usd_h if by is Objective.COST else self.prior_time_s

    def check_known(self, by: Objective) -> None:
        """Raises ScenarioError for a row to learn from whose outcome is not known, or is not positive."""
        wrong = np.flatnonzero(~(self.objective(by) > 0) | ~np.isfinite(self.objective(by)))
        if wrong.size:
            row = int(wrong[0])
            raise ScenarioError(
                f"row {row} (job {self.jobs[self.job[row]].name}): {by} is {self.objective(by)[row]}; "
                "leave out what was not measured"
            )


def of_one_job(job: Job, candidates: Candidates, prior_time_s: Real | None = None) -> Examples:
    """Rows to ask about: a job on each of n candidates, nothing known of them."""
    unknown = np.full(len(candidates), np.nan)
    zeros = np.zeros(len(candidates), np.int64)
    return Examples(
        (job,), zeros, candidates, unknown, unknown, unknown if prior_time_s is None else prior_time_s
    )


def best(value: Real, job: Whole, *, count: int = BEST, within: float = WITHIN) -> Flags:
    """bool[n]: among its job's `count` lowest values and no more than `within` times the lowest.

    Ties at the last place are all in.
    """
    found = np.zeros(len(value), dtype=np.bool_)
    for each in np.unique(job):
        rows = np.flatnonzero(job == each)
        lowest = np.sort(value[rows])
        limit = min(lowest[min(count, len(rows)) - 1], within * lowest[0])
        found[rows] = value[rows] <= limit
    return found


def folds_of_rows(count: int, folds: int, rng: np.random.Generator) -> list[Whole]:
    """Positions of each fold of `count` rows, shuffled. Raises ScenarioError for more folds than rows."""
    if not 2 <= folds <= count:
        raise ScenarioError(f"{folds} folds of {count} rows: expected 2 to {count}")
    return [np.sort(each) for each in np.array_split(rng.permutation(count), folds)]


def folds_of_jobs(job: Whole) -> list[Whole]:
    """Positions of each job's rows: for leaving one application out. Raises ScenarioError for one alone."""
    present: Sequence[int] = np.unique(job).tolist()
    if len(present) < 2:
        raise ScenarioError("leaving one application out needs at least two; there is one")
    return [np.flatnonzero(job == each) for each in present]
