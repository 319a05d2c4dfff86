"""docs/results/cloud.md: job performance, recommenders and predictors beside their targets, C1–F4 beside
sources.

For: `python -m studies cloud`. Not for: evaluating (performance.py, recommenders.py, measured.py). A row
states it if its data set is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lab.runs.formats import markdown
from lab.runs.store import RunStore
from studies import harness
from studies.cloud import measured, performance, recommenders
from studies.experiments import present
from studies.experiments.catalogue import CLOUD
from studies.experiments.evaluate import evaluate
from studies.experiments.model import Experiment
from studies.harness import Asked
from studies.judge import RULE, Verdict

_Part = Callable[[], Iterable[str]]


def make(asked: Asked) -> int:
    """Compute everything and write the page."""
    parts: tuple[_Part, ...] = (
        lambda: performance.section(asked.data),
        lambda: recommenders.section(asked.data),
        measured.section,
        experiments,
    )
    check, paragraphs = harness.clock(asked.minutes), []
    for part in parts:
        paragraphs += [*part()]
        check()
    harness.publish("cloud", document(paragraphs), asked.out)
    return 0


def document(paragraphs: list[str]) -> str:
    """Return the page's text. The answer counts the verdicts in its tables."""
    text = "\n".join(paragraphs)
    reached, missed = text.count("| reached |"), text.count("| missed |")
    agree, differ = (
        text.count(f"| {Verdict.SIZE} |") + text.count(f"| {Verdict.DIRECTION} |"),
        text.count(f"| {Verdict.NOT} |"),
    )
    answer = (
        f"{reached} of the {reached + missed} targets below are reached: errors on public measurements, "
        "trials of recommenders, and predictions of our own measured jobs.",
        f"Of the {agree + differ} figures of the sources' experiments {agree} are reproduced in size or "
        f"direction and {differ} are not.",
    )
    conditions = (
        "Every table row names the source and the licence of its data. A row states it if its public data "
        "set was missing on the machine that made the page. The targets are aims of this project.",
        f"**When a figure of a source counts as reproduced.** {RULE} A ± B: the mean and half of the 95 % "
        "interval over the seeds.",
    )
    return harness.page("cloud", "Cloud: figures beside their targets", answer, paragraphs, conditions)


def experiments(chosen: Mapping[str, Experiment] = CLOUD) -> Iterator[str]:
    """Yield C1 to F4, our figures beside the sources'."""
    yield "## The sources' experiments"
    for item in chosen.values():
        # Computed experiments keep nothing in a store.
        result = present.result(evaluate(item, RunStore()))
        yield f"### {item.name}: {item.title}"
        yield markdown(replace(result, facts={}, legend="", notes=())).strip()
        yield from item.discussion
        yield f"*How (`python -m studies {item.name}`): {item.method}*"
