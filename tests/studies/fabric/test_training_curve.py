"""The images that the shipped training curve was learned from."""

import numpy as np

from studies.fabric.training_curve import CLASSES, SIZE, images, smooth_patterns


def test_its_images_are_made_here() -> None:
    rng = np.random.default_rng(1)
    patterns = smooth_patterns(rng)
    inputs, labels = images(500, patterns, rng)
    assert inputs.shape == (500, 1, SIZE, SIZE)
    assert set(labels.tolist()) == set(range(CLASSES))
    assert np.allclose(patterns.std(axis=(1, 2)), 1.0)
