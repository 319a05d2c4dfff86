"""Decides whether a figure of the source counts as reproduced, and whether an aim of ours counts as reached.

For: the one rule of every page. RULE was fixed before any result was seen and is printed with the results;
its two factors are the only constants. Not for: computing figures. How near the twin is to the testbed is
judged in lab.containers.validate.rule and lab.fabric.validate.judge, as `twinbed validate` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from studies.reference_figures import ReferenceFigure

CHANGE_FACTOR = 1.5
"""Largest factor between our change in percent and the source's at which it is reproduced in size."""

ABSOLUTE_FACTOR = 2.0
"""The same for an absolute figure. It is larger because machine and application differ from the source's."""

RULE = (
    f"In size: same sign, and within a factor of {CHANGE_FACTOR:g} (changes) or {ABSOLUTE_FACTOR:g} "
    "(absolute figures; ranges count from their nearer end), or within the source's bound. In direction: "
    "same sign only. A change counts only if its 95 % interval over the seeds excludes zero. Where ours is "
    "an interval, because requests were never answered, both its ends must agree: it is not judged if they "
    "do not. Ratio: ours divided by the source's."
)


class Verdict(StrEnum):
    """The verdict on a figure of ours beside the source's."""

    SIZE = "reproduced in size"
    DIRECTION = "reproduced in direction"
    NOT = "not reproduced"
    OPEN = "not judged"


@dataclass(frozen=True, slots=True)
class Judgement:
    """ratio: ours divided by the source's, NaN if the source has no number; verdict: by RULE."""

    ratio: float
    verdict: Verdict


def judge(reference: ReferenceFigure, mean: float, ci95: float) -> Judgement:
    """Judge our mean, with the half-width of its 95 % interval, against the source's figure.

    The verdict is OPEN if there is no mean, or if a change has no interval (fewer than two seeds).
    """
    if math.isnan(mean):
        return Judgement(math.nan, Verdict.OPEN)
    match reference.kind:
        case "change":
            ratio = mean / reference.low
            verdict = _effect(mean, ci95, reference.low)
            if verdict is Verdict.SIZE and not _within(ratio, CHANGE_FACTOR):
                verdict = Verdict.DIRECTION
            return Judgement(ratio, verdict)
        case "sign":
            verdict = _effect(mean, ci95, reference.low)
            return Judgement(math.nan, Verdict.DIRECTION if verdict is Verdict.SIZE else verdict)
        case "at_most":
            ratio = mean / reference.high if reference.high else math.nan
            return Judgement(ratio, Verdict.SIZE if mean <= reference.high else Verdict.NOT)
        case "absolute":
            ratio = mean / min(max(mean, reference.low), reference.high)
            return Judgement(ratio, Verdict.SIZE if _within(ratio, ABSOLUTE_FACTOR) else Verdict.NOT)


def judge_between(
    reference: ReferenceFigure, low: tuple[float, float], high: tuple[float, float]
) -> Judgement:
    """Judge an interval by its two ends (mean, half-width of the 95 % interval); the upper may be infinite.

    The verdict must hold at both ends: it is DIRECTION if only one end has the size, and OPEN if the ends
    disagree on more. An interval has no ratio.
    """
    first, last = judge(reference, *low), judge(reference, *high)
    if low[0] == high[0] or math.isnan(low[0]):
        return first
    both = {first.verdict, last.verdict}
    if len(both) == 1:
        return Judgement(math.nan, first.verdict)
    agreed = Verdict.DIRECTION if both == {Verdict.SIZE, Verdict.DIRECTION} else Verdict.OPEN
    return Judgement(math.nan, agreed)


def aim(reached: bool | None) -> str:
    """Return the word for an aim of ours in a table: `reached`, `missed`, or a dash without an aim."""
    return "–" if reached is None else "reached" if reached else "missed"


def _effect(mean: float, ci95: float, sign: float) -> Verdict:
    """Return SIZE for an effect of this sign, NOT for none, OPEN where there is no interval."""
    if math.isnan(ci95):
        return Verdict.OPEN
    return Verdict.SIZE if mean * sign > 0 and abs(mean) > ci95 else Verdict.NOT


def _within(ratio: float, factor: float) -> bool:
    return 1 / factor <= ratio <= factor
