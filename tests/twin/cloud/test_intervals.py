"""A conformal width holds the share of new errors that it claims."""

from __future__ import annotations

import numpy as np
import pytest

from twin.cloud.intervals import COVERAGE, conformal, conformal_by_group


def test_intervals_hold_the_share_that_they_claim():
    errors = np.random.default_rng(1).exponential(size=(400, 40))
    held = [errors[row, 39] <= conformal(errors[row, :39]) for row in range(400)]
    assert 0.85 < np.mean(held) < 0.95


def test_few_errors_give_their_largest():
    assert conformal(np.array([3.0, 1.0])) == 3.0


def test_three_jobs_hold_the_points_of_three_in_four_new_jobs_and_a_pool_of_their_points_does_not():
    """Each job has its own size of errors, a factor of 1.6 apart. The share is that of a largest of four."""
    draw = np.random.default_rng(2)
    size = np.exp(0.5 * draw.standard_normal((600, 4, 1)))
    errors = np.abs(size * draw.standard_normal((600, 4, 50)))
    widths = {
        "groups": np.array([conformal_by_group(list(jobs[:3])) for jobs in errors]),
        "pool": np.array([conformal(jobs[:3].ravel()) for jobs in errors]),
    }
    inside = {name: (errors[:, 3] <= width[:, None]).mean(axis=1) for name, width in widths.items()}
    held = {name: np.mean(share >= COVERAGE) for name, share in inside.items()}
    assert held["pool"] < 0.7 < 0.75 <= held["groups"] < 0.8
    assert inside["groups"].mean() > inside["pool"].mean()


def test_equal_groups_and_one_group_are_a_pool():
    errors = np.abs(np.random.default_rng(3).standard_normal(99))
    assert conformal_by_group([errors]) == conformal(errors)
    assert conformal_by_group([errors] * 3) == conformal(errors)
    assert np.mean(errors <= conformal(errors)) == pytest.approx(COVERAGE, abs=0.01)
