"""Which past jobs a job is likely to resemble, told by its name before any trial: kin share parts of it.

For: weights of past jobs in population.py. Not for: whether past jobs are to be believed at all (trust.py).
A name is a path, as in `sort/spark/large`: what runs, with what, on what. How much a shared part says is
learned from the past jobs themselves: those of the same program may scale alike, those on data of the same
size need not. Each part's factor is averaged over a few that are possible, by how likely every past job is,
told from the others with such weights. Source: Bernardo and Smith 1994 §6.1 (weights of models by
cross-validation); the factors are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.special import logsumexp

from control.recommender.model import Flags, Real

PARTS = 3
"""Of a name, from its beginning; what follows is one part with the last."""
FACTORS = (1.0, 3.0, 9.0)
"""How many times likelier a past job is that shares a part; a factor of 3 is the least that is worth telling
from none by a dozen jobs, and with 9 twice as many strangers are still heard."""


def weights(name: str, past: Sequence[str], likely: Real) -> Real:
    """Of each past job, relative to one that shares nothing with the job `name`, float64[m].

    likely: log likelihood of past job i if it is like past job j, float64[m, m], the diagonal unused.
    """
    if not past:
        return np.empty(0)
    shared = _shared([name], past)[0]
    exponents = np.array(list(product(np.log(FACTORS), repeat=PARTS)))
    score = _evidence(exponents, _shared(past, past), likely)
    believed = np.exp(score - logsumexp(score))
    found: Real = believed @ np.exp(exponents @ shared.T)
    return found


def _evidence(exponents: Real, shared: Flags, likely: Real) -> Real:
    """Log likelihood of all past jobs, each told from the others, for each set of factors, float64[k]."""
    if len(likely) < 2:
        return np.zeros(len(exponents))
    apart = np.where(np.eye(len(likely), dtype=np.bool_), -np.inf, 0.0)
    weight = np.einsum("kp,ijp->kij", exponents, shared) + apart
    weight -= logsumexp(weight, axis=2, keepdims=True)
    found: Real = logsumexp(weight + likely, axis=2).sum(axis=1)
    return found


def _shared(names: Sequence[str], others: Sequence[str]) -> Flags:
    """Whether two names have the same part at the same place, bool[n, m, PARTS]."""
    ours, theirs = (np.array([_parts(each) for each in group], dtype=np.str_) for group in (names, others))
    same: Flags = (ours[:, None, :] == theirs[None, :, :]) & (ours[:, None, :] != "")
    return same


def _parts(name: str) -> list[str]:
    parts = name.split("/", PARTS - 1)
    return parts + [""] * (PARTS - len(parts))
