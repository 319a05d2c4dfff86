"""Charts of a sweep: a metric over a key with intervals, a heat map over two keys, and two metrics against
each other.

For: drawing. Not for: computing means (lab.sweep.result).
"""

from __future__ import annotations

import altair as alt
import pandas as pd

from lab.charts.drawing import columns, legend_px
from lab.charts.palette import AREAS, USAGE

_HEIGHT = 280


def lines(frame: pd.DataFrame, key: str, metric: str, title: str) -> alt.LayerChart:
    """Draw a metric over a key of numbers, one line per `line`.

    Columns: the key, line, the metric (mean), low and high (ends of its interval).
    """
    x = alt.X("x:Q", title=key, scale=alt.Scale(zero=False))
    named = frame.rename(columns={key: "x", metric: "mean"})
    base = alt.Chart(named, height=_height(named)).encode(x=x, color=_by(named))
    y = alt.Y("mean:Q", title=title, scale=_scale(named))
    line = base.mark_line(point=True).encode(y=y, tooltip=["line:N", "x:Q", "mean:Q"])
    interval = base.mark_rule(clip=True).encode(y="low:Q", y2="high:Q")
    return alt.LayerChart(layer=[interval.transform_filter(alt.datum.high > alt.datum.low), line])


def points(
    frame: pd.DataFrame, key: str, metric: str, titles: tuple[str, str], *, log: bool = False
) -> alt.LayerChart:
    """Draw a metric over a key, a point with an interval per row. Columns as in `lines`; the key may have
    names. titles: those of the key and the metric. log: draw a key of numbers on a logarithmic scale."""
    named = frame.rename(columns={key: "x", metric: "mean"})
    base = alt.Chart(named, height=_height(named)).encode(color=_by(named))
    if named["x"].dtype.kind in "if":
        scale = alt.Scale(type="log" if log else "linear", zero=False, nice=False, padding=10)
        base = base.encode(x=alt.X("x:Q", title=titles[0], scale=scale))
    else:
        base = base.encode(x=alt.X("x:N", title=titles[0], sort=None), xOffset="line:N")
    points = base.mark_point(filled=True, size=70).encode(
        y=alt.Y("mean:Q", title=titles[1], scale=_scale(named)), tooltip=["line:N", "x", "mean:Q"]
    )
    interval = base.mark_rule(clip=True).encode(y="low:Q", y2="high:Q")
    return alt.LayerChart(layer=[interval.transform_filter(alt.datum.high > alt.datum.low), points])


def heat(frame: pd.DataFrame, across: str, down: str, metric: str, title: str) -> alt.Chart:
    """Draw a metric's mean over two keys. Columns: the keys and the metric."""
    named = frame.rename(columns={across: "x", down: "y", metric: "mean"})
    return (
        alt.Chart(named, height=_HEIGHT)
        .mark_rect()
        .encode(
            x=alt.X("x:O", title=across, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("y:O", title=down, sort="descending"),
            color=alt.Color("mean:Q", title=title, scale=alt.Scale(scheme="viridis")),
            tooltip=["x:N", "y:N", "mean:Q"],
        )
    )


def pareto(frame: pd.DataFrame, one: str, two: str, titles: tuple[str, str]) -> alt.LayerChart:
    """Draw every point by two metrics, and a line through the points that no point beats in both.

    Columns: the metrics, line, label, best (whether no point beats it).
    """
    named = frame.rename(columns={one: "one", two: "two"})
    base = alt.Chart(named, height=_height(named)).encode(
        x=alt.X("one:Q", title=titles[0], scale=alt.Scale(zero=False)),
        y=alt.Y("two:Q", title=titles[1], scale=alt.Scale(zero=False)),
    )
    front = base.transform_filter("datum.best").mark_line(color=USAGE, strokeDash=[4, 3])
    dots = base.mark_point(filled=True, size=70).encode(
        color=_by(named),
        opacity=alt.when(alt.datum.best).then(alt.value(1.0)).otherwise(alt.value(0.35)),
        tooltip=["label:N", "one:Q", "two:Q"],
    )
    return alt.LayerChart(layer=[front.encode(order="one:Q"), dots])


def _scale(frame: pd.DataFrame) -> alt.Scale:
    """Return a scale that covers the means, and the same span again on each side for their intervals.
    Intervals of few seeds may be so wide that a scale for all of them would merge the lines."""
    low, high = float(frame["mean"].min()), float(frame["mean"].max())
    if not high >= low:  # No mean is known.
        return alt.Scale(zero=False)
    room = (high - low) or abs(high) or 1.0
    return alt.Scale(
        domain=[max(low - room, float(frame["low"].min())), min(high + room, float(frame["high"].max()))]
    )


def _names(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["line"]))


def _height(frame: pd.DataFrame) -> int:
    return _HEIGHT + legend_px(_names(frame))


def _by(frame: pd.DataFrame) -> alt.Color:
    """Return the colours of the column `line`: as many as AREAS has, then the same again."""
    names = _names(frame)
    legend = alt.Legend(orient="top", columns=columns(names), labelLimit=420, symbolSize=100)
    scale = alt.Scale(domain=names, range=list(AREAS))
    return alt.Color("line:N", title=None, sort=None, scale=scale, legend=legend)
