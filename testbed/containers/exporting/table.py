"""The table of all metrics that twinbed's programs export to Prometheus: metrics.csv beside this file.

For: names, types, units, labels and meanings of metrics. The exporters, the reference page, and the checks of
dashboard and alerts read them. Not for: values. The names are stable, because users' dashboards and alerts
contain them. They follow https://prometheus.io/docs/practices/naming/: base units, and `_total` for counters.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Exported:
    """One metric.

    program: the verb that exports it with --metrics
    name: its name in Prometheus; the series of a histogram add _bucket, _sum and _count
    kind: gauge, counter or histogram
    unit: unit of its values; "" for a count
    labels: names of its labels
    meaning: its meaning in one sentence
    """

    program: str
    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


def _read() -> list[Exported]:
    text = (resources.files(__package__) / "metrics.csv").read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines()[1:])
    return [
        Exported(program, name, kind, unit, tuple(labels.split()), meaning)
        for program, name, kind, unit, labels, meaning in rows
    ]


METRICS = _read()
"""All metrics, by program and in the order of the reference page."""

TABLE = {metric.name: metric for metric in METRICS}
"""All metrics by name."""


def of(program: str) -> list[Exported]:
    """Return the metrics that `program` exports."""
    return [metric for metric in METRICS if metric.program == program]
