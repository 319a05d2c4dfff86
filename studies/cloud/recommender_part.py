"""The results page's part on recommenders: searches on public measurements beside targets and baselines.

For: `python -m studies.cloud.results`. Not for: judging (evaluate_recommenders.py), reading
(measured_tables.py).
Where a table is not on this machine its row says so. Of data without a stated licence only what our searches
needed is given, means over jobs from which no measurement can be read. Source of targets: SPEC §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.cloud.evaluate_recommenders import LOOK, RECOMMENDERS, Judged, judge
from studies.cloud.measured_tables import TABLES, Table
from twinbed import TraceError

OURS = "transfer"


@dataclass(frozen=True, slots=True)
class Data:
    """A public table that is searched.

    licence: of its source; seeds: searches per job of a recommender that draws; programs: past jobs of the
    same program are left out, too; few: keep only so many.
    """

    table: str
    licence: str
    seeds: int = 10
    programs: bool = False
    few: int | None = None

    @property
    def title(self) -> str:
        """What its rows are called."""
        count = "" if self.few is None else f"{self.few} "
        return f"{self.table}, {count}past jobs of other programs" if self.programs else self.table


SCOUT, CHERRYPICK, LYNCEUS = (
    Data("scout", "MIT"),
    Data("cherrypick", "none stated"),
    Data("lynceus", "none stated"),
)
DATA = (
    SCOUT,
    Data("scout", "MIT", programs=True),
    Data("scout", "MIT", programs=True, few=2),
    CHERRYPICK,
    LYNCEUS,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a table's searches; most: the target is at most (else at least) it."""

    data: Data
    title: str
    value: Callable[[Sequence[Judged]], float]
    target: float
    most: bool = True


def trials(judged: Sequence[Judged]) -> float:
    """The mean number of trials to within 10 % of the cheapest; infinite where a search never came there."""
    counts = np.array([each.trials for each in judged])
    return float(np.where(np.isfinite(counts), counts, np.inf).mean())


def regret(judged: Sequence[Judged]) -> float:
    """The mean regret of the best of the first trials."""
    return float(np.mean([each.regret for each in judged]))


def median_regret(judged: Sequence[Judged]) -> float:
    """The median of the same."""
    return float(np.median([each.regret for each in judged]))


def area(judged: Sequence[Judged]) -> float:
    """The mean AUC of telling top configurations after the first trials; NaN for who tells none."""
    told = [each.auc for each in judged if np.isfinite(each.auc)]
    return float(np.mean(told)) if told else float("nan")


FIGURES = (
    Figure(SCOUT, "trials", trials, 5.0),
    Figure(SCOUT, f"median regret after {LOOK}", median_regret, 0.15),
    Figure(SCOUT, f"mean regret after {LOOK}", regret, 0.25),
    Figure(SCOUT, "top-5 AUC", area, 0.90, most=False),
    Figure(CHERRYPICK, "trials", trials, 4.0),
    Figure(LYNCEUS, "trials", trials, 8.0),
)


def table(folder: Path, names: Sequence[str] = tuple(RECOMMENDERS)) -> list[str]:
    """Targets, then every recommender on every table."""
    found: dict[Data, dict[str, list[Judged]]] = {}
    for data in DATA:
        try:
            measured = TABLES[data.table](folder)
        except TraceError:
            continue
        # Who reads no history does as on the whole table.
        asked = names if not data.programs else [name for name in names if name == OURS]
        found[data] = {name: _judged(measured, data, name) for name in asked}
    return [
        "## Recommenders on public measurements: trials to within 10 % of the cheapest",
        "",
        "Each job is left out in turn; the others are its history, which only `transfer` reads",
        "(`transfer-alone` is the same without it, `cherrypick` is a Gaussian process with expected",
        f"improvement). A search pays for what failed. Regret and AUC: after {LOOK} trials. Means are over",
        f"jobs and {SCOUT.seeds} seeds. How transfer chooses was settled with these in sight: no blind test",
        "(decisions 0024, 0027, 0029). The scales of its loss, chosen for each job on the others, make",
        "Scout's searches 0.1 trials longer, CherryPick's 0.2, Lynceus's none (0029).",
        "",
        "| data | licence | figure | target | ours | cherrypick | random | verdict |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
        *(_target(figure, found.get(figure.data)) for figure in FIGURES),
        "",
        "`never`: searches that ended without such a trial (FC²'s price rules try one configuration).",
        "",
        "| data | recommender | jobs | trials | never | mean regret | median regret | top-5 AUC |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(line for data in DATA for line in _rows(data, found.get(data))),
    ]


def _judged(measured: Table, data: Data, name: str) -> list[Judged]:
    seeds = range(data.seeds)
    return list(judge(measured, name, seeds=seeds, programs=data.programs, few=data.few))


def _target(figure: Figure, found: dict[str, list[Judged]] | None) -> str:
    start = f"| {figure.data.title} | {figure.data.licence} | {figure.title} "
    if found is None:
        return f"{start}| | | | | no data on this machine |"
    ours, *others = (
        figure.value(found[name]) if name in found else float("nan")
        for name in (OURS, "cherrypick", "random")
    )
    reached = ours <= figure.target if figure.most else ours >= figure.target
    sign = "≤" if figure.most else "≥"
    cells = [f"{sign} {figure.target:g}", *map(_cell, (ours, *others)), "reached" if reached else "missed"]
    return f"{start}| {' | '.join(cells)} |"


def _rows(data: Data, found: dict[str, list[Judged]] | None) -> list[str]:
    if found is None:
        return [f"| {data.title} | no data on this machine | | | | | | |"]
    lines = []
    for name, judged in found.items():
        ended = [each for each in judged if np.isfinite(each.trials)]
        cells = [
            data.title,
            name,
            str(len({each.job for each in judged})),
            _cell(trials(ended)) if ended else "–",
            f"{1 - len(ended) / len(judged):.0%}",
            *map(_cell, (regret(judged), median_regret(judged), area(judged))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "–"
