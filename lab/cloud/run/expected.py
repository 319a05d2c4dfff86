"""How long a job will take on clusters where nothing was measured: its local run, sizes and speeds.

For: the prior of predictors and of a recommendation without a history. Not for: the formulas
(twin.cloud.performance), nor what other jobs teach. A local core is taken for a vCPU: where the machine of
the local run is faster, all times are too short by as much, and which cluster is the faster stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from control.recommender.model import Candidates, Flags, Job, LocalRun, Real
from twin.cloud import performance


def job_s(
    job: Job, rows: Candidates, startup_s: float, server_bps: Mapping[str, float] | None = None
) -> Real:
    """float64[n], of the whole job; NaN without a local run or its samples, and where a type has GPUs or no
    network rate: a run on CPUs says nothing of them. server_bps: of a parameter server's type."""
    batch = np.where(np.isnan(rows.batch), np.nan if job.batch is None else job.batch, rows.batch)
    steps = job.samples / (rows.count * batch)
    return performance.job_s(steps, step_s(job.local_run, batch, rows, server_bps or {}), startup_s)


def step_s(run: LocalRun | None, batch: Real, rows: Candidates, server_bps: Mapping[str, float]) -> Real:
    """float64[n], of one step on each cluster: compute, then all-reduce or the parameter server's port."""
    if run is None or not run.cpu_cores.size:
        return np.full(len(rows), np.nan)
    # The processes share this machine: what counts is the CPU that a step of one of them takes.
    used = float(run.cpu_cores.mean())
    work = performance.work_of(np.median(run.step_s) * used, run.batch, run.parameters)
    computing = performance.compute_s(work, batch, rows.vcpus)
    found = performance.step_s(computing, _exchange_s(work.bytes, rows, server_bps))
    return np.where(rows.gpus > 0, np.nan, found)


def _exchange_s(size_bytes: float, rows: Candidates, server_bps: Mapping[str, float]) -> Real:
    ring = np.where(rows.count > 1, performance.ring_s(size_bytes, rows.count, rows.network_bps), 0.0)
    served: Flags = rows.servers > 0
    if not served.any():
        return ring
    port = np.array([server_bps.get(str(name), np.nan) for name in rows.server])
    through = performance.server_s(
        size_bytes, rows.count, rows.network_bps, port, np.maximum(rows.servers, 1)
    )
    return np.where(served, through, ring)
