"""A recorded curve stretched in time by what faults do to a job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.fabric.checkpoints import Checkpointing, progress, run
from twin.fabric.training_curve import accuracy_at, epoch_ends_s, flat_s
from twinbed import ScenarioError

ACCURACY = np.array([0.1, 0.4, 0.6, 0.55, 0.8])


def test_without_faults_epochs_follow_one_another() -> None:
    ends_s = epoch_ends_s(4, 80.0, np.array([0.0, 400.0]), np.array([0.0, 400.0]))
    assert np.allclose(ends_s, [80, 160, 240, 320])
    # At 250 s it is the best so far, not the third epoch's.
    at_s = np.array([0.0, 79.0, 81.0, 250.0, 999.0])
    assert accuracy_at(ACCURACY, ends_s, at_s).tolist() == [0.1, 0.1, 0.4, 0.6, 0.8]


def test_work_that_is_done_again_leaves_the_accuracy_flat() -> None:
    """150 epochs of 80 s, saved every 10: a fault just before a save costs ten epochs, 13 minutes."""
    plan = Checkpointing(800.0, 0.24, 0.0, 5.693)
    death = np.array([5 * 800.24 - 1.0])
    lives = run(plan, 150 * 80.0, death, death)
    ends_s = epoch_ends_s(150, 80.0, *progress(plan, lives))
    assert flat_s(ends_s) / 60 == pytest.approx((799 + 5.7 + 80) / 60, abs=0.1)
    assert np.isfinite(ends_s).all()


def test_faults_nearer_than_a_save_stop_all_progress() -> None:
    plan = Checkpointing(800.0, 0.24, 0.0, 5.693)
    deaths = np.arange(20.0, 13_000.0, 40.0)
    lives = run(plan, 150 * 80.0, deaths, deaths + 20.0, until_s=12_900.0)
    ends_s = epoch_ends_s(150, 80.0, *progress(plan, lives))
    assert not np.isfinite(ends_s).any()
    assert flat_s(ends_s) == np.inf


@given(
    deaths=st.lists(st.floats(1.0, 3000.0), max_size=6),
    interval_s=st.floats(20.0, 900.0),
)
def test_an_epoch_ends_where_its_work_is_done_and_never_before_the_clock(
    deaths: list[float], interval_s: float
) -> None:
    plan = Checkpointing(interval_s, 2.0, 5.0, 10.0)
    deaths_s = np.sort(np.array(deaths, np.float64))
    at_s, done_s = progress(plan, run(plan, 2000.0, deaths_s, deaths_s))
    ends_s = epoch_ends_s(25, 80.0, at_s, done_s)
    assert np.all(np.diff(ends_s) >= 80.0 - 1e-6)
    assert np.isfinite(ends_s).all()
    assert ends_s[-1] == pytest.approx(at_s[-1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ScenarioError, match="in order"):
        epoch_ends_s(1, 1.0, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    with pytest.raises(ScenarioError, match="expected one more than 2"):
        accuracy_at(ACCURACY, np.array([1.0, 2.0]), np.array([0.0]))
