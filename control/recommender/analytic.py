"""What an analytic model expects, ranked: the recommender of a job that has a local run and no past at all.

For: the first answer, before any trial and any past job. Not for: the model (twin.cloud; its times come in),
nor for learning from trials (transfer.py does). Its interval is as wide as two machines' vCPUs differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.recommender.fc2 import OneChoice
from control.recommender.model import Candidates, Real, Recommendation
from control.recommender.ports import Request
from control.recommender.ranking import Prediction, ranked
from twinbed import InvariantError, ScenarioError

DEVIATION = 0.7
"""Of the logarithm of a time: another CPU, other libraries. As local_level.py has it."""
_REASON = "expected from the local run, sizes and speeds: no past job, no trial"


@dataclass(frozen=True, slots=True)
class Analytic:
    """expected_s: float64[n], of the request's candidates; NaN where the model knows nothing.

    deviation: of the logarithm of a job's time about it.
    """

    expected_s: Real
    deviation: float = DEVIATION

    def recommend(self, request: Request) -> list[Recommendation]:
        """The candidates of which the model knows something, best first.

        Raises ScenarioError if there are none.
        """
        return self._ranked(request, None)

    def searcher(self, request: Request, seed: int) -> OneChoice:
        """Tries the first of the ranking, and stops; `seed` changes nothing."""
        del seed
        first = self._ranked(request, 1)[0]
        row = _row(request.candidates, first)
        return OneChoice(request, row, f"the first by the analytic model; expected {first.time_s:.4g} s")

    def _ranked(self, request: Request, most: int | None) -> list[Recommendation]:
        if self.expected_s.shape != (len(request.candidates),):
            raise InvariantError(
                f"{self.expected_s.size} expected times of {len(request.candidates)} candidates"
            )
        known = np.flatnonzero(np.isfinite(self.expected_s))
        if not known.size:
            raise ScenarioError(
                f"job {request.job.name}: its time is known on no candidate; it needs a local run (twinbed "
                "profile), samples and batch, and types without GPUs and with a network rate"
            )
        among = Request(
            job=request.job,
            candidates=request.candidates.take(known),
            objective=request.objective,
            budget_usd=request.budget_usd,
            budget_usd_h=request.budget_usd_h,
            deadline_s=request.deadline_s,
        )
        expected = np.log(self.expected_s[known])
        predicted = Prediction(expected, np.full(known.size, self.deviation), [_REASON] * known.size)
        return ranked(among, predicted, most)


def _row(candidates: Candidates, chosen: Recommendation) -> int:
    return next(
        row for row in range(len(candidates)) if candidates.configuration(row) == chosen.configuration
    )
