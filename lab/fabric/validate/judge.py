"""Compares the twin's failover with the testbed's: medians and 95th percentiles of gaps.

For: the results page and `twinbed validate` of a fabric scenario. Not for: computing the gaps (figures.py).
RULE is printed before every result and was fixed before the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lab.fabric.validate.figures import Floats, Gaps
from lab.runs.formats import Column, Record, Result

MEDIAN_LIMIT, P95_LIMIT = 0.15, 0.25
LEAST_FAULTS = 20
"""Smallest number of faults for a 95th percentile."""

RESOLUTION_S = 0.004
"""Resolution of a gap, s: two intervals of the probes, on both sides."""

RULE = (
    "The gap is the time between a flow's last datagram before the fault and its first after it, of the "
    "worst of 8 flows in each direction. The twin agrees where its median differs by at most "
    f"{MEDIAN_LIMIT:.0%} from the testbed's and its 95th percentile by at most {P95_LIMIT:.0%}, or either by "
    f"at most {RESOLUTION_S * 1e3:g} ms, two of the probes' intervals; of at least {LEAST_FAULTS} faults. "
    "Calibrated is on settings that are not among those compared."
)

WAYS = {"out": "out of the host", "into": "into the host"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity of one cell, s. what: `median` or `p95`; way: a key of WAYS; n: number of faults."""

    cell: str
    way: str
    what: str
    n: int
    twin_s: float
    testbed_s: float

    @property
    def limit(self) -> float:
        """The largest relative error that agrees."""
        return MEDIAN_LIMIT if self.what == "median" else P95_LIMIT

    @property
    def error(self) -> float:
        """The error relative to the testbed's value."""
        return (self.twin_s - self.testbed_s) / self.testbed_s

    @property
    def badness(self) -> float:
        """The error divided by the limit: 1 is at the limit."""
        allowed_s = max(self.limit * self.testbed_s, RESOLUTION_S)
        return abs(self.twin_s - self.testbed_s) / allowed_s

    @property
    def agrees(self) -> bool:
        """Whether the twin's value agrees with the testbed's."""
        return self.badness <= 1.0


def compared(cell: str, testbed: Gaps, twin: Gaps) -> list[Compared]:
    """Returns medians and 95th percentiles of both directions, where there are enough faults."""
    return [
        Compared(cell, way, what, size, float(np.percentile(ours, share)), float(np.percentile(real, share)))
        for way, real, ours, size in _sides(testbed, twin)
        for what, share in (("median", 50), ("p95", 95))
        if size >= LEAST_FAULTS and ours.size
    ]


def _sides(testbed: Gaps, twin: Gaps) -> Iterator[tuple[str, Floats, Floats, int]]:
    for way in WAYS:
        real: Floats = getattr(testbed, way)
        yield way, real, getattr(twin, way), real.size


_COLUMNS = (
    Column("cell", "Setting"),
    Column("way", "Direction"),
    Column("what", "Quantity"),
    Column("n", "Faults", decimals=0),
    Column("twin_ms", "Twin", "ms", 1),
    Column("testbed_ms", "Testbed", "ms", 1),
    Column("error", "Error", "1", 1, percent=True),
    Column("verdict", "Verdict"),
)


def result(comparisons: Sequence[Compared], notes: Sequence[str] = ()) -> Result:
    """Returns the comparisons as a table, the worst first."""
    return Result(
        _COLUMNS,
        tuple(
            _row(comparison) for comparison in sorted(comparisons, key=lambda comparison: -comparison.badness)
        ),
        notes=tuple(notes),
    )


def _row(comparison: Compared) -> Record:
    return {
        "cell": comparison.cell,
        "way": WAYS[comparison.way],
        "what": comparison.what,
        "n": comparison.n,
        "twin_ms": comparison.twin_s * 1e3,
        "testbed_ms": comparison.testbed_s * 1e3,
        "error": comparison.error,
        "verdict": "agrees" if comparison.agrees else "outside",
    }
