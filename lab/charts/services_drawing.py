"""Charts of what clients saw: data frames in, Altair out, every axis with its unit, one look per policy.

For: latency, throughput, failures, cost. Not for: reading runs (lab.charts.services), slack, throttling and
one container's limits (lab.charts.drawing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from lab.charts.drawing import LEFT, Time, by_title, left
from lab.charts.palette import USAGE, Shown

_DURATION = (
    "datum.value < 0.9995 ? format(datum.value * 1000, '~r') + ' ms' : format(datum.value, '~r') + ' s'"
)
_TICKS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 7),
    tuple(np.round(np.arange(1, 10, 0.2), 1)),
)
_FEWEST_TICKS = 4
_HEIGHT = 260

FATES = {
    "timed_out": "given up",
    "dropped": "turned away",
    "failed": "lost",
    "pending": "not ended",
}
"""What became of a request that was not answered, in a word or two."""


def duration(seconds: float) -> str:
    """A latency for people: `0.12 ms`, `81.3 ms`, `1.25 s`; empty for NaN."""
    if math.isnan(seconds):
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:,.3g} s"


def latency_over_time(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown], key: str) -> alt.LayerChart:
    """One line per policy: latency `key` (p50, p90 or p99) of the requests that came in each stretch.

    frames: title → services.over_time. The axis is logarithmic: equal distances are equal factors.
    """
    here = _with_data(runs, frames)
    long = _long(frames, here, key, "latency_s")
    scale, axis = _logarithmic(long["latency_s"], room=LEFT)
    y = alt.Y("latency_s:Q", title=f"Latency {key}", scale=scale, axis=axis)
    line = alt.Chart(long).mark_line(strokeWidth=2, clip=True).encode(x=_at(frames), y=y, **by_title(here))
    return _layered([line], frames, here, {key: ""}, duration)


def throughput(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown]) -> alt.LayerChart:
    """Answers a second, one line per policy, over what clients asked for (grey)."""
    here = _with_data(runs, frames)
    asked_for = frames[here[0].title][["at_s", "arrived_rps"]]
    title = "Requests a second"
    asked = (
        alt.Chart(asked_for)
        .mark_area(interpolate="step-after", color=USAGE, opacity=0.3)
        .encode(x=_at(frames), y=left("arrived_rps", title))
    )
    line = (
        alt.Chart(_long(frames, here, "answered_rps", "rps"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=_at(frames), y=left("rps", title), **by_title(here))
    )
    return _layered([asked, line], frames, here, {"answered_rps": "answered"}, _rate)


def failures(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown]) -> alt.Chart:
    """Requests a second that came then and were never answered: a row per policy, by what became of them."""
    here = _with_data(runs, frames)
    parts = []
    for each in here:
        frame = frames[each.title]
        long = frame.melt(["at_s", "to_s"], list(FATES), "status", "rps")
        parts.append(long[long["rps"] > 0].assign(title=each.title))
    data = pd.concat(parts, ignore_index=True)
    present = [status for status in FATES if (data["status"] == status).any()]
    data = data.assign(fate=data["status"].map(FATES), order=data["status"].map(list(FATES).index))
    colors = alt.Scale(
        domain=[FATES[each] for each in present], range=[_FATE_COLORS[each] for each in present]
    )
    titles = [each.title for each in here if (data["title"] == each.title).any()]
    chart: alt.Chart = (
        alt.Chart(data, height=74)
        .mark_bar(stroke=None)
        .encode(
            x=_at(frames),
            x2="to_s:Q",
            y=alt.Y(
                "rps:Q", title=None, stack="zero", axis=alt.Axis(tickCount=2, minExtent=40, format=",~r")
            ),
            row=alt.Row(
                "title:N",
                title=None,
                sort=titles,
                header=alt.Header(labelAngle=0, labelAlign="left", labelOrient="top", labelPadding=2),
                spacing=8,
            ),
            color=alt.Color("fate:N", title=None, scale=colors, legend=alt.Legend(orient="top")),
            order="order:Q",
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("at_s:Q", title="came at (s)", format=".1f"),
                alt.Tooltip("fate:N", title="became"),
                alt.Tooltip("rps:Q", title="requests a second", format=",.1f"),
            ],
        )
    )
    return chart


_FATE_COLORS = {"timed_out": "#E69F00", "dropped": "#D55E00", "failed": "#7A4B9E", "pending": USAGE}


def latency_distribution(frame: pd.DataFrame, runs: Sequence[Shown]) -> alt.Chart:
    """CDFs by policy: latency_s (logarithmic), share, title."""
    # The first thousandth would stretch the axis over decades in which nobody is interested.
    inside = frame[frame["share"] >= 0.01]
    scale, axis = _logarithmic(inside["latency_s"])
    chart: alt.Chart = (
        alt.Chart(inside.assign(latency=inside["latency_s"].map(duration)), height=_HEIGHT)
        .mark_line(clip=True, strokeWidth=2.2)
        .encode(
            x=alt.X("latency_s:Q", title="Latency", scale=scale, axis=axis),
            y=left("share", "Share of answers", percent=True, scale=alt.Scale(domain=[0, 1])),
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("share:Q", title="share at most so late", format=".2%"),
                alt.Tooltip("latency:N", title="latency"),
            ],
            order="share:Q",
            **by_title(runs),
        )
    )
    return chart


def costs(frame: pd.DataFrame, runs: Sequence[Shown], currency: str) -> alt.LayerChart:
    """Bars by policy: what, per_hour, per_million, title. CPU in full colour, memory pale behind it."""
    titles = [each.title for each in runs]
    colors = alt.Scale(domain=titles, range=[each.color for each in runs])
    whole = frame.groupby("title", sort=False).agg({"per_hour": "sum", "per_million": "first"}).reset_index()
    whole["text"] = [
        f"{hour:,.3g}" + ("" if math.isnan(million) else f"  ({million:,.3g} a million)")
        for hour, million in zip(whole["per_hour"], whole["per_million"], strict=True)
    ]
    frame = frame.assign(order=frame["what"].map({"CPU": 0, "memory": 1}))
    y = alt.Y("title:N", title=None, sort=titles, axis=alt.Axis(labelLimit=170, ticks=False, domain=False))
    # Room for the figures behind the bars.
    room = alt.Scale(domain=[0, float(whole["per_hour"].max()) * 1.55 or 1.0], nice=False)
    x = alt.X("per_hour:Q", title=f"{currency} an hour", scale=room, axis=alt.Axis(tickCount=5))
    bars = (
        alt.Chart(frame)
        .mark_bar(height={"band": 0.6})
        .encode(
            x=x,
            y=y,
            order="order:Q",
            color=alt.Color("title:N", sort=titles, scale=colors, legend=None),
            opacity=alt.Opacity(
                "what:N", scale=alt.Scale(domain=["CPU", "memory"], range=[1, 0.4]), legend=None
            ),
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("what:N", title="of"),
                alt.Tooltip("per_hour:Q", title=f"{currency} an hour", format=",.4f"),
                alt.Tooltip("per_million:Q", title=f"{currency} a million answers, in all", format=",.4f"),
            ],
        )
    )
    text = alt.Chart(whole).mark_text(align="left", dx=5, color=USAGE).encode(x=x, y=y, text="text:N")
    chart: alt.LayerChart = alt.LayerChart(layer=[bars, text], height=max(_HEIGHT, 30 * len(runs)))
    return chart


def offered(frame: pd.DataFrame) -> alt.Chart:
    """What clients will ask: at_s, rps."""
    chart: alt.Chart = (
        alt.Chart(frame, height=200)
        .mark_area(interpolate="step-after", color=USAGE, opacity=0.5, line={"color": USAGE})
        .encode(
            x=Time().of("at_s"),
            y=left("rps", "Requests a second"),
            tooltip=[
                alt.Tooltip("at_s:Q", title="time (s)", format=".0f"),
                alt.Tooltip("rps:Q", title="requests a second", format=",.0f"),
            ],
        )
    )
    return chart


def _with_data(runs: Sequence[Shown], frames: Mapping[str, pd.DataFrame]) -> list[Shown]:
    return [each for each in runs if each.title in frames]


def _at(frames: Mapping[str, pd.DataFrame]) -> alt.X:
    """The time axis of all of them, also where the last ones have nothing to show."""
    return Time((0.0, max(float(frame["to_s"].max()) for frame in frames.values()))).of("at_s")


def _long(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown], key: str, name: str) -> pd.DataFrame:
    parts = [
        frames[each.title][["at_s", key]].rename(columns={key: name}).assign(title=each.title)
        for each in runs
    ]
    return pd.concat(parts, ignore_index=True)


def _rate(value: float) -> str:
    return f"{value:,.4g}"


def _layered(
    layers: list[alt.Chart],
    frames: Mapping[str, pd.DataFrame],
    runs: Sequence[Shown],
    keys: Mapping[str, str],
    written: Callable[[float], str],
) -> alt.LayerChart:
    """The layers under a rule at the pointer's stretch that says every policy's figure.

    keys: a column of every policy's frame, and what it is called behind the policy's title ("" = nothing).
    """
    columns, tips = [], [alt.Tooltip("at_s:Q", title="from (s)", format=",.4~r")]
    for place, each in enumerate(runs):
        for key, name in keys.items():
            # Titles hold dots and brackets, which mean something to Vega in the name of a field.
            column = f"{key}{place}"
            columns.append(frames[each.title].set_index("at_s")[key].map(written).rename(column))
            tips.append(alt.Tooltip(f"{column}:N", title=f"{each.title} {name}".strip()))
    near = alt.selection_point(
        nearest=True, on="pointermove", fields=["at_s"], empty=False, clear="pointerout"
    )
    rule = (
        alt.Chart(pd.concat(columns, axis=1).fillna("").reset_index())
        .mark_rule(color=USAGE)
        .encode(
            x=_at(frames),
            opacity=alt.when(near).then(alt.value(0.8)).otherwise(alt.value(0.0)),
            tooltip=tips,
        )
        .add_params(near)
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[*layers, rule], height=_HEIGHT)
    return chart


def _logarithmic(values: pd.Series, room: int = 0) -> tuple[alt.Scale, alt.Axis]:
    """Scale and axis for durations in seconds; ticks at 1, 2, 5, … as many as are needed to read it.

    room: for the labels, pixels, where charts below each other share their time axis (0 = as they need).
    """
    known = values[values > 0]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.001, 1.0)
    low, high = low / 1.12, high * 1.12
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in _TICKS:
        ticks = [float(f"{step}e{power}") for power in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _FEWEST_TICKS:
            break
    extent = room or alt.Undefined
    return (
        alt.Scale(type="log", domain=[low, high], nice=False),
        alt.Axis(values=ticks, labelExpr=_DURATION, gridOpacity=0.6, minExtent=extent, maxExtent=extent),
    )
