"""What is believed of a job's time at every candidate after its trials: a mixture of Gaussian processes.

For: conditioning a population's prior on trials, failed ones too. Not for: choosing the next (transfer.py).
A trial that failed tells that the job takes at least so long there, unless it failed for a reason of its own:
each entry of the mixture is moved as by the moments of its normal distribution cut off below, weighed by how
likely the cut is the reason. Source: Rasmussen and Williams 2006 §2.2; assumed-density filtering as in Minka,
2001; moments of the truncated normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from control.recommender.model import Observations, Real, Whole
from control.recommender.population import Population

CHANCE_FAILURE = 0.15
"""Prior probability that a trial fails (crashes, hangs) whatever its configuration, given that it failed."""
_LEAST_VARIANCE = 1e-3
"""A failed trial never removes more of a variance than this leaves, relative."""
_SMALL = 1e-12
_LEAST_SHARE = 1e-6
_FEWEST, _MEANS = 96, 1_000_000
"""Of a mixture's entries so many stand for all where there are many candidates; means that are worked out."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A mixture of `e` entries over n candidates.

    weight: of each entry, float64[e]; shift: how far each trial moved each entry, in its own deviations,
    float64[e, k]; gain: how a trial moves candidates, of each group, float64[g, k, n]; kept: what
    of that a trial takes from the variance, float64[g, k]; variance: of each group at each candidate, without
    noise, float64[g, n].
    """

    prior: Population
    weight: Real
    shift: Real
    gain: Real
    kept: Real
    variance: Real

    @property
    def past_share(self) -> float:
        """The probability that this job follows past ones."""
        past = np.array([each.past for each in self.prior.groups])
        return float(self.weight[past[self.prior.group]].sum())

    def views(self) -> list[tuple[float, Belief]]:
        """The belief if the job follows past ones, and that if not, each with its probability."""
        past = np.array([each.past for each in self.prior.groups])[self.prior.group]
        found = []
        for entries in (past, ~past):
            weight = np.where(entries, self.weight, 0.0)
            share = float(weight.sum())
            if share > _LEAST_SHARE:
                found.append((share, replace(self, weight=weight / share)))
        return found

    def entries(self, most: int) -> tuple[Whole, Real]:
        """Entries that stand for all, most of them at most, int64[e'], and their weights, float64[e'].

        All that have any weight, or where there are more as many as are drawn at even steps of their summed
        weights: the heaviest alone would be surer of themselves than the mixture is.
        """
        heavy = np.flatnonzero(self.weight > _SMALL)
        weight = self.weight[heavy]
        if heavy.size > most:
            steps = (np.arange(most) + 0.5) / most * weight.sum()
            place = np.minimum(np.searchsorted(np.cumsum(weight), steps), heavy.size - 1)
            unique, times = np.unique(place, return_counts=True)
            heavy, weight = heavy[unique], times.astype(np.float64)
        return heavy.astype(np.int64), weight / weight.sum()

    def means(self, entries: Whole, rows: Whole | slice = slice(None)) -> Real:
        """Log seconds that some entries expect at some candidates, float64[e', n']."""
        moved = self.prior.law_time(entries, rows)
        for group, gain in enumerate(self.gain):
            mine = self.prior.group[entries] == group
            moved[mine] += self.shift[entries[mine]] @ gain[:, rows]
        return moved

    def summary(self) -> tuple[Real, Real]:
        """Mean and deviation of the log seconds at every candidate, noise of a run included, float64[n]."""
        top, weight = self.entries(max(_FEWEST, _MEANS // self.variance.shape[1]))
        means = self.means(top)
        mean = weight @ means
        shares = np.bincount(self.prior.group[top], weights=weight, minlength=len(self.prior.groups))
        variance = shares @ self.variance + weight @ (means - mean) ** 2
        return mean, np.sqrt(variance + shares @ self.prior.noise())

    def draw(self, rows: Whole, count: int, generator: np.random.Generator) -> Real:
        """Joint draws of the log seconds at some candidates, without noise, float64[count, n']."""
        chosen = generator.choice(self.weight.size, size=count, p=self.weight)
        unique, back = np.unique(chosen, return_inverse=True)
        drawn = self.means(unique, rows)[back]
        groups = self.prior.group[chosen]
        for group in range(len(self.prior.groups)):
            mine = np.flatnonzero(groups == group)
            if mine.size:
                lower = self._root(rows, group)
                drawn[mine] += generator.standard_normal((mine.size, rows.size)) @ lower.T
        return drawn

    def _root(self, rows: Whole, group: int) -> Real:
        """A square root of one group's covariance, float64[n', n']."""
        covariance = np.array([self.prior.covariance(int(row), group)[rows] for row in rows])
        gain = self.gain[group][:, rows]
        covariance -= gain.T @ (self.kept[group][:, None] * gain)
        covariance[np.diag_indices_from(covariance)] += 1e-7 * np.trace(covariance) / rows.size + _SMALL
        values, vectors = np.linalg.eigh(covariance)
        root: Real = vectors * np.sqrt(np.maximum(values, 0.0))
        return root


def believe(prior: Population, observed: Observations) -> Belief:
    """The belief after these trials; the order of trials that ended does not matter."""
    n, entries, trials = len(prior.candidates), prior.law.size, len(observed)
    log_weight = prior.log_weight.copy()
    shift = np.zeros((entries, trials))
    groups = range(len(prior.groups))
    gain, kept = np.zeros((len(groups), trials, n)), np.zeros((len(groups), trials))
    variance = np.stack([prior.variance(group) for group in groups])
    at_start = prior.law_time(np.arange(entries), observed.candidate) if trials else np.empty((entries, 0))
    # What ended comes first: a failure is then judged by beliefs that are as sharp as they get.
    for place in np.argsort(~observed.ok, kind="stable"):
        row, value = int(observed.candidate[place]), float(np.log(observed.time_s[place]))
        for group in groups:
            mine = prior.group == group
            if not mine.any():
                continue
            column = prior.covariance(row, group) - (kept[group] * gain[group][:, row]) @ gain[group]
            total = column[row] + prior.groups[group].kernel.noise
            mean = at_start[mine, place] + shift[mine] @ gain[group][:, row]
            scaled = (value - mean) / np.sqrt(total)
            if observed.ok[place]:
                score, moved, left = -0.5 * scaled**2 - 0.5 * np.log(total), scaled, 0.0
            else:
                score, moved, left = _failed(scaled, log_weight[mine])
            log_weight[mine] += score
            shift[mine, place] = moved
            gain[group][place] = column / np.sqrt(total)
            kept[group][place] = 1 - left
            variance[group] -= kept[group][place] * gain[group][place] ** 2
    likely = np.exp(log_weight - log_weight.max())
    return Belief(prior, likely / likely.sum(), shift, gain, kept, np.maximum(variance, 0.0))


def _failed(bound: Real, log_weight: Real) -> tuple[Real, Real, float]:
    """Score, move and the variance left, of values known only to lie above `bound` (all in deviations)."""
    log_above = log_ndtr(-bound)
    above = np.exp(log_above)
    likely = CHANCE_FAILURE + (1 - CHANCE_FAILURE) * above
    blamed = (1 - CHANCE_FAILURE) * above / likely
    hazard = np.exp(-0.5 * bound**2 - 0.5 * np.log(2 * np.pi) - log_above)
    weight = np.exp(log_weight - log_weight.max())
    left = float(np.average(1 - blamed * hazard * (hazard - bound), weights=weight))
    return np.log(likely), blamed * hazard, float(np.clip(left, _LEAST_VARIANCE, 1.0))
