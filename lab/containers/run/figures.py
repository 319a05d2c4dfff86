"""The figures of one container run, over all containers and per container.

For: computing the values of lab.containers.metrics from a run's recorded series and, where there were
clients, from their requests. Not for: their definitions. Quantiles are exact, linear between order
statistics. Those of limits are taken over container-periods: one value per container and period in which
the container was up at the period's end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.services import RequestStatus
from lab.containers.input.replay import Replay
from lab.containers.input.sections import Price
from lab.containers.metrics import GIB, LATENCY_QUANTILES, METRICS, MIB, OSCILLATION_PERIODS, UNLIMITED_BYTES
from twin.containers import cfs
from twin.containers.compiled import released
from twin.containers.lateness import work_lateness
from twin.containers.model import Events, Floats, Outcome, Population, Series, Workload
from twin.containers.requests.model import RequestLog
from twin.containers.reversals import Reversals
from twin.containers.serverless_model import Batch, ServerlessWorkload
from twinbed import InvariantError

LATENESS_QUANTILES = (0.5, 0.99)
SLACK_QUANTILES = (0.5, 0.8, 0.99)
_ROUNDED = 1e-9
"""Share of the work below which a difference of two sums over periods is their rounding."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A run's figures. summary: every key of METRICS → value, NaN where it has no meaning; censored: keys
    whose value is a lower bound; per_container: every key of a metric per container → float64[N]."""

    summary: Mapping[str, float]
    censored: frozenset[str]
    per_container: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Seen:
    """Sums over a run's periods that the figures need.

    rows: number of periods. up, throttled: int64[N], those in which the container was up, and throttled then.
    reserved_cores: float64[N], sum over the periods of its quota; without one, of its request, or of its
    host's cores. limit_bytes: float64[N], sum of its memory limits over the periods. limited: bool[N],
    whether it ever had a memory limit. taken_back: float64[N], number of its limit changes that were taken
    back. spread: slack and lateness.
    """

    rows: int
    up: NDArray[np.int64]
    throttled: NDArray[np.int64]
    reserved_cores: Floats
    limit_bytes: Floats
    limited: NDArray[np.bool_]
    taken_back: Floats
    spread: Pairs


def figures(replay: Replay, outcome: Outcome, price: Price, seen: Seen | None = None) -> Figures:
    """Return all metrics of a finished run. seen: sums over its periods; None: its series is recorded.

    Raises InvariantError if the series was not recorded then.
    """
    workload = replay.workload
    if seen is None:
        series = recorded(outcome)
        spread = _slacks(series, replay.memory_known) | _lateness(series, workload)
        seen = Seen(*sums(series, workload), taken_back(series, OSCILLATION_PERIODS), spread)
    duration_s = seen.rows * workload.period_s
    pairs = dict(seen.spread)
    pairs |= _counts(seen, outcome, workload)
    pairs |= _reservations(seen, replay, price)
    changes = seen.taken_back / duration_s
    pairs["taken_back_per_s"] = (changes, float(changes.sum()))
    pairs |= _turned_away(outcome.requests, len(workload.names))
    per_container = {key: values for key, (values, _) in pairs.items()}
    total = {key: value for key, (_, value) in pairs.items()}
    requests, censored = _requests(outcome.requests, duration_s)
    total |= requests
    total |= _serverless(workload, outcome)
    total["mean_containers"] = float(seen.up.sum()) / seen.rows
    total["limit_changes_per_s"] = outcome.limit_changes / duration_s
    return Figures({metric.key: float(total[metric.key]) for metric in METRICS}, censored, per_container)


def recorded(outcome: Outcome) -> Series:
    """Return the outcome's series. Raises InvariantError if it was not recorded."""
    if outcome.series is None:
        raise InvariantError("the run was simulated without recording its series")
    return outcome.series


Pairs = dict[str, tuple[Floats, float]]
"""Metric key → (one value per container, the value of the whole run)."""


def _slacks(series: Series, memory_known: NDArray[np.bool_]) -> Pairs:
    return _spread("cpu_slack_{}_cores", *cpu_slack(series)) | _spread(
        "memory_slack_{}_mib", *memory_slack(series, memory_known)
    )


def cpu_slack(series: Series) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return quota less use, cores, and a mask of the periods that count, in which the container is up and
    has a quota."""
    cpu = series.quota_cores - series.usage_cores
    return cpu, series.up & np.isfinite(series.quota_cores)


def memory_slack(
    series: Series, memory_known: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return memory limit less use, MiB, and a mask of the periods that count, in which both are known."""
    free, counted = np.empty(series.up.shape, np.float32), np.empty(series.up.shape, np.bool_)
    _free(series.limit_bytes, series.memory_bytes, series.up & memory_known, free, counted)
    return free, counted


@released
def _free(
    limit: NDArray[np.int64],
    used: NDArray[np.int64],
    known: NDArray[np.bool_],
    free: NDArray[np.float32],
    counted: NDArray[np.bool_],
) -> None:
    """Write `memory_slack` into free and counted. known: where the container is up and its use is known."""
    for t in range(len(free)):
        for i in range(free.shape[1]):
            free[t, i] = (limit[t, i] - used[t, i]) / MIB
            counted[t, i] = known[t, i] & (limit[t, i] < UNLIMITED_BYTES)


def _spread(key: str, values: NDArray[np.float32], counted: NDArray[np.bool_]) -> Pairs:
    """Return p50, p80 and p99 of `values`[T, N] where `counted`, per container and over all of them."""
    by_container = np.ascontiguousarray(values.T)
    mask = np.ascontiguousarray(counted.T)
    wanted = SLACK_QUANTILES
    own = np.array([quantiles(row[counts], wanted) for row, counts in zip(by_container, mask, strict=True)])
    pooled = quantiles(by_container[mask], wanted)
    return {key.format(f"p{round(100 * q)}"): (own[:, i], pooled[i]) for i, q in enumerate(wanted)}


def _requests(log: RequestLog | None, duration_s: float) -> tuple[dict[str, float], frozenset[str]]:
    """Return what clients saw, NaN where there were none, and the keys whose value is a lower bound."""
    if log is None:
        return dict.fromkeys(
            ("throughput_rps", "failed_share", _MEAN, *LATENCY_QUANTILES), math.nan
        ), frozenset()
    answered = log.status == RequestStatus.OK
    count, asked = int(np.count_nonzero(answered)), len(answered)
    values, censored = latencies(log.latency_s, log.at_s, answered, duration_s)
    shares = {
        "throughput_rps": count / duration_s,
        "failed_share": (asked - count) / asked if asked else math.nan,
    }
    return values | shares, censored


def _serverless(workload: Population, outcome: Outcome) -> dict[str, float]:
    """Return the metrics of a function's pods and of a batch of tasks; NaN for other runs."""
    values = {"makespan_s": math.nan, "cold_starts": math.nan}
    if isinstance(workload, ServerlessWorkload) and outcome.requests is not None:
        values["cold_starts"] = float(outcome.events.kind.count("join"))
        if isinstance(workload.load, Batch):
            values["makespan_s"] = float(outcome.requests.end_s.max())
    return values


def _turned_away(log: RequestLog | None, count: int) -> Pairs:
    if log is None:
        return {"turned_away": (np.full(count, np.nan), math.nan)}
    return {"turned_away": (log.dropped.astype(np.float64), float(log.dropped.sum()))}


def _counts(seen: Seen, outcome: Outcome, workload: Population) -> Pairs:
    count = len(workload.names)
    up, throttled = seen.up, seen.throttled
    undone = outcome.arrived_s - outcome.done_s
    undone[undone <= _ROUNDED * outcome.arrived_s] = 0.0
    pairs = {
        "throttled_share": (_share(throttled, up), float(_share(throttled.sum(), up.sum()))),
        "undone_core_s": (undone, float(undone.sum())),
    }
    for key, kind in (("oom_kills", "kill"), ("oom_events", "oom"), ("restarts", "restart")):
        per_container = _tally(outcome.events, kind, count)
        pairs[key] = (per_container, float(per_container.sum()))
    return pairs


def _tally(events: Events, kind: str, count: int) -> Floats:
    struck = [
        container for container, other in zip(events.container, events.kind, strict=True) if other == kind
    ]
    return np.bincount(np.array(struck, np.int64), minlength=count).astype(np.float64)


def _share(part: Any, whole: Any) -> Any:
    """Return part / whole, NaN where whole is 0: a container that never ran was neither throttled nor
    free."""
    whole = np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def _lateness(series: Series, workload: Population) -> Pairs:
    wanted = np.array(LATENESS_QUANTILES)
    demand, done = series.demand_cores, series.usage_cores
    if np.isnan(demand).any():
        unknown = (np.full(demand.shape[1], np.nan), math.nan)
        return {f"lateness_p{round(100 * q)}_s": unknown for q in LATENESS_QUANTILES}
    pooled = work_lateness(demand, done, workload.period_s, wanted)
    own = np.array(
        [
            work_lateness(demand[:, [i]], done[:, [i]], workload.period_s, wanted)
            for i in range(demand.shape[1])
        ]
    )
    return {
        f"lateness_p{round(100 * q)}_s": (own[:, i], float(pooled[i]))
        for i, q in enumerate(LATENESS_QUANTILES)
    }


def mean_reserved_cores(outcome: Outcome, replay: Replay) -> float:
    """Return the metric of that name of a run of a trace whose series was not recorded."""
    if outcome.reserved_cores is None or not isinstance(replay.workload, Workload):
        raise InvariantError("a series was recorded, or there is no trace")
    return float(outcome.reserved_cores.sum()) / replay.workload.periods


Sums = tuple[int, NDArray[np.int64], NDArray[np.int64], Floats, Floats, NDArray[np.bool_]]
"""The fields of Seen from `rows` to `limited`."""


def sums(series: Series, workload: Population) -> Sums:
    """Return the sums of a series over its periods, by column."""
    length, count = series.up.shape
    up, throttled = np.zeros((2, count), np.int64)
    reserved, limit = np.zeros((2, count))
    limited = np.zeros(count, np.bool_)
    requests = series.request_cores
    _sum_up(
        cfs.rows_of(series), np.empty((0, count), np.float32) if requests is None else requests,
        workload.host_cores, up, throttled, reserved, limit, limited,
    )  # fmt: skip
    return length, up, throttled, reserved, limit, limited


@released
def _sum_up(
    series: cfs.Rows,
    requests: NDArray[np.float32],
    host_cores: Floats,
    up: NDArray[np.int64],
    throttled: NDArray[np.int64],
    reserved: Floats,
    limit: Floats,
    limited: NDArray[np.bool_],
) -> None:
    """Add a series to the fields of Seen. requests: float32[T, N], NaN: none; [0, N]: none in the run."""
    for t in range(len(series.up)):
        for i in range(len(host_cores)):
            if not series.up[t, i]:
                continue
            up[i] += 1
            throttled[i] += series.throttled[t, i]
            cores = np.float64(series.quota_cores[t, i])
            if not np.isfinite(cores):
                cores = host_cores[i]
                if len(requests) and not np.isnan(requests[t, i]):
                    cores = np.float64(requests[t, i])
            reserved[i] += cores
            if series.limit_bytes[t, i] < UNLIMITED_BYTES:
                limit[i] += np.float64(series.limit_bytes[t, i])
                limited[i] = True


def _reservations(seen: Seen, replay: Replay, price: Price) -> Pairs:
    hours = replay.workload.period_s / 3600
    cores, gib = seen.reserved_cores * hours, seen.limit_bytes * (hours / GIB)
    # The reservation of a container without any limit is unknown, which differs from 0.
    gib[~(replay.memory_known & seen.limited)] = np.nan
    cost = cores * price.cpu_core_hour + np.nan_to_num(gib) * price.memory_gib_hour
    length_h = seen.rows * hours
    mean = cores / length_h
    total_gib = float("nan") if np.isnan(gib).all() else float(np.nansum(gib))
    return {
        "reserved_core_h": (cores, float(cores.sum())),
        "mean_reserved_cores": (mean, float(mean.sum())),
        "reserved_gib_h": (gib, total_gib),
        "mean_reserved_mib": (gib / length_h * 1024, total_gib / length_h * 1024),
        "cost": (cost, float(cost.sum())),
    }


def taken_back(series: Series, within: int) -> Floats:
    """Return how many changes of each container's CPU and memory limit were taken back, float64[N].

    within: periods after the change that count, ≥ 1. Periods in which a container is not up are left out.
    """
    counts = np.zeros(series.up.shape[1])
    for limits in (series.quota_cores, series.limit_bytes):
        reversals = Reversals(len(counts), within)
        reversals.add(limits, series.up)
        counts += reversals.counts()
    return counts


_MEAN = "latency_mean_s"


def latencies(
    latency_s: Floats, at_s: Floats, answered: NDArray[np.bool_], end_s: float
) -> tuple[dict[str, float], frozenset[str]]:
    """Return (metric key → value, keys whose value is a lower bound); values are NaN without requests.

    latency_s, at_s: float64[A], time to the answer and when each request was due, s. answered: bool[A].
    end_s: the run's end, s. A bound is the quantile of the known times: an answer's latency, or the time from
    when the request was due to the run's end.
    """
    known = np.where(answered, latency_s, np.maximum(end_s - at_s, 0.0))
    wanted = tuple(LATENCY_QUANTILES.values())
    exact = quantiles(np.where(answered, latency_s, np.inf), wanted)
    least = quantiles(known, wanted)
    values = {
        key: low if np.isinf(value) else value
        for key, value, low in zip(LATENCY_QUANTILES, exact, least, strict=True)
    }
    bounds = {key for key, value in zip(LATENCY_QUANTILES, exact, strict=True) if np.isinf(value)}
    values[_MEAN] = float(known.mean()) if known.size else float("nan")
    return values, frozenset(bounds if answered.all() else bounds | {_MEAN})


def quantiles(values: NDArray[np.floating[Any]], wanted: tuple[float, ...]) -> list[float]:
    """Return quantiles of float[n], linear between order statistics as numpy.quantile's, NaN if n = 0.

    Infinite values are allowed, unlike in numpy.quantile. np.partition keeps float32 and finds all order
    statistics in one pass, which is several times faster than numpy.quantile on millions of values.
    """
    if values.size == 0:
        return [float("nan")] * len(wanted)
    positions = [quantile * (values.size - 1) for quantile in wanted]
    below = [int(position) for position in positions]
    above = [min(low + 1, values.size - 1) for low in below]
    ordered = np.partition(values, sorted({*below, *above}))
    return [
        _between(float(ordered[low]), float(ordered[high]), position - low)
        for position, low, high in zip(positions, below, above, strict=True)
    ]


def _between(low: float, high: float, share: float) -> float:
    return low if share == 0.0 or low == high else low + share * (high - low)
