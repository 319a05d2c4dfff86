"""Predict the profiler's runs from one worker's time, and from gradients, files and links.

For: stalls that follow from a job's layers and bytes (control.profiler.stalls compares the runs). Not for:
measuring stalls. Data-parallel workers exchange gradients in buckets as PyTorch's DDP forms them, each bucket
by a ring in the α–β model. Nothing overlaps: a worker that computes on a CPU's quota has no other engine for
the exchange, and reads its samples itself. Sources: Li et al., "PyTorch Distributed", VLDB 2020, §3.2.3, and
torch/nn/parallel/distributed.py for the buckets; twin.fabric.collectives for the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from control.profiler.stalls import Profiled, Run, Timing
from twin.fabric.collectives import AlphaBeta, Collective, fit, time_s

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""Sizes at which DDP closes its first bucket and the others, B: _DEFAULT_FIRST_BUCKET_BYTES, bucket_cap_mb.
"""


def buckets(gradient_bytes: Sequence[int]) -> tuple[int, ...]:
    """Return the size of each message of DDP, B, in the order of sending.

    gradient_bytes: size of each trained tensor, in the order of the model. The gradient of the last tensor is
    known first.
    """
    sizes: list[int] = []
    held = 0
    for size in reversed(gradient_bytes):
        held += size
        if held >= (BUCKET_BYTES if sizes else FIRST_BUCKET_BYTES):
            sizes.append(held)
            held = 0
    return (*sizes, held) if held else tuple(sizes)


def runs(job: Profiled) -> Mapping[Run, Timing]:
    """Return run → timing predicted from RUN0, for the runs that were made, with RUN0's samples."""
    alone = job.timings[Run.ALONE]
    together_s = apart_s = alone.time_s(alone.samples)
    if job.workers > 1:
        (links,) = fit(Collective.ALL_REDUCE, job.sizes_bytes, job.workers, job.all_reduce_s)
        narrow = AlphaBeta(links.alpha_s, min(links.rate_bps, job.network_bps))
        together_s += alone.samples / job.batch * _exchange_s(job, links)
        apart_s += alone.samples / job.batch * _exchange_s(job, narrow)
    prepare_s = job.warm.on(job.cores) if job.warm else 0.0
    fetch_s = job.cold.on(job.cores) - prepare_s if job.cold else 0.0
    warm_s = together_s + alone.samples * prepare_s
    seconds = {
        Run.ALONE: alone.time_s(alone.samples),
        Run.TOGETHER: together_s,
        Run.COLD: warm_s + alone.samples * max(fetch_s, 0.0),
        Run.WARM: warm_s,
        Run.APART: apart_s,
    }
    return {run: Timing((seconds[run],), alone.samples) for run in Run if run in job.timings}


def _exchange_s(job: Profiled, links: AlphaBeta) -> float:
    """Return the time in which the workers exchange the gradients of one step, s. links: the α–β model."""
    sizes = np.array(buckets(job.gradient_bytes), np.float64)
    return float(time_s(Collective.ALL_REDUCE, sizes, job.workers, links.alpha_s, links.rate_bps).sum())
