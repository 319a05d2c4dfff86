"""When a figure of the source counts as reproduced: the rule, fixed before any result was seen.

For: putting our figure beside the source's. Not for: computing either. The rule is RULE, printed with
every report; its two factors are the only constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from studies.reference_figures import ReferenceFigure

CHANGE_FACTOR = 1.5
"""A change in percent is reproduced in size when ours is at most so many times larger or smaller."""

ABSOLUTE_FACTOR = 2.0
"""The same for an absolute figure: another machine and another application stand behind it."""

RULE = (
    f"In size: same sign, and within a factor of {CHANGE_FACTOR:g} (changes) or {ABSOLUTE_FACTOR:g} "
    "(absolute figures; ranges from their nearer end), or within the source's bound. In direction: same sign "
    "only. A change counts only if its 95 % interval over the seeds excludes zero. Ratio: ours over the "
    "source's."
)


class Verdict(StrEnum):
    """How a figure of ours stands to the source's."""

    SIZE = "reproduced in size"
    DIRECTION = "reproduced in direction"
    NOT = "not reproduced"
    OPEN = "not judged"


@dataclass(frozen=True, slots=True)
class Judgement:
    """ratio: ours over the source's (NaN where the source has no number); verdict by RULE."""

    ratio: float
    verdict: Verdict


def judge(reference: ReferenceFigure, mean: float, ci95: float) -> Judgement:
    """Our mean with its half-width against the source's figure.

    OPEN when there is no mean, or when a change has no interval (fewer than two seeds).
    """
    if math.isnan(mean):
        return Judgement(math.nan, Verdict.OPEN)
    match reference.kind:
        case "change":
            return _change(reference, mean, ci95)
        case "sign":
            verdict = _effect(mean, ci95, reference.low)
            return Judgement(math.nan, Verdict.DIRECTION if verdict is Verdict.SIZE else verdict)
        case "at_most":
            ratio = mean / reference.high if reference.high else math.nan
            return Judgement(ratio, Verdict.SIZE if mean <= reference.high else Verdict.NOT)
        case "absolute":
            ratio = mean / min(max(mean, reference.low), reference.high)
            return Judgement(ratio, Verdict.SIZE if _within(ratio, ABSOLUTE_FACTOR) else Verdict.NOT)


def _change(reference: ReferenceFigure, mean: float, ci95: float) -> Judgement:
    ratio = mean / reference.low
    verdict = _effect(mean, ci95, reference.low)
    if verdict is Verdict.SIZE and not _within(ratio, CHANGE_FACTOR):
        verdict = Verdict.DIRECTION
    return Judgement(ratio, verdict)


def _effect(mean: float, ci95: float, sign: float) -> Verdict:
    """SIZE when there is an effect of this sign, NOT when there is none, OPEN when nobody can tell."""
    if math.isnan(ci95):
        return Verdict.OPEN
    return Verdict.SIZE if mean * sign > 0 and abs(mean) > ci95 else Verdict.NOT


def _within(ratio: float, factor: float) -> bool:
    return 1 / factor <= ratio <= factor
