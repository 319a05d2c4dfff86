"""What was tried, as a ranking: the answer of a search that predicts nothing.

For: exhaustive and random search. Not for: candidates without a trial.
"""

from __future__ import annotations

import numpy as np

from control.recommender.model import Interval, Recommendation
from control.recommender.ports import Request
from twinbed import ScenarioError


def measured_only(request: Request) -> list[Recommendation]:
    """The trials that ended within the bounds, best first, with intervals of no width.

    Raises ScenarioError if there is none.
    """
    seen = request.observed
    kept = seen.ok & (seen.time_s <= request.deadline_s) & (seen.cost_usd <= request.budget_usd)
    if not kept.any():
        raise ScenarioError(
            "no trial of this job has ended within the bounds, and without any nothing is known; try some"
        )
    order = np.flatnonzero(kept)[np.argsort(seen.objective(request.objective)[kept], kind="stable")]
    return [
        Recommendation(
            configuration=request.candidates.configuration(int(seen.candidate[trial])),
            time_s=float(seen.time_s[trial]),
            cost_usd=float(seen.cost_usd[trial]),
            time_interval=Interval(float(seen.time_s[trial]), float(seen.time_s[trial])),
            cost_interval=Interval(float(seen.cost_usd[trial]), float(seen.cost_usd[trial])),
            price_usd_h=float(request.candidates.price_usd_h[seen.candidate[trial]]),
            reason=f"measured in trial {int(trial) + 1} of {len(seen)}",
        )
        for trial in order
    ]
