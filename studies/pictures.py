"""Draws pictures of results pages from the tables that the pages print, so that both always agree.

For: pages whose tables are easier to read as a chart. Not for: figures that no page prints (lab.charts), nor
for laying out a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from lab.charts.palette import SERIES, USAGE
from lab.charts.validation import VERDICTS, scatter
from lab.containers.validate.rule import QUANTITIES
from lab.explorer.shipped_validation import of_page
from studies.judge import Verdict

_COLUMNS = 3
"""Panels in a row."""
_WIDTH, _ROW = 190, 26
"""Width of a panel, height of a row of points, pixels."""
_PADDING = {"left": 30, "right": 10, "top": 5, "bottom": 5}
"""Room for labels that a reader's font makes wider, pixels."""
_COLORS = {Verdict.SIZE: VERDICTS["inside limit"], Verdict.DIRECTION: SERIES[1], Verdict.NOT: SERIES[6]}
_ABSENT = "–"
_BOUND = re.compile(r"&lt;|>")
"""Signs before a ratio that is a bound or almost 0."""


def table_below(text: str, heading: str) -> pd.DataFrame:
    """Return the first table below a heading of a Markdown page, its cells as text."""
    section = re.split(r"\n#+ ", text.partition(f"\n{heading}\n")[2], maxsplit=1)[0]
    table = re.search(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    lines = table[0].splitlines() if table else []
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    return pd.DataFrame(cells[2:], columns=cells[0] if cells else None)


def advice(text: str) -> alt.HConcatChart:
    """Draw the results of each candidate's advice, set by set, from the page of advice."""
    frame = table_below(text, "## Histories that the first method had not seen")
    frame["set"] = frame["set"].where(frame["set"] != "").ffill()
    money = pd.to_numeric(frame["money a day (USD)"])
    own = money.where(frame["candidate"] == "requests-only").ffill()
    panels = {
        "Without OOM event (%)": frame["OOM-free (%)"],
        "Money, requests-only = 1": money / own,
        "Late on shared hosts (%)": frame["late on shared hosts (%)"],
        "Late on full hosts (%)": frame["late on full hosts (%)"],
    }
    names = list(dict.fromkeys(frame["candidate"]))
    charts: list[alt.Chart] = []
    for title, values in panels.items():
        known = frame[["set", "candidate"]].assign(value=pd.to_numeric(values, errors="coerce"))
        x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False, nice=True))
        charts.append(_marks(known, x, "set", "candidate", names, labels=not charts).properties(width=_WIDTH))
    chart: alt.HConcatChart = alt.hconcat(*charts)
    return chart


def market(text: str) -> alt.Chart:
    """Draw each policy's cost over the optimum, variant by variant, from the page of deadlines on spot."""
    frame = table_below(text, "## Every variant")
    names = ["ours", "Uniform Progress", "greedy"]
    rows = frame.melt("variant", names, "policy", "value").astype({"value": float})
    x = alt.X("value:Q", title="Cost ÷ optimum", scale=alt.Scale(zero=False))
    return _marks(rows, x, "variant", "policy", names).properties(padding=_PADDING)


def schedulers(text: str) -> alt.LayerChart:
    """Draw ours divided by the source's, policy by policy, from the page of schedulers."""
    headings = {heading[3:5]: heading for heading in re.findall(r"^## H[1-4]: .*$", text, re.MULTILINE)}
    tables = [table_below(text, heading).assign(of=name) for name, heading in headings.items()]
    rows = pd.concat(tables)[["policy", "of", "ratio"]].rename(columns={"ratio": "value"})
    rows["value"] = pd.to_numeric(rows["value"], errors="coerce")
    title = "Ours divided by the source's; pale: within 10 %"
    x = alt.X("value:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~g"))
    near = alt.Chart(pd.DataFrame({"value": [0.9], "most": [1.1]})).mark_rect(color=USAGE, opacity=0.25)
    chart: alt.LayerChart = near.encode(x=x, x2="most:Q") + _marks(
        rows.dropna(), x, "policy", "of", list(headings)
    )
    return chart.properties(padding=_PADDING)


def _marks(
    rows: pd.DataFrame, x: alt.X, row: str, mark: str, names: Sequence[str], *, labels: bool = True
) -> alt.Chart:
    """Draw each value as a mark. row, mark: columns of its row and of its name, which is one of `names`."""
    chart: alt.Chart = (
        alt.Chart(rows.dropna(), width=3 * _WIDTH, height=alt.Step(_ROW))
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=x,
            y=alt.Y(
                f"{row}:N",
                title=None,
                scale=alt.Scale(domain=list(dict.fromkeys(rows[row]))),
                axis=alt.Axis(grid=True, labelLimit=220, labels=labels, ticks=labels),
            ),
            color=alt.Color(
                f"{mark}:N",
                title=None,
                scale=alt.Scale(domain=list(names), range=list(SERIES[: len(names)])),
                legend=alt.Legend(orient="top"),
            ),
            shape=alt.Shape(f"{mark}:N", scale=alt.Scale(domain=list(names)), legend=None),
        )
    )
    return chart


def ratios(text: str) -> alt.LayerChart:
    """Draw ours divided by the source's, a row per experiment and condition, from a page of experiments."""
    frame = pd.DataFrame(_ratios(text))
    rows = list(dict.fromkeys(frame["experiment"]))
    x = alt.X(
        "ratio:Q",
        title="Ours divided by the source's; pale: within a factor of two",
        scale=alt.Scale(type="symlog", constant=0.5),
        axis=alt.Axis(values=[-5, -2, -1, 0, 0.5, 1, 2, 5, 10], format="~g"),
    )
    near = alt.Chart(pd.DataFrame({"ratio": [0.5], "most": [2.0]})).mark_rect(color=USAGE, opacity=0.15)
    same = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(color=USAGE, strokeDash=[4, 3])
    verdicts = [str(verdict) for verdict in _COLORS]
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=70, opacity=0.7)
        .encode(
            x=x,
            y=alt.Y("experiment:N", title=None, sort=rows, axis=alt.Axis(grid=True, labelLimit=220)),
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=verdicts, range=list(_COLORS.values())),
                legend=alt.Legend(orient="top"),
            ),
            shape=alt.Shape("verdict:N", scale=alt.Scale(domain=verdicts), legend=None),
        )
    )
    layers = [near.encode(x=x, x2="most:Q"), same.encode(x=x), points]
    chart: alt.LayerChart = alt.LayerChart(layer=layers, width=3 * _WIDTH, height=_ROW * len(rows))
    return chart


def _ratios(text: str) -> Iterator[dict[str, object]]:
    """Yield the figures that have a ratio: experiment with its condition, ratio, verdict."""
    titles = set(table_below(text, "## Summary").iloc[:, 0])
    for heading in re.findall(r"^## \S+: .*$", text, re.MULTILINE):
        title = heading.removeprefix("## ")
        for row in table_below(text, heading).to_dict("records"):
            known = [verdict for verdict in _COLORS if str(row.get("Verdict", "")).startswith(verdict)]
            if not known or row["Ratio"] == _ABSENT:
                continue
            condition = re.search(r" (\([^()]+\))$", row["Figure"])
            aside = f" {condition[1]}" if condition and f"{title} {condition[1]}" in titles else ""
            yield {
                "experiment": title.partition(":")[0] + aside,
                "ratio": float(_BOUND.sub("", row["Ratio"])),
                "verdict": str(known[0]),
            }


def fidelity(text: str) -> alt.ConcatChart:
    """Draw the twin over the testbed, a panel per quantity, from the page of the containers' fidelity."""
    frame = of_page(text).dropna(subset=["twin", "testbed"])
    frame["cell"] = frame["scenario"] + " " + frame["load"]
    panels = []
    for quantity in QUANTITIES:
        rows = frame[frame["quantity"] == quantity.title]
        if len(rows):
            unit = "share" if quantity.unit == "1" else quantity.unit
            panel = scatter(rows, quantity.title, unit, quantity.relative)
            panels.append(panel.properties(width=_WIDTH, height=_WIDTH))
    chart: alt.ConcatChart = alt.concat(*panels, columns=_COLUMNS)
    return chart
