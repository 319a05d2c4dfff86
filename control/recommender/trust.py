"""How far past jobs may be trusted: whether each of them could have been predicted from the others.

For: the prior probability in prior.py that a new job follows the history. The job's own trials then update it
(posterior.py). Not for: which past job a new one resembles.

Each past job takes the role of the new job. Its first trials have a likelihood under the prior learned from
the other jobs and under the prior without a history, averaged over several random orders. The share of jobs
that follow the others has Jeffreys' prior and these likelihoods. m jobs give m − 1 comparisons (two jobs are
one pair), so a single past job gives none, and its trust is 0.5. The same left-out jobs determine the width
of intervals (`Belief.width`). Sources: Dawid, 1984 (prequential likelihood); Bernardo and Smith 1994 §6.1
(model weights by cross-validation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import History, Real, Whole
from control.recommender.ports import Observations
from control.recommender.posterior import condition
from control.recommender.prior import DEFAULT_TRUST, fit_prior, usable_jobs

TRIALS = 5
"""Number of trials of a past job in each order: as many as a search should take. Later, the job's own trials
decide."""
ORDERS = 8
"""Random orders over which a past job's log odds are averaged."""
FOLDS = 5
"""Number of parts in which past jobs are left out, because fitting a prior is slow. With fewer jobs, one at a
time."""
WIDTH_TRIALS, WIDTH_ORDERS, WIDTH_JOBS = 3, 2, 4
"""Number of trials after which intervals are compared with the left-out jobs' other runs, number of random
orders per job, and least number of jobs that can determine the width of intervals."""
WIDTHS = (0.5, 2.0)
"""Range of the factor on a standard deviation."""
_NORMAL_90 = 1.6449
"""Standard deviations within which a normal variable lies with a probability of 90 %."""
_GRID = 400
"""Number of points of the grid over the share."""
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Belief:
    """Trust in past jobs, determined from themselves.

    trust: probability that a new job follows them.
    width: factor on a prediction's standard deviation with which 90 % of the past jobs' runs would have been
    in their intervals.
    """

    trust: float = DEFAULT_TRUST
    width: float = 1.0


def belief(history: History | None) -> Belief:
    """Return how far the jobs of the history may be trusted, and how wide intervals must be."""
    if history is None:
        return Belief()
    odds, scores = left_out(history)
    width = 1.0
    if odds.size >= WIDTH_JOBS and scores.size:
        width = float(np.clip(np.quantile(scores, 0.9) / _NORMAL_90, *WIDTHS))
    return Belief(share(odds), width)


def left_out(history: History) -> tuple[Real, Real]:
    """Return the log likelihood ratio of the trials of each of m usable past jobs, float64[m], and the errors
    of their other runs in standard deviations, float64[k].

    The ratio compares the prior from the other past jobs with the prior without any. One prior is fitted per
    fold.
    """
    jobs = usable_jobs(history)
    odds, scores = np.zeros(jobs.size), [np.empty(0)]
    if jobs.size < 2:
        return odds, scores[0]
    folds = min(FOLDS, jobs.size)
    for fold in range(folds):
        left = np.arange(jobs.size) % folds == fold
        prior = fit_prior(history.take(jobs[~left]), history.candidates)
        for place in np.flatnonzero(left):
            job = int(jobs[place])
            ran = np.flatnonzero(np.isfinite(history.time_s[job]))
            total = 0.0
            for order in range(ORDERS):
                rows = np.random.default_rng([job, order]).permutation(ran).astype(np.int64)
                follows = condition(prior, _trials(history, job, rows[:TRIALS])).follows_history
                total += float(np.log(max(follows, _LEAST)) - np.log(max(1 - follows, _LEAST)))
                if order < WIDTH_ORDERS:
                    others = rows[WIDTH_TRIALS:][history.ok[job, rows[WIDTH_TRIALS:]]]
                    mean, deviation = condition(prior, _trials(history, job, rows[:WIDTH_TRIALS])).summary()
                    apart = np.log(history.time_s[job, others]) - mean[others]
                    scores.append(np.abs(apart) / deviation[others])
            odds[place] = total / ORDERS
    return odds, np.concatenate(scores)


def _trials(history: History, job: int, rows: Whole) -> Observations:
    return Observations(rows, history.time_s[job, rows], history.cost_usd[job, rows], history.ok[job, rows])


def share(odds: Real) -> float:
    """Return the posterior mean of the share of jobs that follow the others, given m log odds."""
    jobs = odds.size
    if jobs < 2:
        return DEFAULT_TRUST
    # Jeffreys' prior of a share is uniform in the arcsine of its square root.
    follow = np.sin((np.arange(_GRID) + 0.5) / _GRID * np.pi / 2) ** 2
    log_likelihood = np.logaddexp(np.log(follow)[:, None] + odds[None, :], np.log1p(-follow)[:, None])
    score = log_likelihood.sum(axis=1) * (jobs - 1) / jobs
    posterior = np.exp(score - score.max())
    return float(follow @ posterior / posterior.sum())
