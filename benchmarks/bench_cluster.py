"""How fast the cluster twin runs Philly's jobs under FIFO and Tiresias, and Gavel's rounds.

The jobs are those of the Philly trace where `TWINBED_DATA` has it, else as many made-up ones. Philly's own
cluster had 231 servers of 8 GPUs and 321 of 2 (Jeon et al., ATC 2019), on which the jobs of the table rarely
wait. So there is a second one of 47 servers of 8 GPUs, a load of 0.8, on which they queue. The baseline is a
plain event loop over Python objects (plain_cluster.py) with as many GPUs. Both run the first jobs, and the
ratio is of these runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import plain_cluster
from benchmarks.figure import figure
from control.cluster import Outcome, Timing, Workload
from control.scheduler import make
from control.scheduler.model import Assignment, Cluster, Real, State, Whole
from traces.readers.job_logs import read_philly
from twin.cluster.simulation import simulate

JOBS, DAYS = 40_222, 109
PLAIN_JOBS, PLAIN_ROUNDS = 3_000, 200
ROUNDS, ROUND_S, GAVEL_JOBS, GAVEL_PER_HOUR, MODELS = 10_000, 360.0, 430, 2.0, 26
CLUSTERS = {"own": ((231, 8), (321, 2)), "load_0.8": ((47, 8),)}
"""Name → (servers, GPUs of each) by type."""


def figures() -> Iterator[dict[str, object]]:
    """Yield seconds of core time, one run each after a short one that compiles."""
    jobs, data = _philly()
    for name, servers in CLUSTERS.items():
        for policy in ("fifo", "tiresias"):
            yield _queue(f"cluster_philly_{policy}_{name}", policy, jobs, servers, data)
    yield _gavel()


def _queue(
    name: str, policy: str, jobs: Workload, servers: tuple[tuple[int, int], ...], data: str
) -> dict[str, object]:
    where, load = _cluster(servers), _on(jobs, len(servers))
    few = load.of(np.arange(PLAIN_JOBS))
    _timed(where, few, policy)
    cpu_s, done = _timed(where, load, policy)
    few_s, _ = _timed(where, few, policy)
    plain = [
        plain_cluster.Job(float(at), int(gpus), float(steps))
        for at, gpus, steps in zip(few.submit_s, few.gpus, few.steps, strict=True)
    ]
    began = time.process_time()
    plain_cluster.run(plain, int(where.server_gpus.sum()), tiresias=policy == "tiresias")
    plain_s = time.process_time() - began
    return figure(
        name,
        cpu_s,
        "s of core time",
        baseline=f"an event loop over Python objects, the first {PLAIN_JOBS:,} jobs",
        baseline_value=plain_s,
        ratio=plain_s / few_s,
        target="≤ 20 s",
        jobs=len(jobs),
        data=data,
        of_the_first_jobs=few_s,
        decisions=done.series.at_s.size,
        preemptions=int(done.preemptions.sum()),
        most_waiting=int(done.series.waiting.max()),
    )


def _gavel() -> dict[str, object]:
    """Return the time of Gavel's rounds among about 500 jobs. GAVEL_JOBS of them never end, and others come
    and end, so that programmes are needed.

    Sizes and the durations of the others are those of Gavel's generator (its short jobs), and speeds those of
    as many made-up models.
    """
    random = np.random.default_rng(0)
    n = GAVEL_JOBS + round(GAVEL_PER_HOUR * ROUNDS * ROUND_S / 3600)
    submit_s = np.maximum(np.arange(n) - GAVEL_JOBS + 1, 0) * 3600 / GAVEL_PER_HOUR
    duration_s = np.where(np.arange(n) < GAVEL_JOBS, 1e12, 60 * 10 ** random.uniform(1.5, 3, n))
    gpus = random.choice([1, 2, 4, 8], n, p=[0.7, 0.1, 0.15, 0.05])
    model = random.integers(0, MODELS, n)
    speed = np.column_stack((np.ones(n), random.uniform((0.4, 0.1), (0.9, 0.5), (MODELS, 2))[model]))
    where, load = _cluster(((9, 4),) * 3), _workload(submit_s, gpus, duration_s, speed)
    apart = replace(load, weight=1.0 + 1e-6 * np.arange(n, dtype=np.float64))
    _rounds(where, load, 20)
    cpu_s, present = _rounds(where, load, ROUNDS)
    few_s, plain_s = (_rounds(where, jobs, PLAIN_ROUNDS)[0] for jobs in (load, apart))
    return figure(
        "cluster_gavel_10000_rounds",
        cpu_s,
        "s of core time",
        baseline=f"jobs of which no two are equal in a programme, the first {PLAIN_ROUNDS} rounds",
        baseline_value=plain_s,
        ratio=plain_s / few_s,
        target="≤ 120 s",
        of_the_first_rounds=few_s,
        mean_present=round(present),
    )


class _EnoughError(Exception):
    """The rounds that were asked for are over."""


def _rounds(where: Cluster, jobs: Workload, rounds: int) -> tuple[float, float]:
    """Return the core time of Gavel's first rounds, s, and the mean number of jobs that were present."""
    scheduler, present = make("gavel", where, 0), list[int]()
    decide = scheduler.on_round

    def counted(state: State) -> Assignment:
        if len(present) == rounds:
            raise _EnoughError
        present.append(len(state))
        return decide(state)

    scheduler.on_round = counted  # type: ignore[method-assign]
    began = time.process_time()
    with suppress(_EnoughError):
        simulate(where, jobs, scheduler, Timing(ROUND_S, at_events=False, restart_s=0.0))
    return time.process_time() - began, float(np.mean(present))


def _philly() -> tuple[Workload, str]:
    """Return the jobs, whose steps are seconds on one type, and what they are."""
    folder = os.environ.get("TWINBED_DATA")
    path = Path(folder or ".") / "philly_jobs" / "philly_jobs.csv.gz"
    if path.exists():
        log = read_philly(path)
        return _workload(log.submit_s, log.gpus, log.duration_s), "Philly"
    random = np.random.default_rng(0)
    submit_s = np.sort(random.uniform(0, DAYS * 86_400.0, JOBS))
    gpus = random.choice([1, 2, 4, 8, 16], JOBS, p=[0.884, 0.044, 0.04, 0.027, 0.005])
    return _workload(submit_s, gpus, np.exp(random.normal(6.5, 2.2, JOBS)).clip(60, 4e6)), "made up"


def _workload(submit_s: Real, gpus: Whole, steps: Real, speed: Real | None = None) -> Workload:
    n = submit_s.size
    speed = np.ones((n, 1)) if speed is None else speed
    return Workload(
        submit_s - submit_s[0], gpus.astype(np.int64), steps, np.stack((speed, 0.9 * speed), axis=2),
        np.zeros(n, np.int64), np.ones(n), np.full(n, np.inf), np.zeros(n, np.bool_),
    )  # fmt: skip


def _on(jobs: Workload, types: int) -> Workload:
    """Return the jobs with the same speed on each type."""
    return replace(jobs, throughput=np.repeat(jobs.throughput, types, axis=1))


def _cluster(servers: tuple[tuple[int, int], ...]) -> Cluster:
    counts, gpus = zip(*servers, strict=True)
    kinds, total = len(servers), sum(counts)
    return Cluster(
        tuple(f"{size}-{kind}" for kind, size in enumerate(gpus)),
        np.repeat(np.arange(kinds), counts),
        np.repeat(gpus, counts),
        np.zeros(total, np.int64),
        np.ones(kinds),
        np.ones(1),
        np.ones(1),
    )


def _timed(where: Cluster, jobs: Workload, policy: str) -> tuple[float, Outcome]:
    began = time.process_time()
    done = simulate(where, jobs, make(policy, where, 0), Timing())
    return time.process_time() - began, done
