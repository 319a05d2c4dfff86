"""Profiles a job's stalls on this machine, under the limits of instance types of the catalogue.

For: `twinbed profile --stalls` and the studies. Not for: the runs themselves (testbed.cloud.stalls), nor for
what they mean (lab.cloud.run.stalls).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.cloud.input.job_file import KEPT, JobFile
from lab.cloud.input.listed import instance_type
from lab.cloud.run.stalls import Measured
from testbed.cloud.all_reduce import SIZES
from testbed.cloud.emulated import SCALE, STEPS, emulated
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
    scale: float = SCALE,
    count: int = STEPS,
    told: Callable[[str], None] = lambda _: None,
) -> list[Measured]:
    """Return the job's runs under each type's limits. scale: ratio of emulated to real cores and rates.

    Raises ScenarioError for a job without `{data}`, types that this machine cannot carry, and a job that
    ends; BackendError if the machine refuses.
    """
    kinds = [emulated(instance_type(listing), scale) for listing in listings]
    here = os.cpu_count() or 1
    for kind in kinds:
        if workers * kind.cores > here:
            raise ScenarioError(
                f"{workers} workers of {kind.name} need {workers * kind.cores:.2g} cores at a scale of "
                f"1/{1 / scale:g}, and this machine has {here}; take fewer workers or a smaller type"
            )
    file.command_line(data=KEPT)
    profiler = Profiler(
        lambda data: file.command_line(steps=_ENDLESS, data=data),
        workers,
        KEPT,
        directory,
        identity or identity_of(None, (), os.environ),
        count,
        told,
    )
    model, made = profiler.profile(kinds)
    return [
        Measured(
            job=file.name,
            type=listing.name,
            price_usd_h=listing.price_usd_h,
            workers=workers,
            cores=item.kind.cores,
            network_bps=item.kind.network_bps,
            batch=model.batch,
            gradient_bytes=model.gradient_bytes,
            timings=item.timings,
            refused=item.refused,
            sizes_bytes=SIZES if item.all_reduce_s else (),
            all_reduce_s=item.all_reduce_s,
            warm=item.warm,
            cold=item.cold,
        )
        for listing, item in zip(listings, made, strict=True)
    ]


def epoch_samples(file: JobFile) -> float:
    """Return the samples of an epoch of a job. Raises ScenarioError where the file does not say."""
    if file.samples is None:
        raise ScenarioError(
            f"job {file.name}: samples: missing; state them, and features.epochs, to price an epoch"
        )
    return file.samples / file.features.get("epochs", 1.0)
