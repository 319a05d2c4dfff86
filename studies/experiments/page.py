"""Experiments as one HTML page: figures beside the source's, discussion, charts, sensitivity, runs.

For: `twinbed report --experiment … --html FILE`. Not for: computing anything, nor for pages of single runs
(lab.runs.report).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from lab.runs.formats import Result, grid
from lab.runs.page import bullets, facts_list, figure, page, section, table
from studies.experiments import present
from studies.experiments.charts import curves
from studies.experiments.evaluate import Evaluation
from studies.experiments.sensitivity import Moved
from studies.reference_figures import source


def document(evaluations: Sequence[Evaluation], moved: Mapping[str, Sequence[Moved]]) -> str:
    """The whole page as text; moved: experiment's name → its figures under each change."""
    title = " and ".join(each.experiment.name for each in evaluations)
    sources = "; ".join(dict.fromkeys(source(each.experiment.name) for each in evaluations))
    head = Markup('<h1>{}</h1><p class="question">Compared with: {}</p>').format(title, sources)
    parts = [part for each in evaluations for part in _experiment(each, moved.get(each.experiment.name, ()))]
    return page(title, [head, *parts])


def _experiment(evaluation: Evaluation, moved: Sequence[Moved]) -> Iterator[Markup]:
    experiment = evaluation.experiment
    found = present.result([evaluation])
    yield section(f"{experiment.name}: {experiment.title}", facts_list(found.facts) + _table(found))
    yield bullets(found.notes, "notes")
    if experiment.curve:
        yield figure(experiment.title, "Means with their 95 % intervals.", curves(evaluation))
    if moved:
        tried = present.moved(evaluation, moved)
        yield section(f"{experiment.name}: what it depends on", _table(tried) + bullets(tried.notes, "notes"))
    ids = sorted(case.run.id for case in evaluation.cases)
    if ids:
        yield section(f"{experiment.name}: runs", Markup("<p><code>{}</code></p>").format(", ".join(ids)))


def _table(result: Result) -> Markup:
    legend = Markup('<p class="legend">{}</p>').format(result.legend) if result.legend else Markup()
    return table(*grid(result)) + legend
