"""Charts of recommendations: every candidate by time and cost with the Pareto front, and moving prices.

For: frames made of a ranking, and their charts. Not for: ranking (lab.cloud.run.recommending) or other prices
(lab.explorer.cloud_page).
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from control.jobs import Objective
from control.recommender.ports import Recommendation
from lab.charts.palette import SERIES, USAGE
from lab.cloud.run.table import records

BEST, FRONT, OTHER = "recommended", "on the front", "dominated"
_LOOKS = {BEST: ("#D55E00", "diamond", 260), FRONT: ("#1A7FC4", "circle", 110), OTHER: (USAGE, "circle", 60)}
_ROOM, _LEAST_SPAN = 0.06, 1.5
"""Share of a logarithmic axis left empty on each side of the points; it spans at least this factor."""


def ranking(recommendations: Sequence[Recommendation]) -> pd.DataFrame:
    """Return a row per candidate, best first, under the keys of `twinbed recommend --format csv`."""
    frame = pd.DataFrame(records(recommendations))
    return frame.assign(reason=[recommendation.why for recommendation in recommendations])


def places(frame: pd.DataFrame) -> list[str]:
    """Return BEST for the first row of `ranking`, FRONT for rows that no row beats in both time and cost,
    else OTHER."""
    front = set(_front(frame).index)
    return [
        BEST if rank == 1 else FRONT if row in front else OTHER
        for row, rank in zip(frame.index, frame["rank"], strict=True)
    ]


def _front(frame: pd.DataFrame) -> pd.DataFrame:
    ordered = frame.sort_values(["time_h", "cost_usd"])
    before = ordered["cost_usd"].cummin().shift(fill_value=np.inf)
    return ordered[ordered["cost_usd"] < before]


def pareto(frame: pd.DataFrame, *, deadline_h: float, budget_usd: float) -> alt.LayerChart:
    """Draw cost over time of every row of `ranking`; the pointer shows the intervals of the nearest one.

    deadline_h, budget_usd: drawn as dashed lines; infinite: none.
    """
    x, y = _time("time_h", frame), _cost("cost_usd", frame)
    near = alt.selection_point(
        nearest=True, on="pointermove", fields=["configuration"], empty=False, clear="pointerout"
    )
    front = alt.Chart(_front(frame)).mark_line(interpolate="step-after", opacity=0.6, strokeWidth=1.5)
    points = alt.Chart(frame.assign(place=places(frame)))
    layers = [
        front.encode(x=x, y=y, color=alt.value(_LOOKS[FRONT][0])),
        *_bounds(x, y, deadline_h, budget_usd),
        *_intervals(points, frame, near),
        _points(points, x, y).add_params(near),
    ]
    return alt.LayerChart(layer=layers, height=430)


def _time(field: str, frame: pd.DataFrame) -> alt.X:
    return alt.X(f"{field}:Q", title="Predicted time (h)", scale=_logarithmic(frame["time_h"]))


def _cost(field: str, frame: pd.DataFrame) -> alt.Y:
    return alt.Y(f"{field}:Q", title="Predicted cost ($)", scale=_logarithmic(frame["cost_usd"]))


def _logarithmic(values: pd.Series) -> alt.Scale:
    low, high = float(values.min()), float(values.max())
    room = max(high / low, _LEAST_SPAN) ** _ROOM
    return alt.Scale(type="log", domain=[low / room, high * room], nice=False)


def _points(base: alt.Chart, x: alt.X, y: alt.Y) -> alt.Chart:
    names = list(_LOOKS)
    colors, shapes, sizes = ([look[part] for look in _LOOKS.values()] for part in range(3))
    legend = alt.Legend(orient="top", columns=2, symbolOpacity=1, symbolSize=110)
    return base.mark_point(filled=True, opacity=0.9).encode(
        x=x,
        y=y,
        color=alt.Color(
            "place:N", title=None, sort=names, scale=alt.Scale(domain=names, range=colors), legend=legend
        ),
        shape=alt.Shape(
            "place:N", title=None, sort=names, scale=alt.Scale(domain=names, range=shapes), legend=legend
        ),
        size=alt.Size("place:N", scale=alt.Scale(domain=names, range=sizes), legend=None),
        # The best is drawn last, so that nothing hides it.
        order=alt.Order("rank:Q", sort="descending"),
        tooltip=[
            alt.Tooltip("configuration:N", title="configuration"),
            alt.Tooltip("place:N", title="group"),
            alt.Tooltip("rank:Q", title="rank"),
            alt.Tooltip("time_h:Q", title="time (h)", format=".3~g"),
            alt.Tooltip("time_low_h:Q", title="from (h)", format=".3~g"),
            alt.Tooltip("time_high_h:Q", title="to (h)", format=".3~g"),
            alt.Tooltip("cost_usd:Q", title="cost ($)", format=".3~g"),
            alt.Tooltip("cost_low_usd:Q", title="from ($)", format=".3~g"),
            alt.Tooltip("cost_high_usd:Q", title="to ($)", format=".3~g"),
            alt.Tooltip("price_usd_h:Q", title="price ($/h)", format=".3f"),
        ],
    )


def _intervals(base: alt.Chart, frame: pd.DataFrame, near: alt.Parameter) -> list[alt.Chart]:
    """Draw the intervals of the candidate at the pointer as a cross. The axes do not grow with them."""
    rules = base.mark_rule(strokeWidth=2, clip=True, color=USAGE).encode(
        opacity=alt.when(near).then(alt.value(0.9)).otherwise(alt.value(0.0))
    )
    return [
        rules.encode(x=_time("time_low_h", frame), x2="time_high_h:Q", y=_cost("cost_usd", frame)),
        rules.encode(x=_time("time_h", frame), y=_cost("cost_low_usd", frame), y2="cost_high_usd:Q"),
    ]


def _bounds(x: alt.X, y: alt.Y, deadline_h: float, budget_usd: float) -> list[alt.Chart]:
    layers = []
    for name, value, axis in (("time_h", deadline_h, {"x": x}), ("cost_usd", budget_usd, {"y": y})):
        if np.isfinite(value):
            rule = alt.Chart(pd.DataFrame({name: [value]})).mark_rule(
                strokeDash=[6, 4], clip=True, color=_LOOKS[BEST][0]
            )
            layers.append(rule.encode(**axis))
    return layers


def trials(
    frame: pd.DataFrame, objective: Objective, take: str, deadline_h: float, budget_usd: float
) -> alt.LayerChart:
    """Draw the whole job's cost or time on the cluster of each trial, and the best so far.

    Columns: those of lab.cloud.search.table. take: the configuration that the search ended with. deadline_h,
    budget_usd: bounds that the best so far keeps; infinite where there is none.
    """
    key, title = ("job_usd", "Job's cost ($)") if objective is Objective.COST else ("job_h", "Job's time (h)")
    place = np.where(frame["configuration"] == take, BEST, "tried")
    kept = (frame["job_h"] <= deadline_h) & (frame["job_usd"] <= budget_usd)
    best = frame[key].where(kept).cummin().ffill()
    looks = {BEST: _LOOKS[BEST], "tried": _LOOKS[FRONT]}
    base = alt.Chart(frame.assign(best=best, place=place)).encode(
        x=alt.X("trial:Q", title="Trial", axis=alt.Axis(tickMinStep=1, format="d", grid=False))
    )
    scale, axis = alt.Scale(zero=False), alt.Axis(format=",.3~r")
    line = base.mark_line(interpolate="step-after", color=USAGE, strokeWidth=2)
    names = list(looks)
    colors, shapes, sizes = ([look[part] for look in looks.values()] for part in range(3))
    points = base.mark_point(filled=True, opacity=0.9).encode(
        y=alt.Y(f"{key}:Q", title=title, scale=scale, axis=axis),
        color=alt.Color("place:N", scale=alt.Scale(domain=names, range=colors), legend=None),
        shape=alt.Shape("place:N", scale=alt.Scale(domain=names, range=shapes), legend=None),
        size=alt.Size("place:N", scale=alt.Scale(domain=names, range=sizes), legend=None),
        tooltip=[
            alt.Tooltip("trial:Q", title="trial"),
            alt.Tooltip("configuration:N", title="configuration"),
            alt.Tooltip("job_h:Q", title="job's time (h)", format=".3~g"),
            alt.Tooltip("job_usd:Q", title="job's cost ($)", format=".3~g"),
            alt.Tooltip("spent_usd:Q", title="trial's cost ($)", format=".3~g"),
            alt.Tooltip("why:N", title="reason"),
        ],
    )
    return alt.LayerChart(
        layer=[line.encode(y=alt.Y("best:Q", title=title, scale=scale, axis=axis)), points], height=260
    )


def moved_prices(frame: pd.DataFrame, chosen: float) -> alt.LayerChart:
    """Draw cost over a type's price, and a rule at the chosen factor.

    Columns: factor (of today's price), configuration, cost_usd.
    """
    x = alt.X(
        "factor:Q",
        title="Price, times today's",
        scale=alt.Scale(type="log", domain=[frame["factor"].min(), frame["factor"].max()], nice=False),
        axis=alt.Axis(format="~g", values=[0.1, 0.2, 0.5, 1, 2, 5, 10], grid=False),
    )
    lines = (
        alt.Chart(frame)
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=_cost("cost_usd", frame),
            color=alt.Color(
                "configuration:N",
                title=None,
                sort=None,
                scale=alt.Scale(range=list(SERIES)),
                legend=alt.Legend(orient="top", columns=2, labelLimit=420),
            ),
            strokeDash=alt.StrokeDash("configuration:N", sort=None, legend=None),
            tooltip=[
                "configuration:N",
                alt.Tooltip("factor:Q", title="price, times today's", format=".3~g"),
                alt.Tooltip("cost_usd:Q", title="cost ($)", format=".3~g"),
            ],
        )
    )
    rule = alt.Chart(pd.DataFrame({"factor": [chosen]})).mark_rule(strokeDash=[6, 4], color=USAGE)
    return alt.LayerChart(layer=[lines, rule.encode(x=x)], height=260)
