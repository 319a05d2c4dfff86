"""A network of time or cost that knows its errors on rows and applications that it was not trained on.

For: storing a network and giving its predictions intervals, like those of the physical predictor. Not for:
the networks (networks.py) nor their training (training.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from control.jobs import Objective, Real, Whole
from control.predictor.evaluation import cross_validated
from control.predictor.examples import FEWEST_ROWS, Examples, folds_of_jobs, folds_of_rows
from control.predictor.features import Encoded, Encoder
from control.predictor.networks import Kind
from control.predictor.training import Schedule, Trained, train
from twinbed import InvariantError, ScenarioError

_FOLDS = 5
_FEWEST = -(-FEWEST_ROWS * _FOLDS // (_FOLDS - 1))
"""Fewest rows, so that FEWEST_ROWS are left to learn from when one of the _FOLDS parts is left out."""
_LEAST = 1e-9
"""Least prediction, s or US$: a softplus may round to 0, which has no logarithm."""

_SCHEDULE = Schedule()
OnPart = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class TriedNetwork:
    """A trained network of a value.

    trained: the network.
    job_errors: absolute log errors of rows whose job was left out, float64[k], ascending.
    row_errors: absolute log errors of rows that were left out themselves, float64[k], ascending.
    jobs: names of the applications that it knows.

    Raises InvariantError for a network that classifies.
    """

    trained: Trained
    job_errors: Real
    row_errors: Real
    jobs: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.trained.kind.classifies:
            raise InvariantError(f"{self.trained.kind} predicts no value")

    @property
    def by(self) -> Objective:
        """The quantity that it predicts."""
        return self.trained.kind.by

    @property
    def encoder(self) -> Encoder:
        """See Predictor."""
        return self.trained.encoder

    def predict(self, examples: Examples) -> Real:
        """See Predictor."""
        return self.predict_encoded(self.encoder.encode(examples))

    def predict_encoded(self, encoded: Encoded) -> Real:
        """See Predictor."""
        return np.maximum(self.trained.predict_encoded(encoded), _LEAST)


def train_network(
    by: Objective,
    examples: Examples,
    seed: int,
    *,
    schedule: Schedule = _SCHEDULE,
    on_part: OnPart = lambda _done, _of: None,
) -> TriedNetwork:
    """Return a network trained on all rows, with its errors on rows that were left out.

    With a single application, rows are left out instead of applications. on_part: called with the number of
    trainings done and of all; one takes about ten seconds for 350 rows. Raises ScenarioError as `train`, and
    if too few rows are left without one of the parts or without one of the applications.
    """
    kind = Kind.COST if by is Objective.COST else Kind.TIME
    examples.check_known(by, _FEWEST)
    rows = folds_of_rows(len(examples), _FOLDS, np.random.default_rng(seed))
    jobs = folds_of_jobs(examples.job) if len(np.unique(examples.job)) > 1 else rows
    largest = max(jobs, key=len)
    if len(examples) - len(largest) < FEWEST_ROWS:
        name = examples.jobs[examples.job[largest[0]]].name
        raise ScenarioError(
            f"{len(largest)} of {len(examples)} rows are of job {name}; at least {FEWEST_ROWS} of other jobs "
            "are needed, to learn without it: add past runs"
        )
    of, done = 1 + len(rows) + len(jobs), 0

    def made(learned: Examples) -> Trained:
        nonlocal done
        trained = train(kind, learned, seed, schedule=schedule)
        done += 1
        on_part(done, of)
        return trained

    def left_out(folds: list[Whole]) -> Real:
        predicted = np.maximum(cross_validated(made, examples, folds), _LEAST)
        return np.sort(np.abs(np.log(predicted / examples.objective(by))))

    job_errors, row_errors = left_out(jobs), left_out(rows)
    present = tuple(examples.jobs[index].name for index in np.unique(examples.job).tolist())
    return TriedNetwork(made(examples), job_errors, row_errors, present)
