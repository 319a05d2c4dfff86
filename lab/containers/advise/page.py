"""An advice as one HTML page: the table with verdicts, and the history of the rows that matter most.

For: `twinbed advise --html`. Not for: the figures (advising.py) nor the page's frame (lab.runs.page), which
escapes every name. The page needs no network and runs no script.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from markupsafe import Markup

from lab.charts.palette import USAGE
from lab.containers.advise.histories import Told
from lab.containers.advise.model import Advice, Row, Setting
from lab.containers.advise.table import result
from lab.runs.formats import grid
from lab.runs.page import bullets, facts_list, figure, page, section, table

_SHOWN = 8
"""Rows whose history is drawn: those whose money changes most; rows to leave come last."""

_STRETCHES = 300
_WIDTH, _HEIGHT = 420, 130
_GIB = float(1 << 30)
_LINES = {
    "request now": ("#8c959f", [4, 3]),
    "limit now": ("#57606a", [1, 0]),
    "request advised": ("#0072b2", [4, 3]),
    "limit advised": ("#d55e00", [1, 0]),
}
"""Colour and dashes of the settings' lines."""


def document(advice: Advice, histories: Sequence[Told]) -> str:
    """Return the whole page as text. histories: histories that the advice was made from."""
    whole = result(advice)
    places = {named.name: (told, row) for told in histories for row, named in enumerate(told.rows)}
    body = [
        Markup("<h1>What to set</h1>"),
        facts_list(whole.facts),
        section("Advice", table(*grid(whole)) + Markup('<p class="legend">{}</p>').format(whole.legend)),
        *(_drawn(row, *places[row.name]) for row in _most(advice.rows) if row.name in places),
        section("CPU limits", _limits(advice.rows)),
        section("Assumptions and data", bullets([*advice.notes, _made(advice)], "notes")),
    ]
    return page("What to set", body)


def _made(advice: Advice) -> str:
    made = advice.made
    seeds = ", ".join(map(str, made.seeds))
    return f"Made at {made.at} by twinbed {made.by}, seeds {seeds}, history SHA-256 {made.sha256}."


def _most(rows: Sequence[Row]) -> list[Row]:
    """Return the rows to draw: those that save or cost most, rows to leave last."""

    def weight(row: Row) -> tuple[bool, float]:
        after = row.after.money_per_day.mean if row.after.money_per_day else 0.0
        before = row.before.money_per_day.mean if row.before and row.before.money_per_day else 0.0
        return row.verdict == "leave", -abs(after - before)

    return sorted(rows, key=weight)[:_SHOWN]


def _limits(rows: Sequence[Row]) -> Markup:
    lines = [[row.name, row.cpu_limit_reason] for row in rows if row.cpu_limit_reason]
    return table(["Container", "Why this CPU limit, or none"], [False, False], lines) if lines else Markup()


def _drawn(row: Row, told: Told, number: int) -> Markup:
    usage = told.usage
    members = slice(*np.searchsorted(usage.row, [number, number + 1]))
    charts = []
    for title, values, key, unit in (
        ("CPU (cores)", usage.cores, "cpu_{}_cores", 1.0),
        ("Memory (GiB)", usage.memory_bytes, "memory_{}_bytes", _GIB),
    ):
        if "memory" in key and not usage.memory_known[number]:
            continue
        largest = values[members].max(axis=0) / unit
        charts.append(_chart(title, _folded(largest, usage.interval_s), _lines(row, key, unit)))
    grey = "Grey: the replica with the largest use, maximum of each stretch."
    caption = f"{row.verdict}: {row.reason}{row.not_told} {grey}"
    return section(row.name, figure(row.name, caption, alt.hconcat(*charts)))


def _folded(values: np.ndarray[tuple[int], np.dtype[np.float64]], interval_s: float) -> pd.DataFrame:
    """Return the maximum of each of at most _STRETCHES stretches."""
    width = max(1, -(-len(values) // _STRETCHES))
    starts = np.arange(0, len(values), width)
    return pd.DataFrame({"hours": starts * interval_s / 3600, "used": np.maximum.reduceat(values, starts)})


def _lines(row: Row, key: str, unit: float) -> pd.DataFrame:
    settings: tuple[tuple[str, Setting], ...] = (("now", row.current), ("advised", row.advised))
    lines = []
    for when, setting in settings:
        for what in ("request", "limit"):
            value = getattr(setting, key.format(what))
            if when == "advised" and row.verdict == "leave":
                continue
            if value is not None and value != "none":
                lines.append({"level": value / unit, "line": f"{what} {when}"})
    return pd.DataFrame(lines, columns=["level", "line"])


def _chart(title: str, used: pd.DataFrame, lines: pd.DataFrame) -> alt.LayerChart:
    y = alt.Y("used:Q", title=title)
    area = alt.Chart(used).mark_area(interpolate="step-after", color=USAGE, opacity=0.5)
    layers: list[alt.Chart] = [
        area.encode(x=alt.X("hours:Q", title="Time (h)", scale=alt.Scale(nice=False)), y=y)
    ]
    for name, (_, dash) in _LINES.items():
        own = lines[lines["line"] == name]
        if len(own):
            rule = alt.Chart(own).mark_rule(strokeDash=dash, strokeWidth=2)
            scale = alt.Scale(domain=list(_LINES), range=[colour for colour, _ in _LINES.values()])
            layers.append(rule.encode(y="level:Q", color=alt.Color("line:N", scale=scale, title=None)))
    return alt.LayerChart(layer=layers, width=_WIDTH, height=_HEIGHT)
