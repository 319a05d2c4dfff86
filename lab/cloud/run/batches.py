"""Batch sizes in a recommendation: whether they are chosen among, and of which of them trials tell.

For: recommending.py and the search. Not for: what a batch is worth (control.recommender.scavenger).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from control.recommender import RECOMMENDERS
from control.recommender.analytic import of_one_batch
from control.recommender.ports import Request
from control.recommender.scavenger import first_batch, noise_in_use

if TYPE_CHECKING:
    from lab.cloud.run.recommending import Question


def tunes_batch(question: Question) -> bool:
    """Return whether batch sizes are chosen among, so that trials differ in the samples they need."""
    method = RECOMMENDERS.get(question.method)
    return bool(question.market.batches) or (method is not None and method.tunes_batch)


def lacks_noise(question: Question, request: Request) -> bool:
    """Return whether no trial tells what another batch is worth to a method that does not learn it itself."""
    method = RECOMMENDERS.get(question.method)
    learns = method is not None and method.tunes_batch
    return tunes_batch(question) and not learns and bool(np.isnan(noise_in_use(request.observed)))


def without_unknown(question: Question, request: Request) -> tuple[Request, bool]:
    """Return the request, and whether clusters are left out: where `lacks_noise`, only the batch nearest the
    job's own and the tried clusters stay. Raises ScenarioError for a job without a batch then."""
    if not lacks_noise(question, request):
        return request, False
    first_batch(request)
    kept = of_one_batch(request)
    kept[request.observed.candidate] = True
    rows, expected_s = np.flatnonzero(kept), request.expected_s
    few = replace(request.among(rows), expected_s=None if expected_s is None else expected_s[rows])
    return few, not kept.all()
