"""The metrics and tables of a cluster run. For: Outcome to values and tables. Not for: simulating."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa

from control.cluster import Outcome
from control.scheduler.model import Flags, Real
from lab.cluster.input import WatchedInput
from lab.cluster.run.jobs import Jobs

_MOST_MOMENTS = 2_000
"""Most rows of the table `queue`; of longer runs it holds moments at equal distances."""

_ROUNDING_S = 1e-6
"""Waits up to this length come from rounding of the clock, s."""

_GROWS = 2.0
"""A queue counts as growing if the mean number of waiting jobs in the last fifth of the watched arrivals'
time is this many times that of the fifth before it."""

_FEWEST = 100
"""Fewest watched jobs whose queue is judged."""

LEFT = 0.1
"""Share of the watched jobs by which the queue is longer at their end, above which a run is not steady: the
cluster serves too few of them, and waits are as long as jobs go on coming."""


def watched(given: WatchedInput, jobs: int) -> Flags:
    """Return which jobs count, bool[n]."""
    places = np.arange(jobs)
    return (places >= given.first) & (places < (jobs if given.last is None else given.last))


def nearest_rank(values: Real, share: float) -> float:
    """Return the value at rank ⌈share · n⌉, NaN without values."""
    if not values.size:
        return math.nan
    return float(np.sort(values)[max(math.ceil(share * values.size), 1) - 1])


def grew(jobs: Jobs, done: Outcome, counts: Flags) -> bool:
    """Return whether the queue still grew while the watched jobs arrived, so that means depend on its end."""
    *_, before, after = _fifths(jobs, done, counts)
    return after > _GROWS * before and after > 0.02 * counts.sum()


def left(jobs: Jobs, done: Outcome, counts: Flags) -> float:
    """Return by how many jobs the queue is longer in the last fifth of the watched arrivals' time than in its
    first fifth, 0 for few jobs."""
    first, *_, last = _fifths(jobs, done, counts)
    return last - first


def _fifths(jobs: Jobs, done: Outcome, counts: Flags) -> list[float]:
    """Return the mean number of waiting jobs in each fifth of the watched arrivals' time; zeros for few."""
    submit_s = jobs.workload.submit_s[counts]
    if submit_s.size < _FEWEST or submit_s[-1] <= submit_s[0]:
        return [0.0] * 5
    at_s, waiting = np.append(done.series.at_s, np.inf), done.series.waiting
    edges = np.linspace(submit_s[0], submit_s[-1], 6)
    return [float(np.diff(at_s.clip(low, high)) @ waiting / (high - low)) for low, high in pairwise(edges)]


def metrics(jobs: Jobs, done: Outcome, alone: Outcome | None, counts: Flags) -> dict[str, float]:
    """Return the values of lab/cluster/metrics.csv. alone: the run in equal parts; None: no fairness."""
    load = jobs.workload
    ended = counts & ~np.isnan(done.finish_s)
    jct_s = (done.finish_s - load.submit_s)[ended]
    waited_s = jct_s - done.held_s[ended]
    values = {
        "jct_p50_s": nearest_rank(jct_s, 0.5),
        "jct_p99_s": nearest_rank(jct_s, 0.99),
        "finished": float((~np.isnan(done.finish_s)).sum()),
        "preemptions": float(done.preemptions.sum()),
        "utilisation": float(done.busy_gpu_s.sum() / max(done.capacity_gpu_s.sum(), 1e-12)),
        "lost_gpu_h": float(done.restart_gpu_s.sum() + done.undone_gpu_s.sum()) / 3600,
    }
    if counts.sum() >= _FEWEST:
        values["queue_growth_share"] = left(jobs, done, counts) / int(counts.sum())
    if jobs.cluster.price_usd_h.any():
        values["cost_usd"] = float(done.busy_gpu_s @ jobs.cluster.price_usd_h) / 3600
    if jct_s.size:
        values |= {
            "jct_mean_s": math.nan if grew(jobs, done, counts) else float(jct_s.mean()),
            "first_wait_mean_s": float((done.first_start_s - load.submit_s)[ended].mean()),
            "waiting_mean_s": float(np.where(waited_s > _ROUNDING_S, waited_s, 0.0).mean()),
            "makespan_s": float(done.finish_s[ended].max()),
        }
    due = ended & np.isfinite(load.deadline_s)
    if due.any():
        values["in_time_share"] = float((done.finish_s <= load.deadline_s)[due].mean())
    if alone is not None:
        both = ended & ~np.isnan(alone.finish_s)
        rho = ((done.finish_s - load.submit_s) / (alone.finish_s - load.submit_s))[both]
        if rho.size:
            values |= {
                "rho_mean": float(rho.mean()),
                "rho_p99": nearest_rank(rho, 0.99),
                "rho_worst": float(rho.max()),
            }
    return values


def tables(jobs: Jobs, done: Outcome, counts: Flags) -> dict[str, pa.Table]:
    """Return the tables `jobs`, `queue`, `types` and, for small runs, `spans`."""
    load = jobs.workload
    columns = {
        "job": np.arange(len(load)), "queue": [jobs.queues[place] for place in load.queue],
        "model": list(jobs.models), "gpus": load.gpus, "weight": load.weight, "submit_s": load.submit_s,
        "first_start_s": done.first_start_s, "finish_s": done.finish_s, "held_s": done.held_s,
        "preemptions": done.preemptions, "restart_s": done.restart_s, "undone_s": done.undone_s,
        "real_wait_s": jobs.waited_s, "watched": counts,
    }  # fmt: skip
    series = done.series
    some = np.unique(np.linspace(0, max(series.at_s.size - 1, 0), _MOST_MOMENTS).astype(int))
    made = {
        "jobs": pa.table(columns),
        "queue": pa.table(
            {name: getattr(series, name)[some] for name in ("at_s", "waiting", "running", "busy_gpus")}
        ),
    }
    busy_gpu_h, cluster = done.busy_gpu_s / 3600, jobs.cluster
    up_gpu_h = done.capacity_gpu_s / 3600
    made["types"] = pa.table(
        {
            "type": list(cluster.types),
            "gpus": np.bincount(cluster.server_type, cluster.server_gpus, len(cluster.types)).astype(int),
            "up_gpu_h": up_gpu_h,
            "busy_gpu_h": busy_gpu_h,
            "restart_gpu_h": done.restart_gpu_s / 3600,
            "utilisation": busy_gpu_h / np.where(up_gpu_h > 0, up_gpu_h, np.nan),
            "cost_usd": busy_gpu_h * cluster.price_usd_h,
        }
    )
    if done.spans is not None:
        kinds = np.array(jobs.cluster.types)[jobs.cluster.server_type[done.spans.server]]
        made["spans"] = pa.table(
            {
                "job": done.spans.job,
                "server": done.spans.server,
                "type": kinds.tolist(),
                "gpus": done.spans.gpus,
                "begin_s": done.spans.begin_s,
                "end_s": done.spans.end_s,
            }
        )
    return made
