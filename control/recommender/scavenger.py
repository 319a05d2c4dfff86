"""Scavenger: workers and batch of a repeating job, searched while it trains, by a model of its goodput.

For: candidates with batch sizes, which change both the samples that a job needs and its speed. Not for: past
jobs, and types without a trial. The whole search is our reading of an abstract (Scavenger, CCGrid 2023, arXiv
2303.06659): begin with the fewest workers and the job's own batch, predict all candidates from the noise
scale and the fitted step time, and try the best prediction until it has been tried. Formulas:
control.goodput. The job's samples are what it needs with its own batch on the fewest workers, B0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.goodput import Steps, efficiency, fit
from control.jobs import Flags, Job, Objective, Real
from control.recommender.ports import (
    Observations,
    Proposal,
    Recommendation,
    Request,
    Stop,
    affordable,
    failed,
    stop,
)
from control.recommender.ranking import Prediction, ranked
from twinbed import ScenarioError

_WINDOW, _MOST_SPENT = 20, 0.1
"""Steps of a trial, and the largest share of the job's steps that trials may take."""
_SAME = 2.0
"""Factor within which the noise scale counts as unchanged."""
_LEAST_DEVIATION = 0.05
"""Least standard deviation of the log of a predicted time: the spread of trials of the same candidate."""


def usual_batches(job: Job) -> tuple[int, ...]:
    """Return the job's own batch and those from a quarter to eight times it, samples per worker."""
    return tuple(sorted({max(int(_batch(job) * 2.0**power), 1) for power in range(-2, 4)}))


def first_batch(request: Request) -> float:
    """Return B0, samples of all workers together. Raises ScenarioError for a job without a batch."""
    return float(_batch(request.job) * request.candidates.count.min())


def _batch(job: Job) -> int:
    if job.batch is None:
        raise ScenarioError(f"job {job.name}: comparing batch sizes needs `batch` in the job's file")
    return job.batch


def noise_in_use(observed: Observations) -> float:
    """Return the noise scale, NaN if not known: the median of the trials since it last changed.

    It changed where a trial's noise scale differs from the earlier ones by more than a factor of 2.
    """
    group: list[float] = []
    for noise in observed.noise[np.isfinite(observed.noise)].tolist():
        used = float(np.median(group)) if group else noise
        group = [*group, noise] if used / _SAME <= noise <= used * _SAME else [noise]
    return float(np.median(group)) if group else float("nan")


def worth(request: Request, observed: Observations) -> Real:
    """Return the value of a sample at each candidate relative to a sample at B0, float64[n].

    It is 1 if there are no batch sizes to choose among. An unknown noise scale counts as 0: a larger batch
    then brings no gain.
    """
    batch = request.candidates.batch
    if np.isnan(batch).any():
        return np.ones(len(request.candidates))
    noise = np.nan_to_num(noise_in_use(observed))
    return efficiency(noise, batch * request.candidates.count, first_batch(request))


def to_goal(request: Request, observed: Observations) -> Observations:
    """Return trials of the job's samples, converted to trials until the same goal by the noise scale."""
    return observed.stretched(1 / worth(request, observed)[observed.candidate])


class Scavenger:
    """Searches workers and batch by a model of the job's goodput."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return every affordable candidate of a tried type by its predicted time until the goal.

        Raises ScenarioError if no trial has ended, or without batch sizes.
        """
        search = self.searcher(request, 0)
        if not request.observed.ok.any():
            raise ScenarioError("scavenger knows a job by its own trials; try some with --search")
        time_s, deviation = search.predicted(request.observed)
        known = np.flatnonzero(np.isfinite(time_s))
        noise = noise_in_use(request.observed)
        reason = f"goodput of {len(request.observed)} trials, {_said(noise)}"
        some = request.among(known)
        return ranked(some, Prediction(np.log(time_s[known]), deviation[known], [reason] * known.size))

    def searcher(self, request: Request, seed: int) -> ScavengerSearch:
        """Return the search; `seed` has no effect. Raises ScenarioError without batch sizes or samples."""
        del seed
        first_batch(request)
        if not request.job.samples > 0:
            raise ScenarioError(
                f"job {request.job.name}: a search of batch sizes needs `samples` in its file"
            )
        if np.isnan(request.candidates.batch).any():
            raise ScenarioError("scavenger chooses among batch sizes; give some with --batches")
        return ScavengerSearch(request)


@dataclass(frozen=True, slots=True)
class ScavengerSearch:
    """The search of Scavenger; its trials are those until the goal."""

    request: Request

    def propose(self, observed: Observations) -> Proposal | Stop:
        """Return the first trial on a type, then the best prediction, until it has been tried."""
        request, among = self.request, self.request.candidates
        allowed = affordable(request)
        tried = np.zeros(len(among), np.bool_)
        tried[observed.candidate] = True
        spent = len(observed) * _WINDOW * first_batch(request) / request.job.samples
        if spent > _MOST_SPENT:
            return stop(request, observed, f"trials have taken {spent:.0%} of the job's steps")
        # The fewest workers of a type, with the batch nearest to the job's own.
        away = np.abs(np.log(among.batch / _batch(request.job)))
        begin = np.lexsort((among.batch, away, among.count, among.name))
        for name in np.unique(among.name):
            own = begin[(among.name[begin] == name) & allowed[begin]]
            if own.size and not tried[own].any():
                return Proposal(int(own[0]), f"start on {name}: fewest workers, the job's own batch")
        time_s, _ = self.predicted(observed)
        open_ = allowed & np.isfinite(time_s)
        if not open_.any():
            left = begin[allowed[begin] & ~tried[begin]]
            if left.size:
                return Proposal(int(left[0]), "nothing has ended yet")
            return stop(request, observed, f"all {len(observed)} candidates were tried")
        price = among.price_usd_h
        value = time_s * price if request.objective is Objective.COST else time_s
        late = (time_s > request.deadline_s) | (time_s / 3600 * price > request.budget_usd)
        order = np.lexsort((among.batch, among.count, among.name, value, late, ~open_))
        best, noise = int(order[0]), noise_in_use(observed)
        if tried[best]:
            return Stop(best, f"the best prediction has been tried ({_said(noise)})")
        hours, dollars = time_s[best] / 3600, time_s[best] / 3600 * price[best]
        return Proposal(best, f"best prediction: {hours:.2f} h, {dollars:.2f} $ ({_said(noise)})")

    def predicted(self, observed: Observations) -> tuple[Real, Real]:
        """Return the time until the goal, s, and the deviation of its log, float64[n].

        The time is infinite for types without a trial that ended, for trials that failed, and for larger
        batches than one that failed on the type.
        """
        request, among = self.request, self.request.candidates
        samples = request.job.samples / worth(request, observed)
        steps = samples / (among.count * among.batch)
        time_s, deviation = np.full(len(among), np.inf), np.full(len(among), _LEAST_DEVIATION)
        for name in np.unique(among.name):
            own: Flags = among.name == name
            seen = observed.ok & own[observed.candidate]
            if not seen.any():
                continue
            rows = observed.candidate[seen]
            count, batch = among.count[rows].astype(float), among.batch[rows]
            step_s = observed.time_s[seen] / steps[rows]
            speed = fit(Steps(count, count, batch, step_s, np.full(rows.size, np.nan)))
            # Each worker is a machine.
            expected = speed.step_s(among.count, among.count, among.batch)
            time_s[own] = (steps * expected)[own]
            error = float(np.sqrt(np.mean(np.log(expected[rows] / step_s) ** 2)))
            deviation[own] = max(error, _LEAST_DEVIATION)
            refused = failed(request, observed) & own
            if refused.any():
                time_s[own & (among.batch >= among.batch[refused].min())] = np.inf
        time_s[observed.candidate[observed.ok]] = observed.time_s[observed.ok]
        return time_s, deviation


def _said(noise: float) -> str:
    if np.isnan(noise):
        return "noise scale not known yet: more samples in a step count as no gain"
    return f"noise scale {noise:.0f} samples"
