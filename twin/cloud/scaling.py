"""Predict the step time of a job on other accelerators, nodes and GPUs from few measurements of the job and
many measurements of other jobs.

For: a job that was run on one GPU and measured once or twice elsewhere. Not for: jobs without any measurement
(performance.py works from sizes and speeds), nor choosing a configuration.

The model is `step^γ = compute^γ + sync^γ`. A run on one GPU shows compute. Synchronisation partly overlaps
with it (γ = 1: no overlap; γ → ∞: the longer of the two counts). Other jobs on the same cluster show how
synchronisation changes with the placement, and compute with the accelerator. A probe of the job shows how
much synchronisation the job has. Where a job never ran on one GPU of an accelerator, its compute there comes
from the ratio of other jobs, and no measured step takes less than its compute. `choose` selects γ, the
smoothing over placements, the order of plans and an interval on the other jobs. A job uses the best plan that
suits it. Sources: Pollux (OSDI 2021) §3.2 for the composition; Nadaraya–Watson smoothing over placements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.jobs import Flags, Real, Whole
from twin.cloud.intervals import conformal_by_group
from twinbed import InvariantError, ScenarioError

Names = NDArray[np.object_]

LEAST_SYNC = 0.05
"""Least share of a step that counts as synchronisation. A smaller share cannot be told from noise."""
FAR = 1e-6
"""Weight of distant placements and of other accelerators, which count only if nothing is nearer."""


@dataclass(frozen=True, slots=True)
class Steps:
    """n steps, measured or to be predicted, with an array of length n per quantity.

    job: name of the job. accelerator: name of the accelerator. nodes: number of nodes. gpus: number of GPUs
    of the whole job. most: number of GPUs on its fullest node. batch: samples per GPU and step. step_s: time
    of a step, s; NaN if it is to be predicted.
    """

    job: Names
    accelerator: Names
    nodes: Real
    gpus: Real
    most: Real
    batch: Real
    step_s: Real

    def __post_init__(self) -> None:
        if len({column.shape for column in self._columns()}) > 1:
            raise InvariantError("steps have columns of different lengths")

    def __len__(self) -> int:
        return int(self.job.size)

    def _columns(self) -> list[Any]:
        return [getattr(self, column.name) for column in fields(self)]

    def take(self, rows: Flags | Whole) -> Steps:
        """Return the steps at `rows` (a mask or positions)."""
        return Steps(*(column[rows] for column in self._columns()))

    def hidden(self) -> Steps:
        """Return the same steps without their times, to be predicted."""
        return replace(self, step_s=np.full(len(self), np.nan))

    @property
    def alone(self) -> Flags:
        """The steps that ran on one GPU, bool[n]."""
        return np.asarray(self.gpus == 1)

    def by_job(self) -> Iterator[Steps]:
        """Yield the steps of each job."""
        for name in sorted(set(self.job)):
            yield self.take(self.job == name)


class Shape(NamedTuple):
    """Parameters that are chosen on other jobs.

    overlap: γ.
    reach: bandwidth of the smoothing over placements, in logarithms of nodes and GPUs.
    """

    overlap: float
    reach: float


SHAPES = tuple(Shape(overlap, reach) for overlap in (1.0, 1.5, 2.0, 3.0) for reach in (0.1, 0.25))
"""Shapes that are tried: overlap from none to nearly full, and neighbours within 10 % or within a quarter."""


def _places(steps: Steps) -> Real:
    return np.log(np.stack([steps.nodes, steps.gpus, steps.most], axis=1))


@dataclass(frozen=True, slots=True)
class _Compute:
    """Compute of one job. curves: accelerator → log batch and log seconds of its runs on one GPU."""

    curves: dict[str, tuple[Real, Real]]

    @classmethod
    def of(cls, steps: Steps) -> _Compute:
        curves: dict[str, tuple[Real, Real]] = {}
        for name in sorted(set(steps.accelerator[steps.alone])):
            rows = steps.alone & (steps.accelerator == name)
            batches = np.unique(steps.batch[rows])
            times = [np.median(np.log(steps.step_s[rows & (steps.batch == batch)])) for batch in batches]
            curves[str(name)] = (np.log(batches), np.array(times))
        return cls(curves)

    def slope(self) -> Real:
        """Return d log seconds / d log batch between neighbouring batches of all curves."""
        return np.concatenate([np.diff(y) / np.diff(x) for x, y in self.curves.values()] or [np.empty(0)])

    def log_s(self, accelerator: str, log_batch: Real, slope: float) -> Real:
        """Return log seconds on a known accelerator. Outside its batches, the slope at the end (or `slope`)
        applies.
        """
        x, y = self.curves[accelerator]
        first = slope if x.size < 2 else (y[1] - y[0]) / (x[1] - x[0])
        last = slope if x.size < 2 else (y[-1] - y[-2]) / (x[-1] - x[-2])
        inside: Real = np.interp(log_batch, x, y)
        inside += first * np.minimum(log_batch - x[0], 0) + last * np.maximum(log_batch - x[-1], 0)
        return inside


@dataclass(frozen=True, slots=True)
class _Past:
    """Measurements of one other job in c cells, which are distinct pairs of accelerator and placement.

    compute: its compute.
    accelerator, place: accelerator and placement of each cell, [c] and float64[c, 3].
    count: number of measurements in each cell.
    precision: sum of their precisions, each between 0 and 1.
    log_sync: sum of precision × log synchronisation.
    """

    compute: _Compute
    accelerator: Names
    place: Real
    count: Real
    precision: Real
    log_sync: Real

    @classmethod
    def of(cls, compute: _Compute, steps: Steps, log_sync: Real, precision: Real) -> _Past:
        first, cell = _cells(steps)
        return cls(
            compute,
            steps.accelerator[first],
            _places(steps)[first],
            np.bincount(cell, minlength=first.size).astype(np.float64),
            np.bincount(cell, precision, first.size).astype(np.float64),
            np.bincount(cell, precision * log_sync, first.size).astype(np.float64),
        )

    def profile(self, accelerator: Names, place: Real, reach: float) -> tuple[Real, Real]:
        """Return the smoothed log synchronisation at cells and its certainty, 0 without information."""
        apart = ((place[:, None, :] - self.place[None, :, :]) ** 2).sum(axis=2)
        near = np.exp(-0.5 * apart / reach**2) + FAR * np.exp(-0.5 * apart)
        near *= np.where(accelerator[:, None] == self.accelerator[None, :], 1.0, FAR)
        support, weight = near @ self.count, near @ self.precision
        known = weight > 0
        smooth = np.divide(near @ self.log_sync, weight, out=np.zeros(weight.size), where=known)
        sure = np.divide(weight, support, out=np.zeros(weight.size), where=known)
        return smooth, sure * np.minimum(support, 1.0)


def _cells(steps: Steps) -> tuple[Whole, Whole]:
    """Return the first row of each cell, and the cell of each row."""
    kinds = {name: float(position) for position, name in enumerate(sorted(set(steps.accelerator)))}
    keys = np.column_stack([[kinds[name] for name in steps.accelerator], steps.nodes, steps.gpus, steps.most])
    _, first, cell = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, cell.ravel()


class Scaling:
    """A model of a cluster, learned from other jobs. Raises ScenarioError if none ran on one GPU."""

    def __init__(self, others: Steps, shape: Shape) -> None:
        self.shape = shape
        jobs = [steps for steps in others.by_job() if steps.alone.any()]
        if not jobs:
            raise ScenarioError("no other job was measured on one GPU; measure at least one before asking")
        self._alone = [_Compute.of(steps) for steps in jobs]
        slopes = np.concatenate([compute.slope() for compute in self._alone])
        self._slope = float(np.median(slopes)) if slopes.size else 1.0
        self._past = [self._learn(*pair) for pair in zip(jobs, self._alone, strict=True)]

    def _learn(self, steps: Steps, compute: _Compute) -> _Past:
        spread = steps.take(~steps.alone & self._told(compute, steps))
        compute_s = self._compute_s(compute, spread, spread)
        return _Past.of(compute, spread, *_sync(spread.step_s, compute_s, self.shape.overlap))

    def predict(self, known: Steps, asked: Steps) -> Real:
        """Return the predicted seconds per step of one job, float64[n]. known: its measured steps.

        At least one of these must be on one GPU. Without any on several GPUs, the synchronisation relative to
        compute is taken from the other jobs, which is much less certain. Raises ScenarioError if no known
        step is on one GPU, or if neither the job nor any other ran on one GPU of a requested accelerator.
        """
        compute = _Compute.of(known)
        if not compute.curves:
            raise ScenarioError("the job was not run on one GPU; profile it there first")
        compute_s = self._compute_s(compute, known, asked)
        rows = np.flatnonzero(~asked.alone)
        if rows.size:
            spread = asked.take(rows)
            sync = self._log_sync(known, compute, spread)
            power = self.shape.overlap
            compute_s[rows] = (compute_s[rows] ** power + np.exp(power * sync)) ** (1 / power)
        return compute_s

    def _compute_s(self, compute: _Compute, known: Steps, asked: Steps) -> Real:
        """Return the compute of steps, s, float64[n].

        Where an accelerator's speed comes from other jobs, no known step of the job there takes less than its
        compute.
        """
        log_s = self._log_compute(compute, asked)
        for name, rows in _by_name(asked.accelerator):
            own = known.take(known.accelerator == name)
            if name not in compute.curves and len(own):
                log_s[rows] += min(0.0, (np.log(own.step_s) - self._log_compute(compute, own)).min())
        return np.exp(log_s)

    def _log_compute(self, compute: _Compute, asked: Steps) -> Real:
        log_s = np.empty(len(asked))
        for name, rows in _by_name(asked.accelerator):
            log_batch = np.log(asked.batch[rows])
            if name in compute.curves:
                log_s[rows] = compute.log_s(name, log_batch, self._slope)
                continue
            guesses = []
            for mine in compute.curves:
                ratio = self._log_ratio(mine, name)
                if ratio is not None:
                    guesses.append(compute.log_s(mine, log_batch, self._slope) + ratio)
            if not guesses:
                raise ScenarioError(f"no job ran on one GPU of {name} and of {', '.join(compute.curves)}")
            log_s[rows] = np.mean(guesses, axis=0)
        return log_s

    def tells(self, known: Steps, asked: Steps) -> Flags:
        """Return bool[n]: whether known steps give the speed of each asked step's accelerator."""
        return self._told(_Compute.of(known), asked)

    def _told(self, compute: _Compute, asked: Steps) -> Flags:
        names = set(map(str, asked.accelerator))
        told = {
            name for name in names if any(self._log_ratio(mine, name) is not None for mine in compute.curves)
        }
        return np.array(
            [name in told or name in compute.curves for name in asked.accelerator], dtype=np.bool_
        )

    def _log_ratio(self, mine: str, other: str) -> float | None:
        """Return the mean log ratio of compute on two accelerators, if need be through a third one."""
        direct = self._direct_ratio(mine, other)
        if direct is not None:
            return direct
        used = sorted({name for compute in self._alone for name in compute.curves} - {mine, other})
        steps = [(self._direct_ratio(mine, third), self._direct_ratio(third, other)) for third in used]
        sums = [first + second for first, second in steps if first is not None and second is not None]
        return float(np.mean(sums)) if sums else None

    def _direct_ratio(self, mine: str, other: str) -> float | None:
        ratios = []
        for compute in self._alone:
            if mine in compute.curves and other in compute.curves:
                x, y = compute.curves[other]
                ratios.append(np.mean(y - compute.log_s(mine, x, self._slope)))
        return float(np.mean(ratios)) if ratios else None

    def _log_size(self, mine: _Compute, other: _Compute) -> float:
        """Return the log ratio of two jobs' compute on accelerators that both used; 0 if there is none."""
        apart = [
            y - other.log_s(name, x, self._slope)
            for name, (x, y) in mine.curves.items()
            if name in other.curves
        ]
        return float(np.mean(np.concatenate(apart))) if apart else 0.0

    def _log_sync(self, known: Steps, compute: _Compute, asked: Steps) -> Real:
        probes = known.take(~known.alone)
        if len(probes):
            compute_s = self._compute_s(compute, known, probes)
            level, precision = _sync(probes.step_s, compute_s, self.shape.overlap)
            share = precision / precision.sum()
        first, cell = _cells(asked)
        accelerator, place = asked.accelerator[first], _places(asked)[first]
        total, weights = np.zeros(first.size), np.zeros(first.size)
        for past in self._past:
            log_sync, sure = past.profile(accelerator, place, self.shape.reach)
            if len(probes):
                at_probes, sure_at = past.profile(probes.accelerator, _places(probes), self.shape.reach)
                offset = share @ (level - at_probes)
                sure = sure * (share @ sure_at)
            else:
                offset = self._log_size(compute, past.compute)
            total += sure * (log_sync + offset)
            weights += sure
        if not weights.all():
            raise ScenarioError("no other job ran on several GPUs; measure one first")
        return (total / weights)[cell]


def _sync(step_s: Real, compute_s: Real, overlap: float) -> tuple[Real, Real]:
    """Return the log synchronisation of steps and its precision: 1 if synchronisation is the whole step, 0 if
    the step has none.
    """
    left = np.maximum(step_s**overlap - compute_s**overlap, (LEAST_SYNC * step_s) ** overlap)
    return np.log(left) / overlap, (left / step_s**overlap) ** 2


def _by_name(names: Names) -> Iterator[tuple[str, Whole]]:
    for name in sorted(set(names)):
        yield str(name), np.flatnonzero(names == name)


Plan = Callable[[Steps], Flags]
"""A plan: Steps → bool[n], the steps of a job to measure before a model predicts the others.

It selects no step of a job that it does not suit, such as a job that never ran at the plan's placement.
"""


class Choice(NamedTuple):
    """The result of `choose`.

    shape: the shape.
    ranking: positions of the plans, the best first.
    error: mean over groups of the median |predicted / measured − 1|.
    width: half-width of the 90 % interval, in the logarithm of a step's time.
    """

    shape: Shape
    ranking: tuple[int, ...]
    error: float
    width: float

    def known(self, plans: Sequence[Plan], job: Steps) -> Flags:
        """Return the steps of a job to measure: those of the best plan that suits it, or none."""
        for position in self.ranking:
            mask = plans[position](job.hidden())
            if suits(mask, job):
                return mask
        return np.zeros(len(job), dtype=np.bool_)


def suits(mask: Flags, job: Steps) -> bool:
    """Return whether a plan's steps include one on one GPU and leave others to predict."""
    return bool((mask & job.alone).any() and not mask.all())


def apart(known: Flags, job: Steps, model: Scaling) -> Real:
    """Return float64[m]: log (predicted / measured) of the job's m steps that are not known.

    Steps on accelerators of unknown speed are neither used nor predicted.
    """
    told = model.tells(job.take(known), job)
    asked = job.take(~known & told)
    return np.log(model.predict(job.take(known & told), asked.hidden()) / asked.step_s)


def choose(others: Steps, groups: Names, plans: Sequence[Plan], shapes: Sequence[Shape] = SHAPES) -> Choice:
    """Return the shape, the order of plans and the interval with the least errors when each group is left
    out.

    groups: group of each step, such as the variants of a job, [n]. A plan is judged on the jobs that it
    suits, against the other plans there. Raises ScenarioError for fewer than two groups or no plan.
    """
    names = sorted(set(groups))
    if len(names) < 2 or not plans:
        raise ScenarioError("choosing needs two other jobs and a plan at least; take plan and shape yourself")
    return min((_judged(others, groups, names, plans, shape) for shape in shapes), key=lambda one: one.error)


def _judged(others: Steps, groups: Names, names: list[str], plans: Sequence[Plan], shape: Shape) -> Choice:
    """Return the choice for one shape. Plans are ranked by mean errors, so that rare large errors count."""
    off: list[list[list[Real]]] = []
    sizes = np.full((len(plans), len(names)), np.nan)
    for column, name in enumerate(names):
        model = Scaling(others.take(groups != name), shape)
        off.append([])
        for job in others.take(groups == name).by_job():
            masks = [plan(job.hidden()) for plan in plans]
            off[-1].append([apart(mask, job, model) if suits(mask, job) else _NONE for mask in masks])
        for row in range(len(plans)):
            tried = np.concatenate([job[row] for job in off[-1]] or [_NONE])
            if tried.size:
                sizes[row, column] = np.mean(np.abs(tried))
    usual = np.ones(len(names))
    for column, part in enumerate(sizes.T):
        if np.isfinite(part).any():
            usual[column] = max(float(np.nanmedian(part)), FAR)
    relative = [np.log((row / usual)[~np.isnan(row)] + FAR) for row in sizes]
    scores = [float(part.mean()) if part.size else np.inf for part in relative]
    ranking = tuple(int(position) for position in np.argsort(scores, kind="stable"))
    followed = [[_first([job[row] for row in ranking]) for job in group] for group in off]
    judged = [part for group in followed if (part := np.concatenate([*group, _NONE])).size]
    if not judged:
        raise ScenarioError("no plan suits any other job; measure one on one GPU and elsewhere")
    error = float(np.mean([np.median(np.abs(np.expm1(part))) for part in judged]))
    return Choice(shape, ranking, error, conformal_by_group([np.abs(part) for part in judged]))


_NONE = np.empty(0)


def _first(parts: Sequence[Real]) -> Real:
    return next((part for part in parts if part.size), _NONE)
