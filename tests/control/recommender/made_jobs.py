"""Jobs made from laws of scaling with a memory cliff, so that the right answer is known."""

from __future__ import annotations

import numpy as np

from control.jobs import Candidates, Configuration, History, InstanceType, candidates
from control.recommender.ports import Observations, no_observations

TYPES = {
    name: InstanceType(name, "made-up", vcpus, vcpus * ratio)
    for family, ratio in (("c", 2.0), ("m", 4.0), ("r", 8.0))
    for name, vcpus in ((f"{family}.small", 2.0), (f"{family}.large", 8.0))
}
PRICES = {name: 0.05 * kind.vcpus + 0.006 * kind.memory_gib for name, kind in TYPES.items()}


def clusters(workers: tuple[int, ...] = (2, 4, 6, 8, 12, 16, 24, 32)) -> Candidates:
    """Return every type × count."""
    rows = [Configuration(name, count) for name in TYPES for count in workers]
    return candidates(TYPES, PRICES, rows)


def time_of(among: Candidates, serial: float, need_gib: float, penalty: float, size: float) -> np.ndarray:
    """Return the seconds at every candidate, without noise."""
    vcpus = among.vcpus * among.count
    short = among.memory_gib * among.count < need_gib
    return size * (serial + (1 - serial) * 64 / vcpus * np.where(short, penalty, 1.0))


def made_history(jobs: int, seed: int = 0, noise: float = 0.05) -> History:
    """Return runs of jobs with random serial share, memory need and size; runs above 2 h are time-outs."""
    generator = np.random.default_rng(seed)
    among = clusters()
    time_s = np.array(
        [
            time_of(
                among,
                serial=10 ** generator.uniform(-2.5, -0.3),
                need_gib=10 ** generator.uniform(1.0, 3.0),
                penalty=generator.choice([1.0, 4.0]),
                size=10 ** generator.uniform(2.3, 3.3),
            )
            for _ in range(jobs)
        ]
    )
    time_s *= np.exp(noise * generator.standard_normal(time_s.shape))
    ok = time_s < 7200
    time_s = np.minimum(time_s, 7200.0)
    names = tuple(f"job-{number}" for number in range(jobs))
    return History(names, among, time_s, time_s / 3600 * among.price_usd_h, ok)


def history_of(names: list[str], time_s: np.ndarray) -> History:
    """Return successful runs on `clusters()`, with their costs."""
    among = clusters()
    return History(tuple(names), among, time_s, time_s / 3600 * among.price_usd_h, time_s > 0)


def observed_of(history: History, job: int, rows: list[int]) -> Observations:
    """Return trials with the results of a job's runs."""
    observed = no_observations()
    for row in rows:
        observed = observed.with_trial(row, *history.run(job, row))
    return observed
