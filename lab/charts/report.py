"""Draws the charts of the HTML report: what clients saw, reserved and used resources, slack and
throttling.

For: lab.runs.report. Not for: one container, which the explorer shows. Figures over time are means over equal
stretches, so that a week and a minute give pictures of the same size. The caption states the length of a
stretch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from lab.ask.kind import Figure
from lab.charts import drawing, series, services, services_drawing
from lab.charts.palette import USAGE, Shown, shown
from lab.containers.metrics import GIB, UNLIMITED_BYTES
from lab.runs.store import Run

_STRETCHES = 400
_WIDTH = 400


def all_charts(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the report's charts of these runs, in order. A chart without data is left out."""
    yield from _clients([run for run in runs if "requests" in run.tables])
    looks = shown(runs)
    yield Figure(
        "Reserved and used over time",
        f"All containers together, means over {_stretch_s(runs):g} s. Line: sum of limits; grey: use; "
        "dashed: global limit.",
        _totals(looks),
    )
    slacks = [
        ("cpu", "CPU slack: limit − use (cores)", ".3f"),
        ("memory", "Memory slack: limit − use (MiB)", ",.1f"),
    ]
    sides = []
    for quantity, title, form in slacks:
        frame = series.by_run(looks, [series.slack_distribution(look.run, quantity) for look in looks])
        if len(frame):
            sides.append(drawing.distribution(frame, looks, title=title, form=form).properties(width=_WIDTH))
    if sides:
        yield Figure(
            "How much slack, how often",
            "Share of the containers' time with at most this slack. Left of another policy's line: less is "
            f"reserved in vain; at zero: nothing is left. {series.of_means(runs)}".strip(),
            alt.hconcat(*sides),
        )
    shares = series.by_run(looks, [series.throttled_share(look.run, _STRETCHES) for look in looks])
    if len(shares) and shares["share"].any():
        yield Figure(
            "Throttling over time",
            f"Share of containers throttled in a period, means over {_stretch_s(runs):g} s.",
            drawing.shares(shares, looks).properties(width=2 * _WIDTH),
        )


def _clients(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the charts of what clients saw, separately for each load on an application."""
    loads: dict[str, list[Run]] = {}
    for run in runs:
        about = run.manifest["workload"]
        load = f"{about.get('application', run.manifest['name'])}, {about.get('arrivals', '')}".strip(", ")
        loads.setdefault(load, []).append(run)
    for load, group in loads.items():
        of = f": {load}" if len(loads) > 1 else ""
        yield from _load(shown(group), of)


def _load(looks: Sequence[Shown], of: str) -> Iterator[Figure]:
    """Yield the charts of one load. of: the text that names the load after each title."""
    frames = {look.title: services.over_time(look.run, _STRETCHES) for look in looks}
    answered = {title: frame for title, frame in frames.items() if frame["p99"].notna().any()}
    width = services.stretch_s(looks[0].run, _STRETCHES)
    if answered:
        charts = [
            services_drawing.latency_over_time(answered, looks, key, hover=False).properties(
                width=2 * _WIDTH, height=170
            )
            for key in ("p99", "p50")
        ]
        yield Figure(
            f"Latency over time{of}",
            f"1 % of the requests that came in the same {width:g} s took longer than the upper lines, half "
            "of them longer than the lower ones. Requests without an answer count: a triangle is a lower "
            "bound, because they still waited when the run ended.",
            alt.vconcat(*charts),
        )
        frame = series.by_run(looks, [services.latency_distribution(look.run) for look in looks])
        chart = services_drawing.latency_distribution(frame, looks).properties(width=2 * _WIDTH, height=240)
        yield Figure(
            f"All latencies{of}",
            "Share of all requests that were answered within a latency. Further left is faster. A line that "
            "ends below 100 % leaves the rest without an answer.",
            chart,
        )
    yield Figure(
        f"Throughput{of}",
        "Lines: answers a second. Grey: requests a second. A line below the grey means that requests pile up "
        "or are lost. A line above it means that late requests are answered.",
        services_drawing.throughput(frames, looks, hover=False).properties(width=2 * _WIDTH, height=170),
    )


def totals(run: Run, stretches: int) -> pd.DataFrame:
    """Return sums over all containers of a run, as means over at most `stretches` equal stretches.

    Columns: at_s (start of the stretch), reserved_cores, used_cores, reserved_gib, used_gib. A container
    without a limit, or whose trace has no memory, does not count in the columns that it lacks.
    """
    workload = run.manifest["workload"]
    width = series.stretch(run, stretches)
    known = run.frame("containers", ["container", "reserved_gib_h"])
    names = known.loc[known["reserved_gib_h"].notna(), "container"].tolist()
    sql = f"""
        SELECT period // $width AS stretch,
               sum(quota_cores * up_periods) FILTER (isfinite(quota_cores)) AS reserved_cores,
               sum(usage_cores * periods) AS used_cores,
               sum(limit_bytes / {GIB} * up_periods) FILTER (known AND limit_bytes < {UNLIMITED_BYTES})
               AS reserved_gib,
               sum(memory_bytes / {GIB} * up_periods) FILTER (known) AS used_gib
        FROM (SELECT *, list_contains($names, container) AS known FROM periods)
        GROUP BY stretch ORDER BY stretch"""
    frame = series.query(run, sql, {"width": width, "names": names})
    start = frame.pop("stretch") * width
    frame = frame.fillna(0.0).div((workload["periods"] - start).clip(upper=width), axis=0)
    frame.insert(0, "at_s", start * workload["period_s"])
    return frame


def _totals(looks: Sequence[Shown]) -> alt.VConcatChart:
    """Return one row of charts per policy: CPU and, if it is known, memory, on the same scales."""
    frames = [totals(look.run, _STRETCHES) for look in looks]
    quantities = [("cores", "CPU (cores)", "cpu_limit_cores", 1.0)]
    if any(frame["used_gib"].any() for frame in frames):
        quantities.append(("gib", "Memory (GiB)", "memory_limit_bytes", GIB))
    rows = []
    for look, frame in zip(looks, frames, strict=True):
        sides = []
        for key, title, limit, unit in quantities:
            ceiling = _ceiling(look.run, limit) / unit
            top = max(_ceiling(other.run, limit) / unit for other in looks)
            top = max(top, *(float(other[f"reserved_{key}"].max()) for other in frames)) * 1.03
            sides.append(_total(look, frame, key, title, ceiling, top))
        rows.append(alt.hconcat(*sides))
    return alt.vconcat(*rows)


def _total(
    look: Shown, frame: pd.DataFrame, key: str, axis: str, ceiling: float, top: float
) -> alt.LayerChart:
    y = alt.Scale(domain=[0, top], nice=False)
    at_s = drawing.Time((0.0, series.duration_s(look.run)), start_s=drawing.start_s([look])).of("at_s")
    base = alt.Chart(frame).encode(x=at_s)
    used = base.mark_area(interpolate="step-after", color=USAGE, opacity=0.45)
    reserved = base.mark_line(interpolate="step-after", color=look.color, strokeWidth=2)
    rule = alt.Chart(pd.DataFrame({"y": [ceiling]})).mark_rule(color="#57606a", strokeDash=[4, 4])
    layers = [
        used.encode(y=alt.Y(f"used_{key}:Q", title=axis, scale=y)),
        reserved.encode(y=alt.Y(f"reserved_{key}:Q", title=axis, scale=y)),
        rule.encode(y=alt.Y("y:Q", title=axis, scale=y)),
    ]
    title = alt.Title(look.title, anchor="start")
    return alt.LayerChart(layer=layers, width=_WIDTH, height=110, title=title)


def _ceiling(run: Run, limit: str) -> float:
    return float(sum(application[limit] for application in run.manifest["workload"]["applications"]))


def _stretch_s(runs: Sequence[Run]) -> float:
    return float(max(series.stretch(run, _STRETCHES) * run.manifest["workload"]["period_s"] for run in runs))
