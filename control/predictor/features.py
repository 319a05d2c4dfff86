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
"""Points of a series: ten minutes with one point per 30 s; shorter runs are resampled to as many."""

SERIES = ("cpu", "memory", "net_in", "net_out")

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
"""Columns that say how the time of any job changes with its cluster and batch size."""

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "convolution": ("conv",),
    "recurrent": ("lstm", "gru", "rnn"),
    "attention": ("attention", "transformer"),
    "embedding": ("embedding",),
    "norm": ("norm",),
    "pooling": ("pool",),
    "linear": ("linear", "dense"),
}
_UNKNOWN = 0.0
"""Standardised value of what is not known: the mean."""


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else np.nan


@dataclass(frozen=True, slots=True)
class Encoded:
    """n encoded rows of J jobs.

    static: standardised columns, float64[n, f].
    series: standardised series of each job's local run, float64[J, POINTS, 4].
    job: position of each row's job, int64[n].
    prior: logarithm of the analytic model's seconds, float64[n]; NaN if there is none.
    log_price: logarithm of the price per hour, float64[n].
    names: names of the jobs.
    """

    static: Real
    series: NDArray[np.float64]
    job: Whole
    prior: Real
    log_price: Real
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Encoder:
    """How rows are encoded; `fit` makes one from rows to learn from.

    columns: names of the f static columns.
    groups: group of each column, for explanations.
    instances: instance types that were seen.
    features: job features that were seen.
    mean, scale: mean and standard deviation of each column, float64[f].
    series_mean, series_scale: the same of each series, float64[4].
    """

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    instances: tuple[str, ...]
    features: tuple[str, ...]
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
        raw, columns, groups = _columns(examples, instances, features)
        with np.errstate(invalid="ignore"):
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
            mean,
            np.where(scale > 1e-9, scale, 1.0),
            series.mean(axis=(0, 1)),
            np.where(series_scale > 1e-9, series_scale, 1.0),
        )

    def encode(self, examples: Examples) -> Encoded:
        """Return encoded rows; their jobs and instance types need not have been seen."""
        raw, _, _ = _columns(examples, self.instances, self.features)
        static = (raw - self.mean) / self.scale
        series = np.array([_series(job.local_run) for job in examples.jobs])
        with np.errstate(divide="ignore", invalid="ignore"):
            prior = np.log(examples.prior_time_s)
            log_price = np.log(examples.candidates.price_usd_h)
        return Encoded(
            np.where(np.isfinite(static), static, _UNKNOWN),
            (series - self.series_mean) / self.series_scale,
            examples.job,
            prior,
            log_price,
            tuple(job.name for job in examples.jobs),
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
    ("local CPU", "local CPU", lambda run: float(run.cpu_cores.mean()) if run.cpu_cores.size else np.nan),
    (
        "log local memory",
        "local memory",
        lambda run: _log(float(run.memory_bytes.max())) if run.memory_bytes.size else np.nan,
    ),
    ("parameters per CPU time", "parameters", lambda run: _per_cpu_us(run)),
    (
        "log local traffic per step",
        "local network",
        lambda run: _log(float(run.net_out_bytes.sum()) / len(run.step_s)),
    ),
)


def _columns(
    examples: Examples, instances: Sequence[str], features: Sequence[str]
) -> tuple[Real, tuple[str, ...], tuple[str, ...]]:
    """Return raw columns, float64[n, f], NaN where unknown, their names and their groups."""
    per_job, columns, groups = _of_jobs(examples.jobs, features)
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
            "log network": ("network", np.log(rows_on.network_bps)),
            "log CPU speed": ("CPU speed", np.log(rows_on.cpu_speed)),
            "log price": ("price", np.log(rows_on.price_usd_h)),
        }
        # Time per parameter, not per sample, weighs less in larger batches and is different on one worker.
        fixed = np.array([_per_cpu_us(job.local_run) for job in examples.jobs])[examples.job]
        local = np.array([_local_batch(job.local_run) for job in examples.jobs])[examples.job]
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


def _of_jobs(jobs: Sequence[Job], features: Sequence[str]) -> tuple[Real, list[str], list[str]]:
    columns = [name for name, _, _ in (*_JOB, *_RUN)]
    groups = [group for _, group, _ in (*_JOB, *_RUN)]
    columns += [f"{name} layers" for name in _LAYERS] + ["has local run", *features]
    groups += ["layers"] * len(_LAYERS) + ["local run", *features]
    table = np.full((len(jobs), len(columns)), np.nan)
    for row, job in zip(table, jobs, strict=True):
        run = job.local_run
        values = [take(job) for _, _, take in _JOB]
        values += [np.nan if run is None else of(run) for _, _, of in _RUN]
        values += _layers(run)
        values += [float(run is not None), *(job.features.get(name, np.nan) for name in features)]
        row[:] = values
    return table, columns, groups


def _per_cpu_us(run: LocalRun | None) -> float:
    """Return parameters per µs of CPU time in a step of one process; it indicates the time per parameter."""
    if run is None or not run.cpu_cores.size or not run.cpu_cores.any():
        return float("nan")
    return run.parameters / (1e6 * float(np.median(run.step_s)) * float(run.cpu_cores.mean()))


def _local_batch(run: LocalRun | None) -> float:
    return float("nan") if run is None else float(run.batch)


def _layers(run: LocalRun | None) -> list[float]:
    """Return the number of layers of each kind in _LAYERS."""
    if run is None:
        return [np.nan] * len(_LAYERS)
    names = [layer.lower() for layer in run.layers]
    return [float(sum(any(key in name for key in keys) for name in names)) for keys in _LAYERS.values()]


def _series(run: LocalRun | None) -> Real:
    """Return sums over all processes, float64[POINTS, 4]: CPU in cores, the others as log(1 + bytes)."""
    if run is None or not run.cpu_cores.size:
        return np.zeros((POINTS, len(SERIES)))
    columns = (
        run.cpu_cores.sum(axis=1),
        np.log1p(run.memory_bytes.sum(axis=1)),
        np.log1p(run.net_in_bytes.sum(axis=1)),
        np.log1p(run.net_out_bytes.sum(axis=1)),
    )
    return np.column_stack([_resampled(column) for column in columns])


def _resampled(values: Real) -> Real:
    """Return the means over POINTS equal parts of the run."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    edges = np.linspace(0.0, len(values), POINTS + 1)
    sums: Real = np.interp(edges, np.arange(len(total)), total)
    return np.diff(sums) * POINTS / len(values)
