"""spotDNN's constants are found again from what they give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from control.recommender.spotdnn import Goal, Training, WorkerKind, predict
from control.recommender.spotdnn_fit import Curve, compute_s, contention, fitting_samples, loss_curve
from tests.control.recommender.test_spotdnn import TRAINING, numbers
from twinbed import ScenarioError


@given(numbers(0.1, 1), numbers(-2, 0.2))
def test_contention_is_found_again(alpha, beta) -> None:
    workers = np.array([2, 4, 7])  # 1200 / 2 = 600 serves two workers of 500 MB/s in full
    share = alpha * np.sqrt(workers) + beta
    bandwidth = share * 1200 / workers + (1 - share) * 500
    found = contention(workers, bandwidth, server_mb_s=1200, worker_mb_s=500)
    assert found[:2] == pytest.approx((alpha, beta), abs=1e-9)
    assert found[2] == pytest.approx(1.0)
    with pytest.raises(ScenarioError, match="contention: measured at one point only"):
        contention(np.array([2, 4]), np.array([500.0, 400]), server_mb_s=1200, worker_mb_s=500)


def test_a_share_that_is_the_same_at_every_size_is_explained() -> None:
    workers = np.array([3, 4, 7])
    found = contention(workers, 1200 / workers, server_mb_s=1200, worker_mb_s=500)
    assert found == pytest.approx((0.0, 1.0, 1.0), abs=1e-9)


def test_the_computing_time_is_what_communication_leaves() -> None:
    # 2 · 10 / 140 + 2 · 4 · 10 / 10,000 = 0.1509 s are moved
    assert compute_s(TRAINING, 4, 1.0) == pytest.approx(1 - 0.142857 - 0.008, abs=1e-5)


@pytest.mark.parametrize(
    "gamma",
    [
        (876.5, -0.2, 2507.6, 0.4, 0.5),
        (5.0, -0.05, 400.0, 0.1, 0.05),
        (0.0, 0.0, 90.0, 1.0, 0.0),
        (20_000.0, -0.3, 60_000.0, 0.2, 1.5),
    ],
)
def test_the_loss_curve_predicts_a_cluster_that_was_not_profiled(gamma) -> None:
    training = Training(10, 1200, 140, 10_000, (0.8, -1.92), gamma)
    kinds = [WorkerKind("slow", 1.0, 9, 256, 1, 1.0), WorkerKind("fast", 1.0, 9, 1024, 2, 0.7)]
    pushes, random = np.linspace(10, 4000, 60), np.random.default_rng(0)

    def losses(*counts: int) -> Curve:
        shown = predict(training, kinds, np.array([counts]), Goal(1e3, 1.0))
        place = shown.samples, shown.convergence, shown.workers
        return Curve(*(float(values[0]) for values in (place[2], place[0], place[1])), pushes,
                     training.loss(*place, pushes))  # fmt: skip

    noisy = []
    for counts in ((1, 1), (2, 2), (1, 6)):
        curve = losses(*counts)
        loss = curve.loss * (1 + 0.005 * random.standard_normal(pushes.size))
        noisy.append(Curve(curve.workers, curve.samples, curve.convergence, pushes, loss))
    found, r2 = loss_curve(noisy)
    assert r2 > 0.98
    assert found[1] <= 0 <= min(found[0], *found[2:])
    other = losses(5, 3)
    ours = Training(10, 1200, 140, 10_000, (0.8, -1.92), found)
    said = ours.loss(
        np.array([other.samples]), np.array([other.convergence]), np.array([other.workers]), pushes
    )
    assert said == pytest.approx(other.loss, rel=0.1)


def test_losses_without_a_trend_are_not_explained_and_few_are_refused() -> None:
    pushes = np.arange(1.0, 21.0)
    assert loss_curve([Curve(2, 100.0, 0.7, pushes, 1 + pushes % 2)])[1] < 0.5
    with pytest.raises(ScenarioError, match="loss curve: 4 losses; measure 5 or more"):
        loss_curve([Curve(2, 100.0, 0.7, pushes[:4], 1 / pushes[:4])])


def test_a_worker_s_samples_are_the_largest_power_of_two_that_fits_each_gpu() -> None:
    # 60 · 16 − 80 = 880 samples fit, so 512 on each of 4 GPUs; 0.1 · 80 is 8, not a little less.
    assert fitting_samples(4, 16.0, 60.0, -80.0) == 2048
    assert fitting_samples(1, 80.0, 0.1, 0.0) == 8
    assert fitting_samples(1, 1.0, 7.999999, 0.0) == 4
    with pytest.raises(ScenarioError, match="1 GiB fit -20 samples"):
        fitting_samples(1, 1.0, 60.0, -80.0)
