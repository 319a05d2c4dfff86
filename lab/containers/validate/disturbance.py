"""Finds runs whose requests took more CPU than the same requests in another repeat: the processor had
other work.

For: leaving out runs that the neighbours of a virtual machine disturbed. Not for: other work on the
machine itself, which /proc/stat shows (present.company). The same requests with the same demand, under the
same policy, cost the same CPU. They cost more where somebody else uses the caches or the other thread of
the core, and no counter of a virtual machine shows that. The twin has no part in this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.containers.validate.rule import LEAST_REPEATS
from lab.runs.store import Run
from twin.containers.model import Floats

MOST = 1.15
"""CPU per request above which a run counts as disturbed, as a multiple of the least of equal runs."""


def cpu_per_request_s(run: Run) -> float:
    """Return the CPU seconds that the containers used per answered request; NaN if there are no requests."""
    answered = run.metrics["throughput_rps"] if "requests" in run.tables else 0.0
    periods = int(run.manifest["workload"]["periods"])
    usage = run.table("periods", ["usage_cores"]).column("usage_cores").to_numpy().astype(np.float64)
    return float(usage.sum()) / periods / answered if answered > 0 else float("nan")


def undisturbed(equals: Sequence[Run]) -> list[Run]:
    """Return those of equal runs, which differ in the repeat alone, that took at most MOST times the least
    CPU."""
    within = _within(np.array([cpu_per_request_s(run) for run in equals]))
    return [run for run, fine in zip(equals, within, strict=True) if fine]


def divided(testbed: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return (runs that count, runs that are left out) of a cell, by seed, in their order.

    At least LEAST_REPEATS runs of a seed count, those that took least, as far as there are that many.
    """
    kept: set[int] = set()
    for seed in {run.seed for run in testbed}:
        places = [place for place, run in enumerate(testbed) if run.seed == seed]
        cost_s = np.array([cpu_per_request_s(testbed[place]) for place in places])
        fine = np.flatnonzero(_within(cost_s))
        if len(fine) < LEAST_REPEATS:
            fine = np.argsort(cost_s, kind="stable")[:LEAST_REPEATS]
        kept |= {places[index] for index in fine}
    return (
        [run for place, run in enumerate(testbed) if place in kept],
        [run for place, run in enumerate(testbed) if place not in kept],
    )


def _within(cost_s: Floats) -> NDArray[np.bool_]:
    """Return which values are at most MOST times the least, or unknown."""
    known = cost_s[np.isfinite(cost_s)]
    return ~(cost_s > MOST * known.min()) if known.size else np.ones(len(cost_s), np.bool_)
