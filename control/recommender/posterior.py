"""The posterior over a job's log time at every candidate after its trials: a mixture of Gaussian processes.

For: conditioning the prior of prior.py on successful and failed trials. Not for: choosing the next trial
(transfer.py). A failed trial shows that the job takes at least that long on that candidate, unless it failed
for a reason of its own. Each component's mean and variance there move to the moments of its normal
distribution truncated below, weighed by how probable it is that the bound is the reason. Sources: Rasmussen
and Williams 2006 §2.2 for trials that succeeded; assumed-density filtering (Minka, 2001) and the moments of
the truncated normal distribution for failed ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from control.jobs import Real, Whole
from control.recommender.ports import Observations
from control.recommender.prior import Prior

CHANCE_FAILURE = 0.15
"""Prior probability that a failed trial crashed or hung, which can happen on any configuration."""
_LEAST_VARIANCE = 1e-3
"""Least share of its variance that a failed trial leaves."""
_SMALL = 1e-12
_LEAST_SHARE = 1e-6
"""Hypotheses that are less probable than this are ignored."""
_FEWEST, _MEANS = 96, 1_000_000
"""Number of means that a summary uses in all, and the least number of components."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """A mixture with c components in g groups over n candidates, after k trials.

    prior: the prior that was conditioned.
    weight: posterior weight of each component, float64[c].
    shift: move of each component by each trial, in the trial's predictive standard deviations, float64[c, k].
    gain: move of all candidates for a shift of one, by group, float64[g, k, n].
    kept: share of gain² that each trial takes from the variance, by group, float64[g, k]; below 0 if a failed
        trial adds to it.
    variance: posterior variance at every candidate without noise, by group, float64[g, n].
    """

    prior: Prior
    weight: Real
    shift: Real
    gain: Real
    kept: Real
    variance: Real

    @property
    def follows_history(self) -> float:
        """Probability of the hypothesis that this job follows the history."""
        return float(self.weight[self.prior.follows].sum())

    def hypotheses(self) -> list[tuple[float, Posterior]]:
        """Return the posteriors given that the job follows the history and given that it does not.

        Each comes with its probability. A hypothesis of probability 0 is left out.
        """
        follows = self.prior.follows
        conditioned = []
        for components in (follows, ~follows):
            weight = np.where(components, self.weight, 0.0)
            probability = float(weight.sum())
            if probability > _LEAST_SHARE:
                conditioned.append((probability, replace(self, weight=weight / probability)))
        return conditioned

    def components(self, most: int) -> tuple[Whole, Real]:
        """Return at most `most` components that represent the mixture, int64[c'], and their weights,
        float64[c'].

        All components of noticeable weight are returned if they are few enough. Otherwise components are
        drawn at even steps of the summed weights, because the heaviest alone would be more certain than the
        mixture.
        """
        heavy = np.flatnonzero(self.weight > _SMALL)
        weight = self.weight[heavy]
        if heavy.size > most:
            steps = (np.arange(most) + 0.5) / most * weight.sum()
            place = np.minimum(np.searchsorted(np.cumsum(weight), steps), heavy.size - 1)
            unique, times = np.unique(place, return_counts=True)
            heavy, weight = heavy[unique], times.astype(np.float64)
        return heavy.astype(np.int64), weight / weight.sum()

    def means(self, components: Whole, rows: Whole | slice = slice(None)) -> Real:
        """Return posterior means of some components at some candidates, log seconds, float64[c', n']."""
        means = self.prior.mean(components, rows)
        for group, gain in enumerate(self.gain):
            members = self.prior.group[components] == group
            means[members] += self.shift[components[members]] @ gain[:, rows]
        return means

    def summary(self) -> tuple[Real, Real]:
        """Return mean and standard deviation of a run's log seconds at every candidate, float64[n] each."""
        chosen, weight = self.components(max(_FEWEST, _MEANS // self.variance.shape[1]))
        means = self.means(chosen)
        mean = weight @ means
        shares = np.bincount(self.prior.group[chosen], weights=weight, minlength=len(self.prior.groups))
        variance = shares @ self.variance + weight @ (means - mean) ** 2
        # Without a trial, only the level of all times is uncertain, and past jobs do not determine it.
        width = self.prior.width if self.shift.shape[1] else 1.0
        return mean, width * np.sqrt(variance + shares @ self.prior.noise())

    def draw(self, rows: Whole, count: int, generator: np.random.Generator) -> Real:
        """Return joint draws of the log seconds at some candidates, without noise, float64[count, n']."""
        chosen = generator.choice(self.weight.size, size=count, p=self.weight)
        unique, back = np.unique(chosen, return_inverse=True)
        drawn = self.means(unique, rows)[back]
        groups = self.prior.group[chosen]
        for group in range(len(self.prior.groups)):
            members = np.flatnonzero(groups == group)
            if members.size:
                root = self._root(rows, group)
                drawn[members] += generator.standard_normal((members.size, rows.size)) @ root.T
        return drawn

    def _root(self, rows: Whole, group: int) -> Real:
        """Return a square root of a group's posterior covariance at some candidates, float64[n', n']."""
        covariance = np.array([self.prior.covariance(int(row), group)[rows] for row in rows])
        gain = self.gain[group][:, rows]
        covariance -= gain.T @ (self.kept[group][:, None] * gain)
        covariance[np.diag_indices_from(covariance)] += 1e-7 * np.trace(covariance) / rows.size + _SMALL
        values, vectors = np.linalg.eigh(covariance)
        root: Real = vectors * np.sqrt(np.maximum(values, 0.0))
        return root


def condition(prior: Prior, observed: Observations) -> Posterior:
    """Return the posterior after these trials; the order of successful trials does not matter.

    Successful trials come first, so that failures are judged with as little uncertainty as possible.
    """
    n, components, trials = len(prior.candidates), prior.law.size, len(observed)
    log_weight = prior.log_weight.copy()
    shift = np.zeros((components, trials))
    groups = range(len(prior.groups))
    edges = np.searchsorted(prior.group, np.arange(len(prior.groups) + 1))
    gain, kept = np.zeros((len(groups), trials, n)), np.zeros((len(groups), trials))
    variance = np.stack([prior.variance(group) for group in groups])
    prior_mean = (
        prior.mean(np.arange(components), observed.candidate) if trials else np.empty((components, 0))
    )
    for trial in np.argsort(~observed.ok, kind="stable"):
        row, value = int(observed.candidate[trial]), float(np.log(observed.time_s[trial]))
        for group in groups:
            members = slice(edges[group], edges[group + 1])
            if edges[group] == edges[group + 1]:
                continue
            column = prior.covariance(row, group) - (kept[group] * gain[group][:, row]) @ gain[group]
            total = column[row] + prior.groups[group].kernel.noise
            mean = prior_mean[members, trial] + shift[members] @ gain[group][:, row]
            scaled = (value - mean) / np.sqrt(total)
            if observed.ok[trial]:
                score, moved, left = -0.5 * scaled**2 - 0.5 * np.log(total), scaled, 0.0
            else:
                score, moved, left = _failed(scaled, log_weight[members])
            log_weight[members] += score
            shift[members, trial] = moved
            gain[group][trial] = column / np.sqrt(total)
            kept[group][trial] = 1 - left
            variance[group] -= kept[group][trial] * gain[group][trial] ** 2
    likely = np.exp(log_weight - log_weight.max())
    return Posterior(prior, likely / likely.sum(), shift, gain, kept, np.maximum(variance, 0.0))


def _failed(bound: Real, log_weight: Real) -> tuple[Real, Real, float]:
    """Return log likelihood, shift and remaining share of the variance given that a trial failed.

    Either the value lies above `bound`, with probability p, or the bound says nothing. The mixture of the
    truncated distribution (mean h, mean square 1 + h·bound) and the normal one has the mean p·h and the
    variance 1 + p·h·bound − (p·h)², which exceeds 1 if the bound is a surprise. bound and shift are in
    predictive standard deviations of each component, float64[c']. log_weight: before the trial, float64[c'].
    The remaining share is the mean over components by their weights after it.
    """
    log_above = log_ndtr(-bound)
    above = np.exp(log_above)
    likelihood = CHANCE_FAILURE + (1 - CHANCE_FAILURE) * above
    by_bound = (1 - CHANCE_FAILURE) * above / likelihood
    shift = by_bound * np.exp(-0.5 * bound**2 - 0.5 * np.log(2 * np.pi) - log_above)
    weight = np.exp(log_weight - log_weight.max()) * likelihood
    left = float(np.average(1 - shift * (shift - bound), weights=weight))
    return np.log(likelihood), shift, max(left, _LEAST_VARIANCE)
