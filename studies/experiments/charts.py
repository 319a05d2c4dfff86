"""An experiment's quantities over what was varied, as one chart of small panels.

For: the page and the results of experiments that have a `curve`. Not for: charts of runs (lab.charts).
"""

from __future__ import annotations

import altair as alt
import pandas as pd

from studies.experiments.evaluate import Evaluation, groups

_PANELS_A_ROW = 2
_WIDTH, _HEIGHT = 300, 130
_COLOR = "#1A7FC4"
"""Escra's in every chart."""


def curves(evaluation: Evaluation) -> alt.TopLevelMixin:
    """One panel per quantity: mean and 95 % interval over what stands aside, in its order."""
    frame = _frame(evaluation)
    order = list(dict.fromkeys(frame["aside"]))
    panels = [
        _panel(frame[frame["title"] == title], title, order, evaluation.experiment.curve)
        for title in dict.fromkeys(frame["title"])
    ]
    rows = [panels[at : at + _PANELS_A_ROW] for at in range(0, len(panels), _PANELS_A_ROW)]
    chart = alt.vconcat(*(alt.hconcat(*row) for row in rows))
    # aria=False: the image has a description of its own.
    plain = chart.configure(font="system-ui, sans-serif", background="white", aria=False)
    finished: alt.TopLevelMixin = plain.configure_view(stroke=None)
    return finished


def _frame(evaluation: Evaluation) -> pd.DataFrame:
    rows = [
        {
            "aside": aside,
            "title": f"{each.figure.title} ({each.figure.unit})".removesuffix(" (1)"),
            "mean": each.mean,
            "low": each.mean - each.ci95,
            "high": each.mean + each.ci95,
        }
        for aside, found in groups(evaluation)
        for each in found
    ]
    return pd.DataFrame(rows)


def _panel(frame: pd.DataFrame, title: str, order: list[str], axis: str) -> alt.LayerChart:
    base = alt.Chart(frame).encode(
        x=alt.X("aside:O", title=axis, sort=order, scale=alt.Scale(type="point"), axis=alt.Axis(labelAngle=0))
    )
    mean = alt.Y("mean:Q", title=None, scale=alt.Scale(zero=True))
    layers = [
        base.mark_rule(color=_COLOR, strokeWidth=2, opacity=0.5).encode(
            y=alt.Y("low:Q", title=None), y2="high:Q"
        ),
        base.mark_line(color=_COLOR, strokeWidth=1.5).encode(y=mean),
        base.mark_point(color=_COLOR, filled=True, size=36).encode(y=mean),
    ]
    return alt.LayerChart(
        layer=layers,
        width=_WIDTH,
        height=_HEIGHT,
        title=alt.Title(title, anchor="start", fontWeight="normal"),
    )
