"""Draws pictures of results pages from the tables that the pages print, so that both always agree.

For: pages whose tables are easier to read as a chart. Not for: figures that no page prints (lab.charts), nor
for laying out a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import altair as alt
import pandas as pd

from lab.charts.drawing import named
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


class NoRowsError(Exception):
    """A page has none of the rows that its picture draws, as when little was measured so far."""


def rows_below(text: str, heading: str) -> pd.DataFrame:
    """Return the first table below a heading of a Markdown page. Raises NoRowsError without one."""
    frame = table_below(text, heading)
    if frame.empty:
        raise NoRowsError(f"no table below {heading!r}")
    return frame


def _all_rows(tables: Sequence[pd.DataFrame], what: str) -> pd.DataFrame:
    """Return all rows of some tables. Raises NoRowsError when there are none; what: the tables' name."""
    if not any(map(len, tables)):
        raise NoRowsError(f"no table of {what}")
    return pd.concat(tables)


def table_below(text: str, heading: str) -> pd.DataFrame:
    """Return the first table below a heading of a Markdown page, its cells as text; empty without one."""
    section = re.split(r"\n#+ ", text.partition(f"\n{heading}\n")[2], maxsplit=1)[0]
    table = re.search(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    lines = table[0].splitlines() if table else []
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    return pd.DataFrame(cells[2:], columns=cells[0] if cells else None)


def _number(cells: pd.Series) -> pd.Series:
    """Return the first number of each cell, NaN without one. A bound counts as its value, A ± B as A."""
    plain = cells.astype(str).str.replace(",", "").str.replace("&lt;", "")
    return pd.to_numeric(plain.str.extract(r"(-?\d+(?:\.\d+)?)")[0])


def advice(text: str) -> alt.HConcatChart:
    """Draw the results of each candidate's advice, set by set, from the page of advice."""
    frame = rows_below(text, "## Histories that the first method had not seen")
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
    return alt.hconcat(*charts)


def market(text: str) -> alt.Chart:
    """Draw each policy's cost over the optimum, variant by variant, from the page of deadlines on spot."""
    frame = rows_below(text, "## Every variant")
    names = ["ours", "Uniform Progress", "greedy"]
    rows = frame.melt("variant", names, "policy", "value").astype({"value": float})
    x = alt.X("value:Q", title="Times the optimum", scale=alt.Scale(zero=False))
    return _marks(rows, x, "variant", "policy", names).properties(padding=_PADDING)


def schedulers(text: str) -> alt.LayerChart:
    """Draw ours divided by the source's, policy by policy, from the page of schedulers."""
    headings = {heading[3:5]: heading for heading in re.findall(r"^## H[1-57]: .*$", text, re.MULTILINE)}
    tables = [table_below(text, heading).assign(of=name) for name, heading in headings.items()]
    rows = _all_rows(tables, "H1 to H5 and H7").rename(columns={"ratio": "value"})
    rows = rows.assign(policy=rows["policy"].fillna("allox"))[["policy", "of", "value"]]
    rows["value"] = pd.to_numeric(rows["value"], errors="coerce")
    title = "Ours divided by the source's; pale: within 10 %"
    x = alt.X("value:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~g"))
    near = alt.Chart(pd.DataFrame({"value": [0.9], "most": [1.1]})).mark_rect(color=USAGE, opacity=0.25)
    marks = _marks(rows.dropna(), x, "policy", "of", list(headings))
    return (near.encode(x=x, x2="most:Q") + marks).properties(padding=_PADDING)


def against_goals(text: str) -> alt.LayerChart:
    """Draw each prediction's error divided by its goal, the worst of several, from the page of predictors."""
    frame = rows_below(text, "## Job performance on public measurements")
    goals = frame["goal"].str.extractall(r"(?P<what>median|p90|mean) ≤ (?P<most>[\d.]+)").reset_index()
    errors = frame[["median", "p90", "mean"]].apply(pd.to_numeric).abs().stack()
    places = pd.MultiIndex.from_frame(goals[["level_0", "what"]])
    ratio = errors.reindex(places).to_numpy() / goals["most"].astype(float)
    rows = pd.DataFrame(
        {
            "asked": frame["asked"].str.partition(":")[0].str.partition(" (")[0].str.partition(",")[0]
            + ", "
            + frame["data"].str.partition(",")[0],
            "verdict": frame["verdict"],
            "value": ratio.groupby(goals["level_0"]).max(),
        }
    ).dropna()
    x = alt.X("value:Q", title="Error divided by its goal; pale: reached")
    near = alt.Chart(pd.DataFrame({"value": [0.0], "most": [1.0]})).mark_rect(color=USAGE, opacity=0.15)
    marks = _marks(rows, x, "asked", "verdict", ["reached", "missed"])
    return (near.encode(x=x, x2="most:Q") + marks).properties(padding=_PADDING)


def detection(text: str) -> alt.Chart:
    """Draw the gaps at silent faults of each road and timer, from the page of detection."""
    tables = []
    for heading in re.findall(r"^## \S+ ms: gaps .*$", text, re.MULTILINE):
        timers = heading.removeprefix("## ").partition(":")[0]
        frame = table_below(text, heading)
        tables.append(frame.assign(row=frame["road"] + ", " + timers))
    names = ["median", "p99"]
    rows = _all_rows(tables, "gaps").melt("row", names, "gap", "value").astype({"value": float})
    return _logarithmic(rows, "Gap of the worst of 16 flows, ms", "gap", names)


def stall_runs(text: str) -> alt.Chart:
    """Draw the time of each run, measured and by the twin, from the page of stalls."""
    frame = rows_below(text, "## Runs")
    frame["row"] = frame["job"] + ", " + frame["run"]
    names = ["measured, s", "twin, s"]
    rows = frame.melt("row", names, "what", "value").astype({"value": float})
    return _logarithmic(rows, "Time of a run, s", "what", names)


def real_jobs(text: str) -> alt.Chart:
    """Draw the mean JCT of each cell, by the twin and real, from the page of the clusters' fidelity."""
    tables = []
    for title in ("Real processes", "Slurm decides", "Slurm runs"):
        frame = table_below(text, f"## {title}")
        if len(frame):
            load = frame["load"].str.removesuffix(".0")
            tables.append(frame.assign(row=title + ", " + frame["policy"] + ", load " + load))
    names = ["twin JCT (s)", "real JCT (s)"]
    rows = _all_rows(tables, "cells").melt("row", names, "what", "value").astype({"value": float})
    return _logarithmic(rows, "Mean JCT, s of the cluster", "what", names)


def failovers(text: str) -> alt.LayerChart:
    """Draw the twin's gaps over the testbed's, from the page of the fabric's fidelity."""
    frame = rows_below(text, "## The twin")
    names = list(dict.fromkeys(frame["Quantity"]))
    rows = pd.DataFrame(
        {
            "quantity": frame["Quantity"],
            "testbed": _number(frame["Testbed (ms)"]),
            "twin": _number(frame["Twin (ms)"]),
        }
    ).dropna()
    rows = _all_rows([rows[(rows["testbed"] > 0) & (rows["twin"] > 0)]], "gaps")
    both = rows[["testbed", "twin"]].to_numpy()
    ends = [0.8 * both.min(), 1.25 * both.max()]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    axis = alt.Axis(format=",~g")
    equal = alt.Chart(pd.DataFrame({"testbed": ends, "twin": ends})).mark_line(color=USAGE, strokeDash=[4, 3])
    points = (
        alt.Chart(rows, width=2 * _WIDTH, height=2 * _WIDTH)
        .mark_point(filled=True, size=50, opacity=0.7)
        .encode(
            x=alt.X("testbed:Q", title="Testbed, ms", scale=scale, axis=axis),
            y=alt.Y("twin:Q", title="Twin, ms", scale=scale, axis=axis),
            **_looks("quantity", names),
        )
    )
    return (equal.encode(x="testbed:Q", y="twin:Q") + points).properties(padding=_PADDING)


def goodput(text: str) -> alt.Chart:
    """Draw how far fitted step times miss the measured ones, from the page of goodput."""
    frame = rows_below(text, "## Step times")
    names = ["median", "mean error", "90th percentile"]
    rows = frame.melt("model", names, "error", "value")
    rows["value"] = _number(rows["value"])
    x = alt.X("value:Q", title="Error of a step's time, %")
    return _marks(rows, x, "model", "error", names).properties(padding=_PADDING)


def leavers(text: str) -> alt.Chart:
    """Draw the share of users who leave, from the page of shared clusters."""
    frame = rows_below(text, "## H10: who leaves")
    left = frame["users who leave"].str.extract(r"(\d+) of (\d+)").astype(float)
    frame["row"] = frame["data"] + ", " + frame["discount"] + " off, " + frame["price"]
    frame["value"], frame["load"] = 100 * left[0] / left[1], "load " + frame["load"]
    x = alt.X("value:Q", title="Users who leave, %")
    chart = _marks(frame[["row", "load", "value"]], x, "row", "load", list(dict.fromkeys(frame["load"])))
    # Most values are all or none, so marks are drawn beside each other and hide none.
    beside = chart.encode(yOffset="load:N").properties(height=alt.Step(_ROW, **{"for": "position"}))
    return beside.properties(padding=_PADDING)


def duel(text: str) -> alt.Chart:
    """Draw the p99 of each policy by application and host, from the page of CPU requests alone."""
    frame = rows_below(text, "## duel: Escra beside CPU requests without CPU limits").set_index("")
    rows = frame[frame.index.str.startswith("Latency p99")].rename_axis("policy").reset_index()
    rows["policy"] = rows["policy"].str.extract(r"^Latency p99, (.*) \(s\)$")[0]
    names = list(rows["policy"])
    rows = rows.melt("policy", var_name="row")
    rows["value"] = _number(rows["value"])
    return _logarithmic(rows, "Latency p99, s; above 1 s a lower bound", "policy", names)


def rules(text: str) -> alt.Chart:
    """Draw the result of each rule, from the page of Firm's training."""
    frame = rows_below(text, "# Firm: what its training is worth").rename(columns={"rule": "row"})
    names = ["SLO kept", "use/limit"]
    rows = frame.melt("row", names, "what", "value")
    rows["value"] = _number(rows["value"])
    return _marks(rows, alt.X("value:Q", title="%"), "row", "what", names).properties(padding=_PADDING)


def overhead(text: str) -> alt.Chart:
    """Draw what an empty or sleeping unit costs by engine and workers, from the page of sweeps."""
    frame = rows_below(text, "## What a unit costs")
    frame["row"] = frame["engine"] + ", " + frame["workers"] + " workers"
    frame["unit"] = "sleeps " + frame["sleep (s)"] + " s"
    rows = frame.rename(columns={"overhead per unit (ms)": "value"})[["row", "unit", "value"]]
    rows["value"] = _number(rows["value"])
    return _logarithmic(rows, "Overhead per unit, ms", "unit", list(dict.fromkeys(rows["unit"])))


def _logarithmic(rows: pd.DataFrame, title: str, mark: str, names: Sequence[str]) -> alt.Chart:
    """Draw the column `value` of each `row` on a logarithmic axis, a mark for each name."""
    scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(format=",~g"))
    return _marks(rows, x, "row", mark, names).properties(padding=_PADDING)


def _marks(
    rows: pd.DataFrame, x: alt.X, row: str, mark: str, names: Sequence[str], *, labels: bool = True
) -> alt.Chart:
    """Draw each value as a mark. row, mark: columns of its row and of its name, which is one of `names`."""
    return (
        alt.Chart(rows.dropna(), width=3 * _WIDTH, height=alt.Step(_ROW))
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=x,
            y=alt.Y(
                f"{row}:N",
                title=None,
                scale=alt.Scale(domain=list(dict.fromkeys(rows[row]))),
                axis=alt.Axis(grid=True, labelLimit=320, labels=labels, ticks=labels),
            ),
            **_looks(mark, names),
        )
    )


def _looks(
    field: str, names: Sequence[str], colors: Sequence[str] = SERIES
) -> dict[str, alt.Color | alt.Shape]:
    """Return the channels that give each of the names its colour and its shape."""
    shape = alt.Shape(f"{field}:N", scale=alt.Scale(domain=list(names)), legend=None)
    return {"color": named(field, dict(zip(names, cycle(colors), strict=False))), "shape": shape}


def ratios(text: str) -> alt.LayerChart:
    """Draw ours divided by the source's, a row per experiment and condition, from a page of experiments."""
    frame = _all_rows([pd.DataFrame(_ratios(text))], "ratios")
    rows = list(dict.fromkeys(frame["experiment"]))
    x = alt.X(
        "ratio:Q",
        title="Ours divided by the source's; pale: within a factor of two",
        scale=alt.Scale(type="symlog", constant=0.5),
        axis=alt.Axis(values=[-5, -2, -1, 0, 0.5, 1, 2, 5, 10], format="~g"),
    )
    near = alt.Chart(pd.DataFrame({"ratio": [0.5], "most": [2.0]})).mark_rect(color=USAGE, opacity=0.15)
    same = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(color=USAGE, strokeDash=[4, 3])
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=70, opacity=0.7)
        .encode(
            x=x,
            y=alt.Y("experiment:N", title=None, sort=rows, axis=alt.Axis(grid=True, labelLimit=220)),
            **_looks("verdict", list(map(str, _COLORS)), list(_COLORS.values())),
        )
    )
    layers = [near.encode(x=x, x2="most:Q"), same.encode(x=x), points]
    return alt.LayerChart(layer=layers, width=3 * _WIDTH, height=_ROW * len(rows))


def _ratios(text: str) -> Iterator[dict[str, object]]:
    """Yield the figures that have a ratio: experiment with its condition, ratio, verdict."""
    titles = set(rows_below(text, "## Summary").iloc[:, 0])
    for heading in re.findall(r"^## \S+: .*$", text, re.MULTILINE):
        title = heading.removeprefix("## ")
        for row in table_below(text, heading).to_dict("records"):
            known = [verdict for verdict in _COLORS if str(row.get("Verdict", "")).startswith(verdict)]
            # A table without a ratio has no column of them.
            if not known or row.get("Ratio", _ABSENT) == _ABSENT:
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
    frame = _all_rows([of_page(text)], "cells").dropna(subset=["twin", "testbed"])
    frame["cell"] = frame["scenario"] + " " + frame["load"]
    panels = []
    for quantity in QUANTITIES:
        rows = frame[frame["quantity"] == quantity.title]
        if len(rows):
            unit = "share" if quantity.unit == "1" else quantity.unit
            panel = scatter(rows, quantity.title, unit, quantity.relative)
            panels.append(panel.properties(width=_WIDTH, height=_WIDTH))
    return alt.concat(*panels, columns=_COLUMNS)


@dataclass(frozen=True, slots=True)
class Picture:
    """A page's picture. caption: what it shows. draw: the page's text → the chart."""

    caption: str
    draw: Callable[[str], alt.TopLevelMixin]


PICTURES = {
    "advice": Picture("What became of each candidate's advice, set by set", advice),
    "cloud": Picture("Errors of predictions against their goals", against_goals),
    "cluster": Picture("Every figure of ours beside the source's", schedulers),
    "detection": Picture("Gaps at silent faults by road and timers", detection),
    "fidelity-cluster": Picture("Mean JCT of the twin beside real jobs", real_jobs),
    "fidelity-containers": Picture("The twin over the testbed, a panel per quantity", fidelity),
    "fidelity-fabric": Picture("The twin's gaps over the testbed's", failovers),
    "firm-training": Picture("What each rule reached", rules),
    "goodput": Picture("Errors of fitted step times", goodput),
    "market": Picture("Cost of each policy over the optimum, variant by variant", market),
    "requests-only": Picture("Latency p99 of each policy by application and host", duel),
    "scale": Picture("What a unit costs by engine and workers", overhead),
    "sharing": Picture("Share of users who leave", leavers),
    "stalls": Picture("Time of each run, measured and by the twin", stall_runs),
}
"""Pages that open with a picture of a table of theirs. Pages of experiments have others, too."""
