"""What a run is judged by: slack, throttling, lateness, OOMs, churn, reservations and their price.

For: the figures of one run, over all containers and per container, from its recorded series and, where
clients asked for something, their requests. Not for: comparing runs (lab.runs.compare). Each metric's
definition
is its `Metric.definition`, printed into docs/reference/metrics.md. Quantiles are exact (linear between order
statistics), those of limits taken over container-periods: one value per container and period in which the
container was up at the period's end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from control.services import RequestStatus
from lab.ask.scenario import Price
from lab.containers.input.replay import Replay
from twin.containers.lateness import work_lateness
from twin.containers.model import Events, Floats, Outcome, Population, Series
from twin.containers.requests.model import RequestLog
from twin.containers.serverless_model import Batch, ServerlessWorkload
from twinbed import InvariantError

MIB = float(1 << 20)
GIB = float(1 << 30)
UNLIMITED_BYTES = (1 << 63) - 1
"""What Series.limit_bytes holds for a container without a memory limit."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: key in tables, title and unit for people, decimals to print, which way is better.

    per_container: it is also a column of the run's containers table.
    """

    key: str
    title: str
    unit: str
    decimals: int
    better: Literal["lower", "higher"]
    definition: str
    per_container: bool = True


_LATENCY_QUANTILES = {
    "latency_p50_s": 0.5,
    "latency_p90_s": 0.9,
    "latency_p99_s": 0.99,
    "latency_p999_s": 0.999,
}

METRICS: tuple[Metric, ...] = (
    Metric(
        "throughput_rps",
        "Throughput",
        "1/s",
        1,
        "higher",
        "Requests of clients answered per second of the run.",
        per_container=False,
    ),
    Metric(
        "failed_share",
        "Requests not answered",
        "1",
        4,
        "lower",
        "Requests that were turned away, given up by their client, failed, or had not ended when the run "
        "ended, of those that arrived.",
        per_container=False,
    ),
    Metric(
        "latency_mean_s",
        "Latency mean",
        "s",
        4,
        "lower",
        "Mean over answered requests of the time from when a request was due to its answer.",
        per_container=False,
    ),
    *(
        Metric(
            f"latency_{key}_s",
            f"Latency {title}",
            "s",
            4,
            "lower",
            f"The same, {title.removeprefix('p')}th percentile of the answered requests.",
            per_container=False,
        )
        for key, title in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"))
    ),
    Metric(
        "makespan_s",
        "Job time",
        "s",
        1,
        "lower",
        "Of a serverless batch: from its start to the end of its last task; not defined for one that was "
        "not done when the run ended.",
        per_container=False,
    ),
    Metric(
        "cold_starts",
        "Cold starts",
        "1",
        0,
        "lower",
        "Of a serverless function: pods that were started.",
        per_container=False,
    ),
    Metric(
        "turned_away",
        "Calls turned away",
        "1",
        0,
        "lower",
        "Calls that a container turned away because its queue was full.",
    ),
    Metric(
        "cpu_slack_p50_cores",
        "CPU slack p50",
        "cores",
        3,
        "lower",
        "Median of quota − usage; quota as in force at the period's end. Below zero where a quota was "
        "written within the period, because the write refills the pool. Periods without a quota are left "
        "out.",
    ),
    Metric("cpu_slack_p80_cores", "CPU slack p80", "cores", 3, "lower", "The same, 80th percentile."),
    Metric("cpu_slack_p99_cores", "CPU slack p99", "cores", 3, "lower", "The same, 99th percentile."),
    Metric(
        "memory_slack_p50_mib",
        "Memory slack p50",
        "MiB",
        1,
        "lower",
        "Median of limit − memory at the period's end. Periods without a limit, and containers whose "
        "trace has no memory, are left out.",
    ),
    Metric("memory_slack_p80_mib", "Memory slack p80", "MiB", 1, "lower", "The same, 80th percentile."),
    Metric("memory_slack_p99_mib", "Memory slack p99", "MiB", 1, "lower", "The same, 99th percentile."),
    Metric(
        "throttled_share",
        "Throttled periods",
        "1",
        4,
        "lower",
        "Container-periods in which the container was throttled, of those in which it was up.",
    ),
    Metric(
        "lateness_p50_s",
        "Delayed work p50",
        "s",
        3,
        "lower",
        "How late CPU work is done, median over the work (a core-second is late by the time between its "
        "arrival and its service, first in first out, against doing it in the period it arrives). Work "
        "never done counts as late until the run's end.",
    ),
    Metric("lateness_p99_s", "Delayed work p99", "s", 3, "lower", "The same, 99th percentile of the work."),
    Metric(
        "undone_core_s",
        "Undone work",
        "core·s",
        2,
        "lower",
        "CPU work that arrived and was never done: still waiting at the end, or dropped by a container "
        "that left. Work that waits while a container is restarted is done later.",
    ),
    Metric("oom_kills", "OOM kills", "1", 0, "lower", "Containers killed for memory."),
    Metric(
        "oom_events",
        "OOM events",
        "1",
        0,
        "lower",
        "Times a container was at its memory limit: held and granted more, or killed.",
    ),
    Metric("restarts", "Restarts", "1", 0, "lower", "Restarts, asked for by the policy or following a kill."),
    Metric(
        "limit_changes_per_s",
        "Limit changes",
        "1/s",
        2,
        "lower",
        "CPU and memory limits changed by decisions, per simulated second.",
        per_container=False,
    ),
    Metric(
        "mean_reserved_cores",
        "Mean reserved CPU",
        "cores",
        3,
        "lower",
        "Reserved core-hours over the run's length.",
    ),
    Metric(
        "reserved_core_h",
        "Reserved CPU",
        "core·h",
        4,
        "lower",
        "Sum of quotas over time while up; a container without a quota counts with its host's cores.",
    ),
    Metric(
        "reserved_gib_h",
        "Reserved memory",
        "GiB·h",
        4,
        "lower",
        "Sum of memory limits over time while up; containers whose trace has no memory, and periods "
        "without a limit, are left out.",
    ),
    Metric(
        "mean_reserved_mib",
        "Mean reserved memory",
        "MiB",
        0,
        "lower",
        "Reserved GiB-hours over the run's length.",
    ),
    Metric(
        "cost",
        "Cost",
        "currency",
        4,
        "lower",
        "Reserved core-hours and GiB-hours at the scenario's price; memory that is unknown costs nothing.",
    ),
)

OF_REQUESTS = (
    "throughput_rps",
    "failed_share",
    "latency_mean_s",
    *_LATENCY_QUANTILES,
    "makespan_s",
    "cold_starts",
    "turned_away",
)
"""Keys of the figures that a run without requests does not have."""

BY_KEY = {metric.key: metric for metric in METRICS}

_QUANTILES = (0.5, 0.99)
_SLACK_QUANTILES = (0.5, 0.8, 0.99)


@dataclass(frozen=True, slots=True)
class Figures:
    """A run's figures. summary: every key of METRICS → value (NaN where it has no meaning);
    per_container: every per-container key → float64[N]."""

    summary: Mapping[str, float]
    per_container: Mapping[str, Floats]


def figures(replay: Replay, outcome: Outcome, price: Price) -> Figures:
    """All metrics of a finished, recorded run; raises InvariantError when it was not recorded."""
    series, workload = recorded(outcome), replay.workload
    duration_s = len(series.up) * workload.period_s
    each = _slacks(series, replay.memory_known)
    each |= _counts(outcome, workload)
    each |= _lateness(series, workload)
    each |= _reservations(series, replay, price)
    each |= _turned_away(outcome.requests, len(workload.names))
    whole = {key: values for key, (values, _) in each.items()}
    total = {key: value for key, (_, value) in each.items()}
    total |= _requests(outcome.requests, duration_s)
    total |= _serverless(workload, outcome)
    total["limit_changes_per_s"] = outcome.limit_changes / duration_s
    return Figures({metric.key: float(total[metric.key]) for metric in METRICS}, whole)


def recorded(outcome: Outcome) -> Series:
    """The outcome's series; raises InvariantError when the run was not recorded."""
    if outcome.series is None:
        raise InvariantError("the run was simulated without recording its series")
    return outcome.series


def quantiles(values: NDArray[np.floating[Any]], wanted: tuple[float, ...] = _QUANTILES) -> list[float]:
    """Quantiles of float[n], linear between order statistics as numpy.quantile's, NaN when n = 0.

    np.partition keeps float32 as it is and finds all order statistics in one pass: several times faster than
    numpy.quantile on millions of values.
    """
    if values.size == 0:
        return [float("nan")] * len(wanted)
    positions = [quantile * (values.size - 1) for quantile in wanted]
    below = [int(position) for position in positions]
    above = [min(low + 1, values.size - 1) for low in below]
    ordered = np.partition(values, sorted({*below, *above}))
    return [
        float(ordered[low]) + (position - low) * (float(ordered[high]) - float(ordered[low]))
        for position, low, high in zip(positions, below, above, strict=True)
    ]


_Pairs = dict[str, tuple[Floats, float]]
"""Metric key → (one value per container, the value of the whole run)."""


def _slacks(series: Series, memory_known: NDArray[np.bool_]) -> _Pairs:
    cpu = series.quota_cores - series.usage_cores
    limited = series.up & np.isfinite(series.quota_cores)
    free = ((series.limit_bytes - series.memory_bytes) / MIB).astype(np.float32)
    bounded = series.up & (series.limit_bytes < UNLIMITED_BYTES) & memory_known
    return _spread("cpu_slack_{}_cores", cpu, limited) | _spread("memory_slack_{}_mib", free, bounded)


def _spread(key: str, values: NDArray[np.float32], counted: NDArray[np.bool_]) -> _Pairs:
    """p50, p80 and p99 of `values`[T, N] where `counted`, per container and pooled."""
    by_container = np.ascontiguousarray(values.T)
    mask = np.ascontiguousarray(counted.T)
    wanted = _SLACK_QUANTILES
    each = np.array([quantiles(row[here], wanted) for row, here in zip(by_container, mask, strict=True)])
    pooled = quantiles(by_container[mask], wanted)
    return {key.format(f"p{round(100 * q)}"): (each[:, i], pooled[i]) for i, q in enumerate(wanted)}


def _requests(log: RequestLog | None, duration_s: float) -> dict[str, float]:
    """What clients saw; NaN where there were none."""
    if log is None:
        return dict.fromkeys(
            ("throughput_rps", "failed_share", "latency_mean_s", *_LATENCY_QUANTILES), math.nan
        )
    answered = log.status == RequestStatus.OK
    count = int(np.count_nonzero(answered))
    latency = log.latency_s[answered]
    found = dict(zip(_LATENCY_QUANTILES, quantiles(latency, tuple(_LATENCY_QUANTILES.values())), strict=True))
    return found | {
        "throughput_rps": count / duration_s,
        "failed_share": (len(log.status) - count) / len(log.status) if len(log.status) else math.nan,
        "latency_mean_s": float(latency.mean()) if count else math.nan,
    }


def _serverless(workload: Population, outcome: Outcome) -> dict[str, float]:
    """What only a function's pods and a batch of tasks have; NaN elsewhere."""
    found = {"makespan_s": math.nan, "cold_starts": math.nan}
    if isinstance(workload, ServerlessWorkload) and outcome.requests is not None:
        found["cold_starts"] = float(outcome.events.kind.count("join"))
        if isinstance(workload.load, Batch):
            found["makespan_s"] = float(outcome.requests.end_s.max())
    return found


def _turned_away(log: RequestLog | None, count: int) -> _Pairs:
    if log is None:
        return {"turned_away": (np.full(count, np.nan), math.nan)}
    return {"turned_away": (log.dropped.astype(np.float64), float(log.dropped.sum()))}


def _counts(outcome: Outcome, workload: Population) -> _Pairs:
    series = recorded(outcome)
    count = len(workload.names)
    up, throttled = series.up.sum(axis=0), (series.throttled & series.up).sum(axis=0)
    undone = np.maximum(outcome.arrived_s - outcome.done_s, 0.0)
    pairs = {
        "throttled_share": (_share(throttled, up), float(_share(throttled.sum(), up.sum()))),
        "undone_core_s": (undone, float(undone.sum())),
    }
    for key, kind in (("oom_kills", "kill"), ("oom_events", "oom"), ("restarts", "restart")):
        found = _tally(outcome.events, kind, count)
        pairs[key] = (found, float(found.sum()))
    return pairs


def _tally(events: Events, kind: str, count: int) -> Floats:
    where = [index for index, each in zip(events.container, events.kind, strict=True) if each == kind]
    return np.bincount(np.array(where, np.int64), minlength=count).astype(np.float64)


def _share(part: Any, whole: Any) -> Any:
    """part / whole, NaN where whole is 0: a container that never ran was never throttled nor free."""
    whole = np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def _lateness(series: Series, workload: Population) -> _Pairs:
    wanted = np.array(_QUANTILES)
    demand, done = series.demand_cores, series.usage_cores
    if np.isnan(demand).any():
        unknown = (np.full(demand.shape[1], np.nan), math.nan)
        return {f"lateness_p{round(100 * q)}_s": unknown for q in _QUANTILES}
    pooled = work_lateness(demand, done, workload.period_s, wanted)
    each = np.array(
        [
            work_lateness(demand[:, [i]], done[:, [i]], workload.period_s, wanted)
            for i in range(demand.shape[1])
        ]
    )
    return {f"lateness_p{round(100 * q)}_s": (each[:, i], float(pooled[i])) for i, q in enumerate(_QUANTILES)}


def _reservations(series: Series, replay: Replay, price: Price) -> _Pairs:
    workload = replay.workload
    hours = workload.period_s / 3600
    quota = np.where(np.isfinite(series.quota_cores), series.quota_cores, workload.host_cores)
    cores = np.where(series.up, quota, 0).sum(axis=0, dtype=np.float64) * hours
    bounded = series.up & (series.limit_bytes < UNLIMITED_BYTES)
    gib = np.where(bounded, series.limit_bytes, 0).sum(axis=0, dtype=np.float64) * (hours / GIB)
    # No limit at all is no reservation, which is not the same as one of nothing.
    gib[~(replay.memory_known & bounded.any(axis=0))] = np.nan
    cost = cores * price.cpu_core_hour + np.nan_to_num(gib) * price.memory_gib_hour
    length_h = len(series.up) * hours
    mean = cores / length_h
    total_gib = float("nan") if np.isnan(gib).all() else float(np.nansum(gib))
    return {
        "reserved_core_h": (cores, float(cores.sum())),
        "mean_reserved_cores": (mean, float(mean.sum())),
        "reserved_gib_h": (gib, total_gib),
        "mean_reserved_mib": (gib / length_h * 1024, total_gib / length_h * 1024),
        "cost": (cost, float(cost.sum())),
    }
