"""Records as a control loop might have observed them, made by hand."""

from typing import Any

import numpy as np

from testbed.containers.host.observed import LoopTimes, Observed, ObservedEvents, ObservedSeries


def observed(names: tuple[str, ...], periods: int, **changes: Any) -> Observed:
    """Each container uses 0.3 of its 0.5 cores and 40 of its 64 MiB, and is throttled in every fourth
    period."""
    shape = (periods, len(names))
    throttled = np.zeros(shape, np.bool_)
    throttled[::4] = True
    series = ObservedSeries(
        usage_cores=np.full(shape, 0.3, np.float32),
        quota_cores=np.full(shape, 0.5, np.float32),
        throttled=throttled,
        throttled_s=np.where(throttled, 0.02, 0.0).astype(np.float32),
        memory_bytes=np.full(shape, 40 << 20, np.int64),
        limit_bytes=np.full(shape, 64 << 20, np.int64),
        request_cores=np.full(shape, np.nan, np.float32),
        cpu_reason=np.zeros(shape, np.uint8),
        up=np.ones(shape, np.bool_),
        reported=np.ones(shape, np.bool_),
    )
    given: dict[str, Any] = {
        "names": names, "app": np.zeros(len(names), np.int64), "period_s": 0.1, "began_s": 1.7e9,
        "series": series,
        "events": ObservedEvents([0.0, 0.5, 99.0], [0, 0, 0], ["join", "oom", "leave"], [0, 1, 0]),
        "limit_changes": 3, "done_s": np.full(len(names), 0.03 * periods),
        "nr_periods": np.full(len(names), periods, np.int64),
        "nr_throttled": np.full(len(names), periods // 4, np.int64), "reports": periods * len(names),
        "decide_s": 0.01,
        "times": LoopTimes(np.array([1e-4, 2e-2]), np.array([3e-5]), np.array([]), 0.02, 1, 0),
        "telemetry": "polling", "facts": {"cgroup_version": "1"}, "exit_codes": (None,) * len(names),
    }  # fmt: skip
    return Observed(**(given | changes))
