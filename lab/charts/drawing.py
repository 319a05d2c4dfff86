"""Draws the explorer's charts: data frames in, Altair charts out, a unit on every axis.

For: drawing. Not for: reading runs (lab.charts.series) or laying out a page (lab.explorer.results). The
charts name no text or background colour, because the page's light or dark theme provides them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import pandas as pd

from lab.charts import words
from lab.charts.palette import AREAS, EVENTS, THROTTLED, USAGE, Shown

_TIME_TICKS = 14
_CLOCK_TICKS = 10
"""Most labels of a time axis; those with a time of day are wider."""
_CLOCK = (
    "utcFormat((datum.value + {start_s}) * 1000, (datum.value + {start_s}) % 86400 < 1 ? '%-d %b' : '%H:%M')"
)
"""Vega's expression for the label of a time of day: the day at midnight."""
_IN_A_ROW, _WIDEST, _SYMBOL = 3, 48, 6
"""Entries of a legend in one row, and characters of a row with its symbols: a phone cuts more."""
_ROW_PX = 18
LEFT = 56
"""Width of the labels of every y axis, pixels, so that charts below each other share their time axis."""


def workload(frame: pd.DataFrame, start_s: float = 0.0) -> alt.Chart:
    """Return the demand as areas stacked over containers. Columns: at_s, container, cpu_cores: a value holds
    from its time to the next.

    start_s: time stamp of second 0.
    """
    base = alt.Chart(frame, height=300).mark_area(interpolate="step-after", opacity=0.75, line=False)
    names = list(dict.fromkeys(frame["container"]))
    color = alt.Color(
        "container:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=names, range=list(AREAS[: len(names)])),
        legend=alt.Legend(orient="top", columns=6, labelLimit=180),
    )
    return base.encode(
        x=Time((0.0, float(frame["at_s"].max())), start_s=start_s).of("at_s"),
        y=left("cpu_cores", "CPU demand (cores)", stacked=True),
        color=color,
        tooltip=[
            alt.Tooltip("container:N", title="container"),
            alt.Tooltip("at_s:Q", title="time (s)", format=".1f"),
            alt.Tooltip("cpu_cores:Q", title="CPU (cores)", format=".3f"),
        ],
    )


def limit_and_use(
    frame: pd.DataFrame,
    spans: pd.DataFrame,
    events: pd.DataFrame,
    *,
    quantity: str,
    color: str,
    time: Time,
    top: float,
) -> alt.LayerChart:
    """Return one policy's limit (line) over one container's use (area).

    quantity: `cpu` or `memory`; spans: throttled stretches, drawn as a strip at the bottom; events: marks at
    their limit; time: labelled in the last chart, for those above it; top: upper end of the y axis, shared
    by all policies' charts.
    """
    use, limit, title, unit = _QUANTITIES[quantity]
    x = time.of("at_s")
    base = alt.Chart(frame.assign(was_throttled=frame["throttled"].map({True: "yes", False: "no"})))
    y = alt.Scale(domain=[0, top], nice=False)
    area = base.mark_area(interpolate="step-before", color=USAGE, opacity=0.45, clip=True).encode(
        x=x, y=left(use, title, scale=y)
    )
    line = base.mark_line(interpolate="step-before", color=color, strokeWidth=2, clip=True).encode(
        x=x, y=left(limit, title, scale=y)
    )
    layers = [area, line]
    if len(spans):
        layers.append(_strip(spans, time))
    if len(events):
        layers.append(_marks(events, time, y))
    layers.extend(_hover(base, x, y, quantity, unit, color))
    # The labels of the time axis need extra height; with it, all plots are equally high.
    return alt.LayerChart(layer=layers, height=178 if time.labels else 132)


_QUANTITIES = {
    "cpu": ("usage_cores", "quota_cores", "CPU (cores)", "cores"),
    "memory": ("memory_mib", "limit_mib", "Memory (MiB)", "MiB"),
}


def _strip(spans: pd.DataFrame, time: Time) -> alt.Chart:
    return (
        alt.Chart(spans.assign(share=spans["throttled"] / spans["periods"]))
        .mark_rect(color=THROTTLED, clip=True)
        .encode(
            x=time.of("from_s"),
            x2="to_s:Q",
            y=alt.value("height"),
            y2=alt.value(alt.expr("height - 6")),
            # Keep a single throttled period among many visible.
            opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.25, 1]), legend=None),
            tooltip=[
                alt.Tooltip("from_s:Q", title="throttled from (s)", format=".1f"),
                alt.Tooltip("to_s:Q", title="to (s)", format=".1f"),
                alt.Tooltip("throttled:Q", title="periods throttled"),
                alt.Tooltip("periods:Q", title="of periods"),
            ],
        )
    )


def _marks(events: pd.DataFrame, time: Time, y: alt.Scale) -> alt.Chart:
    kinds = list(EVENTS)
    return (
        alt.Chart(events.assign(what=events["kind"].map({kind: look.text for kind, look in EVENTS.items()})))
        .mark_point(size=70, filled=True, opacity=0.95)
        .encode(
            x=time.of("at_s"),
            y=alt.Y("y:Q", scale=y),
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=[EVENTS[kind].color for kind in kinds]),
                legend=None,
            ),
            shape=alt.Shape(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=[EVENTS[kind].shape for kind in kinds]),
                legend=None,
            ),
            tooltip=[
                alt.Tooltip("what:N", title="event"),
                alt.Tooltip("at_s:Q", title="time (s)", format=".2f"),
                alt.Tooltip("limit_mib:Q", title="limit after it (MiB)", format=",.1f"),
            ],
        )
    )


def _hover(base: alt.Chart, x: alt.X, y: alt.Scale, quantity: str, unit: str, color: str) -> list[alt.Chart]:
    """Return a rule at the pointer's period with the use, the limit and the reason for the limit."""
    use, limit, _, _ = _QUANTITIES[quantity]
    near = alt.selection_point(
        nearest=True, on="pointermove", fields=["at_s"], empty=False, clear="pointerout"
    )
    form = ",.3f" if quantity == "cpu" else ",.1f"
    tips = [
        alt.Tooltip("at_s:Q", title="time (s)", format=".1f"),
        alt.Tooltip(f"{limit}:Q", title=f"limit ({unit})", format=form),
        alt.Tooltip(f"{use}:Q", title=f"use ({unit})", format=form),
        alt.Tooltip("was_throttled:N", title="throttled"),
    ]
    if quantity == "cpu":
        tips.append(alt.Tooltip("reason:N", title="limit set because"))
    shown = alt.when(near)
    rule = (
        base.mark_rule(color=USAGE)
        .encode(x=x, opacity=shown.then(alt.value(0.8)).otherwise(alt.value(0.0)), tooltip=tips)
        .add_params(near)
    )
    dot = base.mark_point(color=color, filled=True, size=45, clip=True).encode(
        x=x, y=alt.Y(f"{limit}:Q", scale=y), opacity=shown.then(alt.value(1.0)).otherwise(alt.value(0.0))
    )
    return [rule, dot]


def distribution(frame: pd.DataFrame, runs: Sequence[Shown], *, title: str, form: str) -> alt.Chart:
    """Return the CDFs by policy. Columns: slack, share, title. The x axis ends at the 99.5th percentile
    of the widest policy."""
    inside = frame.loc[frame["share"] <= 0.995, "slack"]
    low, high = float(min(0.0, inside.min())), 1.03 * float(max(inside.max(), 1e-6))
    return (
        alt.Chart(frame, height=320)
        .mark_line(clip=True, strokeWidth=2.2)
        .encode(
            x=alt.X("slack:Q", title=title, scale=alt.Scale(domain=[low, high])),
            y=left("share", "Share of the containers' time", percent=True, scale=alt.Scale(domain=[0, 1])),
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("share:Q", title="share at or below", format=".0%"),
                alt.Tooltip("slack:Q", title=title, format=form),
            ],
            order="share:Q",
            **by_title(runs),
        )
    )


def shares(frame: pd.DataFrame, runs: Sequence[Shown]) -> alt.Chart:
    """Return the share of throttled containers over time, one row per run. Columns: at_s, to_s, share,
    title. A stronger colour means a larger share."""
    titles = [look.title for look in runs]
    colors = alt.Scale(domain=titles, range=[look.color for look in runs])
    strength = alt.Scale(domain=[0, float(frame["share"].max())], range=[0, 1])
    rows = alt.Axis(labelLimit=160, ticks=False, domain=False)
    return (
        alt.Chart(frame, height=130 + 30 * len(runs))
        .mark_rect()
        .encode(
            x=Time((0.0, float(frame["to_s"].max())), start_s=start_s(runs)).of("at_s"),
            x2="to_s:Q",
            y=alt.Y("title:N", title=None, sort=titles, scale=alt.Scale(paddingInner=0.15), axis=rows),
            color=alt.Color("title:N", sort=titles, scale=colors, legend=None),
            opacity=alt.Opacity(
                "share:Q",
                scale=strength,
                legend=alt.Legend(
                    title="Containers throttled",
                    format=".0%",
                    orient="top",
                    tickCount=4,
                    symbolFillColor=USAGE,
                ),
            ),
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("at_s:Q", title="from (s)", format=".1f"),
                alt.Tooltip("to_s:Q", title="to (s)", format=".1f"),
                alt.Tooltip("share:Q", title="container-periods throttled", format=".1%"),
            ],
        )
    )


def by_title(runs: Sequence[Shown]) -> dict[str, alt.Color | alt.StrokeDash]:
    """Return the color and strokeDash channels for a field `title`: each run's own look, with a legend."""
    titles = [look.title for look in runs]
    legend = alt.Legend(
        orient="top",
        symbolStrokeWidth=3,
        symbolSize=300,
        labelLimit=320,
        columns=columns(titles),
    )
    colors = alt.Scale(domain=titles, range=[look.color for look in runs])
    dashes = alt.Scale(domain=titles, range=[list(look.dash) for look in runs])
    return {
        "color": alt.Color("title:N", title=None, sort=titles, scale=colors, legend=legend),
        "strokeDash": alt.StrokeDash("title:N", title=None, sort=titles, scale=dashes, legend=legend),
    }


def columns(titles: Sequence[str]) -> int:
    """Return how many entries of a legend above a chart stand in a row."""
    fitting = _WIDEST // (max(map(len, titles), default=0) + _SYMBOL)
    return max(1, min(_IN_A_ROW, len(titles), fitting))


def legend_px(titles: Sequence[str]) -> int:
    """Return the height of a legend above a chart, which the chart's height includes, px."""
    return _ROW_PX * -(-len(titles) // columns(titles))


def named(field: str, colors: Mapping[str, str], **legend: Any) -> alt.Color:
    """Return the color channel of names with colours of their own; the legend stands above the chart."""
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="top", **legend))


def start_s(runs: Sequence[Shown]) -> float:
    """Return the time stamp at which these runs' trace begins, s; 0 where they have none in common."""
    starts = {float(look.run.manifest["workload"].get("start_s", 0.0)) for look in runs}
    return starts.pop() if len(starts) == 1 else 0.0


@dataclass(frozen=True)
class Time:
    """The time axis: the time of day where it is known, else the time since the begin, in a unit that fits.

    window: first and last second; labels: whether shown; start_s: time stamp of second 0.
    """

    window: tuple[float, float]
    labels: bool = True
    start_s: float = 0.0

    def of(self, field: str) -> alt.X:
        """Return the x channel for a field in seconds."""
        size, unit, at_s = words.ticks(*self.window, _TIME_TICKS)
        scale = alt.Scale(nice=False, domain=list(self.window))
        title = f"Time ({unit})"
        if not self.labels:
            axis = alt.Axis(grid=False, labels=False, ticks=False, title=None)
        elif at_s and self.start_s >= words.CLOCK_FROM_S:
            begin_s, end_s = (self.start_s + end for end in self.window)
            places = [place - self.start_s for place in words.ticks(begin_s, end_s, _CLOCK_TICKS)[2]]
            title = f"Time of day (UTC) from {words.date(begin_s)}"
            axis = alt.Axis(grid=False, values=places, labelExpr=_CLOCK.format(start_s=self.start_s))
        elif at_s:
            axis = alt.Axis(grid=False, values=at_s, labelExpr=f"format(datum.value / {size:g}, '~r')")
        else:
            axis = alt.Axis(grid=False, tickCount=_TIME_TICKS)
        return alt.X(f"{field}:Q", title=title if self.labels else None, scale=scale, axis=axis)


def left(
    field: str, title: str, *, scale: alt.Scale | None = None, stacked: bool = False, percent: bool = False
) -> alt.Y:
    """Return the y channel, with the same width for its labels in every chart."""
    axis = alt.Axis(minExtent=LEFT, maxExtent=LEFT, tickCount=4, format="%" if percent else ",~r")
    stack: Literal["zero"] | None = "zero" if stacked else None
    return alt.Y(f"{field}:Q", title=title, axis=axis, stack=stack, scale=scale or alt.Scale())
