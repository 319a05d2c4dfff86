"""Speed-ups that follow the law are recovered, and no prediction is faster than linear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.cloud.intervals import conformal
from twin.cloud.speedup import SpeedUps, Systems
from twinbed import InvariantError, ScenarioError

SIZES = np.array([8.0, 32.0, 128.0, 512.0])
TASKS = {"a": (2000.0, 20.0, 0.02), "b": (400.0, 4.0, 0.05), "c": (8000.0, 60.0, 0.1)}
"""Task → critical batch, half-speed samples of a GPU, share of a doubling of nodes."""


def runs(system: str, task: str, seed: int, noise: float = 0.02, law: tuple[float, ...] = ()) -> Systems:
    """Return one system on four numbers of GPUs; the batch grows by less than the system."""
    critical, half, straggle = law or TASKS[task]
    draw = np.random.default_rng(seed)
    batch = 256 * (SIZES / 8) ** draw.uniform(0.0, 0.8)
    nodes = SIZES / 8
    time_s = draw.uniform(1e3, 1e5) * (1 + batch / critical) * (1 / SIZES + half / batch)
    time_s = time_s * (1 + straggle * np.log2(nodes)) * np.exp(noise * draw.standard_normal(4))
    names = (np.full(4, name, dtype=np.object_) for name in (task, f"{task}/{system}"))
    return Systems(*names, SIZES, nodes, batch, time_s)


def together(*parts: Systems) -> Systems:
    return Systems(*(np.concatenate([getattr(p, n) for p in parts]) for n in Systems.__slots__))


OTHERS = together(*(runs(f"s{seed}", task, seed) for seed in range(6) for task in TASKS))
MODEL = SpeedUps(OTHERS)


def off(model: SpeedUps, mine: Systems) -> np.ndarray:
    """Return log (predicted / measured) of the speed-ups over the smallest system."""
    start, more = mine.steps_up()
    first, asked = mine.take(start), mine.take(more)
    hidden = replace(asked, time_s=np.full(len(asked), np.nan))
    return model.log_speed_up(first, hidden) - np.log(first.time_s / asked.time_s)


@pytest.mark.parametrize("task", TASKS)
def test_a_system_that_follows_the_law_is_told_from_its_smallest_run(task: str):
    assert np.abs(off(MODEL, runs("new", task, 99, noise=0.0))).max() < 0.12


def test_a_task_that_nobody_ran_scales_as_the_others_do():
    law = tuple(float(value) for value in np.exp(np.log(list(TASKS.values())).mean(axis=0)))
    assert np.abs(off(MODEL, runs("new", "unseen", 99, noise=0.0, law=law))).max() < 0.5


@given(
    gpus=st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)),
    batch=st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)),
    task=st.sampled_from([*TASKS, "unseen"]),
)
def test_no_speed_up_is_above_the_linear_one(
    gpus: tuple[float, float], batch: tuple[float, float], task: str
):
    names = np.array([task], dtype=np.object_)
    few, many = (
        Systems(names, names, np.array([size]), np.array([np.ceil(size / 8)]), np.array([samples]), names)
        for size, samples in zip(sorted(gpus), batch, strict=True)
    )
    told = MODEL.log_speed_up(few, many)
    assert np.isfinite(told).all()
    assert told <= np.log(many.gpus / few.gpus)


def test_a_unit_of_time_or_of_samples_changes_nothing():
    """All times ten times as long, and batches counted in other units, tell the same speed-ups."""
    scaled = replace(OTHERS, time_s=10 * OTHERS.time_s, batch=7 * OTHERS.batch)
    mine = runs("new", "a", 99)
    same = off(SpeedUps(scaled), replace(mine, batch=7 * mine.batch))
    assert same == pytest.approx(off(MODEL, mine), abs=1e-9)


def test_intervals_as_wide_as_the_growth_hold_their_share_at_every_size():
    """Where exponents differ, an interval in proportion to the growth holds 9 of 10, small and large."""
    draw = np.random.default_rng(5)
    growth = draw.uniform(0.7, 4.0, (300, 60))
    errors = np.abs(growth * 0.1 * draw.standard_normal(growth.shape))
    width = np.array([conformal(row) for row in (errors / growth)[:, :-1]])
    held = errors[:, -1] <= width * growth[:, -1]
    for part in (growth[:, -1] < 2, growth[:, -1] >= 2):
        assert 0.83 < held[part].mean() < 0.97


def test_systems_on_one_number_of_gpus_tell_no_speed_up():
    with pytest.raises(ScenarioError, match="no system ran on two numbers of GPUs"):
        SpeedUps(OTHERS.take(OTHERS.gpus == 8))


def test_systems_that_cannot_be_are_refused():
    mine = runs("new", "a", 1)
    with pytest.raises(ScenarioError, match="above zero"):
        replace(mine, batch=0 * mine.batch)
    with pytest.raises(InvariantError, match="different lengths"):
        replace(mine, batch=np.ones(2))
