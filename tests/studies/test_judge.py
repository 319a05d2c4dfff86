"""The rule of verdicts, with the arithmetic beside each case."""

import math

import pytest

from studies.judge import Verdict, aim, judge, judge_between
from studies.reference_figures import ReferenceFigure

NAN = math.nan


def reference(kind, low, high=None):
    return ReferenceFigure("E0", "key", "what", kind, low, low if high is None else high, "1", "nowhere")


@pytest.mark.parametrize(
    ("mean", "ci95", "ratio", "verdict"),
    [
        (-38.0, 2.0, 1.0, Verdict.SIZE),
        (-57.0, 2.0, 1.5, Verdict.SIZE),  # 57 / 38 = 1.5: just within the factor
        (-58.0, 2.0, 58 / 38, Verdict.DIRECTION),
        (-25.0, 2.0, 25 / 38, Verdict.DIRECTION),  # 0.658 < 1 / 1.5
        (-38.0, 38.0, 1.0, Verdict.NOT),  # the interval [-76, 0] touches zero
        (38.0, 2.0, -1.0, Verdict.NOT),
        (-38.0, NAN, 1.0, Verdict.OPEN),  # one seed: no interval
        (NAN, NAN, NAN, Verdict.OPEN),
    ],
)
def test_a_change_needs_the_sign_an_effect_and_the_size(mean, ci95, ratio, verdict):
    judged = judge(reference("change", -38.0), mean, ci95)
    assert judged.verdict is verdict
    assert judged.ratio == pytest.approx(ratio, nan_ok=True)


@pytest.mark.parametrize(
    ("mean", "ratio", "verdict"),
    [
        (0.28, 2.0, Verdict.SIZE),
        (0.07, 0.5, Verdict.SIZE),
        (0.3, 0.3 / 0.14, Verdict.NOT),  # 2.14 > 2
        (-0.14, -1.0, Verdict.NOT),
    ],
)
def test_an_absolute_figure_needs_the_size_and_no_interval(mean, ratio, verdict):
    judged = judge(reference("absolute", 0.14), mean, NAN)
    assert (judged.ratio, judged.verdict) == (pytest.approx(ratio), verdict)


@pytest.mark.parametrize(
    ("mean", "ratio", "verdict"),
    [
        (200.0, 1.0, Verdict.SIZE),  # inside the range
        (50.0, 0.5, Verdict.SIZE),  # 50 / 100
        (1500.0, 1.5, Verdict.SIZE),  # 1500 / 1000
        (40.0, 0.4, Verdict.NOT),
    ],
)
def test_a_range_is_measured_from_its_nearer_end(mean, ratio, verdict):
    judged = judge(reference("absolute", 100.0, 1000.0), mean, NAN)
    assert (judged.ratio, judged.verdict) == (pytest.approx(ratio), verdict)


def test_a_bound_holds_or_does_not():
    assert judge(reference("at_most", 0.66), 0.33, NAN) == judge(reference("at_most", 0.66), 0.33, 9.0)
    assert judge(reference("at_most", 0.66), 0.33, NAN).ratio == pytest.approx(0.5)
    assert judge(reference("at_most", 0.66), 0.33, NAN).verdict is Verdict.SIZE
    assert judge(reference("at_most", 0.66), 0.67, NAN).verdict is Verdict.NOT


def test_of_a_bound_of_zero_there_is_no_ratio():
    judged = judge(reference("at_most", 0.0), 0.0, 0.0)
    assert math.isnan(judged.ratio)
    assert judged.verdict is Verdict.SIZE


@pytest.mark.parametrize(
    ("mean", "ci95", "verdict"),
    [
        (5.0, 4.0, Verdict.DIRECTION),
        (5.0, 6.0, Verdict.NOT),
        (-5.0, 4.0, Verdict.NOT),
        (5.0, NAN, Verdict.OPEN),
    ],
)
def test_where_the_source_gives_a_sign_only_the_direction_can_be_reproduced(mean, ci95, verdict):
    judged = judge(reference("sign", 1.0), mean, ci95)
    assert judged.verdict is verdict
    assert math.isnan(judged.ratio)


def test_an_aim_is_reached_or_missed_or_there_is_none():
    assert [aim(True), aim(False), aim(None)] == ["reached", "missed", "–"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        ((-40.0, 1.0), (-36.0, 1.0), Verdict.SIZE),
        ((-100.0, 0.0), (-36.0, 1.0), Verdict.DIRECTION),  # 100 / 38 = 2.6: the size holds at one end only
        ((-100.0, 0.0), (5.0, 1.0), Verdict.OPEN),
        ((12.0, 1.0), (math.inf, 0.0), Verdict.NOT),
        ((-38.0, 1.0), (-38.0, 1.0), Verdict.SIZE),
    ],
)
def test_an_interval_is_judged_by_what_holds_at_both_ends(low, high, verdict):
    assert judge_between(reference("change", -38.0), low, high).verdict is verdict
