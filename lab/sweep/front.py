"""Which of several candidates none beats in two figures at once (the Pareto front).

For: the sweep's page and tunings. Not for: choosing one of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unbeaten(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each row whether no other row is at most as large everywhere and smaller somewhere.

    costs: candidates × figures, smaller is better. A row with NaN is beaten.
    """
    known: NDArray[np.bool_] = np.asarray(np.isfinite(costs).all(axis=1))
    best: NDArray[np.bool_] = np.array(known)
    for number in np.flatnonzero(known):
        others = costs[known]
        worse = (others <= costs[number]).all(axis=1) & (others < costs[number]).any(axis=1)
        best[number] = not worse.any()
    return best
