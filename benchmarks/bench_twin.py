"""How many container-periods per second the period-level twin does, with Escra in the loop.

The workload is synthetic and seeded: bursty demand (log-normal, correlated over ten periods, a
different mean each), memory that climbs and falls back as a garbage-collected heap, at other rates in each
container. Everything of the twin is on: telemetry jitter, quota writes, memory traps, grants, sweeps.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from benchmarks.simpy_containers import Baseline
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application
from twin.containers import simulate
from twin.containers.model import Machine, Outcome, Workload

MIB = 1 << 20
PERIOD_S = 0.1
THREADS, HOST_CORES = 4.0, 8.0
REPEATS = 7
MACHINE = Machine(
    telemetry_delay_s=0.0001,
    telemetry_jitter_s=0.0002,
    quota_write_delay_s=0.0002,
    oom_grant_delay_s=0.000233,
    reclaim_delay_s=0.001,
    restart_s=2.0,
)


def bursty(periods: int, count: int, applications: int) -> Workload:
    """Demand and memory as the module says; the limits are 2.5 × mean CPU and 1.3 × peak memory."""
    rng = np.random.default_rng(7)
    mean = rng.lognormal(-1.5, 0.8, count)
    demand = np.empty((periods, count))
    level = rng.standard_normal(count)
    for row in range(periods):
        level = 0.9 * level + np.sqrt(1 - 0.9**2) * rng.standard_normal(count)
        demand[row] = np.minimum(mean * np.exp(0.7 * level - 0.245), THREADS)
    climb = (np.arange(periods)[:, None] / rng.integers(100, 600, count) + rng.random(count)) % 1.0
    memory = ((200 + rng.exponential(100, count)) * MIB + 40 * MIB * climb).astype(np.int64)
    share = count / applications
    limits = float(demand.mean() * share * 2.5), int(memory.max(axis=0).mean() * share * 1.3)
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=tuple(Application(f"app{i}", *limits) for i in range(applications)),
        app=np.arange(count) % applications,
        period_s=PERIOD_S,
        demand_cores=demand,
        memory_bytes=memory,
        present=np.ones((periods, count), np.bool_),
        threads=np.full(count, THREADS),
        host_cores=np.full(count, HOST_CORES),
        peak_cores=demand.max(axis=0),
        peak_bytes=memory.max(axis=0),
    )


def figures() -> Iterator[dict[str, object]]:
    """One row per figure; rates are container-periods per second of wall time, medians of repeats."""
    load = bursty(1000, 10_000, 20)
    rate, outcome = _twin(load)
    yield {
        "name": "twin.escra.10000",
        "value": round(rate),
        "unit": "container-periods/s",
        "baseline": "30 million/s",
        "ratio": round(rate / 30e6, 3),
        "target": "ratio >= 1",
        "periods": len(load.present),
        "events": len(outcome.events.kind),
        "limit_changes": outcome.limit_changes,
        "throttled_share": round(float(outcome.nr_throttled.sum() / outcome.nr_periods.sum()), 4),
    }
    load = bursty(1000, 1000, 1)
    rate, outcome = _twin(load)
    slow, plain = _baseline(load, periods=60)
    yield {
        "name": "twin.escra.1000",
        "value": round(rate),
        "unit": "container-periods/s",
        "baseline": f"one SimPy process per container, same rule in Python: {round(slow)}/s",
        "ratio": round(rate / slow, 1),
        "target": "ratio >= 40",
        "done_share": round(float(outcome.done_s.sum() / outcome.arrived_s.sum()), 4),
        "baseline_done_share": round(plain, 4),
    }


def _twin(load: Workload) -> tuple[float, Outcome]:
    def once() -> Outcome:
        seed = np.random.SeedSequence(1)
        return simulate(load, Escra(EscraSettings()), MACHINE, seed=seed, record=False)

    outcome = once()
    return load.present.size / _median_s(once, REPEATS), outcome


def _baseline(load: Workload, periods: int) -> tuple[float, float]:
    """(container-periods per second, share of the arrived work done) of the SimPy model."""
    demand = [column.tolist() for column in load.demand_cores[:periods].T]
    delays = MACHINE.telemetry_delay_s, MACHINE.quota_write_delay_s
    omega = load.applications[0].cpu_limit_cores
    models: list[Baseline] = []

    def once() -> None:
        models.append(Baseline(demand, THREADS, HOST_CORES, omega, PERIOD_S, *delays))
        models[-1].run()

    seconds = _median_s(once, 3)
    done = sum(container.done_s for container in models[-1].containers)
    arrived = sum(map(sum, demand)) * PERIOD_S
    return len(demand) * periods / seconds, done / arrived


def _median_s(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return median(taken)
