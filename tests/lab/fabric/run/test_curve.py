"""The training curve that ships."""

from __future__ import annotations

import numpy as np

from lab.fabric.run.curve import accuracy
from studies.fabric.record_curve import CLASSES, EPOCHS, SIZE, images, smooth_patterns


def test_it_has_every_epoch_and_it_learns() -> None:
    found = accuracy()
    assert len(found) == EPOCHS + 1
    assert abs(found[0] - 1 / CLASSES) < 0.1
    assert found[-10:].mean() > found[0] + 0.4
    assert np.all((found > 0) & (found < 1))


def test_its_images_are_made_here() -> None:
    rng = np.random.default_rng(1)
    patterns = smooth_patterns(rng)
    inputs, labels = images(500, patterns, rng)
    assert inputs.shape == (500, 1, SIZE, SIZE)
    assert set(labels.tolist()) == set(range(CLASSES))
    assert np.allclose(patterns.std(axis=(1, 2)), 1.0)
