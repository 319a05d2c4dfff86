"""How fast the twin simulates a training job on 16,384 GPUs for 54 days, with all faults of the fabric's
edge.

The fleet has the size, duration and faults of Llama 3's (traces.fault_rates). Each GPU has an adapter of its
own and two uplinks; iterations take 6 s. In the second figure every cable also flaps twice a year, so that
there are thousands of edge faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.figure import figure
from benchmarks.simpy_fleet import Job
from control.fabric import FaultKind
from traces.fault_rates import LLAMA3, per_gpu_s
from twin.fabric.checkpoints import Checkpointing
from twin.fabric.fleet import simulate
from twin.fabric.fleet_model import Cause, FleetOutcome, FleetSpec
from twin.fabric.model import Delay, QueuePair
from twin.fabric.topology import dual_tor
from twin.fabric.transports import Rdma

GPUS, DAYS, ITERATION_S, DEGRADED_S = 16_384, 54, 6.0, 7.0
DAY_S, YEAR_S = 86_400.0, 365.25 * 86_400.0
REPAIR_S, FLAP_S, STALL_S = 4 * 3600.0, 2.0, 0.3
PLAN = Checkpointing(1800.0, 20.0, 60.0, 600.0)
JITTER_CV = 0.02
REPEATS = 3


def figures() -> Iterator[dict[str, object]]:
    """Yield seconds of core time for one run, median of repeats. Both models simulate the same duration."""
    spec = _spec()
    simulate(replace(spec, duration_s=DAY_S), np.random.SeedSequence(0))
    yield _figure("fleet_54_days_16384_gpus", spec)
    flaps = Cause("flap", FaultKind.LINK, 2 / YEAR_S, Delay(FLAP_S, FLAP_S))
    yield _figure("fleet_54_days_16384_gpus_flaps", replace(spec, causes=(*spec.causes, flaps)))


def _spec() -> FleetSpec:
    repair = Delay(REPAIR_S, REPAIR_S)
    causes = (
        Cause("cable", FaultKind.LINK, per_gpu_s(LLAMA3, "link"), repair),
        Cause("nic", FaultKind.NIC, per_gpu_s(LLAMA3, "nic"), repair),
        Cause("host", None, 8 * per_gpu_s(LLAMA3, "other"), repair),
    )
    return FleetSpec(
        topology=dual_tor(GPUS, tors=GPUS // 32, nics=2, spines=1),
        rows_per_host=8,
        gpus_per_host=8,
        spares=64,
        duration_s=DAYS * DAY_S,
        iteration_s=np.array([np.inf, DEGRADED_S, ITERATION_S]),
        jitter_cv=JITTER_CV,
        busy=np.array([[0.0, 1.0]]),
        flows=4,
        causes=causes,
        gaps_s=np.full((1, 2), STALL_S),
        transport=Rdma(QueuePair(timeout=16)),
        checkpointing=PLAN,
    )


def _plain(spec: FleetSpec) -> tuple[float, Job]:
    edges = [cause for cause in spec.causes if cause.kind is not None]
    hosts_per_s = sum(cause.per_s * spec.hosts for cause in spec.causes if cause.kind is None)
    job = Job(
        (ITERATION_S, DEGRADED_S),
        float(np.sqrt(np.log1p(JITTER_CV**2))),
        PLAN.interval_s,
        PLAN.save_s,
        PLAN.restart_s,
        edges=tuple((cause.per_s * 2 * GPUS, cause.repair.median_s) for cause in edges),
        host_per_s=hosts_per_s,
        stall_s=STALL_S,
    )
    began = time.process_time()
    job.run(spec.duration_s)
    return time.process_time() - began, job


def _figure(name: str, spec: FleetSpec) -> dict[str, object]:
    plain_s, plain = _plain(spec)
    runs = [_timed(spec) for _ in range(REPEATS)]
    cpu_s, out = median(seconds for seconds, _ in runs), runs[0][1]
    kinds = np.array([cause.kind is not None for cause in spec.causes])
    return figure(
        name,
        cpu_s,
        "s of core time",
        baseline="SimPy, a timeout for each iteration",
        baseline_value=plain_s,
        ratio=plain_s / cpu_s,
        target="≤ 10 s",
        iterations=len(out.iteration_s),
        edge_faults=int(kinds[out.fault_cause].sum()),
        deaths=out.deaths,
        effective=round(out.effective_ratio, 4),
        baseline_iterations=len(plain.iterations),
        baseline_effective=round(plain.kept * ITERATION_S / spec.duration_s, 4),
    )


def _timed(spec: FleetSpec) -> tuple[float, FleetOutcome]:
    began = time.process_time()
    out = simulate(spec, np.random.SeedSequence(1))
    return time.process_time() - began, out
