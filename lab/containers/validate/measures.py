"""Takes the quantities that are compared from a stored run of either backend.

For: the values that `rule.judge` puts beside each other. Not for: judging. All values come from the run's
tables, which are the same for both backends.
"""

from __future__ import annotations

import math

import numpy as np

from lab.containers.metrics import MIB, UNLIMITED_BYTES
from lab.runs.store import Run

_SERIES = ["usage_cores", "quota_cores", "memory_bytes", "limit_bytes", "up"]


def measures(run: Run) -> dict[str, float]:
    """Return every key of rule.QUANTITIES → value, NaN where the run has no such quantity.

    Means of slack are over container-periods: one value per container and period in which it is up and has
    a limit. work_cores is the CPU time used per second where there are no clients. A latency percentile that
    falls among requests without an answer is the time that they had waited at the run's end, on both
    backends (lab.containers.run.latency).
    """
    metrics, periods = run.metrics, run.table("periods", _SERIES)
    columns = {name: periods.column(name).to_numpy() for name in _SERIES}
    up = columns["up"]
    usage, quota = columns["usage_cores"].astype(np.float64), columns["quota_cores"].astype(np.float64)
    limited = up & np.isfinite(quota)
    bounded = up & (columns["limit_bytes"] < UNLIMITED_BYTES)
    free = (columns["limit_bytes"] - columns["memory_bytes"])[bounded] / MIB
    known = not math.isnan(metrics["memory_slack_p50_mib"])
    has_clients = "requests" in run.tables
    return {
        "throughput_rps": metrics["throughput_rps"],
        "work_cores": math.nan
        if has_clients
        else float(usage.sum()) / int(run.manifest["workload"]["periods"]),
        "cpu_slack_mean_cores": _mean((quota - usage)[limited]),
        "throttled_share": metrics["throttled_share"],
        "latency_p50_s": metrics["latency_p50_s"],
        "latency_p99_s": metrics["latency_p99_s"],
        "memory_slack_mean_mib": _mean(free) if known else math.nan,
    }


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(values.mean()) if values.size else math.nan
