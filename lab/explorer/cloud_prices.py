"""What if the price of one instance type moves: the same predictions, ranked at other prices.

For: the slider of the page "Cloud". Not for: new predictions, because a job's time does not depend on prices.
Times and intervals are those of the answer, so a type that the answer left out stays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from control.jobs import Candidates, Configuration
from control.recommender.ports import Recommendation, Request
from control.recommender.ranking import Prediction, ranked
from lab.cloud.run.recommending import Question

LOW, HIGH = 0.1, 5.0
"""Range of the factor on a price."""
_STEPS = 200
"""Steps of equal ratio in which that range is searched."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The factor on the price from which a configuration is the best."""

    factor: float
    configuration: Configuration


class MovedPrices:
    """The answer to a question at other prices of one instance type.

    question, ranking: the question and the rows of its answer, all with known times.
    among: the question's candidates at today's prices.
    instance, price_usd_h: the type whose price moves, and its price today, US$/h.
    """

    def __init__(
        self,
        question: Question,
        ranking: Sequence[Recommendation],
        among: Candidates,
        instance: str,
        price_usd_h: float,
    ) -> None:
        place = {among.configuration(row): row for row in range(len(among))}
        self._among = among.take(np.array([place[row.configuration] for row in ranking]))
        self._predicted = _predicted(ranking)
        self._question = question
        billed = self._among.count * (self._among.name == instance)
        billed = billed + self._among.servers * (self._among.server == instance)
        self._moving_usd_h = billed * price_usd_h

    def best(self, factor: float) -> Recommendation:
        """Return the best configuration at `factor` times the type's price."""
        request = Request(
            job=self._question.job,
            candidates=self._at(factor),
            objective=self._question.objective,
            budget_usd=self._question.budget_usd,
            deadline_s=self._question.deadline_s,
        )
        return ranked(request, self._predicted, 1)[0]

    def turns(self) -> list[Turn]:
        """Return where the best changes between LOW and HIGH, to within a step; the first turn is at LOW."""
        turns: list[Turn] = []
        for factor in np.geomspace(LOW, HIGH, _STEPS + 1):
            best = self.best(float(factor)).configuration
            if not turns or turns[-1].configuration != best:
                turns.append(Turn(float(factor), best))
        return turns

    def costs(self, configurations: Sequence[Configuration]) -> pd.DataFrame:
        """Return predicted costs of some configurations over the price: factor, configuration, cost_usd."""
        rows = [row for row in range(len(self._among)) if self._among.configuration(row) in configurations]
        hours = np.exp(self._predicted.log_time[rows]) / 3600
        parts = [
            pd.DataFrame(
                {
                    "factor": factor,
                    "configuration": [str(self._among.configuration(row)) for row in rows],
                    "cost_usd": hours * self._at(float(factor)).price_usd_h[rows],
                }
            )
            for factor in np.geomspace(LOW, HIGH, 41)
        ]
        return pd.concat(parts, ignore_index=True)

    def _at(self, factor: float) -> Candidates:
        return self._among.repriced(self._among.price_usd_h + (factor - 1) * self._moving_usd_h)


def _predicted(ranking: Sequence[Recommendation]) -> Prediction:
    """Return the prediction from which the ranking was made."""
    low, high = (np.array([getattr(row.time_interval, end) for row in ranking]) for end in ("low", "high"))
    coverage = np.array([row.time_interval.coverage for row in ranking])
    return Prediction(
        np.log([row.time_s for row in ranking]),
        np.log(high / low) / (2 * ndtri(0.5 + coverage / 2)),
        [row.reason for row in ranking],
    )
