"""What a run is judged by: slack, throttling, lateness, OOMs, churn, reservations and their price.

For: the figures of one run, over all containers and per container, from its recorded series. Not
for: comparing runs (lab.compare). Each metric's definition is its `Metric.definition`, printed
into docs/reference/metrics.md. Quantiles are exact (linear between order statistics), taken over
container-periods: one value per container and period in which the container was up at the period's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.scenario import Price
from twin.containers.lateness import work_lateness
from twin.containers.model import Events, Outcome, Series, Workload

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


METRICS: tuple[Metric, ...] = (
    Metric(
        "cpu_slack_p50_cores",
        "CPU slack p50",
        "cores",
        3,
        "lower",
        "Median of quota − usage; quota as in force at the period's end. Periods without a quota are left out.",
    ),
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
        "CPU work that had arrived and was never done: still waiting at the end, or lost in a kill or restart.",
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
        "cost",
        "Cost",
        "currency",
        4,
        "lower",
        "Reserved core-hours and GiB-hours at the scenario's price; memory that is unknown costs nothing.",
    ),
)

BY_KEY = {metric.key: metric for metric in METRICS}
