"""Writes a trace as a Prometheus would have scraped it: counters and gauges with time stamps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traces.schema import UsageTrace

START_S = 1_700_000_040.0
"""A moment that is a multiple of every step of the tests."""


def samples(
    trace: UsageTrace, start_s: float = START_S, extra: str = "", every: int = 1, late_s: float = 0.0
) -> Iterator[tuple[str, str, float, float]]:
    """Yields (metric, labels, value, time in s) at every `every`-th edge of a container's intervals.

    extra: labels to add; late_s: by how much the scrapes come after the edges. The counter at a scrape is
    what it would be then.
    """
    step_s = trace.interval_s
    for column, name in enumerate(trace.containers):
        labels = f'container="{name}",namespace="{trace.apps[column]}",pod="{name}"{extra}'
        there = trace.present[:, column]
        used = np.concatenate([[0.0], np.cumsum(trace.cpu_cores[:, column] * step_s)])
        edge_seen = np.append(there, False) | np.insert(there, 0, False)
        edges = np.arange(len(used)) * step_s
        for row in np.flatnonzero(edge_seen)[::every]:
            at_s = edges[row] + late_s
            cpu = float(np.interp(at_s, edges, used))
            memory = (
                trace.memory_bytes[max(0, row - 1), column]
                or trace.memory_bytes[min(row, len(there) - 1), column]
            )
            yield "container_cpu_usage_seconds_total", labels + ',cpu="total"', cpu, start_s + at_s
            yield "container_memory_working_set_bytes", labels, float(memory), start_s + at_s


def openmetrics(rows: Iterator[tuple[str, str, float, float]]) -> str:
    """Return OpenMetrics text, one family after the other as the format wants it."""
    families: dict[str, list[str]] = {}
    for metric, labels, value, time_s in rows:
        families.setdefault(metric, []).append(f"{metric}{{{labels}}} {value!r} {time_s:.3f}")
    lines = []
    for metric, own in families.items():
        is_counter = metric.endswith("_total")
        lines += [f"# TYPE {metric.removesuffix('_total')} {'counter' if is_counter else 'gauge'}", *own]
    return "\n".join([*lines, "# EOF"]) + "\n"


def exposition(rows: Iterator[tuple[str, str, float, float]]) -> str:
    """Return Prometheus' own text form, whose times are milliseconds."""
    return "".join(
        f"{metric}{{{labels}}} {value!r} {round(time_s * 1000)}\n" for metric, labels, value, time_s in rows
    )
