"""The metrics of cluster runs. For: keys, titles, units and definitions. Not for: computing them
(lab.cluster.run.figures)."""

from __future__ import annotations

from lab.runs.metric import Better, Metric

_RANK = "It is the value at rank ⌈share · jobs⌉, counted from 1, over the watched jobs."
_RHO = "JCT divided by the JCT of the same job where every job has an equal part of every type, "

_ROWS: tuple[tuple[str, str, str, int, Better, str], ...] = (
    ("jct_mean_s", "JCT mean", "s", 0, "lower",
     "Mean over the watched jobs of the time from submission to the end. No value if the queue still grew."),
    ("jct_p50_s", "JCT p50", "s", 0, "lower", "Median time from submission to the end. " + _RANK),
    ("jct_p99_s", "JCT p99", "s", 0, "lower", "99th percentile of the time to the end. " + _RANK),
    ("first_wait_mean_s", "First wait", "s", 0, "lower",
     "Mean time from a job's submission until it has GPUs for the first time."),
    ("waiting_mean_s", "Waiting", "s", 0, "lower", "Mean of JCT less the time for which the job had GPUs."),
    ("makespan_s", "Makespan", "s", 0, "lower",
     "Time from the first submission to the end of the last watched job."),
    ("rho_mean", "ρ mean", "1", 3, "lower", "Finish-time fairness: " + _RHO + "mean over the watched jobs."),
    ("rho_p99", "ρ p99", "1", 3, "lower", "Finish-time fairness: " + _RHO + "99th percentile. " + _RANK),
    ("rho_worst", "ρ worst", "1", 3, "lower", "Finish-time fairness: " + _RHO + "largest over the jobs."),
    ("in_time", "In time", "1", 3, "higher", "Share of the watched jobs that ended before their deadline."),
    ("utilisation", "Utilisation", "1", 4, "higher",
     "GPU-seconds of jobs that had their GPUs, restarts included, over those of servers that were up."),
    ("preemptions", "Preemptions", "1", 0, "lower",
     "Number of times that a job lost all its GPUs before its end, faults included, all jobs together."),
    ("lost_gpu_h", "Lost GPU-hours", "h", 1, "lower",
     "GPU-hours of restarts and of work that faults undid, all jobs together."),
    ("cost_usd", "Cost", "USD", 2, "lower",
     "Price of the GPU-hours that jobs had, all jobs together. No value if no server has a price."),
    ("finished", "Finished", "1", 0, "higher", "Number of jobs that ended, watched or not."),
)  # fmt: skip
"""Key, title, unit, decimals to print, which way is better, definition."""

METRICS: tuple[Metric, ...] = tuple(Metric(*row) for row in _ROWS)
