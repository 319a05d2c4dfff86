"""Evaluations as tables, charts and one HTML page: our figures compared with the source's.

For: the results pages and `python -m studies E2`. Not for: computing or judging figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd
from markupsafe import Markup

from lab.runs import page as html
from lab.runs.formats import Column, Record, Result, Value, grid
from studies.experiments.evaluate import Evaluation, Moved, SeedMean, groups
from studies.experiments.model import Figure, high_end
from studies.judge import RULE
from studies.reference_figures import ReferenceFigure, source

_INTERVALS = (
    "A ± B: the mean over the seeds, and half of its 95 % confidence interval (Student's t). > A, A to B: "
    "requests that were never answered count, and leave a lower bound or an interval."
)
_JUDGED = (
    Column("experiment", "Experiment"),
    Column("figure", "Figure"),
    Column("unit", "Unit"),
    Column("ours", "Ours", spread="ours_ci95", digits="decimals", censored="ours_censored", upto="ours_high"),
    Column("source", "Source"),
    Column("ratio", "Ratio", decimals=2),
    Column("verdict", "Verdict"),
)
_PANELS_A_ROW, _WIDTH, _HEIGHT = 2, 300, 130
_COLOR = "#1A7FC4"
"""Escra's colour in every chart."""


def result(evaluation: Evaluation) -> Result:
    """Return one line per figure, or conditions side by side if the source has none of the figures."""
    return judged([evaluation]) if has_source(evaluation) else side_by_side(evaluation)


def judged(evaluations: Sequence[Evaluation]) -> Result:
    """Return one line per figure: ours with its interval, the source's, their ratio, the verdict."""
    rows = tuple(_row(evaluation, measured) for evaluation in evaluations for measured in evaluation.measured)
    notes = [f"{item.experiment.name}: {verdicts(item)}." for item in evaluations if has_source(item)]
    notes += [_INTERVALS]
    for evaluation in evaluations:
        notes += [evaluation.experiment.method, *evaluation.experiment.discussion]
    return Result(
        _JUDGED if len(evaluations) > 1 else _JUDGED[1:], rows, _facts(evaluations), RULE, tuple(notes)
    )


def side_by_side(evaluation: Evaluation) -> Result:
    """Return one column per policy or condition and one line per quantity."""
    columns: dict[str, Column] = {}
    rows: list[Record] = []
    for aside, column in groups(evaluation):
        row: dict[str, Value] = {"aside": aside}
        for measured in column:
            figure = measured.figure
            key = figure.quantity
            columns[key] = _column(key, figure, spread=f"{key}_ci95")
            row |= _ends(key, measured.mean, measured.high) | {f"{key}_ci95": measured.ci95}
        rows.append(row)
    notes = (_INTERVALS, evaluation.experiment.method, *evaluation.experiment.discussion)
    heads = (Column("aside", "Condition"), *columns.values())
    return Result(heads, tuple(rows), _facts([evaluation]), notes=notes, aside="aside")


def moved(evaluation: Evaluation, moves: Sequence[Moved]) -> Result:
    """Return how each figure moves under each changed assumption, the source's and the declared one first."""
    defined = {key for move in moves for key, value in move.values.items() if not math.isnan(value)}
    shown = [
        measured
        for measured in evaluation.measured
        if not measured.figure.detail and measured.figure.key in defined
    ]
    columns = [
        _column(item.figure.key, item.figure, title=_title(item.figure) if has_source(evaluation) else "")
        for item in shown
    ]
    rows: list[Record] = [
        {"change": move.title}
        | {
            name: end
            for key, value in move.values.items()
            for name, end in _ends(key, value, high_end(value)).items()
        }
        for move in moves
    ]
    if has_source(evaluation):
        known = {item.figure.key: item.reference for item in shown if item.reference}
        numbers = {key: reference.high for key, reference in known.items() if reference.kind != "sign"}
        rows.insert(0, {"change": "source", **numbers})
    experiment = evaluation.experiment
    part = ", ".join(key.removeprefix("vary.") for key in experiment.sensitivity_part)
    note = (
        "One assumption is changed at a time; all others stay as declared. These runs have seed "
        f"{', '.join(map(str, experiment.sensitivity_seeds))} only, so there are no intervals"
        f"{f'; they cover {part}' if part else ''}."
    )
    return Result((Column("change", "Change"), *columns), tuple(rows), notes=(note,), aside="change")


def verdicts(evaluation: Evaluation) -> str:
    """Return how many figures got which verdict, as text."""
    counts = Counter(item.judgement.verdict for item in evaluation.measured if item.judgement)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items(), reverse=True))


def has_source(evaluation: Evaluation) -> bool:
    """Return whether the source has any of the figures."""
    return any(measured.reference for measured in evaluation.measured)


def source_text(reference: ReferenceFigure | None) -> str:
    """Return the source's figure as text for people."""
    if reference is None:
        return "–"
    if reference.kind == "sign":
        return "> 0" if reference.low > 0 else "< 0"
    if reference.kind == "at_most":
        return f"≤ {reference.high:,g}"
    text = "–".join(f"{end:,g}" for end in dict.fromkeys((reference.low, reference.high)))
    return text if reference.also is None else f"{text} or {reference.also:,g}"


def _row(evaluation: Evaluation, measured: SeedMean) -> Record:
    figure, judgement = measured.figure, measured.judgement
    return {
        "experiment": evaluation.experiment.name,
        "figure": _title(figure),
        "unit": "" if figure.unit == "1" else figure.unit,
        **_ends("ours", measured.mean, measured.high),
        "ours_ci95": measured.ci95,
        "decimals": figure.decimals,
        "source": source_text(measured.reference),
        "ratio": judgement.ratio if judgement else None,
        "verdict": _verdict(measured),
    }


def _column(key: str, figure: Figure, *, spread: str = "", title: str = "") -> Column:
    """Return the column of a figure that may be an interval. title: replaces the figure's own."""
    return Column(
        key,
        title or figure.title,
        figure.unit,
        figure.decimals,
        spread=spread,
        censored=f"{key}_censored",
        upto=f"{key}_high",
    )


def _ends(key: str, low: float, high: float) -> dict[str, Value]:
    """Return a figure under its key: whether it is a lower bound, and the upper end of an interval."""
    between = low != high and math.isfinite(high)
    return {key: float(low), f"{key}_censored": high == math.inf, f"{key}_high": high if between else None}


def _title(figure: Figure) -> str:
    return f"{figure.title} ({figure.aside})" if figure.aside else figure.title


def _verdict(measured: SeedMean) -> str:
    """Return the verdict, with that by the source's other printing."""
    if measured.judgement is None or measured.reference is None:
        return "–"
    if measured.by_other is None:
        return str(measured.judgement.verdict)
    return f"{measured.judgement.verdict}; by the other printing {measured.by_other.verdict}"


def _facts(evaluations: Sequence[Evaluation]) -> Record:
    return {item.experiment.name: f"{item.experiment.title}: {item.basis}" for item in evaluations}


def document(evaluation: Evaluation, moves: Sequence[Moved] = ()) -> str:
    """Return the experiment as one HTML page: figures, notes, chart, sensitivity, runs."""
    experiment = evaluation.experiment
    figures = result(evaluation)
    parts = [
        Markup('<h1>{}</h1><p class="question">Compared with: {}</p>').format(
            experiment.name, source(experiment.name)
        ),
        html.section(
            f"{experiment.name}: {experiment.title}", html.facts_list(figures.facts) + _table(figures)
        ),
        html.bullets(figures.notes, "notes"),
    ]
    if experiment.curve:
        chart = curves(evaluation)
        parts.append(html.figure(experiment.title, "Means with their 95 % intervals.", chart))
    if moves:
        tried = moved(evaluation, moves)
        parts.append(
            html.section(
                f"{experiment.name}: what it depends on", _table(tried) + html.bullets(tried.notes, "notes")
            )
        )
    if evaluation.cases:
        ids = ", ".join(sorted(case.run.id for case in evaluation.cases))
        parts.append(html.section(f"{experiment.name}: runs", Markup("<p><code>{}</code></p>").format(ids)))
    return html.page(experiment.name, parts)


def _table(shown: Result) -> Markup:
    legend = Markup('<p class="legend">{}</p>').format(shown.legend) if shown.legend else Markup()
    return html.table(*grid(shown)) + legend


def curves(evaluation: Evaluation) -> alt.TopLevelMixin:
    """Return one panel per quantity: mean and 95 % interval over the conditions, in their order."""
    frame = pd.DataFrame(_points(evaluation))
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


def _points(evaluation: Evaluation) -> Iterator[dict[str, str | float]]:
    for aside, column in groups(evaluation):
        for measured in column:
            title = f"{measured.figure.title} ({measured.figure.unit})".removesuffix(" (1)")
            low, high = measured.mean - measured.ci95, measured.mean + measured.ci95
            if measured.high != measured.mean:
                low, high = measured.mean, measured.high if math.isfinite(measured.high) else measured.mean
            yield {"aside": aside, "title": title, "mean": measured.mean, "low": low, "high": high}


def _panel(frame: pd.DataFrame, title: str, order: list[str], axis: str) -> alt.LayerChart:
    base = alt.Chart(frame).encode(
        x=alt.X("aside:O", title=axis, sort=order, scale=alt.Scale(type="point"), axis=alt.Axis(labelAngle=0))
    )
    mean, low = alt.Y("mean:Q", title=None, scale=alt.Scale(zero=True)), alt.Y("low:Q", title=None)
    layers = [
        base.mark_rule(color=_COLOR, strokeWidth=2, opacity=0.5).encode(y=low, y2="high:Q"),
        base.mark_line(color=_COLOR, strokeWidth=1.5).encode(y=mean),
        base.mark_point(color=_COLOR, filled=True, size=36).encode(y=mean),
    ]
    heading = alt.Title(title, anchor="start", fontWeight="normal")
    return alt.LayerChart(layer=layers, width=_WIDTH, height=_HEIGHT, title=heading)
