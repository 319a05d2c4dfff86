"""Reads the compared quantities from a stored run of either backend.

For: the values that `rule.judge` compares, and leaving out runs that a virtual machine's neighbours
disturbed. Not for: judging. All values come from the run's tables, which are the same for both backends. The
same requests with the same demand, under the same policy, cost the same CPU. They cost more if others use the
caches or the other thread of the core, which no counter of a virtual machine shows. Other work on the machine
itself is visible in /proc/stat (present.company).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.containers.metrics import MIB, UNLIMITED_BYTES
from lab.containers.validate.rule import LEAST_REPEATS
from lab.runs.store import Run
from twin.containers.model import Floats

_SERIES = ["usage_cores", "quota_cores", "memory_bytes", "limit_bytes", "up"]


def measures(run: Run) -> dict[str, float]:
    """Return every key of rule.QUANTITIES → value, NaN if the run has no such quantity.

    Means of slack are over container-periods: one value per container and period in which it is up and has a
    limit. work_cores is the CPU time used per second where there are no clients. A latency percentile that
    falls among requests without an answer is the time that they had waited at the run's end, on both backends
    (lab.containers.run.figures).
    """
    metrics, periods = run.metrics, run.table("periods", _SERIES)
    columns = {name: periods.column(name).to_numpy() for name in _SERIES}
    up = columns["up"]
    usage, quota = columns["usage_cores"].astype(np.float64), columns["quota_cores"].astype(np.float64)
    limited = up & np.isfinite(quota)
    bounded = up & (columns["limit_bytes"] < UNLIMITED_BYTES)
    free = (columns["limit_bytes"] - columns["memory_bytes"])[bounded] / MIB
    rows = len(up) // len(run.manifest["workload"]["containers"])
    known = not math.isnan(metrics["memory_slack_p50_mib"])
    has_clients = "requests" in run.tables
    return {
        "throughput_rps": metrics["throughput_rps"],
        "work_cores": math.nan if has_clients else float(usage.sum()) / rows,
        "cpu_slack_mean_cores": _mean((quota - usage)[limited]),
        "throttled_share": metrics["throttled_share"],
        "latency_p50_s": metrics["latency_p50_s"],
        "latency_p99_s": metrics["latency_p99_s"],
        "memory_slack_mean_mib": _mean(free) if known else math.nan,
    }


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(values.mean()) if values.size else math.nan


MOST_CPU = 1.15
"""CPU per request above which a run counts as disturbed, as a multiple of the least of equal runs."""


def cpu_per_request_s(run: Run) -> float:
    """Return the CPU seconds that the containers used per answered request; NaN if there are no requests."""
    answered = run.metrics["throughput_rps"] if "requests" in run.tables else 0.0
    periods = int(run.manifest["workload"]["periods"])
    usage = run.table("periods", ["usage_cores"]).column("usage_cores").to_numpy().astype(np.float64)
    return float(usage.sum()) / periods / answered if answered > 0 else float("nan")


def undisturbed(equals: Sequence[Run]) -> list[Run]:
    """Return those of equal runs, which differ in the repeat alone, that took at most
    MOST_CPU times the least CPU."""
    within = _within(np.array([cpu_per_request_s(run) for run in equals]))
    return [run for run, fine in zip(equals, within, strict=True) if fine]


def divided(testbed: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return (runs that count, runs that are left out) of a cell, by seed, in their order.

    At least LEAST_REPEATS runs of a seed count, if there are that many: those that took the least CPU.
    """
    kept: set[int] = set()
    for seed in {run.seed for run in testbed}:
        places = [place for place, run in enumerate(testbed) if run.seed == seed]
        cost_s = np.array([cpu_per_request_s(testbed[place]) for place in places])
        fine = np.flatnonzero(_within(cost_s))
        if len(fine) < LEAST_REPEATS:
            fine = np.argsort(cost_s, kind="stable")[:LEAST_REPEATS]
        kept |= {places[index] for index in fine}
    return (
        [run for place, run in enumerate(testbed) if place in kept],
        [run for place, run in enumerate(testbed) if place not in kept],
    )


def _within(cost_s: Floats) -> NDArray[np.bool_]:
    """Return which values are at most MOST_CPU times the least, or unknown."""
    known = cost_s[np.isfinite(cost_s)]
    return ~(cost_s > MOST_CPU * known.min()) if known.size else np.ones(len(cost_s), np.bool_)
