"""Step time of a job on other accelerators, nodes and GPUs, from few points of it and many of other jobs.

For: a job that was run on one GPU and probed once or twice elsewhere. Not for: jobs of which nothing is known
(performance.py works from sizes and speeds), nor for choosing a configuration. The model: a step is compute,
which one GPU shows, and synchronisation, which partly hides behind it, `step^γ = compute^γ + sync^γ` (γ = 1:
nothing hides; γ → ∞: the longer of the two). How sync changes from one placement to another, and compute from
one accelerator to another, other jobs on the same cluster tell; how much of it there is, a probe of the job.
γ and the reach of a measured placement are chosen on other jobs (`choose`), never on the one that is asked.
Source: Pollux (OSDI 2021) §3.2 for the composition; smoothing over placements is Nadaraya and Watson's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinbed import InvariantError, ScenarioError

Real = NDArray[np.float64]
Flags = NDArray[np.bool_]
Names = NDArray[np.object_]

LEAST_SYNC = 0.05
"""Share of a step below which its synchronisation cannot be told from noise: a step spreads by that."""
FAR = 1e-6
"""Weight of placements far away, or of another accelerator's: they answer where nothing nearer is."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Measured (or asked: step_s NaN) steps, an array per quantity, n of each.

    job, accelerator: names; nodes, gpus (of the whole job), most (GPUs on its fullest node); batch: samples
    per GPU and step; step_s: seconds.
    """

    job: Names
    accelerator: Names
    nodes: Real
    gpus: Real
    most: Real
    batch: Real
    step_s: Real

    def __post_init__(self) -> None:
        if len({getattr(self, each.name).shape for each in fields(self)}) > 1:
            raise InvariantError("steps have columns of different lengths")

    def __len__(self) -> int:
        return int(self.job.size)

    def take(self, rows: Flags | NDArray[np.int64]) -> Steps:
        """The steps at `rows` (a mask or positions)."""
        return Steps(*(getattr(self, each.name)[rows] for each in fields(self)))

    def hidden(self) -> Steps:
        """The same points without their times: what a model may be asked."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return Steps(**columns | {"step_s": np.full(len(self), np.nan)})

    @property
    def alone(self) -> Flags:
        """Where the job ran on one GPU."""
        return np.asarray(self.gpus == 1)

    def by_job(self) -> Iterator[Steps]:
        """The steps of each job."""
        for name in sorted(set(self.job)):
            yield self.take(self.job == name)


class Shape(NamedTuple):
    """What is chosen on other jobs: overlap is γ, reach how far a placement speaks for others (log units)."""

    overlap: float
    reach: float


SHAPES = tuple(Shape(overlap, reach) for overlap in (1.0, 1.5, 2.0, 3.0) for reach in (0.1, 0.25))
"""From nothing hidden to nearly all; from neighbours within 10 % to within a quarter."""


def _places(steps: Steps) -> Real:
    return np.log(np.stack([steps.nodes, steps.gpus, steps.most], axis=1))


@dataclass(frozen=True, slots=True)
class _Compute:
    """Compute of one job: log seconds over log batch, per accelerator it ran alone on."""

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
        """d log seconds / d log batch between neighbouring batches, over all curves."""
        return np.concatenate([np.diff(y) / np.diff(x) for x, y in self.curves.values()] or [np.empty(0)])

    def log_s(self, accelerator: str, log_batch: Real, slope: float) -> Real:
        """On an accelerator it ran alone on; beyond its batches by its own last slope (or `slope`)."""
        x, y = self.curves[accelerator]
        first = slope if x.size < 2 else (y[1] - y[0]) / (x[1] - x[0])
        last = slope if x.size < 2 else (y[-1] - y[-2]) / (x[-1] - x[-2])
        inside: Real = np.interp(log_batch, x, y)
        inside += first * np.minimum(log_batch - x[0], 0) + last * np.maximum(log_batch - x[-1], 0)
        return inside


@dataclass(frozen=True, slots=True)
class _Past:
    """What one other job tells, by cell (an accelerator and a placement, each once): how often it was
    measured there, and the sum of the precisions (0–1 each) and of precision × log sync."""

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
        """Smoothed log sync at cells, and how sure that is (0 where the job tells nothing)."""
        apart = ((place[:, None, :] - self.place[None, :, :]) ** 2).sum(axis=2)
        near = np.exp(-0.5 * apart / reach**2) + FAR * np.exp(-0.5 * apart)
        near *= np.where(accelerator[:, None] == self.accelerator[None, :], 1.0, FAR)
        support, weight = near @ self.count, near @ self.precision
        known = weight > 0
        smooth = np.divide(near @ self.log_sync, weight, out=np.zeros(weight.size), where=known)
        sure = np.divide(weight, support, out=np.zeros(weight.size), where=known)
        return smooth, sure * np.minimum(support, 1.0)


def _cells(steps: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each cell, and the cell of each row."""
    kinds = {name: float(position) for position, name in enumerate(sorted(set(steps.accelerator)))}
    keys = np.column_stack([[kinds[name] for name in steps.accelerator], steps.nodes, steps.gpus, steps.most])
    _, first, cell = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, cell.ravel()


class Scaling:
    """What other jobs tell about a cluster; `predict` asks it for one. Raises ScenarioError without any."""

    def __init__(self, others: Steps, shape: Shape) -> None:
        self.shape = shape
        self._past = [self._learn(each) for each in others.by_job() if each.alone.any()]
        if not self._past:
            raise ScenarioError("no other job was measured on one GPU; measure at least one before asking")
        slopes = np.concatenate([each.compute.slope() for each in self._past])
        self._slope = float(np.median(slopes)) if slopes.size else 1.0

    def _learn(self, steps: Steps) -> _Past:
        compute = _Compute.of(steps)
        here = np.array([name in compute.curves for name in steps.accelerator], dtype=np.bool_)
        spread = steps.take(~steps.alone & here)
        alone_s = np.empty(len(spread))
        for name, rows in _each(spread.accelerator):
            alone_s[rows] = np.exp(compute.log_s(name, np.log(spread.batch[rows]), 1.0))
        log_sync, precision = _sync(spread.step_s, alone_s, self.shape.overlap)
        return _Past.of(compute, spread, log_sync, precision)

    def predict(self, known: Steps, asked: Steps) -> Real:
        """Seconds per step, float64[n], of ONE job of which `known` was measured (at least once on one GPU).

        Without any point on several GPUs the amount of synchronisation is that of the other jobs, relative
        to compute: far less sure. Raises ScenarioError if nothing was run on one GPU, or if neither the job
        nor any other ran on one GPU of an accelerator that is asked for.
        """
        compute = _Compute.of(known)
        if not compute.curves:
            raise ScenarioError("the job was not run on one GPU; profile it there first")
        compute_s = self._compute_s(compute, asked)
        rows = np.flatnonzero(~asked.alone)
        if rows.size:
            spread = asked.take(rows)
            sync = self._log_sync(known, compute, spread)
            power = self.shape.overlap
            compute_s[rows] = (compute_s[rows] ** power + np.exp(power * sync)) ** (1 / power)
        return compute_s

    def _compute_s(self, compute: _Compute, asked: Steps) -> Real:
        found = np.empty(len(asked))
        for name, rows in _each(asked.accelerator):
            log_batch = np.log(asked.batch[rows])
            if name in compute.curves:
                found[rows] = compute.log_s(name, log_batch, self._slope)
                continue
            guesses = []
            for mine in compute.curves:
                ratio = self._log_ratio(mine, name)
                if ratio is not None:
                    guesses.append(compute.log_s(mine, log_batch, self._slope) + ratio)
            if not guesses:
                raise ScenarioError(f"no job ran on one GPU of {name} and of {', '.join(compute.curves)}")
            found[rows] = np.mean(guesses, axis=0)
        return np.exp(found)

    def _log_ratio(self, mine: str, other: str) -> float | None:
        ratios = []
        for each in self._past:
            if mine in each.compute.curves and other in each.compute.curves:
                x, y = each.compute.curves[other]
                ratios.append(np.mean(y - each.compute.log_s(mine, x, self._slope)))
        return float(np.mean(ratios)) if ratios else None

    def _log_size(self, mine: _Compute, other: _Compute) -> float:
        """How much more a job computes than another, where both ran on one GPU; 0 if nowhere."""
        apart = [
            y - other.log_s(name, x, self._slope)
            for name, (x, y) in mine.curves.items()
            if name in other.curves
        ]
        return float(np.mean(np.concatenate(apart))) if apart else 0.0

    def _log_sync(self, known: Steps, compute: _Compute, asked: Steps) -> Real:
        probes = known.take(~known.alone)
        if len(probes):
            level, precision = _sync(probes.step_s, self._compute_s(compute, probes), self.shape.overlap)
            share = precision / precision.sum()
        first, cell = _cells(asked)
        accelerator, place = asked.accelerator[first], _places(asked)[first]
        total, weights = np.zeros(first.size), np.zeros(first.size)
        for each in self._past:
            there, sure = each.profile(accelerator, place, self.shape.reach)
            if len(probes):
                at, sure_at = each.profile(probes.accelerator, _places(probes), self.shape.reach)
                offset = share @ (level - at)
                sure = sure * (share @ sure_at)
            else:
                offset = self._log_size(compute, each.compute)
            total += sure * (there + offset)
            weights += sure
        if not weights.all():
            raise ScenarioError("no other job ran on several GPUs; measure one first")
        found: Real = (total / weights)[cell]
        return found


def _sync(step_s: Real, compute_s: Real, overlap: float) -> tuple[Real, Real]:
    """Log of the synchronisation in a step, and its precision: 1 where it is all of the step, → 0 if none."""
    left = np.maximum(step_s**overlap - compute_s**overlap, (LEAST_SYNC * step_s) ** overlap)
    return np.log(left) / overlap, (left / step_s**overlap) ** 2


def _each(names: Names) -> Iterator[tuple[str, NDArray[np.int64]]]:
    for name in sorted(set(names)):
        yield str(name), np.flatnonzero(names == name)


Plan = Callable[[Steps], Flags]
"""Which points of a job are measured before it is asked for the rest: Steps (no times) → bool[n]."""


def errors(known: Flags, job: Steps, model: Scaling) -> Real:
    """|predicted / measured − 1| of the points of a job that are not known, float64[m]."""
    asked = job.take(~known)
    return np.abs(model.predict(job.take(known), asked.hidden()) / asked.step_s - 1)


def choose(
    others: Steps, groups: Names, plans: Sequence[Plan], shapes: Sequence[Shape] = SHAPES
) -> tuple[int, Shape, float]:
    """The plan (its position) and shape that serve the other jobs best, each left out with its group in turn.

    groups: what is left out together (variants of a job), names[n]. Returns also the mean over groups of the
    median error. Raises ScenarioError on one group only, or without a plan.
    """
    names = sorted(set(groups))
    if len(names) < 2 or not plans:
        raise ScenarioError("choosing needs two other jobs and a plan at least; take plan and shape yourself")
    found: list[tuple[float, int, Shape]] = []
    for shape in shapes:
        models = {name: Scaling(others.take(groups != name), shape) for name in names}
        for position, plan in enumerate(plans):
            medians = []
            for name in names:
                jobs = others.take(groups == name).by_job()
                tried = [errors(plan(job.hidden()), job, models[name]) for job in jobs]
                medians.append(float(np.median(np.concatenate(tried))))
            found.append((float(np.mean(medians)), position, shape))
    error, position, shape = min(found)
    return position, shape, error
