"""Charts of a fabric: its edge with broken parts, the two costs of BFD's timers, fleets.

For: drawing. Not for: computing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from lab.ask.kind import Figure
from lab.charts.drawing import Time, by_title, legend_px, named
from lab.charts.palette import INK, SERIES, Shown
from lab.charts.services_drawing import logarithmic_axis
from lab.charts.words import duration

_WORKS, _BROKEN = "#8c959f", "#d55e00"
_MIDDLE = 0.5


def edge(links: pd.DataFrame, nodes: pd.DataFrame) -> alt.LayerChart:
    """Draw hosts below switches. links: x, y, x2, y2, state (`works`, `broken`); nodes: x, y, name."""
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
            color=named("state", {"works": _WORKS, "broken": _BROKEN}),
            strokeDash=alt.StrokeDash(
                "state:N", scale=alt.Scale(domain=["works", "broken"], range=[[1, 0], [6, 4]]), legend=None
            ),
        )
    )
    placed = alt.Chart(nodes).encode(x=x, y=y, tooltip="name:N")
    points = placed.mark_square(size=260, opacity=1, color=SERIES[0])
    above = alt.datum.y > _MIDDLE
    names = [
        placed.transform_filter(rows).mark_text(dy=away, fontSize=12, color=INK).encode(text="name:N")
        for rows, away in ((above, -18), (~above, 20))
    ]
    return alt.LayerChart(layer=[lines, points, *names], height=200)


def two_sides(frame: pd.DataFrame) -> tuple[alt.LayerChart, ...]:
    """Draw what short and long timers cost: the packets lost, and the false downs.

    Columns: detection_ms, gap_ms, false_downs_per_h, chosen (marked).
    """
    panels = []
    for key, title in (("gap_ms", "Packets lost for (ms)"), ("false_downs_per_h", "False downs (1/h)")):
        base = alt.Chart(frame, height=220).encode(
            x=alt.X("detection_ms:Q", title="Detection time (ms)"), y=alt.Y(f"{key}:Q", title=title)
        )
        mark = base.transform_filter("datum.chosen").mark_point(size=120, filled=True, color=_BROKEN)
        panels.append(alt.LayerChart(layer=[base.mark_line(color=SERIES[0]), mark]))
    return tuple(panels)


def ladders(frame: pd.DataFrame) -> alt.Chart:
    """Draw when queue pairs send again and give up, a row for each NCCL.

    Columns: nccl, at_s (s after the last progress), what (`sends again`, `gives up`).
    """
    kinds = ["sends again", "gives up"]
    return (
        alt.Chart(frame, height=alt.Step(34))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(
            x=alt.X("at_s:Q", title="After the last progress (s)", scale=alt.Scale(type="log")),
            y=alt.Y("nccl:N", title=None, sort=None),
            color=named("what", dict(zip(kinds, (SERIES[0], _BROKEN), strict=True))),
            shape=alt.Shape("what:N", scale=alt.Scale(domain=kinds, range=["circle", "cross"]), legend=None),
            tooltip=["nccl:N", "what:N", alt.Tooltip("at_s:Q", title="s", format=".3f")],
        )
    )


def fleets(frame: pd.DataFrame, colors: Mapping[str, str]) -> tuple[alt.Chart, ...]:
    """Draw two panels over sizes: how much a fleet trains, and what a scheme saves against none.

    Columns: gpus, scheme, effective (0..1), lost_cost, saved_cost (USD; NaN: nothing to compare with).
    colors: colour of each scheme.
    """
    return tuple(
        alt.Chart(frame[frame[key].notna()], height=260)
        .mark_line(point=True)
        .encode(
            x=alt.X("gpus:Q", title="GPUs", scale=alt.Scale(type="log")),
            y=alt.Y(f"mean({key}):Q", title=title, axis=alt.Axis(format=form), scale=alt.Scale(zero=False)),
            color=named("scheme", colors),
            tooltip=[
                alt.Tooltip("scheme:N", title="Scheme"),
                alt.Tooltip("gpus:Q", title="GPUs"),
                alt.Tooltip("mean(lost_cost):Q", title="lost (USD)", format=",.0f"),
            ],
        )
        for key, title, form in (
            ("effective", "Effective training time", "%"),
            ("saved_cost", "Saved by it (USD)", "~s"),
        )
    )


def lost_shares(looks: Sequence[Shown], causes: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the chart of the shares of their GPU-hours that fleets lost. causes: title of each metric that
    is a part of the lost GPU-hours. A fleet without a plan has its spares and the rest.
    """
    rows = []
    for look in looks:
        hours = look.run.metrics
        whole = hours["lost_gpu_h"] + hours["productive_gpu_h"]
        known = {title: hours[key] for key, title in causes.items() if np.isfinite(hours[key])}
        rest = hours["lost_gpu_h"] - sum(known.values())
        for title, lost in (known if len(known) == len(causes) else known | {_REST: rest}).items():
            rows.append({"title": look.title, "cause": title, "share": lost / whole})
    frame, titles = pd.DataFrame(rows), [look.title for look in looks]
    yield Figure(
        "Lost GPU-hours by cause",
        "A bar shows which share of a fleet's GPU-hours was lost, and to what, in its first seed.",
        alt.Chart(frame, width=_WIDTH, height=alt.Step(34))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="Share of the fleet's GPU-hours", axis=alt.Axis(format="%")),
            y=alt.Y("title:N", title=None, sort=titles, axis=alt.Axis(labelLimit=260)),
            color=named("cause", dict(zip(dict.fromkeys(frame["cause"]), SERIES, strict=False))),
            tooltip=["title:N", "cause:N", alt.Tooltip("share:Q", title="share", format=".2%")],
        ),
    )


_REST = "saves, stalls, restarts and work that was lost"
_WIDTH = 900
_STRETCHES = 300
_HELD_UP = 1.2
"""A fault delayed an iteration if its duration is at least this multiple of the median: ten times the excess
that jitter alone causes."""
_ROUNDING_S = 1e-7
"""Time below which two moments are one, s: far below any exchange, far above the error of a sum of weeks."""
_STEPS = {
    "detected": ("the fault is detected", SERIES[1], "circle"),
    "selected": ("another path is chosen", SERIES[2], "square"),
    "installed": ("its rules are installed", SERIES[3], "diamond"),
    "end": ("packets arrive again", SERIES[0], "triangle-up"),
    "over": ("what it held up is done", SERIES[6], "cross"),
}
"""Steps after a fault: words, colour and shape, by the column of the table `outages` (`over` is added)."""


def job(looks: Sequence[Shown], one: str) -> Iterator[Figure]:
    """Yield the charts of a job that met faults. one: unit that its table `series` times, such as
    `iteration`.
    """
    steps = pd.concat([_steps(look) for look in looks], ignore_index=True)
    if len(steps):
        yield Figure(
            f"From the first fault to the lost {one}",
            f"A row for each scheme, about its first fault that held up an {one}. The time is logarithmic: "
            f"equal distances are equal factors. The last mark is the end of the {one} that the fault met.",
            _marks(steps, [look.title for look in looks]),
        )
    frame = pd.concat([_longest(look) for look in looks], ignore_index=True)
    if frame.empty:
        return  # Every job died in its first iteration.
    scale, axis = logarithmic_axis(frame["duration_s"])
    yield Figure(
        f"Every {one} over time",
        f"How long the longest {one} of each stretch took. A peak is a fault that the scheme did not hide.",
        alt.Chart(frame, width=_WIDTH, height=250 + legend_px([look.title for look in looks]))
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=Time((0.0, float(frame["at_s"].max()))).of("at_s"),
            y=alt.Y("duration_s:Q", title=f"Longest {one}", scale=scale, axis=axis),
            order="at_s:Q",
            tooltip=["title:N", alt.Tooltip("took:N", title="took")],
            **by_title(looks),
        ),
    )


def _longest(look: Shown) -> pd.DataFrame:
    """Return the longest iteration of each stretch. Columns: at_s, duration_s, took (in words), title."""
    frame = look.run.frame("series", ["at_s", "duration_s"])
    frame = frame[np.isfinite(frame["duration_s"])].reset_index(drop=True)
    stretch = frame.index // max(1, -(-len(frame) // _STRETCHES))
    thin: pd.DataFrame = frame.groupby(stretch).agg({"at_s": "first", "duration_s": "max"})
    return thin.assign(took=[*map(duration, thin["duration_s"])], title=look.title)


def _steps(look: Shown) -> pd.DataFrame:
    """Return the time of each step of the first fault. Columns: title, step (in words), after_s, after."""
    outages = look.run.frame("outages") if "outages" in look.run.tables else pd.DataFrame()
    if outages.empty:
        return pd.DataFrame()
    series = look.run.frame("series", ["at_s", "duration_s"])
    begin_s = _first_felt(outages["begin_s"], series)
    first = outages[outages["begin_s"] == begin_s]
    at_s = {key: float(first[f"{key}_s"].max()) for key in _STEPS if f"{key}_s" in first}
    met = series[_met(series, begin_s)]
    if len(met):
        at_s["over"] = float((met["at_s"] + met["duration_s"]).iloc[0])
    after_s = {key: at - begin_s for key, at in at_s.items() if np.isfinite(at) and at > begin_s}
    steps = [_STEPS[key][0] for key in after_s]
    frame = pd.DataFrame({"step": steps, "after_s": [*after_s.values()]})
    return frame.assign(title=look.title, after=[*map(duration, after_s.values())])


def _first_felt(begin_s: pd.Series, series: pd.DataFrame) -> float:
    """Return the begin of the first fault that delayed an iteration, else of the first fault, s."""
    begins = sorted(begin_s.unique())
    longest = _HELD_UP * series["duration_s"].median()
    for begin in begins:
        met = series["duration_s"][_met(series, begin)]
        if len(met) and met.iloc[0] > longest:
            return float(begin)
    return float(begins[0])


def _met(series: pd.DataFrame, begin_s: float) -> pd.Series:
    """Return which iterations ended after a fault's begin, s. Sums of durations are rounded."""
    return series["at_s"] + series["duration_s"] > begin_s + _ROUNDING_S


def _marks(frame: pd.DataFrame, titles: Sequence[str]) -> alt.Chart:
    names, colors, shapes = (list(part) for part in zip(*_STEPS.values(), strict=True))
    scale, axis = logarithmic_axis(frame["after_s"])
    legend = alt.Legend(orient="top", columns=2, labelLimit=260)
    return (
        alt.Chart(frame, width=_WIDTH, height=alt.Step(34))
        .mark_point(filled=True, size=110, opacity=0.9)
        .encode(
            x=alt.X("after_s:Q", title="After the fault", scale=scale, axis=axis),
            y=alt.Y("title:N", title=None, sort=list(titles), axis=alt.Axis(labelLimit=260)),
            color=alt.Color(
                "step:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=colors),
                legend=legend,
            ),
            shape=alt.Shape(
                "step:N", title=None, sort=names, scale=alt.Scale(domain=names, range=shapes), legend=legend
            ),
            tooltip=["title:N", "step:N", alt.Tooltip("after:N", title="after")],
        )
    )


def by_fault_length(frame: pd.DataFrame) -> alt.FacetChart:
    """Draw how long a job stands still over the length of a fault, one panel per version of NCCL.

    Columns: nccl, scheme, fault_s (s), wait_s (s; NaN: the job dies). A line ends where the job dies.
    """
    log = alt.Scale(type="log")
    lines = (
        alt.Chart(frame[frame["wait_s"] > 0], width=260, height=200)
        .mark_line(strokeWidth=2, opacity=0.8)
        .encode(
            x=alt.X("fault_s:Q", title="Length of the fault (s)", scale=log),
            y=alt.Y("wait_s:Q", title="The job stands still (s)", scale=log),
            color=alt.Color(
                "scheme:N", title=None, scale=alt.Scale(range=list(SERIES)), legend=alt.Legend(orient="top")
            ),
            strokeDash=alt.StrokeDash("scheme:N", legend=None),
        )
    )
    return lines.facet(facet=alt.Facet("nccl:N", title="NCCL", sort=None), columns=2)
