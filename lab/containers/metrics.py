"""The metrics of container runs: requests, slack, throttling, lateness, OOMs, churn, reservations, price.

For: metrics.csv beside this file, which docs/reference/metrics.md prints, and its units. Not for: computing
them (lab.containers.run.figures).
"""

from __future__ import annotations

from lab.runs.metric import read

MIB = float(1 << 20)
GIB = float(1 << 30)
UNLIMITED_BYTES = (1 << 63) - 1
"""Value of Series.limit_bytes for a container without a memory limit."""
NO_MEMORY = "The trace has no memory: memory metrics are not defined and no OOM can happen."
"""Note of a run whose input has no container's memory."""

OSCILLATION_PERIODS = 1200
"""Periods within which a limit change must be taken back to count as oscillation: two of the VPA's updates a
minute apart, at the kernel's period of 100 ms."""

LATENCY_QUANTILES = {
    "latency_p50_s": 0.5,
    "latency_p90_s": 0.9,
    "latency_p99_s": 0.99,
    "latency_p999_s": 0.999,
}

METRICS = read("lab.containers")

BY_KEY = {metric.key: metric for metric in METRICS}
