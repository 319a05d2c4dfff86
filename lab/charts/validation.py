"""Draws twin and testbed over each other: use, limits and latency.

For: data frames and charts of the page "Validation". Not for: judging (lab.containers.validate) or one
backend alone (lab.charts.drawing). Dashes distinguish the two backends without colour.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from lab.charts import series, services
from lab.charts.drawing import Time, left, named
from lab.charts.palette import USAGE
from lab.runs.store import Run

TWIN, TESTBED = "twin", "testbed"
COLORS = {TWIN: "#1A7FC4", TESTBED: "#D55E00"}
_AGREES = "#009E73"
VERDICTS = {"inside limit": _AGREES, "inside spread": "#1A7FC4", "outside": "#D55E00"}
"""Colour of each verdict of which there are points."""
_MOST_ROWS = 1500
_MOST_STRETCHES = 60
_HEIGHT, _LEGEND, _AXIS = 140, 40, 46
"""Height of a chart, of a legend above it, and of the labels of its time axis, pixels."""
_COLUMNS = {
    "cpu": {"usage_cores": "use", "quota_cores": "limit"},
    "memory": {"memory_mib": "use", "limit_mib": "limit"},
}
_TITLES = {"cpu": "CPU (cores)", "memory": "Memory (MiB)"}


def over_time(runs: Mapping[str, Run], container: str, quantity: str) -> pd.DataFrame:
    """Return one container's use and limit under each backend. Columns: at_s, value, backend, what
    (`use`, `limit`).

    runs: TWIN and TESTBED → run; quantity: `cpu` or `memory`. Rows without a value are left out.
    """
    columns = _COLUMNS[quantity]
    parts = []
    for backend, run in runs.items():
        frame = series.thin(series.container(run, container), list(columns), _MOST_ROWS // 5)
        for column, what in columns.items():
            values = frame[["at_s"]].assign(value=frame[column], backend=backend, what=what)
            parts.append(values.dropna(subset=["value"]))
    return pd.concat(parts, ignore_index=True)


def use_and_limit(frame: pd.DataFrame, quantity: str) -> list[alt.Chart]:
    """Return two charts, use above limit, with a line each for twin and testbed."""
    return _stacked(frame, {what: f"{what.capitalize()}, {_TITLES[quantity]}" for what in ("use", "limit")})


def latency_over_time(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return percentiles of latency, or lower bounds of them (services.over_time). Columns: at_s, value (s),
    backend, what (p50, p90, p99)."""
    parts = []
    for backend, run in runs.items():
        frame = services.over_time(run, _MOST_STRETCHES)
        for what in services.PERCENTILES:
            values = frame[["at_s"]].assign(value=frame[what], backend=backend, what=what)
            parts.append(values.dropna(subset=["value"]))
    return pd.concat(parts, ignore_index=True)


def latency(frame: pd.DataFrame) -> list[alt.Chart]:
    """Return a chart per percentile, with a line each for twin and testbed."""
    return _stacked(frame, {what: f"Latency {what} (s)" for what in services.PERCENTILES})


def _stacked(frame: pd.DataFrame, titles: Mapping[str, str]) -> list[alt.Chart]:
    """Return a chart per kind of value that is present. The first has the legend, the last the time axis."""
    shown = [(title, frame[frame["what"] == what]) for what, title in titles.items()]
    shown = [(title, values) for title, values in shown if len(values)]
    window = (0.0, float(frame["at_s"].max()))
    return [
        _lines(values, title, Time(window, labels=index == len(shown) - 1), first=index == 0)
        for index, (title, values) in enumerate(shown)
    ]


def _lines(frame: pd.DataFrame, title: str, time: Time, *, first: bool) -> alt.Chart:
    color = named("backend", COLORS)
    return (
        alt.Chart(frame, height=_HEIGHT + first * _LEGEND + time.labels * _AXIS)
        .mark_line(interpolate="step-before", strokeWidth=1.8, clip=True)
        .encode(
            x=time.of("at_s"),
            y=left("value", title),
            color=color if first else color.legend(None),
            strokeDash=alt.StrokeDash(
                "backend:N", scale=alt.Scale(domain=list(COLORS), range=[[1, 0], [5, 2]]), legend=None
            ),
            tooltip=[
                alt.Tooltip("backend:N", title="backend"),
                alt.Tooltip("at_s:Q", title="time (s)", format=".1f"),
                alt.Tooltip("value:Q", title=title, format=",.4g"),
            ],
        )
    )


def scatter(frame: pd.DataFrame, quantity: str, unit: str, band: float | None) -> alt.LayerChart:
    """Draw a quantity of the twin over that of the testbed, and a line from the testbed's least to its most.

    Columns: twin, testbed, low, high, verdict, policy, cell (in words). band: the largest allowed error, a
    share of the testbed's value, drawn beside the diagonal; None: no such band.
    """
    values = frame[["twin", "testbed", "low", "high"]].to_numpy(float)
    known = values[values > 0]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
    log = most > 20 * least and bool((frame["testbed"] > 0).all())
    low, high = (least / 1.3, most * 1.3) if log else (0.0, most * 1.06)
    scale = alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False)
    of = f" ({unit})"
    x, y = (
        alt.X("testbed:Q", title=f"Testbed{of}", scale=scale),
        alt.Y("twin:Q", title=f"Twin{of}", scale=scale),
    )
    ends = pd.DataFrame({"testbed": [low, high], "twin": [low, high]})
    layers = []
    if band is not None:
        wide = ends.assign(least=ends["twin"] * (1 - band), most=ends["twin"] * (1 + band))
        area = alt.Chart(wide).mark_area(color=_AGREES, opacity=0.16, clip=True)
        layers.append(area.encode(x=x, y=alt.Y("least:Q", scale=scale), y2="most:Q"))
    layers.append(alt.Chart(ends).mark_line(color=USAGE, strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y))
    base = alt.Chart(frame)
    layers.append(
        base.mark_rule(color=USAGE, clip=True).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y)
    )
    names = list(VERDICTS)
    layers.append(
        base.mark_point(filled=True, size=55, opacity=0.85).encode(
            x=x,
            y=y,
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=names, range=[VERDICTS[name] for name in names]),
                legend=None,
            ),
            tooltip=[
                alt.Tooltip("cell:N", title="cell"),
                alt.Tooltip("policy:N", title="policy"),
                alt.Tooltip("twin:Q", title=f"twin{of}", format=",.4~r"),
                alt.Tooltip("testbed:Q", title=f"testbed{of}", format=",.4~r"),
                alt.Tooltip("low:Q", title="its least", format=",.4~r"),
                alt.Tooltip("high:Q", title="its most", format=",.4~r"),
                alt.Tooltip("verdict:N", title="the twin is"),
            ],
        )
    )
    return alt.LayerChart(layer=layers, height=300, title=quantity)
