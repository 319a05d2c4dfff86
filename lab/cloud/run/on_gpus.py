"""The choice of a method for GPUs, and when no answer is possible for them.

For: recommendations with GPU types. Not for: the method (control.recommender.across_gpus), nor the speeds
(twin.cloud.gpus).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from control.recommender.across_gpus import AcrossGpus, Gpus
from control.recommender.ports import Request
from traces.catalogue.catalogue import Listing
from twin.cloud.gpus import relative_speed
from twinbed import ScenarioError


def known(listing: Listing) -> bool:
    """Return whether a listing has GPUs of a model whose speed is known."""
    return listing.gpus > 0 and isfinite(relative_speed(listing.gpu_model))


def check(name: str, request: Request) -> None:
    """Raise ScenarioError if only types with GPUs are allowed, and no run on GPUs was measured."""
    rows, observed, past = request.candidates, request.observed, request.history
    if name not in ("transfer", "analytic") or not (rows.gpus > 0).all() or observed.ok.any():
        return
    if past is None or not (past.candidates.gpus > 0).any():
        raise ScenarioError(
            f"job {request.job.name}: no run on GPUs was measured, so its time is not known on "
            "them; run it on one of them, and add the run with twinbed measurements import"
        )


def method(name: str, request: Request, used: Mapping[str, Listing]) -> AcrossGpus | None:
    """Return the method for a job with trials on GPUs, None if another method knows more."""
    past, tried = request.history, request.candidates.gpus[request.observed.candidate]
    taught = past is not None and bool((past.candidates.gpus > 0).any())
    if name != "transfer" or taught or not (tried[request.observed.ok] > 0).any():
        return None
    rows = {name: row for name, row in used.items() if known(row)}
    return AcrossGpus(
        {name: Gpus(row.gpu_model, relative_speed(row.gpu_model)) for name, row in rows.items()}
    )
