"""The posterior after trials, against textbook formulas, and the gain that is expected of another trial."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from control.recommender.ports import no_observations
from control.recommender.posterior import CHANCE_FAILURE, condition
from control.recommender.prior import Prior, fit_prior
from control.recommender.transfer import expected_gain
from tests.control.recommender.made_jobs import clusters

ROWS, TIMES = np.array([3, 6, 10]), np.array([900.0, 300.0, 1500.0])


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(None, clusters((2, 8)))


def test_trials_that_ended_condition_every_component_as_a_normal_distribution(prior: Prior) -> None:
    seen = no_observations()
    for row, time_s in zip(ROWS.tolist(), TIMES.tolist(), strict=True):
        seen = seen.with_trial(row, time_s, 1.0, True)
    posterior, value = condition(prior, seen), np.log(TIMES)
    score = prior.log_weight.copy()
    for group, noise in enumerate(prior.noise()):
        members = np.flatnonzero(prior.group == group)
        cross = np.array([prior.covariance(row, group) for row in ROWS.tolist()])
        runs = cross[:, ROWS] + noise * np.eye(3)
        gain = np.linalg.solve(runs, cross)
        apart = value - prior.mean(members, ROWS)
        few = members[::40]
        means = prior.mean(few, slice(None)) + apart[::40] @ gain
        assert np.allclose(posterior.means(few), means, atol=1e-8)
        assert np.allclose(posterior.variance[group], prior.variance(group) - (cross * gain).sum(axis=0))
        score[members] += multivariate_normal(np.zeros(3), runs).logpdf(apart)
    weight = np.exp(score - score.max())
    assert np.allclose(posterior.weight, weight / weight.sum(), atol=1e-12)


def test_draws_have_the_moments_of_the_posterior(prior: Prior) -> None:
    posterior = condition(prior, no_observations().with_trial(3, 900.0, 1.0, True))
    rows = np.array([0, 3, 11])
    drawn = posterior.draw(rows, 4000, np.random.default_rng(0))
    mean, deviation = posterior.summary()
    without_noise = np.sqrt(deviation[rows] ** 2 - prior.noise()[0])
    assert drawn.mean(axis=0) == pytest.approx(mean[rows], abs=0.05)
    assert drawn.std(axis=0) == pytest.approx(without_noise, rel=0.1)


def test_a_failed_trial_leaves_a_crash_or_a_time_above_it(prior: Prior) -> None:
    row, value = 6, np.log(700.0)
    posterior = condition(prior, no_observations().with_trial(row, 700.0, 1.0, ok=False))
    z = np.linspace(-9, 9, 1001)
    weight = np.exp(prior.log_weight)
    for group, noise in enumerate(prior.noise()):
        members = np.flatnonzero(prior.group == group)[::40]
        column = prior.covariance(row, group)
        spread = np.sqrt(column[row] + noise)
        bound = (value - prior.mean(members, np.array([row]))) / spread
        density = norm.pdf(z) * np.where(z > bound, 1.0, CHANCE_FAILURE)
        moved = (density @ z) / density.sum(axis=1)
        expected = prior.mean(members, slice(None)) + moved[:, None] * column / spread
        assert np.allclose(posterior.means(members), expected, atol=1e-2)
        likelihood = density.sum(axis=1) * (z[1] - z[0])
        share = posterior.weight[members] / (weight[members] * likelihood)
        assert share == pytest.approx(share[0], rel=2e-2)


@pytest.mark.parametrize("time_s", [30.0, 700.0, 20_000.0])
def test_a_failed_trial_leaves_the_variance_of_a_crash_or_a_longer_time(prior: Prior, time_s: float) -> None:
    row = 6
    posterior = condition(prior, no_observations().with_trial(row, time_s, 1.0, ok=False))
    z = np.linspace(-9, 9, 4001)
    for group, noise in enumerate(prior.noise()):
        members = np.flatnonzero(prior.group == group)
        column = prior.covariance(row, group)
        total = column[row] + noise
        bound = (np.log(time_s) - prior.mean(members, np.array([row]))) / np.sqrt(total)
        few = np.linspace(bound.min(), bound.max(), 301)
        density = norm.pdf(z) * np.where(z > few[:, None], 1.0, CHANCE_FAILURE)
        density /= density.sum(axis=1, keepdims=True)
        left = np.interp(bound[:, 0], few, density @ z**2 - (density @ z) ** 2)
        mean_left = np.average(left, weights=posterior.weight[members])
        expected = prior.variance(group) - (1 - mean_left) * column**2 / total
        assert posterior.variance[group] == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("draws", "best", "far", "near", "gains"),
    [
        # Regret of 4 is log 4 beside 1 and log 2 beside 2. The first candidate ends it in the first draw.
        ([[1, 8], [4, 2]], 4.0, 9.0, 0.0, [np.log(4) / 2, np.log(2) / 2]),
        ([[1, 2], [4, 2]], 4.0, 9.0, 0.0, [np.log(4) / 2, np.log(2)]),
        # It counts up to log 3 alone, and from log 1.5.
        ([[1, 2]], 4.0, np.log(3), np.log(1.5), [np.log(3 / 1.5), np.log(3 / 2)]),
        # Without a trial it is the largest, and draws in which nothing keeps the bounds are left out.
        ([[1, 2], [np.inf, np.inf]], np.inf, np.log(5), 0.0, [np.log(5), np.log(5 / 2)]),
        ([[np.inf, np.inf]], np.inf, 1.0, 0.0, [0.0, 0.0]),
    ],
)
def test_the_expected_gain_is_the_mean_regret_that_a_trial_takes_away(
    draws: list[list[float]], best: float, far: float, near: float, gains: list[float]
) -> None:
    assert expected_gain(np.log(draws), np.log(best), far, near) == pytest.approx(gains)
