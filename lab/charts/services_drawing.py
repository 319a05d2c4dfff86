"""Draws what clients saw: data frames in, Altair charts out, a unit on every axis.

For: latency, throughput, failures, waiting and cost. Not for: reading runs (lab.charts.services), or slack,
throttling and one container's limits (lab.charts.drawing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from lab.charts.drawing import LEFT, Time, by_title, left, legend_px, named
from lab.charts.palette import INK, THROTTLED, USAGE, Shown
from lab.charts.services import AT_LEAST
from lab.charts.words import duration, significant

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
_HEIGHT = 320

FATES = {
    "timed_out": "given up by the client",
    "dropped": "turned away",
    "failed": "lost on the way",
    "pending": "not ended when the run did",
}
"""Outcomes of a request without an answer, in a few words, by status."""


def latency_text(seconds: float, at_least: bool) -> str:
    """Return a latency for people, a lower bound as `> 27.3 s`; empty for NaN."""
    text = duration(seconds)
    return f"> {text}" if at_least and text else text


def latency_over_time(
    frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown], key: str, *, hover: bool = True
) -> alt.LayerChart:
    """Return one line per policy: latency `key` (p50, p90 or p99) of the requests that arrived in each
    stretch.

    frames: title → services.over_time; hover: adds a rule with every policy's figure at the pointer. The axis
    is logarithmic, so equal distances are equal factors. A triangle marks a lower bound.
    """
    present = _with_data(runs, frames)
    flag = f"{key}{AT_LEAST}"
    frames = {
        title: frame.assign(latency=[*map(latency_text, frame[key], frame[flag])])
        for title, frame in frames.items()
    }
    long = _long(frames, present, key, "latency_s")
    scale, axis = logarithmic_axis(long["latency_s"], room=LEFT)
    y = alt.Y("latency_s:Q", title=f"Latency {key}", scale=scale, axis=axis)
    line = alt.Chart(long).mark_line(strokeWidth=2, clip=True).encode(x=_at(frames), y=y, **by_title(present))
    bounds = [frames[look.title].query(flag).assign(title=look.title) for look in present]
    color = by_title(present)["color"]
    marks = (
        alt.Chart(pd.concat(bounds, ignore_index=True))
        .mark_point(shape="triangle-up", filled=True, size=40, opacity=0.9, clip=True)
        .encode(x=_at(frames), y=alt.Y(f"{key}:Q", scale=scale), color=color)
    )
    return _layered([line, marks], frames, present, "latency", str if hover else None)


def throughput(
    frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown], *, hover: bool = True
) -> alt.LayerChart:
    """Return answers per second, one line per policy, over the requests per second of the clients (grey)."""
    present = _with_data(runs, frames)
    asked_for = _long(frames, present[:1], "arrived_rps", "arrived_rps")
    title = "Requests a second"
    asked = (
        alt.Chart(asked_for)
        .mark_area(interpolate="step-after", color=USAGE, opacity=0.3)
        .encode(x=_at(frames), y=left("arrived_rps", title))
    )
    line = (
        alt.Chart(_long(frames, present, "answered_rps", "rps"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=_at(frames), y=left("rps", title), **by_title(present))
    )
    return _layered([asked, line], frames, present, "answered_rps", _rate if hover else None)


def failures(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown]) -> alt.LayerChart:
    """Return the share of requests per stretch that were never answered, one line per policy."""
    present = _with_data(runs, frames)
    shares = {
        title: frame.assign(share=frame["not_answered_rps"] / frame["arrived_rps"])
        for title, frame in frames.items()
    }
    y = left("share", "Not answered", percent=True, scale=alt.Scale(domain=[0, 1]))
    line = (
        alt.Chart(_long(shares, present, "share", "share"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=_at(frames), y=y, **by_title(present))
    )
    return _layered([line], shares, present, "share", _percent)


def fates(frame: pd.DataFrame, runs: Sequence[Shown]) -> alt.Chart:
    """Return the outcomes of the requests without an answer, one bar per policy. Columns: title, status,
    share (of all requests)."""
    present = [status for status in FATES if (frame["status"] == status).any()]
    colors = {FATES[status]: _FATE_COLORS[status] for status in present}
    titles = [look.title for look in runs if (frame["title"] == look.title).any()]
    data = frame.assign(fate=frame["status"].map(FATES), order=frame["status"].map(list(FATES).index))
    return (
        alt.Chart(data, height=115 + 30 * len(titles))
        .mark_bar(height={"band": 0.7})
        .encode(
            x=alt.X("share:Q", title="Share of all requests", axis=alt.Axis(format="%", tickCount=10)),
            y=alt.Y(
                "title:N",
                title=None,
                sort=titles,
                axis=alt.Axis(labelLimit=160, labelOverlap=False, ticks=False, domain=False),
            ),
            color=named("fate", colors, labelLimit=320),
            order="order:Q",
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("fate:N", title="outcome"),
                alt.Tooltip("share:Q", title="share of all requests", format=".2%"),
            ],
        )
    )


_FATE_COLORS = {"timed_out": "#E69F00", "dropped": "#D55E00", "failed": "#7A4B9E", "pending": USAGE}


def latency_distribution(frame: pd.DataFrame, runs: Sequence[Shown]) -> alt.Chart:
    """Return the CDFs over all requests by policy. Columns: latency_s (logarithmic axis), share, title."""
    # The first hundredth would stretch the axis over decades that nobody looks at.
    inside = frame[frame["share"] >= 0.01]
    scale, axis = logarithmic_axis(inside["latency_s"])
    height = _HEIGHT + legend_px([look.title for look in runs])
    return (
        alt.Chart(inside.assign(latency=inside["latency_s"].map(duration)), height=height)
        .mark_line(clip=True, strokeWidth=2.2)
        .encode(
            x=alt.X("latency_s:Q", title="Latency", scale=scale, axis=axis),
            y=left("share", "Share of requests", percent=True, scale=alt.Scale(domain=[0, 1])),
            tooltip=[
                alt.Tooltip("title:N", title="policy"),
                alt.Tooltip("share:Q", title="share within the latency", format=".2%"),
                alt.Tooltip("latency:N", title="latency"),
            ],
            order="share:Q",
            **by_title(runs),
        )
    )


def waiting(frame: pd.DataFrame) -> alt.Chart:
    """Return bars by service: waiting and CPU work on the critical path of slow and of typical requests.

    frame: as lab.containers.run.waiting.Waiting.rows, in the order to show.
    """
    kinds = {
        "slow_wait_s": ("slowest 1 %", "waits"),
        "slow_work_s": ("slowest 1 %", "works"),
        "typical_wait_s": ("typical", "waits"),
        "typical_work_s": ("typical", "works"),
    }
    long = frame.melt("service", [*kinds], "key", "seconds")
    long["of"], long["does"] = (
        long["key"].map({key: pair[at] for key, pair in kinds.items()}) for at in (0, 1)
    )
    long["text"] = [*map(duration, long["seconds"])]
    return (
        alt.Chart(long, height=max(_HEIGHT, 34 * len(frame)))
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="Time on the critical path (s), mean per request"),
            y=alt.Y("service:N", title=None, sort=[*frame["service"]], axis=alt.Axis(labelLimit=200)),
            yOffset=alt.YOffset("of:N", sort=["slowest 1 %", "typical"]),
            color=named("does", {"waits": THROTTLED, "works": USAGE}, columns=1),
            opacity=alt.Opacity(
                "of:N",
                title=None,
                scale=alt.Scale(domain=["slowest 1 %", "typical"], range=[1.0, 0.5]),
                legend=alt.Legend(orient="top", columns=1, symbolFillColor=USAGE),
            ),
            tooltip=[
                alt.Tooltip("service:N", title="service"),
                alt.Tooltip("of:N", title="requests"),
                alt.Tooltip("does:N", title="activity"),
                alt.Tooltip("text:N", title="time"),
            ],
        )
    )


def costs(frame: pd.DataFrame, runs: Sequence[Shown], currency: str) -> alt.LayerChart:
    """Return bars by policy: CPU in full colour, memory pale behind it. Columns: what, per_hour,
    per_million, title."""
    titles = [look.title for look in runs]
    colors = alt.Scale(domain=titles, range=[look.color for look in runs])
    whole = frame.groupby("title", sort=False).agg({"per_hour": "sum", "per_million": "first"}).reset_index()
    whole["text"] = [
        significant(hour) + ("" if math.isnan(million) else f"  ({significant(million)})")
        for hour, million in zip(whole["per_hour"], whole["per_million"], strict=True)
    ]
    frame = frame.assign(order=frame["what"].map({"CPU": 0, "memory": 1}))
    y = alt.Y("title:N", title=None, sort=titles, axis=alt.Axis(labelLimit=170, ticks=False, domain=False))
    # Leave room for the figures beside the bars.
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
                alt.Tooltip("what:N", title="resource"),
                alt.Tooltip("per_hour:Q", title=f"{currency} an hour", format=",.4f"),
                alt.Tooltip("per_million:Q", title=f"{currency} a million answers, in all", format=",.4f"),
            ],
        )
    )
    text = (
        alt.Chart(whole).mark_text(align="left", dx=5, fontSize=12, color=INK).encode(x=x, y=y, text="text:N")
    )
    return alt.LayerChart(layer=[bars, text], height=max(_HEIGHT, 30 * len(runs)))


def offered(frame: pd.DataFrame) -> alt.Chart:
    """Return the requests per second that clients will send. Columns: at_s, rps."""
    return (
        alt.Chart(frame, height=200)
        .mark_area(interpolate="step-after", color=USAGE, opacity=0.5, line={"color": USAGE})
        .encode(
            x=Time((0.0, float(frame["at_s"].max()))).of("at_s"),
            y=left("rps", "Requests a second"),
            tooltip=[
                alt.Tooltip("at_s:Q", title="time (s)", format=".0f"),
                alt.Tooltip("rps:Q", title="requests a second", format=",.0f"),
            ],
        )
    )


def _with_data(runs: Sequence[Shown], frames: Mapping[str, pd.DataFrame]) -> list[Shown]:
    return [look for look in runs if look.title in frames]


def _at(frames: Mapping[str, pd.DataFrame]) -> alt.X:
    """Return one time axis for all frames, also where some end earlier."""
    return Time((0.0, max(float(frame["to_s"].max()) for frame in frames.values()))).of("at_s")


def _long(frames: Mapping[str, pd.DataFrame], runs: Sequence[Shown], key: str, name: str) -> pd.DataFrame:
    """Return the runs' columns `key` below each other as `name`, each with its last value repeated."""
    parts = []
    for look in runs:
        frame = frames[look.title]
        parts.append(frame[["at_s", key]].assign(title=look.title))
        parts.append(frame[["to_s", key]].tail(1).rename(columns={"to_s": "at_s"}).assign(title=look.title))
    return pd.concat(parts, ignore_index=True).rename(columns={key: name})


def _rate(value: float) -> str:
    return significant(value, 4)


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.3g} %"


def _layered(
    layers: list[alt.Chart],
    frames: Mapping[str, pd.DataFrame],
    runs: Sequence[Shown],
    key: str,
    written: Callable[[float], str] | None,
) -> alt.LayerChart:
    """Return the layers with a rule at the pointer's stretch that shows every policy's `key`.

    written: turns a value into text; None for no rule.
    """
    height = _HEIGHT + legend_px([look.title for look in runs])
    if written is None:
        return alt.LayerChart(layer=layers, height=height)
    columns, tips = [], [alt.Tooltip("at_s:Q", title="from (s)", format=",.4~r")]
    for place, look in enumerate(runs):
        # Titles contain dots and brackets, which have a meaning in the name of a Vega field.
        columns.append(frames[look.title].set_index("at_s")[key].map(written).rename(f"run{place}"))
        tips.append(alt.Tooltip(f"run{place}:N", title=look.title))
    near = alt.selection_point(
        nearest=True, on="pointermove", fields=["at_s"], empty=False, clear="pointerout"
    )
    rule = (
        alt.Chart(pd.concat(columns, axis=1).fillna("").reset_index())
        .mark_rule(color=USAGE)
        .encode(
            x=_at(frames), opacity=alt.when(near).then(alt.value(0.8)).otherwise(alt.value(0.0)), tooltip=tips
        )
        .add_params(near)
    )
    return alt.LayerChart(layer=[*layers, rule], height=height)


def logarithmic_axis(values: pd.Series, room: int = 0) -> tuple[alt.Scale, alt.Axis]:
    """Return scale and axis for durations in seconds, with enough ticks at 1, 2, 5, … to read a value.

    room: width of the labels in pixels where charts below each other share their time axis; 0 for as much as
    they need.
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
