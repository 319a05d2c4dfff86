"""CPU time of the control loop's thread on 100 real containers of this machine at 100 ms under Escra.

The baseline in the same run applies Escra's rule to whole arrays, however few containers a report has. The
benchmark needs root and cgroups; otherwise it prints a line and no figure.
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
