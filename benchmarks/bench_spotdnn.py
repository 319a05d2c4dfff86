"""Planning a spot cluster among 70 instances of seven types by spotDNN's windows.

The source needs 0.3 s, and 1,503 s for its exhaustive search. Baseline in the same run: the exhaustive search
of ours, which looks at every cluster with as few workers and as many as the windows may have.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import figure, median_s
from control.recommender.spotdnn import Goal, Training, WorkerKind
from control.recommender.spotdnn_plans import Search, provision

TYPES, QUOTA, REPEATS = 7, 10, 7
TRAINING = Training(11.54, 1200, 142, 10_000, (0.8, -1.92), (876.5, -0.2, 2507.6, 1.0, 0.5), unequal=False)
GOAL = Goal(0.8, 2600)


def figures() -> Iterator[dict[str, object]]:
    random = np.random.default_rng(0)
    kinds = [
        WorkerKind(
            f"type-{index}",
            float(random.uniform(0.3, 2.2)),
            QUOTA,
            float(random.choice([512, 1024, 2048])),
            1,
            float(random.uniform(0.4, 2.0)),
        )
        for index in range(TYPES)
    ]
    ours, _ = median_s(lambda: provision(TRAINING, kinds, GOAL), REPEATS)
    theirs, _ = median_s(lambda: provision(TRAINING, kinds, GOAL, search=Search.EXHAUSTIVE), REPEATS)
    every = provision(TRAINING, kinds, GOAL, search=Search.EXHAUSTIVE)
    windows = provision(TRAINING, kinds, GOAL)
    assert windows.plan is not None
    assert every.plan is not None
    yield figure(
        "spotdnn_plan_70_instances",
        1000 * ours,
        "ms",
        baseline="exhaustive search",
        baseline_value=1000 * theirs,
        ratio=theirs / ours,
        target="≤ 300 ms",
        dearer_than_exhaustive=round(windows.plan.cost_usd / every.plan.cost_usd, 3),
    )
