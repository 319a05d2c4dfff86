"""How far past jobs may be believed: could each of them have been predicted from the others?

For: the prior probability in prior.py that a new job follows the history; the job's own trials move it from
there (posterior.py). Not for: which past job a new one resembles. Each past job plays the new one. The prior
that is learned from the others and the prior without a history say how likely its first trials are, several
times in random order. The share of jobs that follow the others has Jeffreys' prior and these likelihoods. m
jobs make m − 1 comparisons (two jobs are one pair), so that a single past job says nothing about itself and
is believed by half. Sources: Dawid, 1984 (prequential likelihood); Bernardo and Smith 1994 §6.1 (model
weights by cross-validation).
"""

from __future__ import annotations

import numpy as np

from control.jobs import History, Real
from control.recommender.ports import Observations
from control.recommender.posterior import condition
from control.recommender.prior import DEFAULT_TRUST, fit_prior, usable_jobs

TRIALS = 5
"""Trials of a past job in each order: as many as a search should take. After them the job's own trials
decide."""
ORDERS = 8
"""Random orders over which a past job's log odds are averaged."""
FOLDS = 5
"""Number of parts in which past jobs are left out, because fitting a prior is slow; one by one if they are
fewer."""
_GRID = 400
"""Points of the grid over the share."""
_LEAST = 1e-12


def trust(history: History | None) -> float:
    """Return the probability that a new job follows the jobs of the history."""
    return DEFAULT_TRUST if history is None else share(log_odds(history))


def log_odds(history: History) -> Real:
    """Return for each of m usable past jobs the log likelihood ratio of its trials, float64[m].

    The ratio compares the prior from the other past jobs with the prior without any. A prior is fitted per
    fold.
    """
    jobs = usable_jobs(history)
    odds = np.zeros(jobs.size)
    if jobs.size < 2:
        return odds
    folds = min(FOLDS, jobs.size)
    for fold in range(folds):
        left_out = np.arange(jobs.size) % folds == fold
        prior = fit_prior(history.take(jobs[~left_out]), history.candidates, trust=DEFAULT_TRUST)
        for place in np.flatnonzero(left_out):
            job = int(jobs[place])
            ran = np.flatnonzero(np.isfinite(history.time_s[job]))
            total = 0.0
            for order in range(ORDERS):
                rows = np.random.default_rng([job, order]).permutation(ran)[:TRIALS].astype(np.int64)
                runs = (history.time_s[job, rows], history.cost_usd[job, rows], history.ok[job, rows])
                follows = condition(prior, Observations(rows, *runs)).follows_history
                total += float(np.log(max(follows, _LEAST)) - np.log(max(1 - follows, _LEAST)))
            odds[place] = total / ORDERS
    return odds


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
