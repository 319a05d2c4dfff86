"""The metrics of fabric runs, from metrics.csv beside this file. Not for: computing them."""

from __future__ import annotations

from lab.runs.metric import read

METRICS = read("lab.fabric")

_SPENT = "GPU-hours: "
LOST = {
    metric.key: metric.title.removeprefix(_SPENT)
    for metric in METRICS
    if metric.title.startswith(_SPENT) and metric.better == "lower"
}
"""Metric of a fleet with a plan → what these GPU-hours were spent on instead of work that was kept."""
