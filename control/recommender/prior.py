"""The prior over a new job's log time at every candidate, learned from past jobs by empirical Bayes.

For: where transfer.py starts, from past runs on any candidates (not only those that are asked about). Not
for: the new job's own trials (posterior.py), nor how far past jobs may be believed at all (trust.py).

The prior is a mixture. Each component is a law of scaling_laws.py plus a residual, which is a Gaussian
process over the candidates. There are two hypotheses:
1. The job follows the history. It resembles one past job (a law near that job's laws, that job's residual as
    the mean, and little variance), or it is another member of their population, or a stranger with three
    times the variance. The residuals' covariance mixes the empirical covariance of past residuals with a
    smooth kernel.
2. The job does not. Any law is as likely as any other, and residuals have the default kernel.
Past jobs determine the kernel and the weights of laws by their evidence, and the mixing of the covariance by
leave-one-out likelihood. Source: Rasmussen and Williams 2006 §5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from control.jobs import Candidates, Flags, History, Real, Whole, joined
from control.recommender import kinship
from control.recommender.analytic import Level
from control.recommender.gaussian import Features, Kernel, features, fit
from control.recommender.scaling_laws import Laws, Reference, log_time, reference, sample, smoothed

LAWS = 16384
"""Number of laws, spread over six dimensions. With an eighth of them, results depended on which laws were
drawn."""
LEAST_RUNS = 3
"""Least number of successful runs of a usable past job. Fewer do not show how its time scales."""
ANY_LAW = 2.0
"""Weight of the uniform prior over laws, in past jobs: with 10 past jobs, a new law is unlike theirs with a
probability of 17 %."""
UNLIKE_ALL = 3.0
"""With m past jobs a new job resembles one of them, also in its residual, with probability m / (m + this)."""
LIKE_ONE, STRANGER = 0.3, 3.0
"""Variance of the residual relative to the population's, for a job that resembles one past job (about that
job's residual) and for a stranger. Together they give the prior heavy tails."""
STRANGE = 0.2
"""Share of strangers among the jobs that resemble no past job. It keeps the prior open to surprises."""
DEFAULT_TRUST = 0.5
"""Probability that a job follows the history if nothing shows how far the history may be trusted."""
_ZERO_MEAN, _POPULATION_MEAN, _FIRST_JOB = range(3)
"""Rows of Prior.residual_means."""
_LAWS_PER_JOB = 1024
"""Laws of largest weight that are kept for a job that resembles one past job."""
_ANCHORS = 64
"""Number of candidates over which a law's mean is taken, spread evenly, if there are more."""
_ROUNDS = 2
"""Rounds of weighing laws and fitting the kernel in turn; a third changes nothing that matters."""
_LEVEL_VARIANCE = 20.0
"""Prior variance of a past job's constant: any level of time is as good as any other."""
_START = Kernel(variance=0.06, noise=0.005, lengths=np.ones(1), type_share=0.2)
"""Prior medians of the kernel: residuals of 25 %, noise of 7 %, length scales of a factor of e."""
_SHARES, _SCALES = (0.0, 0.3, 0.6, 1.0), (0.25, 0.5, 1.0, 1.5)
"""Grid for the weights of the empirical covariance and of the smooth kernel."""
_FEW = 3
"""Number of past jobs below which no job can be left out; the two weights are then _FEW_WEIGHTS."""
_FEW_WEIGHTS = (0.25, 1.0)
_DEFAULT_LEVEL, _LEVEL_SPREAD = float(np.log(600.0)), 2.0
"""Mean of a job's log seconds if no time is known, and the least variance of the mean that past jobs give."""


@dataclass(frozen=True, slots=True)
class Group:
    """Components of the mixture whose residuals have the same covariance: kernel + factorᵀ factor.

    kernel: the smooth part, and the noise of a run.
    factor: a factor of the empirical part, float64[k, n].
    follows: whether these components belong to the hypothesis that the job follows the history.
    """

    kernel: Kernel
    factor: Real
    follows: bool


@dataclass(frozen=True, slots=True)
class Prior:
    """A mixture prior over a job's log seconds at n candidates, with c components in a few groups.

    candidates: the n candidates.
    laws: all laws.
    at: the reference cluster of the laws.
    middle: mean log time of each law over the candidates, up to a constant per law, float64[laws].
    law: position of each component's law, int64[c].
    residual: row of residual_means that is each component's mean residual, int64[c].
    log_weight: logarithm of each component's prior weight, float64[c].
    group: position of each component's group, ascending, int64[c].
    groups: the groups.
    residual_means: zero, then the mean over past jobs, then each past job's, float64[2 + jobs, n]; without
        past jobs only the first.
    x: features of the candidates.
    level: mean of the log seconds over candidates.
    level_variance: its variance.
    past_jobs: names of the past jobs that were learned from.
    width: factor on the standard deviations that follow from trials (trust.py).
    """

    candidates: Candidates
    laws: Laws
    at: Reference
    middle: Real
    law: Whole
    residual: Whole
    log_weight: Real
    group: Whole
    groups: tuple[Group, ...]
    residual_means: Real
    x: Features
    level: float
    level_variance: float
    past_jobs: tuple[str, ...]
    width: float = 1.0

    @property
    def follows(self) -> Flags:
        """Whether each component belongs to the hypothesis that the job follows the history, bool[c]."""
        return np.array([group.follows for group in self.groups])[self.group]

    def mean(self, components: Whole, rows: Whole | slice) -> Real:
        """Return prior means of some components at some candidates, log seconds, float64[c', n']."""
        part = self.candidates if isinstance(rows, slice) else self.candidates.take(rows)
        chosen, back = np.arange(self.middle.size), self.law[components]
        if components.size < chosen.size:
            chosen, back = np.unique(back, return_inverse=True)
        shape = log_time(self.laws.take(chosen), part, self.at) - self.middle[chosen][:, None]
        return shape[back] + self.residual_means[:, rows][self.residual[components]] + self.level

    def covariance(self, row: int, group: int) -> Real:
        """Return a group's covariance of one candidate with all, without noise, float64[n]."""
        part = self.groups[group]
        smooth = part.kernel(self.x, self.x.take(np.array([row])))[:, 0]
        return smooth + part.factor.T @ part.factor[:, row] + self.level_variance

    def variance(self, group: int) -> Real:
        """Return a group's variance at every candidate, without noise, float64[n]."""
        part = self.groups[group]
        total: Real = part.kernel.variance + (part.factor**2).sum(axis=0) + self.level_variance
        return total

    def noise(self) -> Real:
        """Return the noise variance of a run in each group, float64[groups]."""
        return np.array([group.kernel.noise for group in self.groups])


@dataclass(frozen=True, slots=True)
class _Past:
    """The runs of m usable past jobs on n candidates.

    names: names of the jobs.
    candidates: the candidates that any of them ran on.
    log_time: log seconds where the run succeeded, else 0, float64[m, n].
    ended: whether the run succeeded, bool[m, n].
    bound: log seconds of failed runs, a lower bound, else NaN, float64[m, n].
    """

    names: tuple[str, ...]
    candidates: Candidates
    log_time: Real
    ended: Flags
    bound: Real


@dataclass(frozen=True, slots=True)
class _Components:
    """The components of one group: their laws, rows of residual_means and weights."""

    law: Whole
    residual: Whole
    weight: Real
    group: Group


def fit_prior(
    history: History | None,
    candidates: Candidates,
    known_level: Level | None = None,
    trust: float = DEFAULT_TRUST,
    name: str = "",
) -> Prior:
    """Return the prior of a new job over `candidates`. Without a history, only the second hypothesis is left.

    history: past runs, on these or other candidates.
    known_level: the level of the job's time by its local run; it replaces the level from past jobs.
    trust: prior probability of the first hypothesis (trust.py).
    name: the new job's name, by which it may resemble past jobs (kinship.py).

    The cost grows with the number of past jobs and with the cube of the history's candidates.
    """
    past = _usable(history)
    both = candidates if past is None else joined(past.candidates, candidates)
    split, n = len(both) - len(candidates), len(candidates)
    x, at, laws = features(both), reference(both), sample(both, LAWS)
    start = replace(_START, lengths=np.ones(x.values.shape[1]))
    uniform, no_factor = np.full(LAWS, 1 / LAWS), np.zeros((0, n))
    parts = list(_unlike_any(uniform, start, no_factor, follows=False))
    residual_means = np.zeros((1, n))
    level, level_variance = _DEFAULT_LEVEL, 2 * _LEVEL_SPREAD
    anchors = candidates.take(np.linspace(0, n - 1, min(_ANCHORS, n)).astype(np.int64))
    if past is not None:
        x_past, x_new = x.take(slice(0, split)), x.take(slice(split, None))
        shape = log_time(laws, past.candidates, at)
        shape -= shape.mean(axis=1, keepdims=True)
        kernel, weights, near, residual = _fit(past, x_past, shape, laws.coordinates(), start)
        residual, level, level_variance = _with_failures(past, kernel, x_past, shape, weights, residual)
        at_past = _extended(past, kernel, x_past, x_past, residual)
        share, scale = _mixing(at_past, kernel, x_past)
        at_new = _extended(past, kernel, x_past, x_new, residual)
        likelihood = _resemblance(past, kernel, x_past, weights @ shape + at_past)
        kin = kinship.weights(name, past.names, likelihood)
        mean, factor = _moments(at_new, share)
        residual_means = np.vstack([residual_means, mean[None, :], at_new])
        kernel = replace(kernel, variance=kernel.variance * scale)
        parts = [
            *(replace(part, weight=(1 - trust) * part.weight) for part in parts),
            *(replace(part, weight=trust * part.weight) for part in _like_past(near, kernel, factor, kin)),
        ]
    if known_level is not None:
        level, level_variance = known_level.mean, known_level.deviation**2
    return Prior(
        candidates=candidates,
        laws=laws,
        at=at,
        middle=log_time(laws, anchors, at).mean(axis=1),
        law=np.concatenate([part.law for part in parts]),
        residual=np.concatenate([part.residual for part in parts]),
        log_weight=np.log(np.maximum(np.concatenate([part.weight for part in parts]), 1e-300)),
        group=np.concatenate([np.full(part.law.size, place) for place, part in enumerate(parts)]),
        groups=tuple(part.group for part in parts),
        residual_means=residual_means,
        x=x.take(slice(split, None)),
        level=level,
        level_variance=level_variance,
        past_jobs=() if past is None else past.names,
    )


def usable_jobs(history: History) -> Whole:
    """Return the positions of the past jobs that have LEAST_RUNS successful runs, int64[m]."""
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


def _noisy(kernel: Kernel, x: Features, scale: float = 1.0) -> Real:
    """Return the covariance of runs at some candidates, float64[n, n]: the kernel, a free constant, and noise
    on the diagonal."""
    covariance = scale * kernel(x, x) + _LEVEL_VARIANCE
    covariance[np.diag_indices_from(covariance)] += kernel.noise
    return covariance


def _fit(
    past: _Past, x: Features, shape: Real, points: Real, start: Kernel
) -> tuple[Kernel, Real, Real, Real]:
    """Return the kernel, each past job's posterior weights over laws, the same spread to the laws near them,
    and its residuals where its runs succeeded.

    shape: centred log time of each law at each candidate, float64[k, n]. points: laws in law space.
    """
    jobs, count = len(past.names), len(shape)
    weights, residual = np.full((jobs, count), 1 / count), np.zeros((jobs, shape.shape[1]))
    prior, kernel, near = np.full(count, 1 / count), start, weights
    for _ in range(_ROUNDS):
        for ended in np.unique(past.ended, axis=0):
            alike, rows = np.flatnonzero((past.ended == ended).all(axis=1)), np.flatnonzero(ended)
            values = past.log_time[np.ix_(alike, rows)]
            weights[alike] = _law_weights(values, shape[:, rows], x.take(rows), kernel, prior)
            rest = values - weights[alike] @ shape[:, rows]
            residual[np.ix_(alike, rows)] = rest - rest.mean(axis=1, keepdims=True)
        draws = [(np.flatnonzero(past.ended[job]), residual[job, past.ended[job]]) for job in range(jobs)]
        kernel = fit(x, draws, start, level_variance=_LEVEL_VARIANCE)
        near = np.array([smoothed(points, job) for job in weights])
        prior = _law_prior(near, np.ones(jobs))
    return kernel, weights, near, residual


def _law_weights(values: Real, shape: Real, x: Features, kernel: Kernel, prior: Real) -> Real:
    """Return the posterior weights of k laws given the log times of m jobs at n candidates, float64[m, k].

    values: float64[m, n]. shape: float64[k, n].
    """
    inverse = np.linalg.inv(_noisy(kernel, x))
    # A job's level is free, so the means of rows and columns are taken out.
    inverse -= inverse.mean(axis=0)
    inverse -= inverse.mean(axis=1, keepdims=True)
    scaled = shape @ inverse
    apart = np.einsum("kn,kn->k", scaled, shape) - 2 * values @ scaled.T
    score = np.log(prior) - 0.5 * apart
    likely = np.exp(score - score.max(axis=1, keepdims=True))
    weights: Real = likely / likely.sum(axis=1, keepdims=True)
    return weights


def _law_prior(near: Real, kin: Real) -> Real:
    """Return a new job's prior over k laws, float64[k]: laws near past jobs', weighed by kin, or any law."""
    total = ANY_LAW / near.shape[1] + kin @ near
    prior: Real = total / total.sum()
    return prior


def _with_failures(
    past: _Past, kernel: Kernel, x: Features, shape: Real, weights: Real, residual: Real
) -> tuple[Real, float, float]:
    """Return residuals with those of failed runs filled in, and mean and variance of the jobs' levels.

    A failed run's residual is what successful runs predict there, but at least its bound.
    """
    full, levels = residual.copy(), np.zeros(len(past.names))
    smooth = _extended(replace(past, bound=np.full_like(past.bound, np.nan)), kernel, x, x, residual)
    for job in range(len(past.names)):
        rows = past.ended[job]
        law = weights[job] @ shape
        levels[job] = past.log_time[job, rows].mean() - law[rows].mean()
        failed = np.isfinite(past.bound[job])
        least = past.bound[job, failed] - law[failed] - levels[job]
        full[job, failed] = np.maximum(smooth[job, failed], least)
    return full, float(levels.mean()), float(levels.var()) + _LEVEL_SPREAD


def _extended(past: _Past, kernel: Kernel, x: Features, onto: Features, residual: Real) -> Real:
    """Return each past job's posterior mean residual at other candidates, float64[m, n]."""
    ran = past.ended | np.isfinite(past.bound)
    full = np.zeros((len(ran), len(onto.kind)))
    for mask in np.unique(ran, axis=0):
        jobs, rows = np.flatnonzero((ran == mask).all(axis=1)), np.flatnonzero(mask)
        known = x.take(rows)
        solved = np.linalg.solve(_noisy(kernel, known), residual[np.ix_(jobs, rows)].T)
        full[jobs] = ((kernel(onto, known) + _LEVEL_VARIANCE) @ solved).T
    return full


def _moments(residual: Real, share: float) -> tuple[Real, Real]:
    """Return mean and covariance factor of past residuals, float64[m, n]; the factor is scaled by `share`.

    The mean is shrunk towards 0 as by one more job without any residual.
    """
    jobs, n = residual.shape
    mean = residual.sum(axis=0) / (jobs + 1)
    if jobs == 1:
        return mean, np.zeros((0, n))
    scale = np.sqrt(share * (1 + 1 / jobs) / (jobs - 1))
    return mean, scale * (residual - residual.mean(axis=0))


def _mixing(residual: Real, kernel: Kernel, x: Features) -> tuple[float, float]:
    """Return the weights of empirical covariance and smooth kernel of largest leave-one-out likelihood."""
    if len(residual) < _FEW:
        return _FEW_WEIGHTS
    smooth = kernel(x, x)
    others = [np.delete(residual, job, axis=0) for job in range(len(residual))]
    best, weights = -np.inf, _FEW_WEIGHTS
    for share in _SHARES:
        for scale in _SCALES:
            score = 0.0
            for job, rest in enumerate(others):
                mean, factor = _moments(rest, share)
                covariance = scale * smooth + factor.T @ factor + _LEVEL_VARIANCE
                covariance[np.diag_indices_from(covariance)] += kernel.noise
                lower = np.linalg.cholesky(covariance)
                z = np.linalg.solve(lower, residual[job] - mean)
                score -= 0.5 * float(z @ z) + float(np.log(np.diag(lower)).sum())
            if score > best:
                best, weights = score, (share, scale)
    return weights


def _resemblance(past: _Past, kernel: Kernel, x: Features, fitted: Real) -> Real:
    """Return the log likelihood of past job i if it resembles past job j, float64[m, m], up to a constant of
    i.

    fitted: each past job's log time by its laws and residual, float64[m, n].
    """
    score = np.zeros((len(fitted), len(fitted)))
    for job, ended in enumerate(past.ended):
        rows = np.flatnonzero(ended)
        covariance = _noisy(kernel, x.take(rows), LIKE_ONE)
        rest = past.log_time[job, rows] - fitted[:, rows]
        rest -= rest.mean(axis=1, keepdims=True)
        score[job] = -0.5 * np.einsum("mn,mn->m", rest, np.linalg.solve(covariance, rest.T).T)
    return score


def _like_past(near: Real, kernel: Kernel, factor: Real, kin: Real) -> Iterator[_Components]:
    """Yield the components of the first hypothesis: like no past job in particular, then like one of them.

    near: each past job's weights over laws, spread, float64[m, k]; kin: weight of each past job, float64[m].
    """
    like_one = kin.sum() / (kin.sum() + UNLIKE_ALL)
    for part in _unlike_any(_law_prior(near, kin), kernel, factor, follows=True):
        yield replace(part, weight=(1 - like_one) * part.weight)
    top = np.argsort(-near, axis=1, kind="stable")[:, :_LAWS_PER_JOB]
    weight = np.take_along_axis(near, top, axis=1)
    weight *= like_one * (kin / kin.sum())[:, None] / weight.sum(axis=1, keepdims=True)
    residual = np.repeat(np.arange(len(near)) + _FIRST_JOB, top.shape[1])
    yield _Components(top.ravel(), residual, weight.ravel(), _group(kernel, factor, LIKE_ONE, follows=True))


def _unlike_any(weight: Real, kernel: Kernel, factor: Real, *, follows: bool) -> Iterator[_Components]:
    """Yield components of all laws by `weight`, with the population's residuals and with a stranger's."""
    residual = np.full(LAWS, _POPULATION_MEAN if follows else _ZERO_MEAN)
    for scale, share in ((1.0, 1 - STRANGE), (STRANGER, STRANGE)):
        yield _Components(
            np.arange(LAWS), residual, weight * share, _group(kernel, factor, scale, follows=follows)
        )


def _group(kernel: Kernel, factor: Real, scale: float, *, follows: bool) -> Group:
    return Group(replace(kernel, variance=kernel.variance * scale), np.sqrt(scale) * factor, follows)
