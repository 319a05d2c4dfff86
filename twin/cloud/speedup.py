"""Predict how much faster a whole training run becomes on more GPUs, from the runs of others.

For: the speed-up of a task (a network trained to a quality) over a smaller system of the same accelerator, of
which GPUs, nodes and batch are known. Not for: the time itself, nor a step's time (steptime.py, scaling.py).

A run takes E · (1 / n + h / B) · (1 + s · log2 nodes) on n GPUs with the batch B, up to a constant of its
system. E = 1 + B / c is the number of samples to converge, which doubles at the critical batch c. With h
samples on it, a GPU works at half speed. Each doubling of nodes adds the share s. Those three differ by
task. They are learned together, and each task's own values are shrunk towards the common ones. Without that,
a batch that grows with the system looks like free speed. A prediction never exceeds the linear speed-up.
Sources: McCandlish et al. 2018 (arXiv 1812.06162) §2 for the critical batch; Searle et al. 1992 §8 for the
shrunk groups; steptime.py for the shares of batch and nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.jobs import Flags, Real, Whole
from twinbed import InvariantError, ScenarioError

Names = NDArray[np.object_]


class _Prior(NamedTuple):
    """A learned quantity, in logarithms. usual: its usual value. spread: standard deviation of the common
    value. between: standard deviation between tasks, at first.
    """

    usual: float
    spread: float
    between: float


_PRIORS = np.array([_Prior(2.0, 1.5, 0.7), _Prior(-2.0, 1.5, 0.7), _Prior(-3.0, 1.0, 0.7)])
"""Priors of c, over the batch of a task's smallest systems, of h, over their samples on a GPU, and of s. The
spreads are wide: a factor of 3 to 4.5, and of 2 between tasks."""
_NOISE = 0.1
"""Initial standard deviation of a run's logarithm: the number of epochs to converge varies by chance."""
_WEIGHT = 4.0
"""Weight of the initial deviations, in numbers of tasks or runs."""
_ROUNDS, _SETTLED = 15, 4
"""Rounds of the fit, and those before deviations are estimated anew."""


@dataclass(frozen=True, slots=True)
class Systems:
    """n runs of tasks on systems, with an array of length n per quantity.

    task: name of the task. system: name of a system, which has the same submitter, software, accelerator and
    task at every number of GPUs. gpus, nodes: their numbers. batch: samples of a step on all GPUs. time_s:
    time of the run, s; NaN if it is to be predicted.
    """

    task: Names
    system: Names
    gpus: Real
    nodes: Real
    batch: Real
    time_s: Real

    def __post_init__(self) -> None:
        columns = [getattr(self, column.name) for column in fields(self)]
        if len({column.shape for column in columns}) > 1:
            raise InvariantError("systems have columns of different lengths")
        if not all((column > 0).all() for column in columns[2:5]):
            raise ScenarioError("numbers of GPUs and nodes, and batches, must be above zero")

    def __len__(self) -> int:
        return int(self.task.size)

    def take(self, rows: Flags | Whole) -> Systems:
        """Return the runs at `rows` (a mask or positions)."""
        return Systems(*(getattr(self, column.name)[rows] for column in fields(self)))

    def steps_up(self) -> tuple[Whole, Whole]:
        """Return every pair of a run on a system's fewest GPUs and a run on more, as two arrays of rows."""
        same = self.system[:, None] == self.system[None, :]
        least = np.where(same, self.gpus[None, :], np.inf).min(axis=1)
        start, more = np.nonzero(same & (self.gpus == least)[:, None] & (self.gpus > least)[None, :])
        return start, more


class SpeedUps:
    """Speed-ups learned from runs of others. Raises ScenarioError if no system ran on two numbers of GPUs."""

    def __init__(self, others: Systems) -> None:
        start, more = others.steps_up()
        if not start.size:
            raise ScenarioError("no system ran on two numbers of GPUs; measure one on more GPUs first")
        self._sizes = {
            str(task): (float(np.median(others.batch[rows])), float(np.median(others.gpus[rows])))
            for task in sorted(set(others.task[start]))
            for rows in [start[others.task[start] == task]]
        }
        self._common, self._own = self._fit(others.take(np.union1d(start, more)))

    def log_speed_up(self, start: Systems, asked: Systems) -> Real:
        """Return log (time of start / time of asked), float64[n], for n pairs of runs of one system.

        It is at most log (GPUs of asked / GPUs of start).
        """
        size = self._size(start)
        point = np.array([self._own.get(str(task), self._common) for task in start.task])
        faster = _log_s(point, size, start) - _log_s(point, size, asked)
        return np.minimum(faster, np.log(asked.gpus / start.gpus))

    def _size(self, start: Systems) -> Real:
        """Return batch and GPUs of each task's smallest systems, float64[2, n]. For an unknown task, these
        are the batch and GPUs of `start`."""
        own = zip(start.task, start.batch, start.gpus, strict=True)
        return np.array([self._sizes.get(str(task), (batch, gpus)) for task, batch, gpus in own]).T

    def _fit(self, runs: Systems) -> tuple[Real, dict[str, Real]]:
        """Return the common logarithms, float64[3], and each task's, by Gauss–Newton rounds.

        Outliers count less, and deviations between tasks are estimated again in each round.
        """
        names, task = np.unique(runs.task.astype(str), return_inverse=True)
        _, system, rows = np.unique(runs.system.astype(str), return_inverse=True, return_counts=True)
        own, member = np.eye(names.size)[task], np.eye(rows.size)[system]
        size, known = self._size(runs), np.log(runs.time_s)
        usual, spread, first = _PRIORS.T
        count = usual.size
        common, apart = usual.copy(), np.zeros((names.size, count))
        between, noise = first.copy(), _NOISE

        def inside(values: Real) -> Real:
            """Return the values less their systems' means."""
            return np.asarray(values - member @ ((member.T @ values) / rows[:, None]))

        for round_ in range(_ROUNDS):
            point = common + apart[task]
            now = _log_s(point, size, runs)
            slopes = [(_log_s(point + step, size, runs) - now) / 1e-5 for step in 1e-5 * np.eye(count)]
            columns = inside(np.column_stack([*slopes, *(own * slope[:, None] for slope in slopes)]))
            left = inside((known - now)[:, None])[:, 0]
            trust = 1 / np.sqrt(1 + (left / noise) ** 2)
            sure = np.concatenate([spread**-2, np.repeat(between**-2, names.size)])
            pull = columns.T * trust / noise**2
            inverse = np.linalg.inv(pull @ columns + np.diag(sure))
            behind = np.concatenate([usual - common, -apart.T.ravel()])
            move = np.clip(inverse @ (pull @ left + sure * behind), -1.0, 1.0)
            common, apart = common + move[:count], apart + move[count:].reshape(count, -1).T
            if round_ >= _SETTLED:
                unsure = np.diag(inverse)[count:].reshape(count, -1).T
                squares = _WEIGHT * first**2 + (apart**2 + unsure).sum(axis=0)
                between = np.sqrt(squares / (_WEIGHT + names.size))
                free = _WEIGHT + max(len(runs) - rows.size, 1)
                noise = float(np.sqrt((_WEIGHT * _NOISE**2 + trust @ left**2) / free))
        return common, dict(zip(map(str, names), common + apart, strict=True))


def _log_s(point: Real, size: Real, runs: Systems) -> Real:
    """Return the logarithm of a run's time up to a constant of its system, float64[n].

    point: logarithms of c, h and s, float64[n, 3]. size: the result of `_size`, float64[2, n].
    """
    critical, half, straggle = np.exp(point).T
    batch, gpus = size
    samples = 1 + runs.batch / (critical * batch)
    step = 1 / runs.gpus + half * batch / gpus / runs.batch
    return np.asarray(np.log(samples * step * (1 + straggle * np.log2(runs.nodes))))
