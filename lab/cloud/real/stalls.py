"""Profiles a job's stalls on this machine, under the limits of instance types of the catalogue.

For: `twinbed profile --stalls` and the studies. Not for: the runs themselves (testbed.cloud.stalls), nor for
their evaluation (lab.cloud.run.stalls).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from control.profiler.stalls import Profiled
from lab.cloud.input.data_set import instance_type
from lab.cloud.input.job_file import KEPT, JobFile
from testbed.cloud.emulated import emulated
from testbed.cloud.stalls import Profiler
from testbed.containers.host.identity import Identity
from testbed.containers.host.identity import identity as identity_of
from traces.catalogue.catalogue import Listing
from twinbed import ScenarioError

_ENDLESS = 10**9
"""Steps of a job that is ended from outside."""


def measure(
    file: JobFile,
    listings: Sequence[Listing],
    workers: int,
    *,
    directory: Path,
    identity: Identity | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Profiled]:
    """Return the job's runs under each type's limits.

    Raises ScenarioError for a job without `{data}`, types that this machine cannot carry, and a job that
    ends; BackendError if the machine refuses.
    """
    here, jobs = os.cpu_count() or 1, []
    for listing in listings:
        kind = emulated(instance_type(listing))
        if (needed := workers * kind.cores) > here:
            raise ScenarioError(
                f"{workers} workers of {kind.name} need {needed:.2g} cores as they are scaled, and this "
                f"machine has {here}; take fewer workers or a smaller type"
            )
        price = listing.price_usd_h
        jobs.append(Profiled(file.name, kind.name, price, workers, kind.cores, kind.network_bps))
    file.command_line(data=KEPT)
    Profiler(
        lambda data: file.command_line(steps=_ENDLESS, data=data),
        KEPT,
        directory,
        identity or identity_of(None, (), os.environ),
        batch=file.batch,
        told=told,
    ).profile(jobs)
    return jobs
