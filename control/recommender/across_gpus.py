"""Predicts a job on other GPUs, and on other numbers of GPUs, from its own trials on some GPUs.

For: a job that was measured on at least one GPU type, if no past job ran on GPUs. Not for: jobs that were
measured on no GPU, nor whether a job fits a GPU's memory. On another model, the time changes by the ratio of
relative speeds; on more GPUs, by a power of their number. The reason of every such row says that it is
outside what was measured. Sources of the spreads: PROFET (Lee et al., ddps-lab/profet, MIT) and Gavel's
measured throughputs (Narayanan et al., OSDI 2020, MIT). In 90 % of their pairs of models, the ratio was wrong
by a factor of at most 2.3 and 2.5; here the factor is 2.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from control.recommender.plain_search import FirstChoice
from control.recommender.ports import Observations, Recommendation, Request
from control.recommender.ranking import Prediction, best_first, ranked
from twinbed import ScenarioError

OTHER_MODEL = 1.0 / 1.645
"""Standard deviation of a log time on another GPU model: in 90 % of cases the error is at most a factor of
e."""
SAME_MODEL = 0.1
"""The standard deviation for the same model and number of GPUs in a host of another size (CPUs and disks
differ)."""
TRIAL = 0.05
"""The standard deviation for a cluster that was tried."""
POWER, POWERS_APART = (0.7, 0.4), (0.3, 0.45)
"""Exponent with which speed grows with the number of GPUs, and its standard deviation over Gavel's jobs:
within one machine, and across machines."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of an instance type. model: their name. speed: speed of one GPU relative to others, without
    unit.
    """

    model: str
    speed: float


@dataclass(frozen=True, slots=True)
class AcrossGpus:
    """Knows only the job's trials on GPUs. gpus: the GPUs of each candidate's instance type."""

    gpus: Mapping[str, Gpus]

    def recommend(self, request: Request) -> list[Recommendation]:
        """Return every affordable candidate but those that failed; ScenarioError if no trial on GPUs has
        ended.
        """
        return ranked(request, self._predicted(request))

    def searcher(self, request: Request, seed: int) -> FirstChoice:
        """Return a search for the first candidate of its ranking; `seed` has no effect."""
        del seed

        def first(observed: Observations) -> tuple[int, str]:
            asked = request.seen(observed)
            predicted = self._predicted(asked)
            row = int(best_first(asked, predicted)[0])
            return row, f"the first of the ranking; {predicted.told(row)}"

        return FirstChoice(first)

    def _predicted(self, request: Request) -> Prediction:
        """Return the prediction of every candidate."""
        among, observed = request.candidates, request.observed
        ended = [trial for trial in range(len(observed)) if observed.ok[trial]]
        if not ended:
            raise ScenarioError(
                f"job {request.job.name}: no trial on GPUs has ended, so its time on them is unknown"
            )
        n = len(among)
        log_time, deviation = np.zeros(n), np.full(n, np.inf)
        reasons, beyond = [""] * n, [""] * n
        for trial in ended:
            row, log_s = int(observed.candidate[trial]), float(np.log(observed.time_s[trial]))
            for other in range(n):
                mean, spread, what = self._from(request, row, other)
                reason = "" if what else f"the same GPUs as {among.name[row]}"
                if other == row:
                    reason = f"measured in trial {trial + 1}: {observed.time_s[trial]:,.0f} s"
                if spread <= deviation[other]:
                    log_time[other], deviation[other] = log_s + mean, spread
                    reasons[other], beyond[other] = reason, what
        return Prediction(log_time, deviation, reasons, beyond)

    def _from(self, request: Request, row: int, other: int) -> tuple[float, float, str]:
        """Return the log ratio of the time on `other` to the time on the tried candidate `row`, its standard
        deviation, and what of it lies outside what was measured.
        """
        if row == other:
            return 0.0, TRIAL, ""
        among = request.candidates
        tried, asked = (self.gpus[str(among.name[place])] for place in (row, other))
        counts = among.gpus * among.count
        apart = float(np.log(counts[other] / counts[row]))
        several = int(among.count[row] != among.count[other])
        machines = float(abs(np.log(among.count[other] / among.count[row])))
        model = OTHER_MODEL if asked.model != tried.model else SAME_MODEL
        spread = float(np.hypot(model, POWERS_APART[several] * max(abs(apart), machines)))
        mean = float(np.log(tried.speed / asked.speed)) - POWER[several] * apart
        changed = [f"{asked.model} from {tried.model}"] if asked.model != tried.model else []
        changed += [f"{counts[other]:.0f} GPUs from {counts[row]:.0f}"] if apart else []
        return mean, spread, ", ".join(changed)
