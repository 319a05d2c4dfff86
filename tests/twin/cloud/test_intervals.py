"""A conformal width holds the share of new errors that it claims."""

from __future__ import annotations

import numpy as np

from twin.cloud.intervals import conformal


def test_intervals_hold_the_share_that_they_claim():
    errors = np.random.default_rng(1).exponential(size=(400, 40))
    held = [errors[row, 39] <= conformal(errors[row, :39]) for row in range(400)]
    assert 0.85 < np.mean(held) < 0.95


def test_few_errors_give_their_largest():
    assert conformal(np.array([3.0, 1.0])) == 3.0
