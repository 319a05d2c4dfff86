"""Predictions from a local run, before any trial: a ranking by an analytic model's times, and the level of
all times.

For: the first answer about a job that has a local run and no past jobs (Analytic), and how long a job takes
on average for the prior of transfer.py (Level). Not for: the analytic model, whose times come with the
request, nor for learning from trials.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import Flags, Real, Whole
from control.recommender.plain_search import FirstChoice
from control.recommender.ports import Observations, Recommendation, Request
from control.recommender.ranking import Prediction, best_first, ranked
from control.recommender.scavenger import noise_in_use, worth
from twinbed import ScenarioError

DEVIATION = 0.7
"""Standard deviation of a log time that a local run predicts. A vCPU of the cloud is assumed to be as fast as
a local one within a factor of about two; libraries and networks differ, too."""
_CONTRADICTION = 10.0
"""Least ratio of trials to the local run's model, or its inverse, by which they contradict each other: three
standard deviations of the model's log times."""
_REASON = "expected from the local run, sizes and speeds: no past job, no trial"


class Analytic:
    """Ranks by the times of request.expected_s, with DEVIATION as their uncertainty."""

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return the candidates whose time the model knows, best first; ScenarioError if there is none."""
        rows, predicted = _predicted(request)
        return ranked(request.among(rows), predicted)

    def searcher(self, request: Request, seed: int) -> FirstChoice:
        """Return a search that proposes the first candidate of the ranking. `seed` has no effect."""
        del seed
        rows, predicted = _predicted(request)

        def first(observed: Observations) -> tuple[int, str]:
            place = best_first(request.seen(observed).among(rows), predicted)[0]
            hours = float(np.exp(predicted.log_time[place])) / 3600
            return int(rows[place]), f"the first by the analytic model; expected {hours:.3g} h"

        return FirstChoice(first)


def of_one_batch(request: Request) -> Flags:
    """Return the candidates whose batch size is nearest the job's own, bool[n].

    How many more samples another batch size needs is known only with the noise of the job's gradients."""
    batch, run = request.candidates.batch, request.job.local_run
    own = request.job.batch or (run.batch if run else 1)
    away = np.abs(np.log(np.where(np.isnan(batch), own, batch) / own))
    return np.asarray(away == away.min())


def _predicted(request: Request) -> tuple[Whole, Prediction]:
    """Return the positions of the candidates whose time is known, int64[k], and their predictions."""
    expected_s: Real = np.empty(0) if request.expected_s is None else request.expected_s
    known: Flags = np.isfinite(expected_s)
    if np.isfinite(noise_in_use(request.observed)):
        expected_s = expected_s / worth(request, request.observed)
    elif known.any():
        known = known & of_one_batch(request)
    rows = np.flatnonzero(known).astype(np.int64)
    if not rows.size:
        raise ScenarioError(
            f"job {request.job.name}: the analytic model knows its time on no candidate; it needs a local "
            "run (make one with twinbed profile), samples and batch, and types without GPUs and with a "
            "network rate"
        )
    n = rows.size
    deviation, beyond = np.full(n, DEVIATION), ["no run of it on any type"] * n
    return rows, Prediction(np.log(expected_s[rows]), deviation, [_REASON] * n, beyond)


def contradiction(request: Request) -> float | None:
    """Return how many times as long trials took as the local run lets expect, in the median, if they
    contradict it; else None."""
    trials = request.observed
    if request.expected_s is None or not trials.ok.any():
        return None
    ratios = (trials.time_s / request.expected_s[trials.candidate])[trials.ok]
    if not np.isfinite(ratios).any():
        return None
    times = float(np.nanmedian(ratios))
    return None if 1 / _CONTRADICTION < times < _CONTRADICTION else times


@dataclass(frozen=True, slots=True)
class Level:
    """Mean and standard deviation of the log of the job's seconds, averaged over the candidates."""

    mean: float
    deviation: float


def level(request: Request) -> Level | None:
    """Return the level of a job's time, from the CPU time per sample of its local run, divided among all
    vCPUs, after the start of the workers.

    Returns None without a local run, without the number of samples, or without CPU time. A local run that
    trials contradict tells nothing of types that were not tried: it would pull them away from the trials.
    """
    job, run, candidates = request.job, request.job.local_run, request.candidates
    if run is None or not np.isfinite(job.samples) or contradiction(request) is not None:
        return None
    cores = float(run.cpu_cores.mean(axis=0).sum())
    vcpus = candidates.vcpus * candidates.count
    if not cores > 0 or not np.isfinite(vcpus).all():
        return None
    core_s_per_sample = cores * float(run.step_s.mean()) / (run.batch * run.cpu_cores.shape[1])
    time_s = request.startup_s + core_s_per_sample * job.samples / vcpus
    return Level(float(np.log(time_s).mean()), DEVIATION)
