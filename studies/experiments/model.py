"""What an experiment is: a scenario, figures computed from its runs, assumptions to vary, a discussion.

For: the data that definitions (e1.py … e8.py and others) fill in. Not for: running them (evaluate.py),
judging (verdict.py) or showing (present.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.runs.store import Run


@dataclass(frozen=True, slots=True)
class Case:
    """A run with what tells it from the experiment's others.

    settings: the scenario's `vary` keys → their values here, as the scenario file writes them; of a value
    that is a section, each of its keys (`serverless.function`).
    """

    settings: Mapping[str, Any]
    policy: str
    seed: int
    run: Run

    def metric(self, key: str) -> float:
        """A metric of the run; NaN where it has no meaning."""
        return self.run.metrics.get(key, float("nan"))


Measure = Callable[[Sequence[Case]], float]
"""From all cases of one seed to a figure; NaN where it has no meaning."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of an experiment. key: that of the source's figure, if the source has one.

    aside: in an experiment that compares with no source, figures of equal `aside` are a column (a policy, a
    delay) and those of equal title a line. detail: left out where there is little room (sensitivity).
    """

    key: str
    title: str
    unit: str
    decimals: int
    measure: Measure
    aside: str = ""
    detail: bool = False


def of_no_run(_cases: Sequence[Case]) -> float:
    """The measure of a figure that its experiment computes itself."""
    return float("nan")


Compute = Callable[[int], Mapping[str, float]]
"""From a seed to all figures by their keys."""


Edit = Callable[[dict[str, Any]], dict[str, Any]]
"""A file as plain data → the same with one assumption changed; what it is given stays as it is."""


@dataclass(frozen=True, slots=True)
class Change:
    """One assumption changed: `KEY=VALUE` assignments to the scenario, or an edit of it or of its apps."""

    title: str
    assignments: tuple[str, ...] = ()
    of_scenario: Edit | None = None
    of_apps: Edit | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question put to the twin.

    name: as in the specification; scenario: file name in scenarios/; method: how the figures come from the
    runs and which reading was taken where the source is silent; discussion: written after the results were
    seen, one paragraph each: what is not reproduced, why, what it depends on. sensitivity: assumptions to
    change one at a time, tried with `sensitivity_seeds` only, on the part of the scenario that the
    assignments `sensitivity_part` leave of it; timed: a figure is a time of this machine's, so its runs are
    made one after another; curve: title of the x axis when what stands aside is drawn as such, "" for no
    chart. compute: in place of a scenario, whose name is then "": what makes the figures, once per seed of
    `seeds`; with one seed nothing is drawn, and the figures are exact.
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
