"""The Gaussian process, against textbook formulas and draws of a known one."""

import numpy as np
import pytest

from control.recommender.gaussian import Features, Kernel, condition, expected_improvement, fit

X = Features(np.array([[0.0, 0.0], [0.3, 0.4], [0.6, 0.8], [2.0, 0.0]]), np.array([0, 0, 1, 1]))
KERNEL = Kernel(2.0, 0.1, np.array([0.3, 0.8]), type_share=0.25)


def test_the_covariance_is_matern_s_and_a_share_of_it_is_that_of_a_type() -> None:
    # Points 0 and 1 are 1 and 0.5 length scales apart, points 0 and 2 twice as far.
    near, far = (np.sqrt(5 * (1 + 0.25)) * times for times in (1, 2))
    covariance = KERNEL(X, X)
    assert covariance[0, 1] == pytest.approx(2.0 * (1 + near + near**2 / 3) * np.exp(-near))
    assert covariance[0, 2] == pytest.approx(0.75 * 2.0 * (1 + far + far**2 / 3) * np.exp(-far))
    assert np.allclose(np.diag(covariance), 2.0)


def test_values_condition_a_normal_distribution() -> None:
    positions, values = np.array([0, 2]), np.array([1.0, -0.5])
    mean, variance = condition(KERNEL, X, positions, values, level_variance=3.0)
    prior = KERNEL(X, X) + 3.0
    runs = prior[np.ix_(positions, positions)] + 0.1 * np.eye(2)
    gain = np.linalg.solve(runs, prior[positions])
    assert mean == pytest.approx(values @ gain)
    assert variance == pytest.approx(np.diag(prior) - (prior[positions] * gain).sum(axis=0))


def test_a_fit_finds_the_kernel_of_many_draws_and_stays_without_any() -> None:
    x = Features(np.linspace(0, 3, 12)[:, None], np.zeros(12, np.int64))
    true, start = Kernel(2.0, 0.05, np.array([0.7])), Kernel(1.0, 0.2, np.ones(1))
    lower = np.linalg.cholesky(true(x, x) + 4.0 + 0.05 * np.eye(12))
    draws = np.random.default_rng(1).normal(size=(60, 12)) @ lower.T
    found = fit(x, [(np.arange(12), draw) for draw in draws], start, level_variance=4.0)
    assert [found.variance, found.noise, *found.lengths] == pytest.approx([2.0, 0.05, 0.7], rel=0.25)
    same = fit(x, [], start, level_variance=4.0)
    assert [same.variance, same.noise, *same.lengths] == pytest.approx([1.0, 0.2, 1.0], rel=1e-3)


def test_the_expected_improvement_is_that_of_a_normal_value() -> None:
    # φ(1) + Φ(1), φ(0), and what a certain value gains.
    gains = expected_improvement(1.0, np.array([0.0, 1.0, 0.4, 1.6]), np.array([1.0, 2.0, 0.0, 0.0]))
    assert gains == pytest.approx([1.083316, 2 * 0.398942, 0.6, 0.0], abs=1e-5)
