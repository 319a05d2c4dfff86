"""What past jobs teach about a job to come: laws that fit them, what no law explains, how far to trust both.

For: the prior of transfer.py, from a history over any candidates (not only those that are asked about). Not
for: the new job's own trials (belief.py), nor whether the past is to be believed at all (trust.py). Empirical
Bayes, a mixture: each past job weighs the laws of scaling.py; a new job obeys a law near one of theirs or,
with some weight, any law; on top of the law it has a residual, a Gaussian process whose covariance mixes that
of the past residuals with a smooth kernel. All of it is chosen by the evidence of the past jobs, the mixing
by leaving each of them out. Beside it stands what is believed without any past. Source: Rasmussen and
Williams 2006 §5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from control.recommender import kinship
from control.recommender.gaussian import Features, Kernel, features, fit
from control.recommender.local_level import Level
from control.recommender.model import Candidates, Flags, History, Real, Whole, joined
from control.recommender.scaling import Laws, Reference, alike, log_time, reference, sample

LAWS = 16384
"""Spread over six dimensions; with an eighth of them figures moved by which ones there were."""
LEAST_RUNS = 3
"""A past job with fewer runs that ended says nothing about shape."""
ANY_LAW = 2.0
"""Weight of "any law" against one past job each: with 10 past jobs a new one is unlike them with 17 %."""
UNLIKE_ALL = 3.0
"""With m past jobs a new one is like one of them, its residual too, with probability m / (m + this)."""
LIKE_ONE, STRANGER = 0.3, 3.0
"""The residual's variance relative to the population's: of a job that is like one past job (about its
residual), and of one that is unlike any. Together they have heavy tails."""
STRANGE = 0.2
"""Share of the jobs that are like no past one that are unlike any: a surprise must not be explained away."""
_POPULATION_AND_STRANGERS = (1.0, STRANGER)
UNTOLD = 0.5
"""The probability that a job follows past ones where nothing tells how far they may be trusted."""
_NONE, _MEAN, _FIRST_JOB = range(3)
"""Rows of Population.residuals."""
_LAWS_PER_JOB = 1024
_ROUNDS = 2
"""Of weighing laws and fitting the kernel in turn; a third changes nothing that matters."""
_LEVEL_VARIANCE = 20.0
"""Of a past job's constant: any level of time is as good as any other."""
_START = Kernel(variance=0.06, noise=0.005, lengths=np.ones(1), kinship=0.2)
"""Prior medians: residuals of 25 %, noise of 7 %, over a factor of e; little that is a type's own."""
_SHARES, _SMOOTH = (0.0, 0.3, 0.6, 1.0), (0.25, 0.5, 1.0, 1.5)
"""What is tried for the weight of the past residuals' covariance and of the smooth kernel."""
_FEW = 3
"""With fewer past jobs nothing can be left out, and the weights are these."""
_FEW_WEIGHTS = (0.25, 1.0)
_UNKNOWN_LEVEL, _LEVEL_SPREAD = float(np.log(600.0)), 2.0
"""Logarithm of a job's seconds before any is known, and the least variance of what past jobs say of it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of the mixture whose residuals have one covariance.

    kernel: of its smooth part, noise included; shapes: the rest of it is shapesᵀ shapes, float64[k, n];
    past: whether these entries believe in past jobs.
    """

    kernel: Kernel
    shapes: Real
    past: bool


@dataclass(frozen=True, slots=True)
class Population:
    """A prior over a job's logarithm of seconds at n candidates, a mixture of e entries in some groups.

    laws: all; law, residual: of each entry, int64[e]; log_weight: float64[e]; group: an index of groups,
    int64[e]; residuals: none, the past jobs' mean, each past job's, float64[2 + jobs, n] (without past jobs
    only the first); x: features of the candidates.
    """

    candidates: Candidates
    laws: Laws
    at: Reference
    law: Whole
    residual: Whole
    log_weight: Real
    group: Whole
    groups: tuple[Group, ...]
    residuals: Real
    x: Features
    level: float
    level_variance: float
    past_jobs: tuple[str, ...]

    def law_time(self, entries: Whole, rows: Whole | slice) -> Real:
        """Each entry's mean at some candidates before any trial, float64[e', n']."""
        part = self.candidates if isinstance(rows, slice) else self.candidates.take(rows)
        chosen, back = np.unique(self.law[entries], return_inverse=True)
        laws = self.laws.take(chosen)
        anchors = np.linspace(0, len(self.candidates) - 1, min(64, len(self.candidates))).astype(np.int64)
        middle = log_time(laws, self.candidates.take(anchors), self.at).mean(axis=1, keepdims=True)
        shape = log_time(laws, part, self.at) - middle
        mean: Real = shape[back] + self.residuals[:, rows][self.residual[entries]] + self.level
        return mean

    def covariance(self, row: int, group: int) -> Real:
        """Covariance of one candidate with all, without noise, float64[n]."""
        of = self.groups[group]
        smooth = of.kernel(self.x, self.x.take(np.array([row])))[:, 0]
        total: Real = smooth + of.shapes.T @ of.shapes[:, row] + self.level_variance
        return total

    def variance(self, group: int) -> Real:
        """The prior's variance at every candidate, without noise, float64[n]."""
        of = self.groups[group]
        total: Real = of.kernel.variance + (of.shapes**2).sum(axis=0) + self.level_variance
        return total

    def noise(self) -> Real:
        """The variance of a run about what its job takes there, of each group, float64[g]."""
        return np.array([of.kernel.noise for of in self.groups])


@dataclass(frozen=True, slots=True)
class _Past:
    """The usable past jobs: log seconds where they ended, which ended, and bounds where they did not."""

    names: tuple[str, ...]
    candidates: Candidates
    log_time: Real
    ended: Flags
    bound: Real


@dataclass(frozen=True, slots=True)
class _Part:
    """Entries of one group: their laws, their rows of residuals, and their weights."""

    law: Whole
    residual: Whole
    weight: Real
    group: Group

    def scaled(self, by: float) -> _Part:
        """The same with another weight in all."""
        return replace(self, weight=by * self.weight)


def learn(
    history: History | None,
    candidates: Candidates,
    known_level: Level | None = None,
    trusted: float = UNTOLD,
    name: str = "",
) -> Population:
    """The prior of a new job over `candidates`; without a history, what physics alone makes likely.

    The history's candidates may be others; known_level: from the job's local run, instead of what past jobs
    say of how long jobs take; trusted: the probability that the job follows past ones at all (trust.py);
    name: the new job's, which tells its kin (kinship.py). The cost grows with jobs and the cube of the
    history's candidates.
    """
    past = _usable(history)
    both = candidates if past is None else joined(past.candidates, candidates)
    known, n = len(both) - len(candidates), len(candidates)
    x, at, laws = features(both), reference(both), sample(both, LAWS)
    start = replace(_START, lengths=np.ones(x.values.shape[1]))
    here, there = x.take(slice(0, known)), x.take(slice(known, None))
    parts = _without_past(start, n)
    residuals = np.zeros((1, n))
    level, spread = _UNKNOWN_LEVEL, 2 * _LEVEL_SPREAD
    if past is not None:
        shape = log_time(laws, past.candidates, at)
        shape -= shape.mean(axis=1, keepdims=True)
        place = laws.place()
        kernel, weights, residual = _fit(past, here, shape, place, start)
        residual, level, spread = _with_failures(past, kernel, here, shape, weights, residual)
        share, smooth = _mixing(_projected(past, kernel, here, here, residual), kernel, here)
        told = _projected(past, kernel, here, there, residual)
        scaled = weights @ shape + _projected(past, kernel, here, here, residual)
        kin = kinship.weights(name, past.names, _likely(past, kernel, here, scaled))
        mean, shapes = _moments(told, share, n)
        residuals = np.vstack([residuals, mean[None, :], told])
        kernel = replace(kernel, variance=kernel.variance * smooth)
        parts = [
            *(part.scaled(1 - trusted) for part in parts),
            *(part.scaled(trusted) for part in _of_past(place, weights, kernel, shapes, kin)),
        ]
    if known_level is not None:
        level, spread = known_level.mean, known_level.deviation**2
    return Population(
        candidates=candidates,
        laws=laws,
        at=at,
        law=np.concatenate([part.law for part in parts]),
        residual=np.concatenate([part.residual for part in parts]),
        log_weight=np.log(np.maximum(np.concatenate([part.weight for part in parts]), 1e-300)),
        group=np.concatenate([np.full(part.law.size, place) for place, part in enumerate(parts)]),
        groups=tuple(part.group for part in parts),
        residuals=residuals,
        x=there,
        level=level,
        level_variance=spread,
        past_jobs=() if past is None else past.names,
    )


def usable_jobs(history: History) -> Whole:
    """Which past jobs have runs enough to tell a shape, int64[m]."""
    ended = history.ok & np.isfinite(history.time_s)
    return np.flatnonzero(ended.sum(axis=1) >= LEAST_RUNS)


def _usable(history: History | None) -> _Past | None:
    if history is None:
        return None
    kept = usable_jobs(history)
    if not kept.size:
        return None
    ran = np.isfinite(history.time_s)
    used = np.flatnonzero(ran[kept].any(axis=0))
    rows = np.ix_(kept, used)
    ended = history.ok[rows] & ran[rows]
    log_time_s = np.log(np.where(ran[rows], history.time_s[rows], 1.0))
    return _Past(
        names=tuple(history.jobs[job] for job in kept),
        candidates=history.candidates.take(used),
        log_time=np.where(ended, log_time_s, 0.0),
        ended=ended,
        bound=np.where(ran[rows] & ~ended, log_time_s, np.nan),
    )


def _fit(past: _Past, x: Features, shape: Real, place: Real, start: Kernel) -> tuple[Kernel, Real, Real]:
    """The kernel, each past job's weights over laws, and its residuals where it ended."""
    jobs, count = len(past.names), len(shape)
    weights, residual = np.full((jobs, count), 1 / count), np.zeros((jobs, shape.shape[1]))
    prior, kernel = np.full(count, 1 / count), start
    for _ in range(_ROUNDS if jobs else 0):
        for job in range(jobs):
            rows = np.flatnonzero(past.ended[job])
            weights[job] = _weigh(past.log_time[job, rows], shape[:, rows], x.take(rows), kernel, prior)
            rest = past.log_time[job, rows] - (weights[job] @ shape)[rows]
            residual[job, rows] = rest - rest.mean()
        draws = [(np.flatnonzero(past.ended[job]), residual[job, past.ended[job]]) for job in range(jobs)]
        kernel = fit(x, draws, start, level_variance=_LEVEL_VARIANCE)
        prior = _spread_weights(place, weights, np.ones(jobs))
    return kernel, weights, residual


def _weigh(values: Real, shape: Real, x: Features, kernel: Kernel, prior: Real) -> Real:
    """Posterior weights of the laws given one job's values, float64[k]."""
    covariance = kernel(x, x) + _LEVEL_VARIANCE
    covariance[np.diag_indices_from(covariance)] += kernel.noise
    inverse = np.linalg.inv(covariance)
    rest = values - shape
    rest -= rest.mean(axis=1, keepdims=True)
    score = np.log(prior) - 0.5 * np.einsum("kn,kn->k", rest @ inverse, rest)
    likely = np.exp(score - score.max())
    found: Real = likely / likely.sum()
    return found


def _spread_weights(place: Real, weights: Real, kin: Real) -> Real:
    """The prior over laws for a job to come: near those of past jobs, or any. kin: how much each counts."""
    total = np.full(len(place), ANY_LAW / len(place))
    for job, counts in zip(weights, kin, strict=True):
        total += counts * alike(place, job)
    found: Real = total / total.sum()
    return found


def _with_failures(
    past: _Past, kernel: Kernel, x: Features, shape: Real, weights: Real, residual: Real
) -> tuple[Real, float, float]:
    """Residuals with those of failed runs, at least their bounds; mean and variance of the jobs' levels."""
    full, levels = residual.copy(), np.zeros(len(past.names))
    smooth = _projected(replace(past, bound=np.full_like(past.bound, np.nan)), kernel, x, x, residual)
    for job in range(len(past.names)):
        rows = past.ended[job]
        law = weights[job] @ shape
        levels[job] = past.log_time[job, rows].mean() - law[rows].mean()
        failed = np.isfinite(past.bound[job])
        least = past.bound[job, failed] - law[failed] - levels[job]
        full[job, failed] = np.maximum(smooth[job, failed], least)
    return full, float(levels.mean()), float(levels.var()) + _LEVEL_SPREAD


def _projected(past: _Past, kernel: Kernel, x: Features, onto: Features, residual: Real) -> Real:
    """Each past job's residual at other candidates, from where it ran, float64[jobs, n]."""
    ran = past.ended | np.isfinite(past.bound)
    full = np.zeros((len(ran), len(onto.kind)))
    for mask in np.unique(ran, axis=0):
        jobs, rows = np.flatnonzero((ran == mask).all(axis=1)), np.flatnonzero(mask)
        known = x.take(rows)
        covariance = kernel(known, known) + _LEVEL_VARIANCE
        covariance[np.diag_indices_from(covariance)] += kernel.noise
        solved = np.linalg.solve(covariance, residual[np.ix_(jobs, rows)].T)
        full[jobs] = ((kernel(onto, known) + _LEVEL_VARIANCE) @ solved).T
    return full


def _moments(full: Real, share: float, n: int) -> tuple[Real, Real]:
    """Mean of the past residuals, drawn to 0 as by one more job without any, and their shapes."""
    jobs = len(full)
    if jobs == 0:
        return np.zeros(n), np.zeros((0, n))
    mean = full.sum(axis=0) / (jobs + 1)
    if jobs == 1:
        return mean, np.zeros((0, n))
    scale = np.sqrt(share * (1 + 1 / jobs) / (jobs - 1))
    return mean, scale * (full - full.mean(axis=0))


def _mixing(full: Real, kernel: Kernel, x: Features) -> tuple[float, float]:
    """The weights of past covariance and smooth kernel under which each past job is likeliest, left out."""
    if len(full) < _FEW:
        return _FEW_WEIGHTS
    smooth = kernel(x, x)
    others = [np.delete(full, job, axis=0) for job in range(len(full))]
    best, found = -np.inf, _FEW_WEIGHTS
    for share in _SHARES:
        for weight in _SMOOTH:
            score = 0.0
            for job, rest in enumerate(others):
                mean, shapes = _moments(rest, share, full.shape[1])
                covariance = weight * smooth + shapes.T @ shapes + _LEVEL_VARIANCE
                covariance[np.diag_indices_from(covariance)] += kernel.noise
                lower = np.linalg.cholesky(covariance)
                z = np.linalg.solve(lower, full[job] - mean)
                score -= 0.5 * float(z @ z) + float(np.log(np.diag(lower)).sum())
            if score > best:
                best, found = score, (share, weight)
    return found


def _without_past(start: Kernel, n: int) -> list[_Part]:
    """Any law, and residuals as before any job was seen."""
    nothing, each = np.zeros((0, n)), np.full(LAWS, 1 / LAWS)
    return [_part(each, start, nothing, spread, past=False) for spread in _POPULATION_AND_STRANGERS]


def _likely(past: _Past, kernel: Kernel, x: Features, shape: Real) -> Real:
    """Log likelihood of each past job if it is like each other one, up to a constant of its own, [m, m].

    shape: of each past job's log time, float64[m, n].
    """
    found = np.zeros((len(shape), len(shape)))
    for job, ended in enumerate(past.ended):
        rows = np.flatnonzero(ended)
        known = x.take(rows)
        covariance = LIKE_ONE * kernel(known, known) + _LEVEL_VARIANCE
        covariance[np.diag_indices_from(covariance)] += kernel.noise
        rest = past.log_time[job, rows] - shape[:, rows]
        rest -= rest.mean(axis=1, keepdims=True)
        found[job] = -0.5 * np.einsum("mn,mn->m", rest, np.linalg.solve(covariance, rest.T).T)
    return found


def _of_past(place: Real, weights: Real, kernel: Kernel, shapes: Real, kin: Real) -> list[_Part]:
    """Laws and residuals of the population, and those near one past job each. kin: a past job's weight."""
    jobs = len(weights)
    likely = kin.sum() / (kin.sum() + UNLIKE_ALL)
    prior = _spread_weights(place, weights, kin)
    parts = [
        _part(prior, kernel, shapes, spread, past=True).scaled(1 - likely)
        for spread in _POPULATION_AND_STRANGERS
    ]
    near = np.array([alike(place, job) for job in weights])
    top = np.argsort(-near, axis=1, kind="stable")[:, :_LAWS_PER_JOB]
    weight = np.take_along_axis(near, top, axis=1)
    weight *= likely * (kin / kin.sum())[:, None] / weight.sum(axis=1, keepdims=True)
    of = np.repeat(np.arange(jobs) + _FIRST_JOB, top.shape[1])
    parts.append(_Part(top.ravel(), of, weight.ravel(), _group(kernel, shapes, LIKE_ONE, past=True)))
    return parts


def _part(weight: Real, kernel: Kernel, shapes: Real, spread: float, *, past: bool) -> _Part:
    """All laws by `weight`, with the residuals of the population or of a stranger to it."""
    share = STRANGE if spread == STRANGER else 1 - STRANGE
    mean = np.full(LAWS, _MEAN if past else _NONE)
    return _Part(np.arange(LAWS), mean, weight * share, _group(kernel, shapes, spread, past=past))


def _group(kernel: Kernel, shapes: Real, spread: float, *, past: bool) -> Group:
    return Group(replace(kernel, variance=kernel.variance * spread), np.sqrt(spread) * shapes, past)
