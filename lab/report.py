"""Runs as one HTML page that explains itself: comparison, charts, notes, parameters, where it all comes from.

For: `twinbed report` and the explorer's download. Not for: the figures (lab.compare) or a page to click
through (the explorer). The page needs no network, runs no script, and prints well: charts are drawn by
Vega here and stand in it as images.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import vl_convert

from lab.charts import report as report_charts
from lab.compare import LEGEND, as_result, conditions, facts, labels, notes_of, remarks
from lab.formats import grid, shown
from lab.metrics import METRICS
from lab.store import Run

_CLIP = re.compile(r'(id="clip|url\(#clip)(\d+)')

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 62rem;
  margin: 2rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.6rem; }
.question, .legend, figcaption { color: #57606a; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1.2rem; }
dl.facts dt { color: #57606a; }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.28rem 0.9rem 0.28rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid #8c959f; }
td { border-bottom: 1px solid #e5e8eb; overflow-wrap: break-word; max-width: 34rem; }
.right { text-align: right; white-space: nowrap; }
th.right { white-space: normal; }
ul.remarks { background: #fff8e5; border-left: 4px solid #e69f00; padding: 0.6rem 0.9rem 0.6rem 2rem; }
figure { margin: 1rem 0 1.6rem; }
figure img { max-width: 100%; height: auto; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; } h2, figure { break-inside: avoid; } }
"""


def document(runs: Sequence[Run]) -> str:
    """The whole page as text. The same runs give the same page.

    Raises StoreError for no runs, a run given twice, or tables that cannot be read.
    """
    result = as_result(runs)
    head = runs[0].manifest
    names = list(dict.fromkeys(str(run.manifest["name"]) for run in runs))
    title = head["title"] if head["title"] and len(names) == 1 else ", ".join(names)
    question = f'<p class="question">{escape(head["question"])}</p>' if head["question"] else ""
    body = [
        f"<h1>{escape(title)}</h1>{question}",
        _facts(facts(runs)),
        _section("Comparison", _table(*grid(result)) + f'<p class="legend">{escape(LEGEND)}</p>'),
        _section("Mind when reading", _list(remarks(runs), "remarks")) if remarks(runs) else "",
        *(_section(each.title, _figure(each)) for each in report_charts.all_charts(_one_per_label(runs))),
        _section("What was done to the data, and the price", _list(notes_of(runs), "notes")),
        _section("Parameters of the policies", _policies(runs)),
        _section("Conditions", _conditions(runs)),
        _section("The machine that was imitated", _calibration(head["calibration"])),
        _section("What the figures mean", _definitions()),
        _section("Runs", _runs(runs)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Names in it come from files that others wrote; nothing may load or run whatever they hold.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(title)} — twinbed report</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _one_per_label(runs: Sequence[Run]) -> list[Run]:
    """The first seed of each policy and its conditions: what a chart over time can show."""
    first = {label: run for run, label in reversed(list(zip(runs, labels(runs), strict=True)))}
    return [first[label] for label in dict.fromkeys(labels(runs))]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _facts(values: Mapping[str, Any]) -> str:
    pairs = (f"<dt>{escape(key)}</dt><dd>{escape(shown(value))}</dd>" for key, value in values.items())
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def _list(texts: Iterable[str], kind: str) -> str:
    return f'<ul class="{kind}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def _table(header: Sequence[str], right: Sequence[bool], lines: Iterable[Sequence[str]]) -> str:
    kinds = [' class="right"' if each else "" for each in right]

    def line(tag: str, cells: Sequence[str]) -> str:
        inside = (f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    rows = "".join(line("td", each) for each in lines)
    return (
        f'<div class="scroll"><table><thead>{line("th", header)}</thead><tbody>{rows}</tbody></table></div>'
    )


def _figure(figure: report_charts.Figure) -> str:
    svg = vl_convert.vegalite_to_svg(figure.chart.to_json(), allowed_base_urls=[])
    data = base64.b64encode(_renumbered(svg).encode()).decode()
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{escape(figure.title)}">'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _renumbered(svg: str) -> str:
    """Vega numbers clipping paths on and on over all charts of a process; here each chart starts at 0."""
    numbers: dict[str, int] = {}
    return _CLIP.sub(lambda found: f"{found[1]}{numbers.setdefault(found[2], len(numbers))}", svg)


def _policies(runs: Sequence[Run]) -> str:
    from control.allocator import POLICIES

    lines = []
    for run in {run.policy: run for run in runs}.values():
        policy = run.manifest["spec"]["policy"]
        settings, _ = POLICIES[policy["name"]]
        for key, value in policy["parameters"].items():
            about = settings.__dataclass_fields__[key].metadata
            lines.append([run.policy, key, _value(value), about["unit"], about["why"]])
    return _table(["Policy", "Parameter", "Value", "Unit", "Why this default"], [False] * 5, lines)


def _conditions(runs: Sequence[Run]) -> str:
    """Every condition; one column where all runs agree, else one per distinct set of conditions."""
    sets = list({tuple(each.items()): each for each in (conditions(run) for run in runs)}.values())
    keys = dict.fromkeys(key for each in sets for key in each)
    lines = [[key, *(each.get(key, "") for each in sets)] for key in keys]
    return _table(
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
    return f"<p>{escape(head)}</p>" + _table(["Parameter", "Value", "Unit", "Source"], [False] * 4, lines)


def _definitions() -> str:
    lines = [[metric.title, metric.unit, metric.definition] for metric in METRICS]
    return _table(["Figure", "Unit", "Definition"], [False] * 3, lines)


def _runs(runs: Sequence[Run]) -> str:
    lines = [
        [
            run.id,
            run.policy,
            str(run.seed),
            str(run.manifest["inputs"][0]["source"]),
            str(run.manifest["inputs"][0]["sha256"])[:16],
            str(run.manifest["created_at"]),
            str(run.manifest["versions"]["twinbed"]),
        ]
        for run in runs
    ]
    return _table(["Run", "Policy", "Seed", "Trace", "SHA-256", "Made", "twinbed"], [False] * 7, lines)


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
