"""A sweep as one HTML page: the table of means, charts, failures, and definitions of the figures.

For: `twinbed sweep --html`, and the charts of the explorer. Not for: drawing (lab.charts.sweep) nor the parts
of a page (lab.runs.page).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from markupsafe import Markup

from lab.ask.kind import Figure
from lab.charts import sweep as charts
from lab.runs.formats import grid
from lab.runs.metric import Metric, censored_key
from lab.runs.page import bullets, facts_list, figure, page, section, table
from lab.sweep.result import means, result
from lab.sweep.rules import unbeaten
from lab.sweep.sweep import Swept

MOST_DRAWN = 5_000
"""Most points under all policies of which charts are drawn. More are no picture, and Vega refuses them."""
NOT_DRAWN = f"Charts show at most {MOST_DRAWN:,} points; vary less to see some."


def document(swept: Swept, metrics: Sequence[Metric]) -> str:
    """Return the whole page as text."""
    scenario, shown = swept.plan.points[0].scenario, result(swept, metrics)
    notes = [*shown.notes, *([NOT_DRAWN] if len(shown.rows) > MOST_DRAWN else [])]
    title = f"Sweep of {scenario.title or scenario.name}"
    body = [
        Markup("<h1>{}</h1>").format(title),
        Markup('<p class="question">{}</p>').format(scenario.question) if scenario.question else Markup(),
        facts_list(shown.facts),
        section("Means over the seeds", table(*grid(shown))),
        *(
            section(heading, figure(drawn.title, drawn.caption, drawn.chart))
            for heading, drawn in figures(swept.frame, swept.plan.keys, metrics)
        ),
        section("Notes", bullets(notes, "notes")),
        section("What the figures mean", _definitions(metrics)),
    ]
    return page(title, body)


def _definitions(metrics: Sequence[Metric]) -> Markup:
    lines = [[metric.title, metric.unit, metric.definition] for metric in metrics]
    return table(["Figure", "Unit", "Definition"], [False] * 3, lines)


def figures(
    runs: pd.DataFrame, keys: Sequence[str], metrics: Sequence[Metric]
) -> Iterator[tuple[str, Figure]]:
    """Yield headings and charts: metrics over a key, heat maps, and the first two against each other; none
    for more than MOST_DRAWN points.

    runs: rows of Swept.frame. keys: the keys that vary.
    """
    frame = means(runs, keys, metrics)
    if frame.empty or len(frame) > MOST_DRAWN:
        return
    varying = [key for key in keys if frame[key].nunique() > 1]
    numeric = [key for key in varying if frame[key].dtype.kind in "if"]
    for metric in metrics:
        title = metric.heading
        flag = censored_key(metric.key)
        bounds = " Some are lower bounds, without an interval." if flag in frame and frame[flag].any() else ""
        for key in (numeric or varying)[:1]:
            others = [name for name in varying if name != key]
            half = frame[f"{metric.key}_ci95"].fillna(0.0)
            looks = frame.assign(
                line=_labels(frame, [*others, "policy"]),
                low=frame[metric.key] - half,
                high=frame[metric.key] + half,
            )
            looks = looks[[key, metric.key, "line", "low", "high"]]
            drawn = (
                charts.lines(looks, key, metric.key, title)
                if numeric
                else charts.points(looks, key, metric.key, (key, title))
            )
            caption = f"Means over the seeds, and their 95 % intervals.{bounds}"
            yield f"{metric.title} over {key}", Figure(title, caption, drawn)
        if len(varying) == 2:
            for policy, part in frame.groupby("policy", sort=False):
                map_ = charts.heat(part[[*varying, metric.key]], varying[0], varying[1], metric.key, title)
                yield f"{metric.title}: {policy}", Figure(title, f"Means over the seeds.{bounds}", map_)
    judged = [metric for metric in metrics if metric.better != "neither"][:2]
    if len(judged) == 2:
        yield _front(frame, varying, *judged)


def _front(frame: pd.DataFrame, varying: Sequence[str], one: Metric, two: Metric) -> tuple[str, Figure]:
    costs = pd.DataFrame(index=frame.index)
    for metric in (one, two):
        costs[metric.key] = frame[metric.key] * (1.0 if metric.better == "lower" else -1.0)
        if (flag := censored_key(metric.key)) in frame:
            # What is at least so much may be much more.
            costs.loc[frame[flag].to_numpy(bool), metric.key] = float("nan")
    looks = frame.assign(line=frame["policy"], label=_labels(frame, [*varying, "policy"]))
    looks["best"] = unbeaten(costs.to_numpy(float))
    titles = one.heading, two.heading
    drawn = charts.pareto(looks[[one.key, two.key, "line", "label", "best"]], one.key, two.key, titles)
    caption = (
        "Every point by two figures. No point beats those on the line in both; lower bounds are not on it."
    )
    return "Trade-off between the two figures", Figure("Pareto front", caption, drawn)


def _labels(frame: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    # All dotted keys begin with the kind of question, which a chart's title can leave out.
    texts = [
        ("" if key == "policy" else f"{key.partition('.')[2] or key}=") + frame[key].astype(str)
        for key in keys
    ]
    return pd.concat(texts, axis=1).agg(" ".join, axis=1)
