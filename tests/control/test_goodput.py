"""The model that Pollux and Scavenger share: noise scale, efficiency, step time."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.goodput import (
    LEAST,
    Goodput,
    Moments,
    Speed,
    Steps,
    efficiency,
    fit,
    gain,
    of_replicas,
)

positive = st.floats(0.01, 1e6)
SPEED = Speed(0.1, 0.01, 0.3, 0.02, 0.05, 0.01, 1.6)


def gradients(batch: int, count: int, *, noise: float, size: int = 200, seed: int = 0) -> np.ndarray:
    """Mean gradients of batches: the true one has norm 1, a sample's covariance has the trace `noise`."""
    random = np.random.default_rng([seed, batch])
    true = np.full(size, size**-0.5)
    return true + random.normal(0, (noise / size / batch) ** 0.5, (count, size))


def sqr(vectors: np.ndarray) -> np.ndarray:
    return (vectors**2).sum(axis=-1)


def test_replicas_tell_the_noise_scale_and_so_do_successive_gradients() -> None:
    each = gradients(8, 8000, noise=30.0).reshape(2000, 4, -1)
    seen = of_replicas(sqr(each).mean(axis=1), sqr(each.mean(axis=1)), 4, 32, 8)
    assert seen.noise == pytest.approx(30.0, rel=0.1)
    one = gradients(8, 6000, noise=30.0, seed=1)
    local = (sqr(one[1:]) + sqr(one[:-1])) / 2
    pairs = of_replicas(local, sqr((one[1:] + one[:-1]) / 2), 2, 16, 8)
    assert pairs.noise == pytest.approx(30.0, rel=0.1)


def test_the_newest_step_weighs_most_and_less_so_for_a_small_batch() -> None:
    # Two replicas: the square of the true gradient is 2 · 0.6 − 1 = 0.2 in the first step, 0.8 in the second.
    # The trace is (1 − 0.6) · batch, and then (1 − 0.9) · batch.
    batches = ((1e-9, 1.0), (8, 32), (32, None))
    seen = [of_replicas([1.0, 1.0], [0.6, 0.9], 2, batch, base) for batch, base in batches]
    even, small, large = (moments.sqr for moments in seen)
    assert even == pytest.approx(0.5)
    assert 0.5 < small < large < 0.8
    even, small, large = (moments.trace / batch for moments, (batch, _) in zip(seen, batches, strict=True))
    assert even == pytest.approx(0.25)
    assert 0.1 < large < small < 0.25
    assert seen[2] == of_replicas([1.0, 1.0], [0.6, 0.9], 2, 32, 32)


@pytest.mark.parametrize(
    ("machines", "gpus", "passes", "step_s"),
    [
        (1, 1, 0, 0.3),  # 0.2 + 0.01 · 10
        (1, 1, 2, 0.9),
        (1, 2, 0, 0.5),  # of 0.3 and 0.4, with γ = 2
        (1, 2, 2, 1.1),
        (1, 4, 0, np.hypot(0.3, 0.4 + 2 * 0.1)),
        (2, 2, 0, np.hypot(0.3, 1.0)),
        (2, 4, 1, 0.3 + np.hypot(0.3, 1.0 + 2 * 0.5)),
    ],
)
def test_a_step_computes_and_exchanges_as_the_law_says(
    machines: int, gpus: int, passes: int, step_s: float
) -> None:
    speed = Speed(0.2, 0.01, alpha_n=1.0, beta_n=0.5, alpha_r=0.4, beta_r=0.1, gamma=2.0)
    assert speed.step_s(machines, gpus, 10, passes) == pytest.approx(step_s)


@pytest.mark.parametrize(
    ("gpus", "most_local", "batch"),
    [
        (1, 32, 32),
        (3, 32, 33),  # 11 on each, one more than the most
        (1, 5, 35),  # 7 passes of 5
        (32, 5, 32),
        (2, 3, 36),  # 6 passes of 3 on each
    ],
)
def test_a_batch_is_of_whole_samples_on_each_gpu_and_in_each_pass(
    gpus: int, most_local: float, batch: float
) -> None:
    value, best = Goodput(SPEED, 10.0, base=32, most=32, most_local=most_local).best(1, gpus)
    assert best.tolist() == [batch]
    assert value[0] > 0


@pytest.mark.parametrize("seen", [Moments(-1.0, 2.0), Moments(1.0, -2.0), Moments(0.0, 1.0)])
def test_an_estimate_that_is_not_above_0_is_not_known_yet(seen: Moments) -> None:
    assert np.isnan(seen.noise)


@given(positive, positive, st.floats(1, 100), st.floats(1.01, 100))
def test_efficiency_is_1_at_b0_and_falls_with_the_batch(
    noise: float, base: float, scale: float, more: float
) -> None:
    at = efficiency(noise, np.array([1.0, scale, scale * more]) * base, base)
    assert at[0] == 1
    assert 0 < at[2] <= at[1] <= 1
    # The source's steps and examples: both are twice their least at B = φ.
    assert efficiency(noise, noise, 0.0) == pytest.approx(0.5)
    assert gain(0.0, scale * base, base) == pytest.approx(1.0)
    assert gain(np.inf, scale * base, base) == pytest.approx(scale)


@given(st.integers(1, 64), st.integers(1, 8), st.floats(0, 1e5))
def test_goodput_is_at_most_throughput_and_its_batch_keeps_the_bounds(
    gpus: int, machines: int, noise: float
) -> None:
    job = Goodput(SPEED, noise, base=32, most=1024, most_local=50)
    value, batch = job.best(machines, gpus)
    passes = np.maximum(np.ceil(batch / gpus / 50 - 1e-9), 1) - 1
    rate = SPEED.throughput(machines, gpus, batch / gpus / (passes + 1), passes)
    assert 0 < value[0] <= rate[0] * (1 + 1e-9)
    assert 32 - 1e-9 <= batch[0] <= max(1024, gpus * (passes[0] + 1) * np.ceil(32 / gpus))


def test_without_noise_more_batch_is_worth_nothing_and_with_much_noise_it_is() -> None:
    counts = np.array([1.0, 4.0])
    (still, still_batch), (noisy, noisy_batch) = (
        Goodput(SPEED, noise, 32, 4096, 4096).best(counts, counts) for noise in (1e-9, 1e9)
    )
    assert still_batch.tolist() == [32, 32]
    assert noisy_batch.tolist() == [4096, 4096]
    assert (noisy > still).all()
    assert Goodput(SPEED, 1.0, 8, 8, 8).best(16, 16)[0] == 0  # more GPUs than samples


def measured(speed: Speed, cells: list[tuple[int, int]]) -> Steps:
    rows = [(machines, gpus, local) for machines, gpus in cells for local in (4, 8, 16, 32, 64)]
    machines, gpus, local = np.array(rows, float).T
    return Steps(machines, gpus, local, speed.step_s(machines, gpus, local), speed.accumulate_s(local))


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.floats(0.02, 1.0)] * 3), st.tuples(*[st.floats(0.01, 0.2)] * 3), st.floats(1, 4))
def test_the_fit_predicts_the_times_that_it_was_made_from(alphas, betas, gamma) -> None:
    (c, n, r), (grow_c, grow_n, grow_r) = alphas, betas
    true = Speed(c, grow_c * c, n, grow_n * n, r, grow_r * r, gamma)
    seen = measured(true, [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16), (16, 16)])
    guess = fit(seen).step_s(seen.machines, seen.gpus, seen.local)
    assert np.abs(np.log(guess / seen.step_s)).mean() < 0.03


def test_steps_longer_than_computing_and_exchange_show_no_overlap() -> None:
    cells = [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16)]
    assert fit(measured(replace(SPEED, gamma=0.5), cells)).gamma == 1.0


def test_what_no_run_can_show_is_taken_for_free_but_never_less_across_machines() -> None:
    alone = fit(measured(SPEED, [(1, 1)]))
    assert (alone.alpha_r, alone.beta_r) == pytest.approx((LEAST, LEAST))
    assert alone.alpha_n == pytest.approx(1.1 * LEAST)
    pair = fit(measured(SPEED, [(1, 1), (1, 2)]))
    assert pair.alpha_r == pytest.approx(SPEED.alpha_r, rel=0.2)
    assert pair.alpha_n == pytest.approx(1.1 * pair.alpha_r)
    one = np.ones(1)
    same = fit(Steps(one, one, 8 * one, 0.4 * one, np.nan * one))
    assert same.alpha_c == pytest.approx(0.2)  # one batch size: half of the mean
    assert same.step_s(1, 1, 8) == pytest.approx(0.4, rel=1e-3)


def test_the_gains_that_pollux_measured_follow_from_its_noise_scales(public_data) -> None:
    path = public_data("pollux_t4") / "pollux_statistical_efficiency.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "yolov3"]
    values = {
        name: np.array([float(row[name]) for row in rows])
        for name in rows[0]
        if name not in ("model", "metric")
    }
    for batch in (32, 64, 128):
        at = values["batch_size"] == batch
        noise = 8 * values["grad_var"][at] / values["grad_sqr"][at]
        steps, progress = (np.diff(values[name][at], prepend=0) for name in ("iteration", "progress"))
        assert (gain(noise, batch, 8) * steps).sum() == pytest.approx(progress.sum(), rel=0.05)
