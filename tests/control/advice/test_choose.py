"""The choice among candidates, and the verdict on a row."""

from dataclasses import replace

import numpy as np
import pytest

from control.advice.choose import Case, Figures, chosen, ranked, verdict

GOOD = (0.0, 0.0, 0.1, 5.0)
CASE = Case(
    samples=5000,
    days=7.0,
    memory_known=True,
    set_known=True,
    oom_events=0,
    grown=0.0,
    inside=True,
    changes=(-0.5, None, -0.4, -0.4),
    before=(0.0, 0.0, 0.1, 10.0),
    after=GOOD,
)


def figures(money, oom=0.0, throttled=np.nan):
    return Figures(*(np.array([value], float) for value in (throttled, oom, 0.1, money)), np.array([True]))


def test_what_went_wrong_least_often_comes_first_and_then_what_is_cheapest():
    table = {
        "dear": figures(9),
        "cheap": figures(3),
        "killed": figures(1, oom=2),
        "slow": figures(2, throttled=0.2),
    }
    assert ranked(table, 0.05) == ["cheap", "dear", "killed", "slow"]
    assert ranked(table, 0.5)[0] == "slow"


def test_a_row_gets_the_first_candidate_that_stays_inside_the_risk():
    table = {"killed": figures(1, oom=2), "dear": figures(9)}
    assert chosen(["killed", "dear"], table, 0.05)[0] == ["dear"]
    names, inside = chosen(["killed"], table, 0.05)
    assert (names, inside.tolist()) == (["killed"], [False])


@pytest.mark.parametrize(
    ("change", "word", "why"),
    [
        ({}, "apply", "reserves 50 % less money"),
        ({"samples": 20}, "leave", "Only 20 samples"),
        ({"inside": False}, "leave", "No candidate stayed"),
        ({"changes": (0.05, 0.0, -0.03, 0.0)}, "leave", "less than 10 %"),
        ({"after": (0.0, 0.0, 0.1, 9.9)}, "leave", "not cheaper"),
        ({"before": (0.0, 7.0, 0.1, 1.0)}, "apply", "meets its memory limit 7 times"),
        ({"before": (0.3, 0.0, 0.1, 1.0)}, "apply", "throttles it in 30 %"),
        ({"oom_events": 3}, "care", "met its memory limit 3 times in the history"),
        ({"grown": 0.4}, "care", "peak grew by 40 %"),
        ({"memory_known": False}, "care", "only CPU"),
        ({"days": 0.5}, "care", "12 h holds no whole day"),
        ({"days": 0.01}, "care", "14.4 min holds no whole day"),
        ({"set_known": False, "before": None}, "care", "not known"),
        ({"after": (0.0, 0.0, 0.6, 5.0)}, "leave", "no CPU to spare; give --hosts"),
        ({"after": (0.0, 0.0, 0.6, 5.0), "shared": True}, "leave", "would wait on the hosts that were given"),
        ({"after": (0.0, 0.0, 0.6, 5.0), "days": 0.5}, "leave", "60 % of its work would wait"),
        ({"before": (0.0, 0.0, 0.7, 10.0), "after": (0.0, 0.0, 0.6, 5.0)}, "apply", "less money"),
    ],
)
def test_each_doubt_leads_to_its_verdict_and_reason(change, word, why):
    found, reason = verdict(replace(CASE, **change), 0.05)
    assert found == word
    assert why in reason
    assert reason.endswith(".")
