"""The analytic model: how long a job takes on clusters without measurements, from its local run, sizes and
speeds.

For: the prior of predictors, and recommendations without a history. Not for: the formulas
(twin.cloud.performance), nor what other jobs teach. A local core counts as a vCPU: if the machine of the
local run is faster, then all times are too short by the same factor, and the order of clusters stays the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from control.jobs import Candidates, Flags, Job, LocalRun, Real
from twin.cloud import performance


def job_s(
    job: Job, rows: Candidates, startup_s: float, server_bps: Mapping[str, float] | None = None
) -> Real:
    """Return the time of the whole job on each cluster, s, float64[n].

    It is NaN without a local run or samples, and for types with GPUs or without a network rate: a run on CPUs
    gives no information about them. server_bps: network rate of a parameter server's type, bit/s.
    """
    batch = np.where(np.isnan(rows.batch), np.nan if job.batch is None else job.batch, rows.batch)
    steps = job.samples / (rows.count * batch)
    return performance.job_s(steps, step_s(job.local_run, batch, rows, server_bps or {}), startup_s)


def network_use_bps(job: Job, rows: Candidates, server_bps: float) -> Real:
    """Return the bandwidth that one worker would use of a server of its own, bit/s, float64[n].

    It is NaN where `job_s` is. server_bps: network rate of the server, bit/s.
    """
    run = job.local_run
    if run is None:
        return np.full(len(rows), np.nan)
    batch = np.full(len(rows), float(run.batch if job.batch is None else job.batch))
    alone = replace(
        rows,
        count=np.ones_like(rows.count),
        servers=np.ones_like(rows.servers),
        server=np.full(len(rows), "server"),
    )
    one_step_s = step_s(run, batch, alone, {"server": server_bps})
    return performance.server_traffic_bps(one_step_s, run.parameters * performance.BYTES_PER_PARAMETER)


def network_use_by_type(job: Job, rows: Candidates, server_bps: float) -> dict[str, float]:
    """Return by type what `network_use_bps` knows, bit/s."""
    use_bps = network_use_bps(job, rows, server_bps)
    return {str(name): float(use) for name, use in zip(rows.name, use_bps, strict=True) if np.isfinite(use)}


def step_s(run: LocalRun | None, batch: Real, rows: Candidates, server_bps: Mapping[str, float]) -> Real:
    """Return the time of a step on each cluster, s: compute, then all-reduce or parameter servers."""
    if run is None or not run.cpu_cores.size:
        return np.full(len(rows), np.nan)
    # The processes share this machine, so the CPU time of one process's step counts. Both factors are means:
    # totals have the rare long steps, such as checkpoints, too.
    used = float(run.cpu_cores.mean())
    work = performance.work_of(run.step_s.mean() * used, run.batch, run.parameters)
    computing = performance.compute_s(work, batch, rows.vcpus)
    step = performance.step_s(computing, _exchange_s(work.bytes, rows, server_bps))
    return np.where(rows.gpus > 0, np.nan, step)


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
