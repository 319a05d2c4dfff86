"""Recommenders judged on public measurements: how many trials, what regret, what the ranking is worth.

For: leave-one-workload-out and leave-one-program-out on the tables of measured_tables.py, baselines and
transfer alike. Not for: playing (trials.py). Run: python -m studies.cloud.evaluate_recommenders --data
FOLDER.
Protocol: the job judged is not in the history; nor, under --programs, are jobs of the same program. Searches
begin with nothing, pay for what failed, and go on until a trial is within 10 % of the cheapest. Means are
over jobs and seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from control.jobs import TOP, TOP_FACTOR, Flags, History, Job, Objective, Real, joined
from control.recommender import RECOMMENDERS as METHODS
from control.recommender import make
from control.recommender.fc2 import Server
from control.recommender.ports import (
    Observations,
    Recommendation,
    Recommender,
    Request,
    Searcher,
    no_observations,
)
from control.recommender.transfer import TransferSearch
from studies.cloud.measured_tables import TABLES, Table
from studies.cloud.trials import answers, play, ratios, reachable, regret_after, trials_to
from twinbed import ScenarioError

WITHIN = 0.1
"""A trial within this share of the cheapest has found it."""
LOOK = 3
"""Trials after which regret and ranking are looked at."""
MOST_REGRET = 5.0
"""Regret of a search whose first trials all failed."""


@dataclass(frozen=True, slots=True)
class WithoutPast:
    """A recommender that is told of no past job: what a history is worth is the difference."""

    of: Recommender

    def recommend(self, request: Request) -> list[Recommendation]:
        """As the other does without a history."""
        return self.of.recommend(replace(request, history=None))

    def searcher(self, request: Request, seed: int) -> Searcher:
        """As the other does without a history."""
        return self.of.searcher(replace(request, history=None), seed)


_UNTIL_FOUND = {"stop_below": 0.0}
_SEARCHES: dict[str, dict[str, float]] = {
    "random": {},
    "exhaustive": {},
    "cost-opt": {},
    "time-opt": {},
    "cherrypick": _UNTIL_FOUND,
    "ernest": {},
    "transfer": _UNTIL_FOUND,
}
"""Settings of each recommender. Scala-Opt is left out: no table has the network use of a worker."""
RECOMMENDERS: dict[str, Recommender] = {
    name: make(name, settings, server=Server("", 0.0, np.inf)) for name, settings in _SEARCHES.items()
} | {"transfer-alone": WithoutPast(make("transfer", _UNTIL_FOUND))}
_DRAWN = ("transfer-alone", *(name for name in _SEARCHES if METHODS[name].seeded))
"""Recommenders whose search depends on the seed."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One search of one job.

    trials: until one was within WITHIN of the cheapest (NaN: never); regret: of the best of the first LOOK;
    auc: of telling top configurations by their chances after LOOK trials, over all candidates, and over the
    untried only; covered: share of the true times of untried candidates in the 90 % interval.
    """

    table: str
    recommender: str
    job: str
    seed: int
    trials: float
    regret: float
    auc: float
    auc_untried: float
    covered: float


def judge(
    table: Table,
    name: str,
    *,
    seeds: Sequence[int] = (0,),
    programs: bool = False,
    few: int | None = None,
    more: Sequence[History] = (),
    jobs: Iterable[int] | None = None,
    most: int = 400,
) -> Iterator[Judged]:
    """Judges the recommender `name` on each job (or some `jobs`), with the others' runs as its history.

    programs: leave out the job's whole program; few: keep only so many past jobs, drawn once for each job;
    more: further histories. Raises ScenarioError for a name
    that is unknown.
    """
    if name not in RECOMMENDERS:
        raise ScenarioError(f"no recommender {name!r}; there are {', '.join(RECOMMENDERS)}")
    for job in range(len(table.history.jobs)) if jobs is None else jobs:
        own = reachable(table.history, job)
        request = Request(
            Job(table.history.jobs[job]),
            own.candidates,
            history=past(table, job, programs=programs, few=few, more=more),
        )
        ratio = ratios(own, job, Objective.COST)
        for seed, searcher in _searchers(RECOMMENDERS[name], request, seeds if name in _DRAWN else (0,)):
            yield _judged(table, name, own, job, seed, searcher, ratio, most)


def _searchers(of: Recommender, request: Request, seeds: Sequence[int]) -> Iterator[tuple[int, Searcher]]:
    """A search per seed; what is learned from past jobs does not hang on the seed, and is learned once."""
    first = of.searcher(request, seeds[0])
    for seed in seeds:
        again = replace(first, seed=seed) if isinstance(first, TransferSearch) else of.searcher(request, seed)
        yield seed, again


def past(
    table: Table, job: int, *, programs: bool, few: int | None = None, more: Sequence[History] = ()
) -> History | None:
    """The history that a job is judged with: (a few of) the other jobs (of other programs), more tables."""
    history = table.history
    kept = [
        row
        for row in range(len(history.jobs))
        if row != job and not (programs and table.program[row] == table.program[job])
    ]
    if few is not None and few < len(kept):
        kept = sorted(np.random.default_rng([job, few]).choice(kept, few, replace=False).tolist())
    parts = list(more)
    if kept:
        parts.insert(0, history.take(kept))
    if not parts:
        return None
    both = parts[0]
    for part in parts[1:]:
        both = _stacked(both, part)
    return both


def _stacked(first: History, second: History) -> History:
    """Jobs of both over the candidates of both; not run on each other's."""
    shape = (len(first.jobs) + len(second.jobs), len(first.candidates) + len(second.candidates))
    time_s, cost, ok = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    for part, rows, columns in (
        (first, slice(None, len(first.jobs)), slice(None, len(first.candidates))),
        (second, slice(len(first.jobs), None), slice(len(first.candidates), None)),
    ):
        time_s[rows, columns], cost[rows, columns], ok[rows, columns] = part.time_s, part.cost_usd, part.ok
    return History(first.jobs + second.jobs, joined(first.candidates, second.candidates), time_s, cost, ok)


def _judged(
    table: Table,
    name: str,
    own: History,
    job: int,
    seed: int,
    searcher: Searcher,
    ratio: Real,
    most: int,
) -> Judged:
    def enough(observed: Observations) -> bool:
        return len(observed) >= LOOK and bool((ratio[observed.candidate] <= 1 + WITHIN).any())

    played = play(searcher, answers(own, job), most=most, enough=enough).observed
    trials = trials_to(played, ratio, WITHIN)
    auc, untried, covered = _ranking_worth(searcher, own, job, played, ratio)
    return Judged(
        table.name,
        name,
        own.jobs[job],
        seed,
        float("nan") if trials is None else float(trials),
        regret_after(played, ratio, LOOK, most=MOST_REGRET),
        auc,
        untried,
        covered,
    )


def _ranking_worth(
    searcher: Searcher, own: History, job: int, played: Observations, ratio: Real
) -> tuple[float, float, float]:
    """AUC over all candidates, over the untried, and coverage, after LOOK trials; NaN without predictions."""
    nothing = (float("nan"),) * 3
    if not isinstance(searcher, TransferSearch) or len(played) < LOOK:
        return nothing
    seen = no_observations()
    for trial in range(LOOK):
        row = int(played.candidate[trial])
        seen = seen.with_trial(row, played.time_s[trial], played.cost_usd[trial], bool(played.ok[trial]))
    mean, deviation = searcher.predicted(seen)
    chance = searcher.chances(seen)
    top = np.isin(np.arange(ratio.size), np.argsort(ratio, kind="stable")[:TOP]) & (ratio <= TOP_FACTOR)
    left = ~np.isin(np.arange(ratio.size), seen.candidate)
    true = np.log(own.time_s[job])
    inside = np.abs(true - mean) <= 1.645 * deviation
    return auc(top, chance), auc(top[left], chance[left]), float(inside[left & own.ok[job]].mean())


def auc(positive: Flags, score: Real) -> float:
    """Probability that a positive scores above a negative, ties half; NaN without one of them."""
    high, low = score[positive], score[~positive]
    if not (high.size and low.size):
        return float("nan")
    greater = (high[:, None] > low[None, :]).mean()
    return float(greater + 0.5 * (high[:, None] == low[None, :]).mean())


def summary(judged: Sequence[Judged]) -> str:
    """One line of figures: means over all, and the medians where they tell more."""
    trials = np.array([each.trials for each in judged])
    regret = np.array([each.regret for each in judged])
    found = trials[~np.isnan(trials)]
    counts = (
        f"trials mean {found.mean():.2f} median {np.median(found):.0f} max {found.max():.0f}"
        if found.size
        else "no trial found it"
    )
    line = (
        f"{counts} (never {trials.size - found.size}); regret after {LOOK}: mean {regret.mean():.3f} median "
        f"{np.median(regret):.3f}"
    )
    if not all(np.isnan(each.auc) for each in judged):
        line += (
            f"; top-{TOP} AUC {np.nanmean([each.auc for each in judged]):.3f} (untried only "
            f"{np.nanmean([each.auc_untried for each in judged]):.3f}); 90 % intervals cover "
            f"{np.nanmean([each.covered for each in judged]):.2f}"
        )
    return line


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the figures of the chosen tables and recommenders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--tables", default="scout,cherrypick,lynceus", help="comma-separated")
    parser.add_argument("--recommenders", default=",".join(RECOMMENDERS), help="comma-separated")
    parser.add_argument("--programs", action="store_true", help="leave out whole programs")
    parser.add_argument("--few", type=int, help="keep only so many past jobs, drawn")
    parser.add_argument("--with", dest="more", default="", help="tables whose jobs are past jobs, too")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--each", action="store_true", help="a line per job, too")
    given = parser.parse_args(arguments)
    more = [TABLES[name](given.data).history for name in given.more.split(",") if name]
    for table in given.tables.split(","):
        for name in given.recommenders.split(","):
            judged = list(
                judge(
                    TABLES[table](given.data),
                    name,
                    seeds=range(given.seeds),
                    programs=given.programs,
                    few=given.few,
                    more=more,
                )
            )
            print(f"{table} {name}: {summary(judged)}", flush=True)
            if given.each:
                for each in judged:
                    print(
                        f"  {each.job} seed {each.seed}: {each.trials:.0f} trials, regret {each.regret:.3f}"
                    )


if __name__ == "__main__":
    main()
