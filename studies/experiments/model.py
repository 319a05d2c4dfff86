"""An experiment: a scenario, figures computed from its runs, assumptions to change, a discussion.

For: the data that the definitions (escra.py, fabric.py, cloud.py …) and their texts (texts/*.md) fill in. Not
for: running them (evaluate.py), judging them (studies.judge) or showing them (present.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.runs.store import Run


class Bounded(float):
    """A figure that is only known as an interval. The number is its lower end, `high` its upper end.

    Requests that were never answered lead to such figures (lab.runs.metric, may_be_bound).
    """

    high: float

    def __new__(cls, low: float, high: float) -> Bounded:
        """Return the interval [low, high]; high may be infinite."""
        made = super().__new__(cls, low)
        made.high = high
        return made


def high_end(value: float) -> float:
    """Return the upper end of a figure, which is the figure itself where it is known exactly."""
    return value.high if isinstance(value, Bounded) else value


@dataclass(frozen=True, slots=True)
class Case:
    """A run with the settings in which it differs from the experiment's other runs.

    settings: the scenario's `vary` keys → their values, as in the scenario file; a value that is a section
    appears as one entry for each of its keys (`serverless.function`).
    """

    settings: Mapping[str, Any]
    policy: str
    seed: int
    run: Run

    def metric(self, key: str) -> float:
        """Return a metric of the run: NaN if the run does not have it, Bounded if it is a bound."""
        value = self.run.metrics.get(key, math.nan)
        return Bounded(value, math.inf) if key in self.run.censored else value


Measure = Callable[[Sequence[Case]], float]
"""Computes a figure from all cases of one seed: NaN if it is undefined, Bounded for an interval."""


def undefined(_cases: Sequence[Case]) -> float:
    """Return NaN. It is the measure of a figure that its experiment computes without runs."""
    return float("nan")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of an experiment.

    key: key of the source's figure, if the source has one. `@aside` follows if there are several conditions.
    title, unit, decimals: form in which it is shown.
    measure: computes it from one seed's cases.
    aside: the condition under which it is computed (a policy, a delay, a retry profile).
    detail: whether it is left out of the sensitivity tables, which have little room.
    """

    key: str
    title: str
    unit: str
    decimals: int
    measure: Measure = undefined
    aside: str = ""
    detail: bool = False

    @property
    def quantity(self) -> str:
        """The key without the condition."""
        return self.key.removesuffix(f"@{self.aside}")


def figures(*rows: tuple[Any, ...], aside: str = "") -> tuple[Figure, ...]:
    """Return a figure for each row of values, in the order of Figure's fields; aside: their column."""
    if aside:
        rows = tuple((f"{key}@{aside}", *row, aside) for key, *row in rows)
    return tuple(Figure(*row) for row in rows)


Compute = Callable[[int], Mapping[str, float]]
"""Computes all figures of a seed, by their keys."""

Edit = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns a copy of a file, given as plain data, with one assumption changed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed assumption: `KEY=VALUE` assignments to the scenario, or an edit of it or of its apps."""

    title: str
    assignments: tuple[str, ...] = ()
    of_scenario: Edit | None = None
    of_apps: Edit | None = None


def changes(assignments: Mapping[str, str]) -> tuple[Change, ...]:
    """Return a change for each title → assignment. Several assignments are separated by a blank."""
    return tuple(Change(title, tuple(text.split())) for title, text in assignments.items())


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question to the twin.

    name, title: name and title on the results page.
    scenario: file name in scenarios/; empty for an experiment that computes its figures.
    method: how the figures are computed from the runs, and our readings where the source is silent.
    figures: the figures in the order of the table.
    discussion: paragraphs written after the results were seen: differences from the source, and their causes.
    sensitivity: assumptions that are changed one at a time.
    sensitivity_seeds, sensitivity_part: seeds and assignments that reduce the number of these runs.
    timed: whether a figure is a time of this machine, so that runs are made one after another.
    curve: title of the chart's x axis, which shows `aside`; empty for no chart.
    compute: returns the figures for one of `seeds`, instead of a scenario. With one seed nothing is random,
        and the figures are exact.
    references: name of the experiment with which these figures share the source's; empty: its own.
    """

    name: str
    title: str
    scenario: str
    method: str
    figures: tuple[Figure, ...]
    discussion: tuple[str, ...] = ()
    sensitivity: tuple[Change, ...] = ()
    sensitivity_seeds: tuple[int, ...] = (0,)
    sensitivity_part: tuple[str, ...] = ()
    timed: bool = False
    curve: str = ""
    compute: Compute | None = None
    seeds: tuple[int, ...] = (0,)
    references: str = ""


TEXTS = Path(__file__).parent / "texts"


def paragraphs(name: str, **values: object) -> list[str]:
    """Return the heading of texts/NAME.md and its paragraphs, each in one line, without headings of sections.

    values: what stands for {KEY} in the text.
    """
    text = (TEXTS / f"{name}.md").read_text(encoding="utf-8").format(**values)
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return [part.removeprefix("# ") for part in parts if not part.startswith("## ")]


def written(name: str, **values: object) -> dict[str, Any]:
    """Return what texts/NAME.md says of an experiment, as arguments of Experiment: its heading is the title,
    the method follows, then the discussion."""
    title, method, *discussion = paragraphs(name, **values)
    return {"name": name, "title": title, "method": method, "discussion": tuple(discussion)}
