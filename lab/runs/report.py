"""Runs as one HTML page that explains itself: comparison, charts, notes, parameters, where it all comes from.

For: `twinbed report` and the explorer's download. Not for: the figures (lab.runs.compare) or a page to click
through (the explorer). The page needs no network, runs no script, and prints well: charts are drawn by
Vega here and stand in it as images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lab.charts import report as report_charts
from lab.containers.metrics import METRICS
from lab.runs.compare import as_result, facts, notes_of, remarks
from lab.runs.formats import grid
from lab.runs.labels import conditions, labels
from lab.runs.page import bullets, facts_list, figure, page, section, table
from lab.runs.store import Run
from twinbed import StoreError


def document(runs: Sequence[Run]) -> str:
    """The whole page as text. The same runs give the same page.

    Raises StoreError for no runs, a run given twice, runs of fabrics, or tables that cannot be read.
    """
    result = as_result(runs)
    if runs[0].of_fabric:
        raise StoreError(f"run {runs[0].id} is of a fabric, which has no report; compare shows its figures")
    head = runs[0].manifest
    names = list(dict.fromkeys(str(run.manifest["name"]) for run in runs))
    title = head["title"] if head["title"] and len(names) == 1 else ", ".join(names)
    question = f'<p class="question">{escape(head["question"])}</p>' if head["question"] else ""
    body = [
        f"<h1>{escape(title)}</h1>{question}",
        facts_list(facts(runs)),
        section("Comparison", table(*grid(result)) + f'<p class="legend">{escape(result.legend)}</p>'),
        section("Mind when reading", bullets(remarks(runs), "remarks")) if remarks(runs) else "",
        *(
            section(each.title, figure(each.title, each.caption, each.chart))
            for each in report_charts.all_charts(_one_per_label(runs))
        ),
        section("What was done to the data, and the price", bullets(notes_of(runs), "notes")),
        section("Parameters of the policies", _policies(runs)),
        section("Conditions", _conditions(runs)),
        section("The machine that was imitated", _calibration(head["calibration"])),
        section("What the figures mean", _definitions()),
        section("Runs", _runs(runs)),
    ]
    return page(title, body)


def _one_per_label(runs: Sequence[Run]) -> list[Run]:
    """The first seed of each policy and its conditions: what a chart over time can show."""
    first = {label: run for run, label in reversed(list(zip(runs, labels(runs), strict=True)))}
    return [first[label] for label in dict.fromkeys(labels(runs))]


def _policies(runs: Sequence[Run]) -> str:
    from control.allocator import POLICIES

    lines = []
    for run in {run.policy: run for run in runs}.values():
        policy = run.manifest["spec"]["policy"]
        settings, _ = POLICIES[policy["name"]]
        for key, value in policy["parameters"].items():
            about = settings.__dataclass_fields__[key].metadata
            lines.append([run.policy, key, _value(value), about["unit"], about["why"]])
    return table(["Policy", "Parameter", "Value", "Unit", "Why this default"], [False] * 5, lines)


def _conditions(runs: Sequence[Run]) -> str:
    """Every condition; one column where all runs agree, else one per distinct set of conditions."""
    sets = list({tuple(each.items()): each for each in (conditions(run) for run in runs)}.values())
    keys = dict.fromkeys(key for each in sets for key in each)
    lines = [[key, *(each.get(key, "") for each in sets)] for key in keys]
    return table(
        ["Key", *(f"Value {i + 1}" if len(sets) > 1 else "Value" for i in range(len(sets)))],
        [False] * (len(sets) + 1),
        lines,
    )


def _calibration(calibration: Mapping[str, Any]) -> str:
    head = f"{calibration['name']}, {calibration['date']}: {calibration['kernel']}; {calibration['cpu']}"
    lines = [
        [key, f"{each['value']:g}", each["unit"], each["source"]]
        for key, each in calibration["values"].items()
    ]
    return f"<p>{escape(head)}</p>" + table(["Parameter", "Value", "Unit", "Source"], [False] * 4, lines)


def _definitions() -> str:
    lines = [[metric.title, metric.unit, metric.definition] for metric in METRICS]
    return table(["Figure", "Unit", "Definition"], [False] * 3, lines)


def _runs(runs: Sequence[Run]) -> str:
    lines = [
        [
            run.id,
            run.policy,
            str(run.seed),
            ", ".join(f"{each['role']} {each['source']}" for each in run.manifest["inputs"]),
            ", ".join(each["sha256"][:16] for each in run.manifest["inputs"]),
            str(run.manifest["created_at"]),
            str(run.manifest["versions"]["twinbed"]),
        ]
        for run in runs
    ]
    return table(["Run", "Policy", "Seed", "Inputs", "SHA-256", "Made", "twinbed"], [False] * 7, lines)


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
