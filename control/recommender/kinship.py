"""Prior weights of past jobs from their names: the more of the new job's name a past job shares, the more it
weighs.

For: how likely a new job is to resemble each past job before any trial (prior.py). Not for: whether past jobs
are to be believed at all (trust.py). A name is a path such as `sort/spark/large`: program, framework, data.
The weight of a shared part is learned from the past jobs: jobs of the same program may scale alike, while
jobs on data of the same size may not. The weights are averaged over a grid of factors, each weighed by the
leave-one-out likelihood of all past jobs under it. Source: Bernardo and Smith 1994 §6.1 (model weights by
cross-validation); the grid is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.special import logsumexp

from control.jobs import Flags, Real

PARTS = 3
"""Leading parts of a name that are compared; the last of them includes all that follows."""
FACTORS = (1.0, 3.0, 9.0)
"""Grid of factors by which a shared part raises a past job's weight. A dozen jobs can just distinguish a
factor of 3 from no factor. At 9, unrelated jobs still count if they are twice as many."""


def weights(name: str, past: Sequence[str], log_likelihood: Real) -> Real:
    """Return the weight of each of m past jobs relative to one whose name shares nothing with `name`,
    float64[m].

    log_likelihood: log likelihood of past job i if it resembles past job j, float64[m, m]; the diagonal is
        unused.
    """
    if not past:
        return np.empty(0)
    shared = _shared_parts([name], past)[0]
    log_factors = np.array(list(product(np.log(FACTORS), repeat=PARTS)))
    score = _leave_one_out(log_factors, _shared_parts(past, past), log_likelihood)
    posterior = np.exp(score - logsumexp(score))
    mean: Real = posterior @ np.exp(log_factors @ shared.T)
    return mean


def _leave_one_out(log_factors: Real, shared: Flags, log_likelihood: Real) -> Real:
    """Return the leave-one-out log likelihood of all past jobs for each of k sets of factors, float64[k]."""
    if len(log_likelihood) < 2:
        return np.zeros(len(log_factors))
    not_itself = np.where(np.eye(len(log_likelihood), dtype=np.bool_), -np.inf, 0.0)
    log_weight = np.einsum("kp,ijp->kij", log_factors, shared) + not_itself
    log_weight -= logsumexp(log_weight, axis=2, keepdims=True)
    score: Real = logsumexp(log_weight + log_likelihood, axis=2).sum(axis=1)
    return score


def _shared_parts(names: Sequence[str], others: Sequence[str]) -> Flags:
    """Return whether two names have the same part at the same place, bool[n, m, PARTS]."""
    left, right = (np.array([_parts(name) for name in group], dtype=np.str_) for group in (names, others))
    same: Flags = (left[:, None, :] == right[None, :, :]) & (left[:, None, :] != "")
    return same


def _parts(name: str) -> list[str]:
    parts = name.split("/", PARTS - 1)
    return parts + [""] * (PARTS - len(parts))
