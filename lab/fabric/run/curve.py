"""The training curve that ships: accuracy by epoch of a small CNN on synthetic images.

For: reading training_curve.csv. Not for: recording it, nor stretching it in time
(twin.fabric.training_curve).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from twin.fabric.model import Floats
from twinbed import InvariantError

PATH = Path(__file__).with_name("training_curve.csv")


@cache
def accuracy() -> Floats:
    """Return float64[epochs + 1], read-only: test accuracy before the first epoch and after each."""
    table = np.loadtxt(PATH, delimiter=",", skiprows=1)
    if table.ndim != 2 or not np.array_equal(table[:, 0], np.arange(len(table))):
        raise InvariantError(f"{PATH}: expected epochs 0, 1, 2 … and their accuracy")
    values = np.ascontiguousarray(table[:, 1])
    values.flags.writeable = False
    return values
