"""What if the price of one instance type moves: the same predictions, ranked at other prices.

For: the slider of the page "Cloud". Not for: predicting anew; how long a job takes does not depend on what
it costs. Times and intervals are those of the answer, so a type that it left out stays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from control.recommender.model import Candidates, Configuration, Recommendation
from control.recommender.ports import Request
from control.recommender.ranking import Prediction, ranked
from lab.cloud.run.recommending import Question

LOW, HIGH = 0.1, 5.0
"""The range of a price's factor."""
_STEPS = 200


@dataclass(frozen=True, slots=True)
class Turn:
    """From this factor of the type's price on (from LOW upwards), this configuration is the best."""

    factor: float
    configuration: Configuration


class MovedPrices:
    """The answer to a question, asked again at other prices of `instance`.

    among: the candidates of the question at today's prices, `price_usd_h` that of one instance; ranking: the
    answer's, with every time known.
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
        self._among = among.take(np.array([place[each.configuration] for each in ranking]))
        self._predicted = _predicted(ranking)
        self._question = question
        billed = self._among.count * (self._among.name == instance)
        billed = billed + self._among.servers * (self._among.server == instance)
        self._moving_usd_h = billed * price_usd_h

    def best(self, factor: float) -> Recommendation:
        """What is recommended at `factor` times the type's price."""
        given = self._question
        request = Request(
            job=given.job,
            candidates=self._at(factor),
            objective=given.objective,
            budget_usd=given.budget_usd,
            deadline_s=given.deadline_s,
        )
        return ranked(request, self._predicted, 1)[0]

    def turns(self) -> list[Turn]:
        """Where the best changes between LOW and HIGH, to within one of _STEPS; the first is at LOW."""
        found: list[Turn] = []
        for factor in np.geomspace(LOW, HIGH, _STEPS + 1):
            best = self.best(float(factor)).configuration
            if not found or found[-1].configuration != best:
                found.append(Turn(float(factor), best))
        return found

    def costs(self, configurations: Sequence[Configuration]) -> pd.DataFrame:
        """Predicted cost of some over the price: factor, configuration, cost_usd."""
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
    """The prediction that the ranking was made of."""
    low, high = (np.array([getattr(each.time_interval, end) for each in ranking]) for end in ("low", "high"))
    coverage = np.array([each.time_interval.coverage for each in ranking])
    return Prediction(
        np.log([each.time_s for each in ranking]),
        np.log(high / low) / (2 * ndtri(0.5 + coverage / 2)),
        [each.reason for each in ranking],
    )
