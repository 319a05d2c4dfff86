from __future__ import annotations

import numpy as np
import pytest

from twin.cloud import transfer
from twin.cloud.transfer import Profiles
from twinbed import InvariantError

pytest.importorskip("sklearn", reason="scikit-learn is in the extra [cloud]")

FACTORS = np.array([0.5, 0.2, 0.8])


def jobs(seed: int, count: int = 40) -> tuple[Profiles, np.ndarray]:
    """Jobs of three operations, each sped up by its own factor on the target."""
    draw = np.random.default_rng(seed)
    operations = draw.dirichlet(np.ones(3), count) * draw.uniform(0.05, 1.0, (count, 1))
    features = np.zeros((count, 1))
    profiles = Profiles(operations.sum(axis=1), operations, np.full(count, 1e-3), features)
    return profiles, operations @ FACTORS


def test_operations_sped_up_each_by_its_factor_are_told():
    others, times = jobs(1)
    asked, answers = jobs(2, 20)
    names = np.arange(40).astype(np.object_) // 4
    predicted = transfer.across(others, names, times, asked)
    assert np.median(np.abs(predicted / answers - 1)) < 0.05


def test_the_same_seed_tells_the_same_to_the_bit():
    others, times = jobs(1)
    asked, _ = jobs(2, 5)
    names = np.arange(40).astype(np.object_) // 4
    first, second = (transfer.across(others, names, times, asked, seed=7) for _ in range(2))
    assert np.array_equal(first, second)


def test_an_operation_nobody_had_does_not_run_away():
    """The time of an unseen operation is bounded by the others' times, however long its profile is."""
    others, times = jobs(1)
    ratio = times / others.step_s
    odd = Profiles(np.array([1.0]), np.array([[0.0, 0.0, 1e6]]), np.array([0.0]), np.zeros((1, 1)))
    predicted = transfer.across(others, np.arange(40).astype(np.object_) // 4, times, odd)
    assert ratio.min() * 0.99 <= predicted[0] <= ratio.max() * 1.01


def test_profiles_of_different_lengths_are_our_bug():
    with pytest.raises(InvariantError, match="different lengths"):
        Profiles(np.ones(2), np.ones((3, 1)), np.ones(2), np.ones((2, 1)))
