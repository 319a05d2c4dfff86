"""The rule by which the twin agrees with the testbed: quantities and limits, fixed before any result.

For: putting the twin's value of a quantity beside the values of several repeats on the testbed. Not for:
taking the values from runs (measures.py) or running anything (both.py). RULE is printed with every result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that is compared, and the largest error that counts as small.

    key, title, unit, decimals: as in lab.runs.metric.Metric.
    relative: limit of the error as a share of the testbed's median.
    absolute: limit of the error in `unit`. None means no such limit; it is enough to meet one of the two.
    """

    key: str
    title: str
    unit: str
    decimals: int
    relative: float | None = None
    absolute: float | None = None

    @property
    def limit(self) -> str:
        """The limit as people read it: `10 % or 0.02 cores`, `5 points`."""
        share = self.unit == "1"
        parts = [] if self.relative is None else [f"{100 * self.relative:g} %"]
        if self.absolute is not None:
            parts.append(f"{100 * self.absolute:g} points" if share else f"{self.absolute:g} {self.unit}")
        return " or ".join(parts)


QUANTITIES = (
    Quantity("throughput_rps", "Throughput", "1/s", 1, relative=0.05),
    Quantity("work_cores", "CPU work done", "cores", 3, relative=0.05),
    Quantity("cpu_slack_mean_cores", "CPU slack mean", "cores", 3, relative=0.10, absolute=0.02),
    Quantity("throttled_share", "Throttled periods", "1", 3, absolute=0.05),
    Quantity("latency_p50_s", "Latency p50", "s", 4, relative=0.15),
    Quantity("latency_p99_s", "Latency p99", "s", 4, relative=0.30),
    Quantity("memory_slack_mean_mib", "Memory slack mean", "MiB", 1, relative=0.10),
)
"""The quantities of a validation. Where there are no clients, CPU work done takes the place of throughput."""

TARGET = 0.95
"""Share of the comparisons of each quantity that should be inside a limit or the spread."""

NEAR_OWN = 0.05
"""Largest difference by which a share may be below the share of the machine's own repeats that agree."""

LEAST_REPEATS = 3
"""Least number of runs of each seed that count."""


class Verdict(StrEnum):
    """The verdict on the twin's value beside the testbed's."""

    LIMIT = "inside limit"
    SPREAD = "inside spread"
    OUTSIDE = "outside"
    ONE_SIDED = "on one side only"
    NONE = "not defined"

    @property
    def counts(self) -> bool:
        """Whether the quantity counts: at least one backend has a value."""
        return self is not Verdict.NONE

    @property
    def agrees(self) -> bool:
        """Whether the twin's value is inside the limit or inside the testbed's spread."""
        return self in (Verdict.LIMIT, Verdict.SPREAD)


RULE = (
    "Twin: its median over seeds and draws of when periods begin. Testbed: its median over seeds and "
    "repeats; spread: its smallest to its largest value. Inside limit: the two differ by at most "
    + "; ".join(f"{quantity.limit} ({quantity.title})" for quantity in QUANTITIES)
    + " of the testbed's median. Inside spread: not inside the limit, but within the range of the testbed's "
    "own repeats. Everything else is outside, including a quantity that only one of the two has. A quantity "
    "that neither has does not count."
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of one quantity in one cell.

    twin, testbed: medians.
    low, high: the testbed's smallest and largest value; NaN where there is none.
    """

    quantity: Quantity
    twin: float
    testbed: float
    low: float
    high: float
    verdict: Verdict

    @property
    def error(self) -> float:
        """The twin's value minus the testbed's, in the quantity's unit."""
        return self.twin - self.testbed

    @property
    def relative_error(self) -> float:
        """The error as a share of the testbed's median; NaN if that is 0."""
        return self.error / self.testbed if self.testbed else math.nan

    @property
    def badness(self) -> float:
        """The error as a multiple of the allowed error: 1 at the limit, inf if one side is missing."""
        if self.verdict is Verdict.ONE_SIDED:
            return math.inf
        allowed = _allowed(self.quantity, self.testbed)
        return abs(self.error) / allowed if allowed else (math.inf if self.error else 0.0)


def judge(quantity: Quantity, twin: Sequence[float], testbed: Sequence[float]) -> Judgement:
    """Apply the rule. twin: values over seeds and draws; testbed: values over seeds and repeats. A value is
    NaN where it is not defined."""
    ours, theirs = _defined(twin), _defined(testbed)
    middle = float(np.median(ours)) if ours else math.nan
    if not ours or not theirs:
        verdict = Verdict.ONE_SIDED if ours or theirs else Verdict.NONE
        reference = float(np.median(theirs)) if theirs else math.nan
        ends = (min(theirs), max(theirs)) if theirs else (math.nan, math.nan)
        return Judgement(quantity, middle, reference, *ends, verdict)
    reference, low, high = float(np.median(theirs)), min(theirs), max(theirs)
    if abs(middle - reference) <= _allowed(quantity, reference):
        verdict = Verdict.LIMIT
    elif low <= middle <= high:
        verdict = Verdict.SPREAD
    else:
        verdict = Verdict.OUTSIDE
    return Judgement(quantity, middle, reference, low, high, verdict)


def own_agreement(quantity: Quantity, testbed: Sequence[float]) -> tuple[int, int]:
    """Return (repeats that agree with the others, repeats that could be compared) of equal runs.

    Each repeat in turn takes the twin's place. The rule is the same, so this is the share that a perfect twin
    reaches.
    """
    verdicts = [
        judge(quantity, [value], [*testbed[:place], *testbed[place + 1 :]]).verdict
        for place, value in enumerate(testbed)
        if len(testbed) > 1
    ]
    return sum(verdict.agrees for verdict in verdicts), sum(verdict.counts for verdict in verdicts)


def reached(share: float, own: float) -> bool:
    """Return whether the share of comparisons that agree reaches the aim: TARGET, or NEAR_OWN below the
    machine's own share if that is known (not NaN)."""
    return share >= (TARGET if math.isnan(own) else min(TARGET, own - NEAR_OWN))


def share(judgements: Sequence[Judgement]) -> float:
    """Return the share that agrees out of all possible comparisons; NaN if there is none."""
    counted = [judgement.verdict.agrees for judgement in judgements if judgement.verdict.counts]
    return sum(counted) / len(counted) if counted else math.nan


def _allowed(quantity: Quantity, reference: float) -> float:
    relative = 0.0 if quantity.relative is None else quantity.relative * abs(reference)
    return max(relative, quantity.absolute or 0.0)


def _defined(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
