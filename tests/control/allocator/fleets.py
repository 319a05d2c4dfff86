"""Small fleets and telemetry for the allocator's tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from control.allocator.histogram import Buckets
from control.allocator.model import Application, Ids, Join, OomEvents, PeriodStats, ServiceStats, Shrunk

MIB = 1 << 20
PERIOD_S = 0.1
LEAST_CORES = 0.01  # 1 ms per 100 ms


def application(cores: float = 10.0, memory_bytes: int = 1000 * MIB, name: str = "shop") -> Application:
    return Application(name, cores, memory_bytes)


def join(
    apps: Sequence[int],
    host_cores: float | Sequence[float] = 8.0,
    peak_cores: Sequence[float] | None = None,
    peak_bytes: Sequence[int] | None = None,
) -> Join:
    return Join(
        np.array(apps, np.int64),
        np.broadcast_to(np.array(host_cores, np.float64), (len(apps),)).copy(),
        None if peak_cores is None else np.array(peak_cores, np.float64),
        None if peak_bytes is None else np.array(peak_bytes, np.int64),
    )


def period(
    ids: Ids | Sequence[int],
    quota: Sequence[float],
    unused: Sequence[float],
    throttled: Sequence[bool] | None = None,
    period_s: float = PERIOD_S,
) -> PeriodStats:
    quota_cores, unused_cores = np.array(quota, np.float64), np.array(unused, np.float64)
    return PeriodStats(
        ids=np.array(ids, np.int64),
        quota_cores=quota_cores,
        unused_cores=unused_cores,
        throttled=np.zeros(len(ids), np.bool_) if throttled is None else np.array(throttled, np.bool_),
        usage_cores=quota_cores - unused_cores,
        memory_bytes=np.zeros(len(ids), np.int64),
        period_s=period_s,
        at_s=0.0,
    )


def oom(ids: Ids | Sequence[int], needed: Sequence[int], at_s: float = 0.0) -> OomEvents:
    return OomEvents(np.array(ids, np.int64), np.array(needed, np.int64), at_s)


def served(rate: Sequence[float], latency: Sequence[float], at_s: float = 60.0) -> ServiceStats:
    return ServiceStats(np.array(rate, np.float64), np.array(latency, np.float64), at_s)


def bucket_end(buckets: Buckets, value: float) -> float:
    return float(buckets.ends[buckets.find(np.array([value]))[0]])


def shrunk(apps: Sequence[int], ids: Ids | Sequence[int] = (), limits: Sequence[int] = ()) -> Shrunk:
    return Shrunk(np.array(apps, np.int64), np.array(ids, np.int64), np.array(limits, np.int64), 0.0)
