"""Whether past jobs are to be believed at all: could each of them have been told from the others?

For: the prior probability, in population.py, that a new job follows past jobs; its own trials move it from
there (belief.py). Not for: which past job it is like. Each past job plays the new one: the others' prior and
the prior of a job without a past say how likely its first probes are, several times in random order. The
share of jobs that follow the others has Jeffreys' prior and these likelihoods; m jobs make m − 1 comparisons
(two are one pair), so that one past job says nothing of itself and is believed by half. Sources: Dawid, 1984
(prequential likelihood); Bernardo and Smith 1994 §6.1 (weights of models by cross-validation).
"""

from __future__ import annotations

import numpy as np

from control.recommender.belief import believe
from control.recommender.model import History, Observations, Real, Whole
from control.recommender.population import UNTOLD, learn, usable_jobs

PROBES = 5
"""Of a past job in each order: as many trials as a search should take. After them trials speak louder."""
ORDERS = 8
FOLDS = 5
"""Past jobs are left out in so many parts, one by one where there are fewer; learning is the slow part."""
_GRID = 400
_LEAST = 1e-12


def trust(history: History | None) -> float:
    """The probability that a job to come follows those of the history."""
    if history is None:
        return UNTOLD
    return share(log_odds(history))


def log_odds(history: History) -> Real:
    """Of each usable past job, how much likelier the others make its probes than no past does, log, [m].

    The cost is that of learning, once per fold.
    """
    jobs = usable_jobs(history)
    if jobs.size < 2:
        return np.zeros(jobs.size)
    found = np.zeros(jobs.size)
    folds = min(FOLDS, jobs.size)
    for fold in range(folds):
        left_out = np.arange(jobs.size) % folds == fold
        prior = learn(_rows(history, jobs[~left_out]), history.candidates, trusted=UNTOLD)
        for place in np.flatnonzero(left_out):
            job = int(jobs[place])
            ran = np.flatnonzero(np.isfinite(history.time_s[job]))
            total = 0.0
            for order in range(ORDERS):
                rows = np.random.default_rng([job, order]).permutation(ran)[:PROBES]
                past = believe(prior, _trials(history, job, rows)).past_share
                total += float(np.log(max(past, _LEAST)) - np.log(max(1 - past, _LEAST)))
            found[place] = total / ORDERS
    return found


def share(odds: Real) -> float:
    """The posterior mean of the share of jobs that follow the others; log odds: of each past job."""
    jobs = odds.size
    if jobs < 2:
        return UNTOLD
    # Jeffreys' prior of a share is uniform in the arcsine of its root.
    follow = np.sin((np.arange(_GRID) + 0.5) / _GRID * np.pi / 2) ** 2
    each = np.logaddexp(np.log(follow)[:, None] + odds[None, :], np.log1p(-follow)[:, None])
    score = each.sum(axis=1) * (jobs - 1) / jobs
    likely = np.exp(score - score.max())
    return float(follow @ likely / likely.sum())


def _rows(history: History, jobs: Whole) -> History:
    names = tuple(history.jobs[job] for job in jobs)
    return History(names, history.candidates, history.time_s[jobs], history.cost_usd[jobs], history.ok[jobs])


def _trials(history: History, job: int, rows: Whole) -> Observations:
    return Observations(
        rows.astype(np.int64), history.time_s[job, rows], history.cost_usd[job, rows], history.ok[job, rows]
    )
