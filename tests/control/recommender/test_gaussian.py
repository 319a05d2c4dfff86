"""The Gaussian process, against textbook formulas and draws of a known one."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import multivariate_normal

from control.recommender.gaussian import (
    Features,
    Kernel,
    condition,
    evidence,
    expected_improvement,
    fit,
    parameters,
)

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
    # A single value tells little: the start decides.
    little = fit(x, [(np.zeros(1, np.int64), np.zeros(1))], start, level_variance=4.0)
    assert [little.variance, little.noise, *little.lengths] == pytest.approx([1.0, 0.2, 1.0], rel=0.7)


def test_the_expected_improvement_is_that_of_a_normal_value() -> None:
    # φ(1) + Φ(1), φ(0), and what a certain value gains.
    gains = expected_improvement(1.0, np.array([0.0, 1.0, 0.4, 1.6]), np.array([1.0, 2.0, 0.0, 0.0]))
    assert gains == pytest.approx([1.083316, 2 * 0.398942, 0.6, 0.0], abs=1e-5)


def drawn(seed: int, count: int = 3) -> tuple[Features, list[tuple[np.ndarray, np.ndarray]]]:
    """Candidates of two types, and draws of a process at some of them, twice at one."""
    random = np.random.default_rng(seed)
    x = Features(random.normal(size=(14, 3)), np.arange(14) % 2)
    places = [np.append(random.permutation(14)[:8], 3) for _ in range(count)]
    return x, [(place, random.normal(size=place.size)) for place in (*places, places[0])]


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_of_a_kernel_s_evidence_is_that_of_finite_differences(seed: int, share: float) -> None:
    x, draws = drawn(seed)
    start = Kernel(0.7, 0.1, np.ones(3), share)
    loss = evidence(x, draws, start, level_variance=4.0)
    theta = parameters(start) + np.random.default_rng(seed).normal(scale=0.5, size=5 + (share > 0))
    steps = 1e-5 * np.eye(theta.size)
    slopes = [(loss(theta + step)[0] - loss(theta - step)[0]) / 2e-5 for step in steps]
    assert loss(theta)[1] == pytest.approx(slopes, rel=1e-6, abs=1e-6)


def test_the_evidence_is_the_density_of_the_draws_times_the_prior_of_the_kernel() -> None:
    x, draws = drawn(1)
    start, off = Kernel(0.7, 0.1, np.ones(3), 0.2), np.array([0.5, -1.0, 0.3, 0.0, -0.2, 0.4])
    kernel = Kernel(0.7 * np.exp(0.5), 0.1 * np.exp(-1.0), np.exp(off[2:5]), expit(logit(0.2) + 0.4))
    # Standard deviations of the prior: 1 / 0.3 of variance and noise, 1 / 0.7 of the others.
    expected = ((off * [0.3, 0.3, 0.7, 0.7, 0.7, 0.7]) ** 2).sum() / 2
    for place, values in draws:
        covariance = kernel(x.take(place), x.take(place)) + 4.0 + kernel.noise * np.eye(place.size)
        expected -= multivariate_normal.logpdf(values, cov=covariance) + place.size * np.log(2 * np.pi) / 2
    found, _ = evidence(x, draws, start, level_variance=4.0)(parameters(start) + off)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_a_fit_is_as_likely_as_one_without_the_gradient(seed: int) -> None:
    x, draws = drawn(seed, count=2 + seed)
    start = Kernel(0.06, 0.005, np.ones(3), 0.2)
    loss, at = evidence(x, draws, start, level_variance=20.0), parameters(start)
    slowly = minimize(
        lambda theta: loss(theta)[0], at, method="L-BFGS-B", bounds=[(one - 7, one + 7) for one in at],
    )  # fmt: skip
    assert loss(parameters(fit(x, draws, start, level_variance=20.0)))[0] <= slowly.fun + 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_a_fit_ends_where_no_further_step_is_likelier(seed: int) -> None:
    # Lengths of several magnitudes take about 40 steps.
    random = np.random.default_rng(seed)
    x = Features(random.normal(size=(30, 8)), np.arange(30) % 3)
    true = Kernel(1.0, 0.001, np.exp(random.normal(scale=1.5, size=8)), 0.3)
    lower = np.linalg.cholesky(true(x, x) + 0.001 * np.eye(30))
    draws = [(np.arange(30), lower @ random.normal(size=30)) for _ in range(6)]
    start = Kernel(0.06, 0.005, np.ones(8), 0.2)
    loss = evidence(x, draws, start, level_variance=20.0)
    found = parameters(fit(x, draws, start, level_variance=20.0))
    assert loss(found)[0] <= minimize(loss, found, jac=True, method="L-BFGS-B").fun + 1e-6
