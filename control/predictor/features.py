"""Jobs, configurations and local runs as numbers: named columns in groups, and time series.

For: the input of every predictor. Not for: learning. Heavy-tailed quantities are logarithms. Every column is
standardised by the rows that the encoder was fitted to, and unknown values become 0. An instance type that
the encoder has not seen has no one-hot column; only its vCPUs, memory and network describe it. Source:
chapter 4 (cloud) of the doctoral thesis (features, up to 10 minutes of series).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.jobs import Job, LocalRun, Real, Whole
from control.predictor.examples import Examples

POINTS = 20
"""Number of points of a series: ten minutes with one point per 30 s. Shorter runs are resampled to as
many."""

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "convolution": ("conv",),
    "recurrent": ("lstm", "gru", "rnn"),
    "attention": ("attention", "transformer"),
    "embedding": ("embedding",),
    "norm": ("norm",),
    "pooling": ("pool",),
    "linear": ("linear", "dense"),
}
"""Kinds of layers, and the substrings of the names of such layers."""

SERIES: Mapping[str, tuple[int, ...]] = {
    "master's CPU": (0,),
    "master's memory": (1,),
    "master's network": (2, 3),
    "workers' CPU": (4,),
    "workers' memory": (5,),
    "workers' network": (6, 7),
    "order of layers": tuple(range(8, 8 + len(_LAYERS))),
}
"""Columns of a job's series: use per role, and the share of each kind of layers in parts of the model."""

SERIES_COLUMNS = sum(map(len, SERIES.values()))

SCALING = (
    "parameters per CPU time",
    "log workers",
    "log batch here",
    "log vCPUs",
    "log network",
    "parameters × log batch",
    "parameters alone",
    "log vCPUs alone",
)
"""Columns that show how the time of any job changes with its cluster and batch size."""

_UNKNOWN = 0.0
"""Standardised value for an unknown quantity: the mean."""


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else np.nan


@dataclass(frozen=True, slots=True)
class Encoded:
    """n encoded rows of J jobs.

    static: standardised columns, float64[n, f].
    series: standardised series of each job's local run, float64[J, POINTS, c], columns as in SERIES.
    job: position of each row's job, int64[n].
    prior: logarithm of the analytic model's seconds, float64[n]; NaN if there is none.
    log_price: logarithm of the price per hour, float64[n].
    names: names of the jobs.
    row, unbilled_s: as in Examples.
    """

    static: Real
    series: NDArray[np.float64]
    job: Whole
    prior: Real
    log_price: Real
    names: tuple[str, ...]
    row: Whole
    unbilled_s: float


@dataclass(frozen=True, slots=True)
class Encoder:
    """How rows are encoded; `fit` makes one from rows to learn from.

    columns: names of the f static columns.
    groups: group of each column, for explanations.
    instances: instance types that were seen.
    features: job features that were seen.
    optimisers: classes of optimisers that were seen.
    mean, scale: mean and standard deviation of each column, float64[f].
    series_mean, series_scale: the same of each series, float64[c].
    """

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    instances: tuple[str, ...]
    features: tuple[str, ...]
    optimisers: tuple[str, ...]
    mean: Real
    scale: Real
    series_mean: Real
    series_scale: Real

    @staticmethod
    def fit(examples: Examples) -> Encoder:
        """Return the encoder of these rows."""
        instances = tuple(sorted(set(examples.candidates.name.tolist())))
        used = [examples.jobs[index] for index in np.unique(examples.job).tolist()]
        features = tuple(sorted({name for job in used for name in job.features}))
        optimisers = tuple(sorted({job.local_run.optimiser for job in used if job.local_run} - {""}))
        raw, columns, groups = _columns(examples, instances, features, optimisers)
        known = np.isfinite(raw)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, raw, 0).sum(axis=0) / count
        scale = np.sqrt(np.where(known, (raw - mean) ** 2, 0).sum(axis=0) / count)
        series = np.array([_series(job.local_run) for job in used])
        series_scale = series.std(axis=(0, 1))
        return Encoder(
            columns,
            groups,
            instances,
            features,
            optimisers,
            mean,
            np.where(scale > 1e-9, scale, 1.0),
            series.mean(axis=(0, 1)),
            np.where(series_scale > 1e-9, series_scale, 1.0),
        )

    def encode(self, examples: Examples) -> Encoded:
        """Return encoded rows. Their jobs, instance types and parameters may be new to the encoder."""
        raw, columns, _ = _columns(examples, self.instances, self.features, self.optimisers)
        if columns != self.columns:  # other parameters of the candidates, or another order of them
            place = {name: index for index, name in enumerate(columns)}
            unknown = np.full(len(raw), np.nan)
            raw = np.column_stack(
                [raw[:, place[name]] if name in place else unknown for name in self.columns]
            )
        static = (raw - self.mean) / self.scale
        series = np.array([_series(job.local_run) for job in examples.jobs])
        with np.errstate(divide="ignore"):
            prior = np.log(examples.prior_time_s)
            log_price = np.log(examples.candidates.price_usd_h)
        return Encoded(
            np.where(np.isfinite(static), static, _UNKNOWN),
            (series - self.series_mean) / self.series_scale,
            examples.job,
            prior,
            log_price,
            tuple(job.name for job in examples.jobs),
            examples.row,
            examples.unbilled_s,
        )

    def groups_of(self) -> dict[str, Whole]:
        """Return the positions of each group's columns."""
        names = np.array(self.groups)
        return {name: np.flatnonzero(names == name) for name in dict.fromkeys(self.groups)}


_JOB: tuple[tuple[str, str, Callable[[Job], float]], ...] = (
    ("log batch", "batch size", lambda job: _log(job.batch or 0)),
    ("log samples", "samples", lambda job: _log(job.samples)),
)
_RUN: tuple[tuple[str, str, Callable[[LocalRun], float]], ...] = (
    ("log parameters", "parameters", lambda run: _log(run.parameters)),
    ("layers", "layers", lambda run: float(len(run.layers))),
    ("log local step", "local step time", lambda run: _log(float(np.median(run.step_s)))),
    ("log local batch", "batch size", lambda run: _log(run.batch)),
    ("log non-trainable", "non-trainable parameters", lambda run: float(np.log1p(run.non_trainable))),
    ("log input size", "input and output size", lambda run: float(np.log1p(run.input_size))),
    ("log output size", "input and output size", lambda run: float(np.log1p(run.output_size))),
    ("parameters per CPU time", "parameters", lambda run: _per_cpu_us(run)),
)
_ROLES: Mapping[str, slice] = {"master": slice(0, 1), "workers": slice(1, None)}
_USE: tuple[tuple[str, str, Callable[[LocalRun, slice], float]], ...] = (
    ("CPU", "CPU", lambda run, role: float(run.cpu_cores[:, role].mean())),
    ("log memory", "memory", lambda run, role: _log(float(run.memory_bytes[:, role].max()))),
    ("log bytes in per step", "network", lambda run, role: _per_step(run, run.net_in_bytes[:, role])),
    ("log bytes out per step", "network", lambda run, role: _per_step(run, run.net_out_bytes[:, role])),
)
"""Use of resources by a role's processes in the local run: column, group, and function. Values are means over
processes."""


def _columns(
    examples: Examples, instances: Sequence[str], features: Sequence[str], optimisers: Sequence[str]
) -> tuple[Real, tuple[str, ...], tuple[str, ...]]:
    """Return raw columns, float64[n, f], NaN where unknown, their names and their groups."""
    per_job, columns, groups = _of_jobs(examples.jobs, features, optimisers)
    rows = [per_job[:, index][examples.job] for index in range(per_job.shape[1])]
    rows_on = examples.candidates
    with np.errstate(divide="ignore"):
        own_batch = np.array([float(job.batch or np.nan) for job in examples.jobs])[examples.job]
        batch = np.where(np.isnan(rows_on.batch), own_batch, rows_on.batch)
        machine = {
            "log workers": ("workers", np.log(rows_on.count)),
            "workers": ("workers", rows_on.count.astype(np.float64)),
            "servers": ("servers", rows_on.servers.astype(np.float64)),
            "log batch here": ("batch size", np.log(batch)),
            "log vCPUs": ("vCPUs", np.log(rows_on.vcpus)),
            "log memory": ("memory", np.log(rows_on.memory_gib)),
            "GPUs": ("GPUs", rows_on.gpus),
            "log disk": ("disk", np.log(rows_on.disk_gib)),
            "log network": ("network", np.log(rows_on.network_bps)),
            "log CPU speed": ("CPU speed", np.log(rows_on.cpu_speed)),
            "log price": ("price", np.log(rows_on.price_usd_h)),
        }
        # Time per parameter, in contrast to time per sample, weighs less in larger batches and differs on one
        # worker.
        fixed = np.array([_per_cpu_us(job.local_run) for job in examples.jobs])[examples.job]
        runs = [job.local_run for job in examples.jobs]
        local = np.array([float(run.batch) if run else np.nan for run in runs])[examples.job]
        machine["parameters × log batch"] = ("batch size", fixed * np.log(batch / local))
        machine["parameters alone"] = ("workers", fixed * (rows_on.count == 1))
        machine["log vCPUs alone"] = ("workers", np.log(rows_on.vcpus) * (rows_on.count == 1))
    for name, (group, values) in machine.items():
        rows.append(values)
        columns.append(name)
        groups.append(group)
    for name, values in rows_on.parameters.items():
        rows.append(values)
        columns.append(name)
        groups.append(name)
    for name in instances:
        rows.append((rows_on.name == name).astype(np.float64))
        columns.append(f"is {name}")
        groups.append("instance type")
    return np.column_stack(rows), tuple(columns), tuple(groups)


def _of_jobs(
    jobs: Sequence[Job], features: Sequence[str], optimisers: Sequence[str]
) -> tuple[Real, list[str], list[str]]:
    columns = [name for name, _, _ in (*_JOB, *_RUN)]
    groups = [group for _, group, _ in (*_JOB, *_RUN)]
    columns += [f"{role}: {name}" for role in _ROLES for name, _, _ in _USE]
    groups += [f"local {group}, {role}" for role in _ROLES for _, group, _ in _USE]
    columns += [f"optimiser is {name}" for name in optimisers]
    groups += ["optimiser"] * len(optimisers)
    columns += [f"{name} layers" for name in _LAYERS] + ["has local run", *features]
    groups += ["layers"] * len(_LAYERS) + ["local run", *features]
    table = np.empty((len(jobs), len(columns)))
    for row, job in zip(table, jobs, strict=True):
        run = job.local_run
        values = [take(job) for _, _, take in _JOB]
        values += [np.nan if run is None else of(run) for _, _, of in _RUN]
        values += [_used(run, role, of) for role in _ROLES.values() for _, _, of in _USE]
        values += [np.nan if run is None else float(run.optimiser == name) for name in optimisers]
        values += _layers(run)
        values += [float(run is not None), *(job.features.get(name, np.nan) for name in features)]
        row[:] = values
    return table, columns, groups


def _per_cpu_us(run: LocalRun | None) -> float:
    """Return the parameters per µs of CPU time in a step of one process, an indicator of the time per
    parameter.
    """
    if run is None or not run.cpu_cores.any():
        return float("nan")
    return run.parameters / (1e6 * float(np.median(run.step_s)) * float(run.cpu_cores.mean()))


def _layers(run: LocalRun | None) -> list[float]:
    """Return the number of layers of each kind in _LAYERS."""
    if run is None:
        return [np.nan] * len(_LAYERS)
    names = [layer.lower() for layer in run.layers]
    return [float(sum(any(key in name for key in keys) for name in names)) for keys in _LAYERS.values()]


def _used(run: LocalRun | None, role: slice, of: Callable[[LocalRun, slice], float]) -> float:
    """Return a role's use of a resource, NaN if it has no process."""
    return float("nan") if run is None or not run.cpu_cores[:, role].size else of(run, role)


def _per_step(run: LocalRun, moved_bytes: Real) -> float:
    return _log(float(moved_bytes.sum()) / moved_bytes.shape[1] / len(run.step_s))


def _series(run: LocalRun | None) -> Real:
    """Return a job's series, float64[POINTS, c]: CPU in cores and log(1 + bytes), means over a role's
    processes, and the shares of layers."""
    table = np.zeros((POINTS, SERIES_COLUMNS))
    if run is None:
        return table
    column = 0
    for role in _ROLES.values():
        for values in (run.cpu_cores, run.memory_bytes, run.net_in_bytes, run.net_out_bytes):
            if values[:, role].size:
                mean = values[:, role].mean(axis=1)
                table[:, column] = _resampled(mean if values is run.cpu_cores else np.log1p(mean))
            column += 1
    if run.layers:
        kinds = np.array(
            [[any(key in name.lower() for key in keys) for keys in _LAYERS.values()] for name in run.layers]
        )
        for place in range(len(_LAYERS)):
            table[:, column + place] = _resampled(kinds[:, place].astype(np.float64))
    return table


def _resampled(values: Real) -> Real:
    """Return the means over POINTS equal parts of the run."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    edges = np.linspace(0.0, len(values), POINTS + 1)
    sums: Real = np.interp(edges, np.arange(len(total)), total)
    return np.diff(sums) * POINTS / len(values)
