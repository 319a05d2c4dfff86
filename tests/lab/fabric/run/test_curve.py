"""The training curve that ships."""

from __future__ import annotations

import numpy as np

from lab.fabric.run.training import accuracy_curve


def test_it_has_every_epoch_and_it_learns() -> None:
    found = accuracy_curve()
    assert len(found) == 151
    assert abs(found[0] - 1 / 10) < 0.1
    assert found[-10:].mean() > found[0] + 0.4
    assert np.all((found > 0) & (found < 1))
