"""Searches played on measured tables: a trial is paid for before its answer is seen, and figures of the play.

For: judging every recommender by the same trials. Not for: tables themselves (measured_tables.py) or verdicts
(evaluate_recommenders.py). The searcher gets positions among candidates and what it has paid for; the table
stays on this side. A trial that failed or timed out is paid for, too, and never counts as found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from control.jobs import History, Objective, Real
from control.recommender.ports import Observations, Searcher, Stop, no_observations
from twinbed import InvariantError

Answer = Callable[[int], tuple[float, float, bool]]
"""Runs a candidate: seconds, US dollars, and whether it ended as it should."""


@dataclass(frozen=True, slots=True)
class Played:
    """A search that was played.

    observed: its trials in order; stopped: after how many trials it wished to stop (None: it never did);
    best: the candidate that it would then take.
    """

    observed: Observations
    stopped: int | None
    best: int | None


def play(
    searcher: Searcher,
    answer: Answer,
    *,
    most: int,
    enough: Callable[[Observations], bool] | None = None,
) -> Played:
    """Plays a search for at most `most` trials, or until `enough` says so.

    A search that stops by itself is heard and ends. Raises InvariantError if it repeats a trial.
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
    """One job's row of a table, to be paid for entry by entry."""
    return partial(table.run, job)


def reachable(table: History, job: int) -> History:
    """The table of the candidates that `job` was measured on: what a search may propose."""
    rows = np.flatnonzero(np.isfinite(table.time_s[job]))
    return History(
        table.jobs,
        table.candidates.take(rows),
        table.time_s[:, rows],
        table.cost_usd[:, rows],
        table.ok[:, rows],
    )


def ratios(table: History, job: int, by: Objective) -> Real:
    """Each candidate's objective over the job's best, float64[n]; infinite where it failed or was not run."""
    value = np.where(table.ok[job], table.objective(by)[job], np.inf)
    found: Real = value / value.min()
    return found


def trials_to(played: Observations, ratio: Real, within: float) -> int | None:
    """How many trials until one was within the share `within` of the best; None if none was."""
    found = np.flatnonzero(ratio[played.candidate] <= 1 + within)
    return int(found[0]) + 1 if found.size else None


def regret_after(played: Observations, ratio: Real, trials: int, *, most: float) -> float:
    """How much more the best of the first trials costs than the best there is, as a share, at most `most`."""
    seen = ratio[played.candidate[:trials]]
    return float(min(seen.min() - 1, most)) if seen.size else most
