"""The metrics of container runs: requests, slack, throttling, lateness, OOMs, churn, reservations, price.

For: keys, titles, units and definitions, which docs/reference/metrics.md prints. Not for: computing them
(lab.containers.run.figures).
"""

from __future__ import annotations

from lab.runs.metric import Metric

MIB = float(1 << 20)
GIB = float(1 << 30)
UNLIMITED_BYTES = (1 << 63) - 1
"""Value of Series.limit_bytes for a container without a memory limit."""

OSCILLATION_PERIODS = 1200
"""Periods within which a limit change must be taken back to count as oscillation: two of the VPA's updates a
minute apart, at the kernel's period of 100 ms."""

LATENCY_QUANTILES = {
    "latency_p50_s": 0.5,
    "latency_p90_s": 0.9,
    "latency_p99_s": 0.99,
    "latency_p999_s": 0.999,
}


def _lower(key: str, title: str, unit: str, decimals: int, section: str, definition: str) -> Metric:
    """Return a metric of which less is better. Each container has it, and the run as a whole."""
    return Metric(key, title, unit, decimals, "lower", definition, section, per_container=True)


def _request(
    key: str, title: str, unit: str, decimals: int, definition: str, *, may_be_bound: bool = False
) -> Metric:
    """Return a metric of the clients' requests. Only the run as a whole has it."""
    return Metric(key, title, unit, decimals, "lower", definition, "requests", may_be_bound=may_be_bound)


METRICS: tuple[Metric, ...] = (
    Metric("throughput_rps", "Throughput", "1/s", 1, "higher",
        "Number of client requests that were answered, per second of the run.", "requests"),
    _request("failed_share", "Requests not answered", "1", 4,
        "Share of the requests that got no answer: they were turned away, given up by their client, failed, "
        "or were still open when the run ended."),
    _request("latency_mean_s", "Latency mean", "s", 4,
        "Mean time from when a request was due until its answer, over all requests. One without an answer "
        "counts with the time until the run's end, so the mean is then a lower bound.", may_be_bound=True),
    *(
        _request(f"latency_{key}_s", f"Latency {title}", "s", 4,
            f"{title.removeprefix('p')}th percentile of that time over all requests. One without an answer "
            "is later than every answer; a percentile that falls among such requests is a lower "
            "bound.", may_be_bound=True)
        for key, title in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"))
    ),
    _request("makespan_s", "Job time", "s", 1,
        "Serverless batches only: time from the start of the batch to the end of its last task. Not defined "
        "if tasks were left when the run ended."),
    _request("cold_starts", "Cold starts", "1", 0,
        "Serverless functions only: number of pods that were started."),
    _lower("turned_away", "Calls turned away", "1", 0, "requests",
        "Number of calls that a container turned away because its queue was full."),
    _lower("cpu_slack_p50_cores", "CPU slack p50", "cores", 3, "slack",
        "Median over container-periods of quota minus usage, with the quota in force at the period's end. It "
        "is below zero where a quota was written within the period, because the write refills the "
        "container's CPU time. Periods without a quota are left out."),
    *(
        _lower(f"cpu_slack_p{share}_cores", f"CPU slack p{share}", "cores", 3, "slack",
            f"{share}th percentile of quota minus usage, otherwise as the median.")
        for share in (80, 99)
    ),
    _lower("memory_slack_p50_mib", "Memory slack p50", "MiB", 1, "slack",
        "Median over container-periods of memory limit minus memory used, at the period's end. Periods "
        "without a limit, and containers whose trace has no memory, are left out."),
    *(
        _lower(f"memory_slack_p{share}_mib", f"Memory slack p{share}", "MiB", 1, "slack",
            f"{share}th percentile of memory limit minus memory used, otherwise as the median.")
        for share in (80, 99)
    ),
    _lower("throttled_share", "Throttled periods", "1", 4, "cpu",
        "Share of the container-periods in which the container was throttled, of those in which it was up."),
    _lower("lateness_p50_s", "Delayed work p50", "s", 3, "cpu",
        "Median over the CPU work of how late it is done. A core-second is late by the time from its arrival "
        "to its service, first in, first out, beyond the period in which it arrives. Work that is never done "
        "counts as late until the run's end."),
    _lower("lateness_p99_s", "Delayed work p99", "s", 3, "cpu",
        "99th percentile over the CPU work of the same lateness."),
    _lower("undone_core_s", "Undone work", "core·s", 2, "cpu",
        "CPU work that arrived and was never done: it still waited at the run's end, or its container left. "
        "Work that waits while a container restarts is done later and does not count."),
    _lower("oom_kills", "OOM kills", "1", 0, "events",
        "Number of times a container was killed for lack of memory."),
    _lower("oom_events", "OOM events", "1", 0, "events",
        "Number of times a container reached its memory limit; it was then held and granted more, or "
        "killed."),
    _lower("restarts", "Restarts", "1", 0, "events",
        "Number of restarts, whether the policy asked for them or the container had been killed."),
    Metric("limit_changes_per_s", "Limit changes", "1/s", 2, "lower",
        "Number of CPU and memory limits that decisions changed, per simulated second.", "events"),
    _lower("taken_back_per_s", "Limit changes taken back", "1/s", 3, "events",
        "Oscillation: changes of a CPU or memory limit between the ends of two periods that were taken back "
        f"within the next {OSCILLATION_PERIODS:,} periods, per second of the run. A raise is taken back when "
        "the limit is again at or below its old value, a cut when it is again at or above it. Only periods "
        "in which the container is up count."),
    Metric("mean_containers", "Containers up", "1", 1, "lower",
        "Mean number of containers that are up, over the run. The HPA changes it.", "reserved"),
    _lower("mean_reserved_cores", "Mean reserved CPU", "cores", 3, "reserved",
        "Reserved core-hours divided by the run's length."),
    _lower("reserved_core_h", "Reserved CPU", "core·h", 4, "reserved",
        "Sum of CPU quotas over the time in which containers are up. A container without a quota counts with "
        "its CPU request, and with its host's cores if it has no request either."),
    _lower("reserved_gib_h", "Reserved memory", "GiB·h", 4, "reserved",
        "Sum of memory limits over the time in which containers are up. Containers whose trace has no "
        "memory, and periods without a limit, are left out."),
    _lower("mean_reserved_mib", "Mean reserved memory", "MiB", 0, "reserved",
        "Reserved GiB-hours divided by the run's length."),
    _lower("cost", "Cost", "currency", 4, "reserved",
        "Price of the reserved core-hours and GiB-hours. Memory that is not known costs nothing."),
)  # fmt: skip

OF_REQUESTS = tuple(metric.key for metric in METRICS if metric.section == "requests")
"""Keys of the metrics that a run without requests does not have."""

BY_KEY = {metric.key: metric for metric in METRICS}
