"""What the control loop costs on this machine's real containers: 100 of them at 100 ms under Escra.

In CPU time of the loop's own thread. Baseline, in the same run: Escra's rule by whole arrays however few
containers a report has. Needs root and cgroups; elsewhere it says so and has no figure.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median
from unittest.mock import patch

from benchmarks.figure import figure
from control.allocator import escra_cpu
from lab.containers.calibrate import loop
from twinbed import BackendError

CONTAINERS, DURATION_S, REPEATS = 100, 30.0, 3


def figures() -> Iterator[dict[str, object]]:
    try:
        rounds = [(_own_cores(escra_cpu.FEW), _own_cores(0)) for _ in range(REPEATS)]
    except BackendError as error:
        print(f"benchmarks: loop: {error}", file=sys.stderr)
        return
    ours, theirs = (median(column) for column in zip(*rounds, strict=True))
    yield figure(
        "control_loop_100_containers_100_ms",
        ours,
        "cores",
        baseline="the rule by whole arrays, however few report",
        baseline_value=theirs,
        ratio=theirs / ours,
        target="≤ 0.12 cores",
        repeats=[seconds for seconds, _ in rounds],
    )


def _own_cores(few: int) -> float:
    with patch.object(escra_cpu, "FEW", few):
        return loop.run(CONTAINERS, DURATION_S).times.own_cores
