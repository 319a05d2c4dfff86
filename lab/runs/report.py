"""Runs as one HTML page: comparison, charts, notes, parameters, conditions, and the sources of the inputs.

For: `twinbed report` and the explorer's download. Not for: the figures (lab.runs.compare), the charts
(lab.kinds) or interactive pages (lab.explorer). The page needs no network, runs no script and can be printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from control.allocator import POLICIES
from lab.charts import words
from lab.runs.compare import as_result, kind_of
from lab.runs.formats import Result, grid
from lab.runs.labels import conditions, labels
from lab.runs.page import bullets, facts_list, figure, page, section, table
from lab.runs.store import Run


def document(runs: Sequence[Run]) -> str:
    """Return the whole page as text. The same runs give the same page.

    Raises StoreError for no runs, a run that is given twice, runs of several kinds, and tables that cannot
    be read.
    """
    kind, result, head = kind_of(runs), as_result(runs), runs[0].manifest
    names = list(dict.fromkeys(str(run.manifest["name"]) for run in runs))
    title = head["title"] if head["title"] and len(names) == 1 else ", ".join(names)
    legend = Markup('<p class="legend">{}</p>').format(result.legend) if result.legend else Markup()
    remarks, notes, parameters = kind.remarks(runs), kind.notes(runs), _parameters(runs)
    drawn = _one_per_label(runs)
    body = [
        Markup("<h1>{}</h1>").format(title),
        Markup('<p class="question">{}</p>').format(head["question"]) if head["question"] else Markup(),
        facts_list(kind.facts(runs)),
        section("Comparison", table(*grid(_readable(result))) + legend),
        section("Before you trust the table", bullets(remarks, "remarks")) if remarks else Markup(),
        _drawn(drawn, runs),
        *(
            section(chart.title, figure(chart.title, chart.caption, chart.chart))
            for chart in kind.charts(drawn)
        ),
        section("Assumptions, data and price", bullets(notes, "notes")) if notes else Markup(),
        section("Parameters of the policies", parameters) if parameters else Markup(),
        section("Conditions", _conditions(runs)),
        section("Calibration of the twin", _calibration(head["calibration"])),
        section("What the figures mean", _definitions(runs)),
        section("Runs", _runs(runs)),
    ]
    return page(title, body)


def _readable(result: Result) -> Result:
    """Return the comparison with durations in units that people read, one unit for each row of the table."""
    columns, rows = [], [dict(row) for row in result.rows]
    for column in result.columns:
        known = [abs(value) for row in rows if isinstance(value := row.get(column.key), float)]
        size, name, decimals = 1.0, column.unit, column.decimals
        if column.unit == "s" and decimals is not None:
            size, name, decimals = words.in_rows(max(filter(math.isfinite, known), default=0.0), decimals)
        columns.append(replace(column, unit=name, decimals=decimals))
        for row in rows:
            row |= {
                key: value / size
                for key in (column.key, column.spread)
                if size != 1.0 and isinstance(value := row.get(key), float)
            }
    return replace(result, columns=tuple(columns), rows=tuple(rows))


def _one_per_label(runs: Sequence[Run]) -> list[Run]:
    """Return one run of each policy and its conditions, for charts over time: that of the lowest seed which
    all have, because runs of one seed have met the same."""
    groups: dict[str, list[Run]] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(run)
    common = set.intersection(*({run.seed for run in group} for group in groups.values()))
    return [min(group, key=lambda run: (run.seed not in common, run.seed)) for group in groups.values()]


def _drawn(drawn: Sequence[Run], runs: Sequence[Run]) -> Markup:
    """Return which runs the charts leave out."""
    if len(drawn) == len(runs):
        return Markup()
    seeds = sorted({run.seed for run in drawn})
    which = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    text = "The charts are of {} of the {} runs, of {} alone. The comparison is of all."
    return Markup('<p class="legend">' + text + "</p>").format(len(drawn), len(runs), which)


def _parameters(runs: Sequence[Run]) -> Markup:
    lines = []
    for run in {run.policy: run for run in runs}.values():
        policy = run.manifest["spec"]["policy"]
        for key, value in policy["parameters"].items():
            # A user's own policy may depend on more than the parameters in this table.
            fields = {} if "code_sha256" in policy else POLICIES[policy["name"]][0].__dataclass_fields__
            about = fields[key].metadata if key in fields else {"unit": "", "why": ""}
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append([run.policy, key, text, about["unit"], about["why"]])
    return _texts(["Policy", "Parameter", "Value", "Unit", "Reason"], lines) if lines else Markup()


def _conditions(runs: Sequence[Run]) -> Markup:
    """Return every condition, with one column per distinct set of conditions."""
    sets = list({tuple(table.items()): table for table in map(conditions, runs)}.values())
    keys = [key for key in dict.fromkeys(key for table in sets for key in table) if _is_set(key, sets)]
    header = [f"Value {number}" for number in range(1, len(sets) + 1)] if len(sets) > 1 else ["Value"]
    return _texts(["Key", *header], [[key, *(table.get(key, "") for table in sets)] for key in keys])


def _is_set(key: str, sets: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a run states this condition: null stands for a key that its question does not have."""
    return any(table.get(key, "null") != "null" for table in sets)


def _calibration(calibration: Mapping[str, Any]) -> Markup:
    lines = [
        [key, f"{value['value']:g}", value["unit"], value["source"]]
        for key, value in calibration["values"].items()
    ]
    machine = Markup("<p>{name}, {date}: {kernel}; {cpu}</p>").format(**calibration)
    return machine + _texts(["Parameter", "Value", "Unit", "Source"], lines)


def _definitions(runs: Sequence[Run]) -> Markup:
    lines = [[metric.title, metric.unit, metric.definition] for metric in runs[0].kind.metrics()]
    return _texts(["Figure", "Unit", "Definition"], lines)


def _runs(runs: Sequence[Run]) -> Markup:
    lines = [
        [
            run.id,
            run.policy,
            str(run.seed),
            ", ".join(f"{source['role']} {source['source']}" for source in run.manifest["inputs"]),
            ", ".join(source["sha256"][:16] for source in run.manifest["inputs"]),
            str(run.manifest["created_at"]),
            str(run.manifest["versions"]["twinbed"]),
        ]
        for run in runs
    ]
    return _texts(["Run", "Policy", "Seed", "Inputs", "SHA-256", "Made", "twinbed"], lines)


def _texts(header: Sequence[str], lines: Sequence[Sequence[str]]) -> Markup:
    """Return a table without figures."""
    return table(header, [False] * len(header), lines)
