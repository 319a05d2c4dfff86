"""Counts the bytes on the wire and the CPU of controller and agents, and the share of one more container.

For: `python -m studies wire`. Not for: the processes themselves (inside.py). Each measurement has a network
namespace of its own, so nobody else's bytes are counted.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from studies.harness import ROOT, Asked, say, table
from twinbed import BackendError

COUNTS = (32, 68, 500)
"""Containers: MediaMicroservice's and TrainTicket's, and many."""

SECONDS, REPEATS = 10, 3
QUANTITIES = {
    "bytes_s": "bytes per second",
    "most_bytes_s": "bytes in the busiest second",
    "controller_cores": "CPU of the controller, cores",
    "agent_cores": "CPU of three agents, cores",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    containers: number of containers on three hosts together.
    bytes_s, most_bytes_s: bytes on the wire per second, both ways: mean, and in the busiest second.
    controller_cores, agent_cores: CPU of the controller, and of the three agents, cores.
    """

    containers: int
    bytes_s: float
    most_bytes_s: float
    controller_cores: float
    agent_cores: float


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line by least squares.

    each: increase for one more container.
    low, high: 95 % interval of that (t distribution).
    fixed: value without containers.
    """

    each: float
    low: float
    high: float
    fixed: float

    def at(self, containers: int) -> float:
        """Return the line's value for a number of containers."""
        return self.fixed + self.each * containers


def measure(
    counts: Sequence[int] = COUNTS,
    seconds: int = SECONDS,
    repeats: int = REPEATS,
    tell: Callable[[str], None] = say,
) -> list[Sample]:
    """Measure each count `repeats` times, in turns. Needs root. Raises BackendError if that is impossible."""
    samples = []
    for repeat in range(repeats):
        for count in counts:
            samples.append(_sample(count, seconds))
            tell(f"{count} containers, {repeat + 1} of {repeats}: {samples[-1].bytes_s / 1e3:.1f} kB/s")
    return samples


def _sample(containers: int, seconds: int) -> Sample:
    command = ("unshare", "--net", sys.executable, "-m", "studies.wire.inside", str(containers), str(seconds))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BackendError(f"measuring {containers} containers on the wire: {reason}; it needs root")
    return Sample(containers, **json.loads(ended.stdout.splitlines()[-1]))


def slope(samples: Sequence[Sample], quantity: str) -> Slope:
    """Return the line of one of QUANTITIES over the number of containers. Its interval is infinite for two
    samples, because a line always fits them."""
    counts = np.array([sample.containers for sample in samples], np.float64)
    values = np.array([getattr(sample, quantity) for sample in samples])
    fitted = stats.linregress(counts, values)
    half = math.inf
    if len(samples) > 2:
        half = float(stats.t.ppf(0.975, len(samples) - 2) * fitted.stderr)
    each = float(fitted.slope)
    return Slope(each, each - half, each + half, float(fitted.intercept))


def make(_: Asked) -> int:
    """Measure and print a line for each quantity."""
    samples = measure()
    rows = []
    for quantity, title in QUANTITIES.items():
        line = slope(samples, quantity)
        means = [
            f"{np.mean([getattr(one, quantity) for one in samples if one.containers == count]):.4g}"
            for count in COUNTS
        ]
        rows.append(
            (title, *means, f"{line.each:.3g}", f"{line.low:.3g} to {line.high:.3g}", f"{line.fixed:.3g}")
        )
    print(table(("quantity", *map(str, COUNTS), "each container", "95 %", "fixed"), rows))
    cores = [slope(samples, quantity).each for quantity in ("controller_cores", "agent_cores")]
    print(
        f"\nContainers per core of controller and agents: {1 / sum(cores):.0f}. Containers are pretended: no "
        "cgroup is read or written."
    )
    return 0
