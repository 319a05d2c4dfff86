"""Evaluations as results to be written: our figures beside the source's, side by side, and moved.

For: `twinbed report --experiment` and the results page. Not for: computing or judging figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from lab.runs.formats import Column, Record, Result
from studies.experiments.evaluate import Evaluation, Measured, groups
from studies.experiments.sensitivity import Moved
from studies.experiments.verdict import RULE
from studies.reference_figures import ReferenceFigure

_INTERVALS = "A ± B: mean over the seeds, and half its 95 % confidence interval (Student's t)."

_JUDGED = (
    Column("experiment", "Experiment"),
    Column("figure", "Figure"),
    Column("unit", "Unit"),
    Column("ours", "Ours", spread="ours_ci95", digits="decimals"),
    Column("source", "Source"),
    Column("ratio", "Ratio", decimals=2),
    Column("verdict", "Verdict"),
)


def result(evaluations: Sequence[Evaluation]) -> Result:
    """One experiment that compares with no source: side by side; anything else: one line per figure."""
    if len(evaluations) == 1 and not _references(evaluations[0]):
        return side_by_side(evaluations[0])
    return judged(evaluations)


def judged(evaluations: Sequence[Evaluation]) -> Result:
    """One line per figure: ours with its interval, the source's, their ratio, the verdict."""
    rows = tuple(_row(each, evaluation) for evaluation in evaluations for each in evaluation.measured)
    notes = [f"{each.experiment.name}: {verdicts(each)}." for each in evaluations if _references(each)]
    notes += [_INTERVALS]
    for each in evaluations:
        prefix = f"{each.experiment.name}: " if len(evaluations) > 1 else ""
        notes += [prefix + text for text in (each.experiment.method, *each.experiment.discussion)]
    columns = _JUDGED if len(evaluations) > 1 else _JUDGED[1:]
    return Result(columns, rows, _facts(evaluations), RULE, tuple(notes))


def side_by_side(evaluation: Evaluation) -> Result:
    """One column per policy or condition, one line per quantity, for what has no figures in the source."""
    columns: dict[str, Column] = {}
    rows: list[Record] = []
    for aside, found in groups(evaluation):
        row: dict[str, str | float] = {"aside": aside}
        for each in found:
            key = _quantity(each)
            columns[key] = Column(
                key, each.figure.title, each.figure.unit, each.figure.decimals, spread=f"{key}_ci95"
            )
            row |= {key: each.mean, f"{key}_ci95": each.ci95}
        rows.append(row)
    experiment = evaluation.experiment
    return Result(
        (Column("aside", "Condition"), *columns.values()),
        tuple(rows),
        _facts([evaluation]),
        notes=(_INTERVALS, experiment.method, *experiment.discussion),
        aside="aside",
    )


def moved(evaluation: Evaluation, changes: Sequence[Moved]) -> Result:
    """How each figure moves when one assumption is changed: a line per figure, the declared ones first."""
    defined = {key for each in changes for key, value in each.values.items() if not math.isnan(value)}
    shown = [each for each in evaluation.measured if not each.figure.detail and each.figure.key in defined]
    columns = tuple(
        Column(each.figure.key, each.figure.title, each.figure.unit, each.figure.decimals) for each in shown
    )
    rows: list[Record] = [{"change": each.title, **each.values} for each in changes]
    if _references(evaluation):
        rows.insert(0, {"change": "source", **_numbers(shown)})
    seeds = ", ".join(map(str, evaluation.experiment.sensitivity_seeds))
    part = ", ".join(each.removeprefix("vary.") for each in evaluation.experiment.sensitivity_part)
    note = (
        f"One assumption changed at a time, all else as declared; seed {seeds} only, no intervals"
        f"{f'; tried on {part}' if part else ''}."
    )
    return Result((Column("change", "Change"), *columns), tuple(rows), notes=(note,), aside="change")


def _numbers(shown: Sequence[Measured]) -> dict[str, float]:
    """The source's figures that are numbers, by key."""
    known = {each.figure.key: each.reference for each in shown if each.reference}
    return {key: each.high for key, each in known.items() if each.kind != "sign"}


def verdicts(evaluation: Evaluation) -> str:
    """How many figures got which verdict, as text."""
    found = Counter(each.judgement.verdict for each in evaluation.measured if each.judgement)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items(), reverse=True))


def source_text(reference: ReferenceFigure | None) -> str:
    """The source's figure as people read it."""
    if reference is None:
        return "–"
    if reference.kind == "sign":
        return "> 0" if reference.low > 0 else "< 0"
    if reference.kind == "at_most":
        return f"≤ {reference.high:,g}"
    return "–".join(f"{each:,g}" for each in dict.fromkeys((reference.low, reference.high)))


def _row(each: Measured, evaluation: Evaluation) -> Record:
    figure, judgement = each.figure, each.judgement
    return {
        "experiment": evaluation.experiment.name,
        "figure": f"{figure.title} ({figure.aside})" if figure.aside else figure.title,
        "unit": "" if figure.unit == "1" else figure.unit,
        "ours": each.mean,
        "ours_ci95": each.ci95,
        "decimals": figure.decimals,
        "source": source_text(each.reference),
        "ratio": judgement.ratio if judgement else None,
        "verdict": str(judgement.verdict) if judgement else "–",
    }


def _facts(evaluations: Sequence[Evaluation]) -> Record:
    return {each.experiment.name: f"{each.experiment.title}: {each.basis}" for each in evaluations}


def _references(evaluation: Evaluation) -> bool:
    return any(each.reference for each in evaluation.measured)


def _quantity(each: Measured) -> str:
    """Key of the quantity: the figure's own key without what stands aside."""
    return each.figure.key.removesuffix(f"@{each.figure.aside}")
