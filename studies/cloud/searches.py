"""Plays searches on measured tables, and judges their trials, their regret and their rankings.

For: judging every recommender by the same trials, each job (or program) left out in turn. Not for: the tables
(tables.py), nor the page's part (recommenders.py).

The job that is judged is not in the history. With `programs`, jobs of the same program are left out, too. A
search begins without trials. It gets the positions of candidates and the trials that it has paid for, but
never the table. It pays before it sees an answer. It also pays for trials that failed or timed out, which
never count as a find. It continues until a trial is within 10 % of the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
    Stop,
    no_observations,
)
from control.recommender.transfer import TransferSearch
from studies.cloud.tables import Table
from twinbed import InvariantError, ScenarioError

WITHIN = 0.1
"""A trial that costs at most this share more than the cheapest candidate has found it."""

LOOK = 3
"""Number of trials after which regret and ranking are judged."""

MOST_REGRET = 5.0
"""Regret of a search whose first trials all failed."""

Answer = Callable[[int], tuple[float, float, bool]]
"""Runs a candidate: seconds, US dollars, and whether it succeeded."""


@dataclass(frozen=True, slots=True)
class WithoutPast:
    """A recommender without past jobs. The difference from the recommender itself shows the value of a
    history."""

    of: Recommender

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the recommendation of the wrapped recommender without a history."""
        return self.of.recommend(replace(request, history=None))

    def searcher(self, request: Request, seed: int) -> Searcher:
        """Return the search of the wrapped recommender without a history."""
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
_SEEDED = ("transfer-alone", *(name for name in _SEARCHES if METHODS[name].seeded))
"""Recommenders whose search depends on the seed."""


@dataclass(frozen=True, slots=True)
class Played:
    """A search that was played.

    observed: its trials in order.
    stopped: number of trials after which it wished to stop; None if it never did.
    best: the candidate that it would take at the end.
    """

    observed: Observations
    stopped: int | None
    best: int | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One search of one job.

    trials: number of trials until one was within WITHIN of the cheapest; NaN: never.
    regret: regret of the best of the first LOOK trials, as a share of the cheapest.
    auc, auc_untried: AUC of ranking the top configurations after LOOK trials, over all candidates and over
        the untried ones.
    covered: share of the true times of untried candidates in the 90 % interval.
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


def play(
    searcher: Searcher, answer: Answer, *, most: int, enough: Callable[[Observations], bool] | None = None
) -> Played:
    """Play a search until it stops, `enough` returns true, or there were `most` trials.

    Raises InvariantError if it repeats a trial.
    """
    observed = no_observations()
    while len(observed) < most and not (enough is not None and enough(observed)):
        step = searcher.propose(observed)
        if isinstance(step, Stop):
            return Played(observed, len(observed), step.best)
        if step.candidate in observed.candidate:
            raise InvariantError(f"a search proposed candidate {step.candidate} twice")
        observed = observed.with_trial(step.candidate, *answer(step.candidate))
    return Played(observed, None, None)


def answers(table: History, job: int) -> Answer:
    """Return a function that answers trials with one job's entries of the table."""
    return partial(table.run, job)


def reachable(table: History, job: int) -> History:
    """Return the table of the candidates that `job` was measured on, which a search may propose."""
    rows = np.flatnonzero(np.isfinite(table.time_s[job]))
    time_s, cost, ok = table.time_s[:, rows], table.cost_usd[:, rows], table.ok[:, rows]
    return History(table.jobs, table.candidates.take(rows), time_s, cost, ok)


def ratios(table: History, job: int, by: Objective) -> Real:
    """Return each candidate's objective over the job's best, float64[n]; infinite if it failed."""
    value: Real = np.where(table.ok[job], table.objective(by)[job], np.inf)
    value /= value.min()
    return value


def trials_to(played: Observations, ratio: Real, within: float) -> int | None:
    """Return the number of trials until one was within this share of the best; None if none was."""
    hits = np.flatnonzero(ratio[played.candidate] <= 1 + within)
    return int(hits[0]) + 1 if hits.size else None


def regret_after(played: Observations, ratio: Real, trials: int, *, most: float) -> float:
    """Return how much more the best of the first trials costs than the best, as a share of at most `most`."""
    seen = ratio[played.candidate[:trials]]
    return float(min(seen.min() - 1, most)) if seen.size else most


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
    """Judge the recommender `name` on each job, or on some `jobs`, with the other jobs' runs as its history.

    programs: whether to leave out the job's whole program.
    few: number of past jobs that are kept, drawn once for each job; None: all.
    more: further histories.
    most: largest number of trials of a search.
    Raises ScenarioError for an unknown name.
    """
    if name not in RECOMMENDERS:
        raise ScenarioError(f"no recommender {name!r}; there are {', '.join(RECOMMENDERS)}")
    for job in range(len(table.history.jobs)) if jobs is None else jobs:
        own = reachable(table.history, job)
        history = past(table, job, programs=programs, few=few, more=more)
        request = Request(Job(table.history.jobs[job]), own.candidates, history=history)
        ratio = ratios(own, job, Objective.COST)
        for seed, searcher in _searchers(RECOMMENDERS[name], request, seeds if name in _SEEDED else (0,)):
            yield _judged(table, name, own, job, seed, searcher, ratio, most)


def _searchers(of: Recommender, request: Request, seeds: Sequence[int]) -> Iterator[tuple[int, Searcher]]:
    """Yield a search for each seed. Learning from past jobs is done once, because no seed changes it."""
    first = of.searcher(request, seeds[0])
    for seed in seeds:
        yield (
            seed,
            replace(first, seed=seed) if isinstance(first, TransferSearch) else of.searcher(request, seed),
        )


def past(
    table: Table, job: int, *, programs: bool, few: int | None = None, more: Sequence[History] = ()
) -> History | None:
    """Return the history for a job: other jobs, fewer or of other programs only if asked for, and `more`."""
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
    whole = parts[0]
    for part in parts[1:]:
        whole = _stacked(whole, part)
    return whole


def _stacked(first: History, second: History) -> History:
    """Return the jobs of both over the candidates of both; none ran on the other's candidates."""
    shape = (len(first.jobs) + len(second.jobs), len(first.candidates) + len(second.candidates))
    time_s, cost, ok = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    for part, rows, columns in (
        (first, slice(None, len(first.jobs)), slice(None, len(first.candidates))),
        (second, slice(len(first.jobs), None), slice(len(first.candidates), None)),
    ):
        time_s[rows, columns], cost[rows, columns], ok[rows, columns] = part.time_s, part.cost_usd, part.ok
    return History(first.jobs + second.jobs, joined(first.candidates, second.candidates), time_s, cost, ok)


def _judged(
    table: Table, name: str, own: History, job: int, seed: int, searcher: Searcher, ratio: Real, most: int
) -> Judged:
    def enough(observed: Observations) -> bool:
        return len(observed) >= LOOK and bool((ratio[observed.candidate] <= 1 + WITHIN).any())

    played = play(searcher, answers(own, job), most=most, enough=enough).observed
    trials = trials_to(played, ratio, WITHIN)
    return Judged(
        table.name,
        name,
        own.jobs[job],
        seed,
        float("nan") if trials is None else float(trials),
        regret_after(played, ratio, LOOK, most=MOST_REGRET),
        *_ranking_worth(searcher, own, job, played, ratio),
    )


def _ranking_worth(
    searcher: Searcher, own: History, job: int, played: Observations, ratio: Real
) -> tuple[float, float, float]:
    """Return AUC over all candidates and over the untried, and coverage; NaN without predictions."""
    if not isinstance(searcher, TransferSearch) or len(played) < LOOK:
        return float("nan"), float("nan"), float("nan")
    seen = no_observations()
    for trial in range(LOOK):
        row = int(played.candidate[trial])
        seen = seen.with_trial(row, played.time_s[trial], played.cost_usd[trial], bool(played.ok[trial]))
    mean, deviation = searcher.predicted(seen)
    chance = searcher.chances(seen)
    top = np.isin(np.arange(ratio.size), np.argsort(ratio, kind="stable")[:TOP]) & (ratio <= TOP_FACTOR)
    left = ~np.isin(np.arange(ratio.size), seen.candidate)
    inside = np.abs(np.log(own.time_s[job]) - mean) <= 1.645 * deviation
    return auc(top, chance), auc(top[left], chance[left]), float(inside[left & own.ok[job]].mean())


def auc(positive: Flags, score: Real) -> float:
    """Return the probability that a positive scores above a negative, ties half; NaN without either."""
    high, low = score[positive], score[~positive]
    if not (high.size and low.size):
        return float("nan")
    greater = (high[:, None] > low[None, :]).mean()
    return float(greater + 0.5 * (high[:, None] == low[None, :]).mean())
