"""How many container-periods per second the period-level twin does, with Escra in the loop.

The workload is synthetic and seeded. Demand is bursty (log-normal, correlated over ten periods, a different
mean for each container). Memory climbs and falls back like a garbage-collected heap, at a different rate in
each container. Everything in the twin is on: telemetry jitter, quota writes, memory traps, grants, sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import figure, median_s
from benchmarks.simpy_containers import Baseline
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application
from twin.containers.model import Machine, Outcome, Workload
from twin.containers.run import simulate

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
    """Return demand and memory as the module says. The limits are 2.5 × mean CPU and 1.3 × peak memory."""
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
        host=np.arange(count),
        host_cores=np.full(count, HOST_CORES),
        weight=np.ones(count),
        peak_cores=demand.max(axis=0),
        peak_bytes=memory.max(axis=0),
    )


def figures() -> Iterator[dict[str, object]]:
    """Yield container-periods per second of one core's time, and by the wall clock; medians of repeats.

    Core time is the process's CPU time, so that neighbours on a shared machine do not count. The baseline is
    the SimPy model's rate at 1,000 containers in the same run, by CPU time too.
    """
    small = bursty(1000, 1000, 1)
    slow, slow_done = _baseline(small, periods=60)
    yield _figure(bursty(1000, 10_000, 20), slow, "≥ 30 million")
    yield _figure(small, slow, "ratio ≥ 40") | {"baseline_work_done": slow_done}


def _figure(load: Workload, baseline: float, target: str) -> dict[str, object]:
    wall_s, cpu_s, outcome = _twin(load)
    rate = load.present.size / cpu_s
    return figure(
        f"twin_escra_{load.present.shape[1]}_containers",
        rate,
        "container-periods per core-second",
        baseline="SimPy, one process per container, 1000 containers",
        baseline_value=baseline,
        ratio=rate / baseline,
        target=target,
        by_wall_clock=round(load.present.size / wall_s),
        limits_changed_per_period=round(outcome.limit_changes / len(load.present), 1),
        traps_per_period=round(outcome.events.kind.count("oom") / len(load.present), 2),
        throttled_share=round(float(outcome.nr_throttled.sum() / outcome.nr_periods.sum()), 4),
        work_done=_share_done(outcome.done_s.sum(), outcome.arrived_s.sum()),
    )


def _twin(load: Workload) -> tuple[float, float, Outcome]:
    def once() -> Outcome:
        seed = np.random.SeedSequence(1)
        return simulate(load, Escra(EscraSettings()), MACHINE, seed=seed, record=False)

    outcome = once()
    return *median_s(once, REPEATS), outcome


def _baseline(load: Workload, periods: int) -> tuple[float, float]:
    """Return (container-periods per core-second, share of the work done) of the SimPy model."""
    demand, memory = (
        [column.tolist() for column in table[:periods].T] for table in (load.demand_cores, load.memory_bytes)
    )
    delays = MACHINE.telemetry_delay_s, MACHINE.quota_write_delay_s, MACHINE.oom_grant_delay_s
    limits = load.applications[0].cpu_limit_cores, load.applications[0].memory_limit_bytes
    models: list[Baseline] = []

    def once() -> None:
        models.append(Baseline(demand, memory, THREADS, HOST_CORES, *limits, PERIOD_S, *delays))
        models[-1].run()

    _, seconds = median_s(once, 3)
    done = sum(container.done_s for container in models[-1].containers)
    arrived = sum(map(sum, demand)) * PERIOD_S
    return len(demand) * periods / seconds, _share_done(done, arrived)


def _share_done(done: float, arrived: float) -> float:
    return round(float(done / arrived), 5)
