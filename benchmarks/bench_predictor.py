"""Times of training the thesis's four networks on 1,000 rows, and of ranking 10,000 configurations.

Jobs and outcomes follow a made-up law. Training stops early if the loss no longer falls, as it does for
users. The number of epochs is reported. Baselines in the same run: the sum of the four trainings' times, and
a random forest's predictions of the same configurations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median

import numpy as np

from benchmarks.figure import figure
from control.jobs import Candidates, Job, LocalRun, Objective
from control.predictor import baselines
from control.predictor.examples import Examples, of_one_job
from control.predictor.networks import Kind
from control.predictor.physical import train_physical
from control.predictor.training import train
from control.recommender.analytic import Analytic
from control.recommender.ports import Request

ROWS, JOBS, RANKED = 1000, 7, 10_000
PROCESSES = 2
REPEATS = 5


def figures() -> Iterator[dict[str, object]]:
    began = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        trained = list(pool.map(_train, Kind))
    beside = time.perf_counter() - began
    alone = sum(seconds for seconds, _ in trained)
    yield figure(
        "train_four_networks_1000_rows_2_processes",
        beside,
        "s",
        baseline="one after the other",
        baseline_value=alone,
        ratio=alone / beside,
        target="≤ 180 s on 2 cores",
        epochs=[epochs for _, epochs in trained],
    )
    ours, theirs = _ranked()
    yield figure(
        "rank_10000_configurations",
        1000 * ours,
        "ms",
        baseline="a random forest's predictions",
        baseline_value=1000 * theirs,
        ratio=theirs / ours,
        target="≤ 200 ms on one core",
    )


def _train(kind: Kind) -> tuple[float, int]:
    """Return (seconds, number of epochs) of one training."""
    rows = _examples(ROWS)
    began = time.perf_counter()
    trained = train(kind, rows, 0)
    return time.perf_counter() - began, len(trained.losses)


def _ranked() -> tuple[float, float]:
    """Return (seconds of predicting and ranking, seconds of predicting by a random forest)."""
    known, asked = _examples(ROWS), _candidates(RANKED, np.random.default_rng(1))
    job = known.jobs[0]
    question = of_one_job(job, asked, _law(asked, 1.0))
    model = train_physical(Objective.TIME, known, 0)
    forest = baselines.fit(baselines.Baseline.FOREST, Objective.TIME, known, 0)

    def ours() -> None:
        Analytic().recommend(Request(job, asked, Objective.COST, expected_s=model.predict(question)))

    rounds = [(_seconds(ours), _seconds(lambda: forest.predict(question))) for _ in range(REPEATS)]
    first, second = (median(column) for column in zip(*rounds, strict=True))
    return first, second


def _examples(count: int) -> Examples:
    random = np.random.default_rng(0)
    jobs = tuple(_job(index, random) for index in range(JOBS))
    rows, job = _candidates(count, random), random.integers(JOBS, size=count)
    expected_s = _law(rows, 1.0 + job)
    time_s = expected_s * rows.vcpus**0.1 * random.lognormal(0, 0.05, count)
    return Examples(jobs, job, rows, time_s, time_s / 3600 * rows.price_usd_h, expected_s, np.arange(count))


def _job(index: int, random: np.random.Generator) -> Job:
    series = random.uniform(0.5, 1.0, (600, 3))
    run = LocalRun(
        1.0, series, 1e8 * series, 1e6 * series, 1e6 * series, np.full(500, 0.1), 32, 10 ** (5 + index % 3),
        ("Conv2d", "ReLU", "Linear"),
    )  # fmt: skip
    return Job(f"job-{index}", {"epochs": float(index)}, run, 32, 1e8)


def _candidates(count: int, random: np.random.Generator) -> Candidates:
    vcpus = random.choice([4.0, 8.0, 16.0, 32.0], count)
    workers = random.integers(1, 64, count)
    none = np.zeros(count, np.int64)
    return Candidates(
        name=np.char.add("type-", vcpus.astype(np.int64).astype(np.str_)),
        count=workers,
        batch=np.full(count, 32.0),
        price_usd_h=0.05 * vcpus * workers,
        vcpus=vcpus,
        memory_gib=4 * vcpus,
        gpus=np.zeros(count),
        network_bps=1e9 * vcpus,
        disk_gib=np.full(count, np.nan),
        cpu_speed=np.ones(count),
        servers=none,
        server=np.full(count, ""),
    )


def _law(rows: Candidates, work: float | np.ndarray) -> np.ndarray:
    return 1e5 * work * (1 / (rows.count * rows.vcpus) + 1e-4 * rows.count)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
