"""Recommenders on public measurements, beside targets and baselines: a part of the page, and printed.

For: docs/results/cloud.md and `python -m studies recommenders`. Not for: playing searches (searches.py) or
reading tables (tables.py). For data without a stated licence the page has only means over jobs, which reveal
no measurement. The targets are aims of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.jobs import TOP
from studies.cloud.searches import LOOK, RECOMMENDERS, Judged, judge
from studies.cloud.tables import TABLES
from studies.harness import NO_DATA, Asked, dash, table
from studies.judge import aim
from twinbed import ScenarioError, TraceError

OURS = "transfer"
_COMPARED = (OURS, "cherrypick", "random")


@dataclass(frozen=True, slots=True)
class Data:
    """A public table that is searched.

    table: key of TABLES.
    licence: licence of its source.
    seeds: number of searches of each job by a seeded recommender.
    programs: whether past jobs of the same program are left out, too.
    few: number of past jobs that are kept; None: all.
    """

    table: str
    licence: str
    seeds: int = 10
    programs: bool = False
    few: int | None = None

    @property
    def title(self) -> str:
        """The name of its rows."""
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
class Aim:
    """A target for one number of a table's searches; most: the target is an upper bound."""

    data: Data
    title: str
    value: Callable[[Sequence[Judged]], float]
    target: float
    most: bool = True


def trials(judged: Sequence[Judged]) -> float:
    """Return the mean number of trials to within 10 % of the cheapest; infinite if a search fails."""
    counts = np.array([search.trials for search in judged])
    return float(np.where(np.isfinite(counts), counts, np.inf).mean())


def regret(judged: Sequence[Judged]) -> float:
    """Return the mean regret of the best of the first trials."""
    return float(np.mean([search.regret for search in judged]))


def median_regret(judged: Sequence[Judged]) -> float:
    """Return the median regret of the best of the first trials."""
    return float(np.median([search.regret for search in judged]))


def area(judged: Sequence[Judged]) -> float:
    """Return the mean AUC of ranking top configurations; NaN for a recommender that ranks none."""
    known = [search.auc for search in judged if np.isfinite(search.auc)]
    return float(np.mean(known)) if known else float("nan")


AIMS = (
    Aim(SCOUT, "trials", trials, 5.0),
    Aim(SCOUT, f"median regret after {LOOK}", median_regret, 0.15),
    Aim(SCOUT, f"mean regret after {LOOK}", regret, 0.25),
    Aim(SCOUT, "top-5 AUC", area, 0.90, most=False),
    Aim(CHERRYPICK, "trials", trials, 4.0),
    Aim(LYNCEUS, "trials", trials, 8.0),
)


def section(data: Path | None, names: Sequence[str] = tuple(RECOMMENDERS)) -> Iterator[str]:
    """Yield the page's part: the targets, then every recommender on every table."""
    judged: dict[Data, dict[str, list[Judged]]] = {}
    for item in DATA:
        try:
            measured = None if data is None else TABLES[item.table](data)
        except TraceError:
            continue
        if measured is not None:
            # Without a history, a recommender gives the same results on this table as on the whole table.
            asked = [name for name in names if name == OURS or not item.programs]
            seeds, programs, few = range(item.seeds), item.programs, item.few
            judged[item] = {
                name: list(judge(measured, name, seeds=seeds, programs=programs, few=few)) for name in asked
            }
    yield "## Recommenders on public measurements: trials to within 10 % of the cheapest"
    heads = ("data", "licence", "figure", "target", "ours", "cherrypick", "random", "verdict")
    yield table(heads, [_aim(item, judged.get(item.data)) for item in AIMS], left=3)
    heads = ("data", "recommender", "jobs", "trials", "never", "mean regret", "median regret", "top-5 AUC")
    yield table(heads, [row for item in DATA for row in _rows(item, judged.get(item))], left=2)
    yield (
        f"Regret and AUC are after {LOOK} trials. `never`: searches that ended without a trial within 10 % "
        "(FC²'s price rules try one configuration). Each job is left out in turn; the others are its "
        "history, which only `transfer` reads. `transfer-alone` is the same without it, and `cherrypick` is "
        "a Gaussian process with expected improvement. A search pays for trials that failed. Means are over "
        f"jobs and {SCOUT.seeds} seeds."
    )
    yield (
        "The rules of transfer were chosen with these data in sight, so this is no blind test (decision "
        "0024). If the scales of its loss are chosen for each job on the others, searches are longer by 0.1 "
        "trials on Scout, by 0.2 on CherryPick and by none on Lynceus."
    )


def _aim(item: Aim, by_name: dict[str, list[Judged]] | None) -> list[str]:
    start = [item.data.title, item.data.licence, item.title]
    if by_name is None:
        return [*start, "", "", "", "", NO_DATA]
    ours, *others = (item.value(by_name[name]) if name in by_name else np.nan for name in _COMPARED)
    reached = ours <= item.target if item.most else ours >= item.target
    sign = "≤" if item.most else "≥"
    return [*start, f"{sign} {item.target:g}", *map(dash, (ours, *others)), aim(reached)]


def _rows(item: Data, by_name: dict[str, list[Judged]] | None) -> Iterator[list[str]]:
    if by_name is None:
        yield [item.title, NO_DATA, *[""] * 6]
        return
    for name, judged in by_name.items():
        ended = [search for search in judged if np.isfinite(search.trials)]
        yield [
            item.title,
            name,
            str(len({search.job for search in judged})),
            dash(trials(ended)) if ended else "–",
            f"{1 - len(ended) / len(judged):.0%}",
            *map(dash, (regret(judged), median_regret(judged), area(judged))),
        ]


def make(asked: Asked) -> int:
    """Print the figures of the chosen tables (asked.only) and recommenders."""
    data, names = asked.public_data(), asked.only or ("scout", "cherrypick", "lynceus")
    for name in (*names, *asked.past):
        if name not in TABLES:
            raise ScenarioError(f"recommenders: no table {name!r}; there are {', '.join(TABLES)}")
    more = [TABLES[name](data).history for name in asked.past]
    for name in names:
        for recommender in asked.recommenders or RECOMMENDERS:
            searches = judge(
                TABLES[name](data),
                recommender,
                seeds=range(asked.seeds),
                programs=asked.programs,
                few=asked.few,
                more=more,
            )
            judged = list(searches)
            print(f"{name} {recommender}: {summary(judged)}", flush=True)
            for search in judged if asked.jobs else ():
                counts = f"{search.trials:.0f} trials, regret {search.regret:.3f}"
                print(f"  {search.job} seed {search.seed}: {counts}")
    return 0


def summary(judged: Sequence[Judged]) -> str:
    """Return one line of figures: means over all searches, and medians."""
    counts = np.array([search.trials for search in judged])
    known = counts[~np.isnan(counts)]
    line = "no trial found it"
    if known.size:
        line = f"trials mean {known.mean():.2f} median {np.median(known):.0f} max {known.max():.0f}"
    line += f" (never {counts.size - known.size}); regret after {LOOK}: mean {regret(judged):.3f} median "
    line += f"{median_regret(judged):.3f}"
    if np.isfinite(area(judged)):
        untried = np.nanmean([search.auc_untried for search in judged])
        covered = np.nanmean([search.covered for search in judged])
        line += f"; top-{TOP} AUC {area(judged):.3f} (untried only {untried:.3f}); 90 % intervals cover "
        line += f"{covered:.2f}"
    return line
