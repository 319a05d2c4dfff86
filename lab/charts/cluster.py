"""Charts of cluster runs: the queue over time, job times, fairness, and the GPUs that jobs held.

For: reports of runs with a cluster. Not for: computing metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import altair as alt
import numpy as np
import pandas as pd

from lab.ask.kind import Figure
from lab.charts.drawing import by_title, legend_px
from lab.charts.palette import USAGE, Shown, shown
from lab.runs.store import Run

_WIDTH = 900
_MOST_IN_GANTT = 60
"""Largest number of jobs of a run for a chart of the GPUs that jobs held."""

MEASURED = {
    "waiting": ("Jobs waiting", "Number of jobs that wait"),
    "running": ("Jobs running", "Number of jobs that have GPUs"),
    "busy_gpus": ("GPUs busy", "Number of GPUs that jobs have"),
}
"""Columns of the table `queue`: title of the axis, and caption."""

_RHO = {"rho_mean": "mean", "rho_p99": "p99", "rho_worst": "worst"}


def charts(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the report's charts of these runs, in order."""
    looks = shown(runs)
    yield from over_all(looks)
    for look in looks:
        drawn = gantt(look)
        if drawn is not None:
            yield drawn


def over_all(looks: Sequence[Shown], measured: str = "waiting") -> Iterator[Figure]:
    """Yield the charts that have all runs in them. measured: a key of MEASURED."""
    title, caption = MEASURED[measured]
    queue = _joined(looks, lambda run: run.frame("queue"))
    yield Figure(
        "The queue over time",
        f"{caption}, in the policy's colour.",
        _lines(queue.assign(hours=queue["at_s"] / 3600), looks, "hours", "Time (h)", measured, title),
    )
    yield Figure(
        "How long jobs take",
        "Share of the watched jobs that ended within so long after their submission. Further left: sooner.",
        _lines(_joined(looks, _jct), looks, "hours", "JCT (h)", "share", "Share of jobs", log=True),
    )
    fairness = _fairness(looks)
    if len(fairness):
        yield Figure(
            "Fairness",
            "ρ: a job's JCT over its JCT where every job has an equal part of every type. Above 1: sharing "
            "made the job slower.",
            _dots(fairness, looks),
        )


def gantt(look: Shown) -> Figure | None:
    """Return the GPUs that jobs held over time; None for a run with too many jobs or without the table."""
    frame = _gantt(look.run)
    if frame is None:
        return None
    return Figure(
        f"Who ran where: {look.title}",
        "A row for each server; a bar for the time in which a job had GPUs of it.",
        _bars(frame),
    )


def _joined(looks: Sequence[Shown], frame_of: Callable[[Run], pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([frame_of(look.run).assign(title=look.title) for look in looks])


def _jct(run: Run) -> pd.DataFrame:
    jobs = run.frame("jobs", ["submit_s", "finish_s", "watched"])
    hours = np.sort((jobs["finish_s"] - jobs["submit_s"])[jobs["watched"]].dropna()) / 3600
    share = np.arange(1, hours.size + 1) / max(hours.size, 1)
    some = np.unique(np.linspace(0, max(hours.size - 1, 0), 400).astype(int))[: hours.size]
    return pd.DataFrame({"hours": np.maximum(hours[some], 1e-3), "share": share[some]})


def _lines(
    frame: pd.DataFrame, looks: Sequence[Shown], x: str, x_title: str, y: str, y_title: str, log: bool = False
) -> alt.Chart:
    scale = alt.Scale(type="log") if log else alt.Scale(nice=False)
    return (
        alt.Chart(frame, height=240 + legend_px([look.title for look in looks]), width=_WIDTH)
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=alt.X(f"{x}:Q", title=x_title, scale=scale),
            y=alt.Y(f"{y}:Q", title=y_title),
            order=f"{x}:Q",
            **by_title(looks),
        )
    )


def _fairness(looks: Sequence[Shown]) -> pd.DataFrame:
    rows = [
        {"title": look.title, "of": name, "rho": look.run.metrics[key]}
        for look in looks
        for key, name in _RHO.items()
    ]
    return pd.DataFrame(rows).dropna(subset="rho")


def _dots(frame: pd.DataFrame, looks: Sequence[Shown]) -> alt.LayerChart:
    base = alt.Chart(frame, width=_WIDTH)
    dots = base.mark_point(size=90, strokeWidth=2.5, opacity=1).encode(
        x=alt.X("rho:Q", title="Finish-time fairness ρ", scale=alt.Scale(type="log")),
        y=alt.Y(
            "title:N",
            title=None,
            sort=[look.title for look in looks],
            axis=alt.Axis(labelLimit=320, labelOverlap=False),
        ),
        shape=alt.Shape("of:N", title=None, sort=list(_RHO.values()), legend=alt.Legend(orient="top")),
        color=by_title(looks)["color"].legend(None),
        tooltip=["title:N", "of:N", alt.Tooltip("rho:Q", format=".3f")],
    )
    equal = alt.Chart(pd.DataFrame({"rho": [1.0]})).mark_rule(strokeDash=[4, 3], color=USAGE)
    return alt.LayerChart(layer=[equal.encode(x="rho:Q"), dots], height=alt.Step(26))


def _gantt(run: Run) -> pd.DataFrame | None:
    """Return the GPUs that jobs held over time; None for a run with too many jobs."""
    if "spans" not in run.tables or len(run.frame("jobs", ["job"])) > _MOST_IN_GANTT:
        return None
    spans = run.frame("spans")
    return spans.assign(
        place=spans["type"] + " " + spans["server"].astype(str),
        begin_h=spans["begin_s"] / 3600,
        end_h=spans["end_s"] / 3600,
        job="job " + spans["job"].astype(str),
    )


def _bars(frame: pd.DataFrame) -> alt.Chart:
    return (
        alt.Chart(frame, height=alt.Step(22), width=_WIDTH)
        .mark_bar(opacity=0.7, stroke="white")
        .encode(
            x=alt.X("begin_h:Q", title="Time (h)"),
            x2="end_h:Q",
            y=alt.Y("place:N", title=None, axis=alt.Axis(labelOverlap=False)),
            color=alt.Color("job:N", legend=None, scale=alt.Scale(scheme="tableau20")),
            tooltip=[
                alt.Tooltip("job:N", title="job"),
                alt.Tooltip("gpus:Q", title="GPUs"),
                alt.Tooltip("begin_h:Q", title="from (h)", format=",.2f"),
                alt.Tooltip("end_h:Q", title="to (h)", format=",.2f"),
            ],
        )
    )
