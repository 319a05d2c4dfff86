"""Jobs on configurations whose times follow a law that a test knows."""

from __future__ import annotations

import numpy as np

from control.jobs import Configuration, InstanceType, Job, LocalRun, candidates
from control.predictor.examples import Examples
from control.profiler.stalls import Profiled, Reading, Run, Timing

TYPES = {
    name: InstanceType(name, "test", vcpus, memory, network_bps=vcpus * 1e9, cpu_speed=1.0)
    for name, vcpus, memory in (("small", 4, 16), ("middle", 8, 32), ("large", 16, 32), ("huge", 32, 64))
}
PRICES = {name: 0.05 * kind.vcpus for name, kind in TYPES.items()}


def local_run(work: float, seed: int) -> LocalRun:
    rng = np.random.default_rng(seed)
    series = rng.uniform(0.5, 1.0, (90, 3))
    return LocalRun(
        1.0, series, series * 1e8 * work, series * 1e6, series * 1e6 * work, np.full(20, 0.1 * work), 32,
        int(1e6 * work), ("Conv2d", "ReLU", "Linear"),
    )  # fmt: skip


def examples(jobs: int = 5, seed: int = 0, *, noise: float = 0.03, prior: bool = True) -> Examples:
    """time = work · (1 / (n · vCPUs) + 0.003 · n) · 1000 s, with a law's error that the vCPUs explain."""
    rng = np.random.default_rng(seed)
    grid = [Configuration(name, count) for name in TYPES for count in (1, 2, 3, 4, 6, 8)]
    known = [
        Job(f"job-{index}", {"epochs": 5.0 + index}, local_run(1.0 + index, index), 32, 1e5 * (1 + index))
        for index in range(jobs)
    ]
    clusters = candidates(TYPES, PRICES, grid)
    job = np.repeat(np.arange(jobs), len(grid))
    rows = clusters.take(np.tile(np.arange(len(grid)), jobs))
    physics = 1000.0 * (1.0 + job) * (1 / (rows.count * rows.vcpus) + 0.003 * rows.count)
    true = physics * 1.5 * (rows.vcpus / 8) ** 0.2
    time_s = true * np.exp(noise * rng.standard_normal(len(job)))
    unknown = np.full(len(job), np.nan)
    return Examples(
        tuple(known), job, rows, time_s, time_s / 3600 * rows.price_usd_h, physics if prior else unknown,
        np.arange(2, len(job) + 2),
    )  # fmt: skip


_TIMES = {Run.ALONE: 8.0, Run.TOGETHER: 10.0, Run.COLD: 14.0, Run.WARM: 12.0, Run.APART: 50.0}
PROFILED = Profiled(
    job="a",
    type="t",
    price_usd_h=0.5,
    workers=2,
    cores=0.5,
    network_bps=8e6,
    batch=10,
    gradient_bytes=(1_000_000,),
    timings={run: Timing((seconds, seconds), 100) for run, seconds in _TIMES.items()},
    refused="",
    sizes_bytes=(1_000_000, 2_000_000),
    # No latency, 80 Mbit/s: half of the bytes twice.
    all_reduce_s=(0.1, 0.2),
    warm=Reading(0.005, 0.0),
    cold=Reading(0.005, 0.01),
)
"""A job of two workers whose stalls a test can work out by hand."""
