"""Charts of a fabric: its edge with what is broken, and BFD's two sides. For: drawing. Not for: computing."""

from __future__ import annotations

import altair as alt
import pandas as pd

_WORKS, _BROKEN = "#8c959f", "#d55e00"


def edge(links: pd.DataFrame, nodes: pd.DataFrame) -> alt.LayerChart:
    """Hosts below, switches above. links: x, y, x2, y2, state (`works`, `broken`); nodes: x, y, name."""
    hidden = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    x, y = alt.X("x:Q", axis=hidden), alt.Y("y:Q", axis=hidden, scale=alt.Scale(domain=[-0.4, 1.4]))
    lines = (
        alt.Chart(links)
        .mark_rule(strokeWidth=2.5)
        .encode(
            x=x,
            y=y,
            x2="x2:Q",
            y2="y2:Q",
            color=alt.Color(
                "state:N",
                title=None,
                scale=alt.Scale(domain=["works", "broken"], range=[_WORKS, _BROKEN]),
                legend=alt.Legend(orient="top"),
            ),
            strokeDash=alt.StrokeDash(
                "state:N", scale=alt.Scale(domain=["works", "broken"], range=[[1, 0], [6, 4]]), legend=None
            ),
        )
    )
    points = (
        alt.Chart(nodes).mark_square(size=260, opacity=1, color="#0072b2").encode(x=x, y=y, tooltip="name:N")
    )
    return alt.LayerChart(layer=[lines, points], height=200)


def two_sides(frame: pd.DataFrame) -> alt.HConcatChart:
    """What short and long timers cost. Columns: detection_ms, gap_ms, false_downs_per_h, chosen (marked)."""
    panels = []
    for key, title in (
        ("gap_ms", "Packets lost for, median (ms)"),
        ("false_downs_per_h", "False downs (1/h)"),
    ):
        base = alt.Chart(frame, height=220).encode(
            x=alt.X("detection_ms:Q", title="Detection time (ms)"), y=alt.Y(f"{key}:Q", title=title)
        )
        mark = base.transform_filter("datum.chosen").mark_point(size=120, filled=True, color=_BROKEN)
        panels.append(alt.LayerChart(layer=[base.mark_line(color="#0072b2"), mark]))
    return alt.hconcat(*panels)


def fleets(frame: pd.DataFrame) -> alt.Chart:
    """Effective training time over sizes. Columns: gpus, scheme, effective (0..1); a row per run."""
    chart: alt.Chart = (
        alt.Chart(frame, height=260)
        .mark_line(point=True)
        .encode(
            x=alt.X("gpus:Q", title="GPUs", scale=alt.Scale(type="log")),
            y=alt.Y(
                "mean(effective):Q",
                title="Effective training time",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(zero=False),
            ),
            color=alt.Color("scheme:N", title=None, legend=alt.Legend(orient="top")),
        )
    )
    return chart
