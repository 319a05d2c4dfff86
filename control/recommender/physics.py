"""Physical bounds on predictions: no speed-up beyond linear where nothing was measured.

For: every ranking and search that predicts. Twice the workers of a type at best halve the time, unless a
trial shows that they do better (memory or caches). Beyond the widest trial of a type, a prediction is drawn
towards a law of scaling fitted to that type's trials, the more so the farther it extrapolates. Not for:
predicting, nor for narrower clusters, which may well be slower than linear if memory is short. Source: Ernest
(NSDI 2016) §3 for the law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from control.jobs import Candidates, History, Real, Whole
from control.recommender.ports import Observations
from control.recommender.ranking import Prediction


def bounded(predicted: Prediction, candidates: Candidates, observed: Observations) -> Prediction:
    """Return the prediction within the physical bounds. Beyond the trials it is drawn towards their law. No
    untried candidate is faster than linear from a narrower cluster of its type."""
    log_time, deviation = predicted.log_time.copy(), predicted.deviation.copy()
    tried = _tried(observed)
    for rows in _widths(candidates):
        log_count = np.log(candidates.count[rows])
        known = np.array([row in tried for row in rows.tolist()])
        if known.sum() > 1:
            trials = np.array([tried[row] for row in rows[known].tolist()])
            law = _law(log_count[known], trials, log_count)
            lean = np.maximum(1 - np.exp(log_count[known].max() - log_count), 0.0)
            apart = law - log_time[rows]
            log_time[rows] += lean * apart
            deviation[rows] = np.hypot(deviation[rows], np.sqrt(lean * (1 - lean)) * apart)
        least = -np.inf
        for row, log_n in zip(rows.tolist(), log_count, strict=True):
            if row in tried:
                least = max(tried[row], log_time[row]) + log_n
            else:
                log_time[row] = max(log_time[row], least - log_n)
                least = log_time[row] + log_n
    return replace(predicted, log_time=log_time, deviation=deviation)


def least_log_time(candidates: Candidates, observed: Observations, history: History | None) -> Real:
    """Return the log seconds that linear speed-up from the next narrower trial of the type gives, float64[n].

    It is −inf for tried candidates, where no trial is narrower, and up to the widest cluster of the type that
    past jobs ran on, which have shown what memory does there.
    """
    least = np.full(len(candidates), -np.inf)
    tried = _tried(observed)
    for rows in _widths(candidates):
        shown, work = 0, -np.inf
        if history is not None:
            same = history.candidates.name == candidates.name[rows[0]]
            shown = int(history.candidates.count[same].max(initial=0))
        for row in rows.tolist():
            log_n = float(np.log(candidates.count[row]))
            if row in tried:
                work = tried[row] + log_n
            elif candidates.count[row] > shown:
                least[row] = work - log_n
    return least


def _tried(observed: Observations) -> dict[int, float]:
    """Return the log seconds of the successful trials by candidate; the median of repeated ones."""
    rows, log_time = observed.candidate[observed.ok], np.log(observed.time_s[observed.ok])
    return {int(row): float(np.median(log_time[rows == row])) for row in np.unique(rows)}


def _widths(candidates: Candidates) -> Iterator[Whole]:
    """Yield groups of candidates that differ only in their number of workers, the narrowest first."""
    numbers = [candidates.batch, candidates.servers.astype(np.float64), *candidates.parameters.values()]
    names = [np.unique(column, return_inverse=True)[1] for column in (candidates.name, candidates.server)]
    keys = np.nan_to_num(np.column_stack([*names, *numbers]), nan=-1.0)
    group = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    order = np.lexsort((candidates.count, group))
    yield from np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _law(log_count: Real, log_time: Real, asked: Real) -> Real:
    """Return log seconds at some widths. The law has a serial share, a parallel share and an overhead per
    worker, none negative, fitted to the trials' relative errors."""
    terms = np.column_stack([np.ones_like(log_count), np.exp(-log_count), np.exp(log_count)])
    weight, _ = nnls(terms * np.exp(-log_time)[:, None], np.ones_like(log_time))
    at = np.column_stack([np.ones_like(asked), np.exp(-asked), np.exp(asked)])
    law: Real = np.log(at @ weight)
    return law
