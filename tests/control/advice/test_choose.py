"""The choice among candidates, and the verdict on a row."""

from dataclasses import replace

import numpy as np
import pytest

from control.advice.candidates import CURRENT
from control.advice.choose import Case, Figures, chosen, holds, ranked, verdict
from control.advice.model import Sizes

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


def test_candidates_at_the_same_price_come_by_late_work_and_then_by_throttling():
    same = figures(3, throttled=0.01)
    table = {"late": replace(same, late=np.array([0.3])), "slow": replace(same, throttled=np.array([0.02]))}
    assert ranked({**table, "good": same}, 0.05) == ["good", "slow", "late"]
    assert ranked({"first": same, "second": same}, 0.05) == ["first", "second"]


def test_the_price_is_that_of_rows_that_all_candidates_price():
    rows = {"dear": [1.0, 2.0], "blind": [np.nan, 3.0], "cheap": [9.0, 1.0]}
    table = {
        name: Figures(*np.array([[0.0] * 2, [0.0] * 2, [0.1] * 2, money]), np.array([True, True]))
        for name, money in rows.items()
    }
    assert ranked(table, 0.05) == ["cheap", "dear", "blind"]


def test_what_is_reserved_is_the_request_or_else_a_limit_that_is_set():
    requests, limits = np.array([1.0, 0.0, np.nan, 0.0]), np.array([2.0, 2.0, 2.0, np.inf])
    sizes = Sizes(requests, limits, requests, limits)
    for reserved in (sizes.reserved_cores, sizes.reserved_bytes):
        assert reserved.tolist() == [1.0, 2.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("cpu", "request_", "limit", "known", "covers"),
    [
        (0.1, 5.0, 5.0, True, True),
        (0.1, 4.0, 5.0, True, False),
        (0.1, 5.0, 4.0, True, False),
        (0.1, np.nan, np.nan, True, False),
        (0.1, np.nan, np.nan, False, True),
        (0.0, 5.0, 5.0, True, False),
        (np.nan, 5.0, 5.0, True, False),
    ],
)
def test_settings_hold_with_cpu_and_with_memory_above_the_peak_where_it_is_known(
    cpu, request_, limit, known, covers
):
    sizes = Sizes(*(np.array([value]) for value in (cpu, np.nan, request_, limit)))
    assert holds(sizes, np.array([5.0]), np.array([known])).tolist() == [covers]


def test_a_row_gets_the_first_candidate_that_stays_inside_the_risk():
    table = {"killed": figures(1, oom=2), "dear": figures(9)}
    assert chosen(["killed", "dear"], table, 0.05)[0] == ["dear"]
    names, inside = chosen(["killed"], table, 0.05)
    assert (names, inside.tolist()) == (["killed"], [False])
    two = {
        name: Figures(np.zeros(2), np.array(oom), np.zeros(2), np.ones(2), np.full(2, True))
        for name, oom in (("first", [1.0, 0.0]), ("second", [0.0, 1.0]), ("third", [0.0, 0.0]))
    }
    assert chosen(["first", "second"], two, 0.05)[0] == ["second", "first"]


def test_a_row_whose_work_would_wait_takes_what_keeps_up_and_is_cheaper_than_what_is_set():
    zero, held = np.zeros(5), np.full(5, True)
    rows = {  # kills, late, money: the second is cheaper than what is set, dearer, late, not needed, late
        "first": ([0.0, 0.0, 0.0, 0.0, 1.0], [0.9, 0.9, 0.9, 0.1, 0.9], [1.0, 1.0, 1.0, 1.0, 1.0]),
        "second": (zero, [0.2, 0.2, 0.8, 0.1, 0.8], [2.0, 2.0, 2.0, 2.0, 2.0]),
        CURRENT: (zero, [0.1, 0.1, 0.1, 0.1, 0.1], [3.0, 2.0, 3.0, 3.0, 3.0]),
    }
    table = {
        name: Figures(zero, np.array(oom), np.array(late), np.array(money), held)
        for name, (oom, late, money) in rows.items()
    }
    order = ["first", "second"]
    assert chosen(order, table, 0.05)[0] == ["second", "first", "first", "first", "second"]
    table[CURRENT].money[:] = np.nan  # nothing is set
    assert chosen(order, table, 0.05)[0] == ["first"] * 4 + ["second"]


@pytest.mark.parametrize(
    ("throttled", "oom", "held", "inside"),
    [
        (0.05, 0.0, True, True),
        (0.051, 0.0, True, False),
        (np.nan, np.nan, True, True),
        (0.0, 0.5, True, False),
        (0.0, 0.0, False, False),
    ],
)
def test_a_row_is_inside_the_risk_up_to_the_risk_and_without_a_kill(throttled, oom, held, inside):
    row = replace(figures(1.0, oom, throttled), held=np.array([held]))
    assert row.inside(0.05).tolist() == [inside]


@pytest.mark.parametrize(
    ("change", "word", "why"),
    [
        ({}, "apply", "reserves 50 % less money"),
        ({"samples": 20}, "leave", "Only 20 samples"),
        ({"samples": 1}, "leave", "Only 1 sample of it is known"),
        ({"inside": False}, "leave", "No candidate stayed"),
        ({"changes": (0.05, 0.0, -0.03, 0.0)}, "leave", "less than 10 %"),
        ({"after": (0.0, 0.0, 0.1, 9.9)}, "leave", "not cheaper"),
        ({"before": (0.0, 7.0, 0.1, 1.0)}, "apply", "meets its memory limit 7 times"),
        ({"before": (0.3, 0.0, 0.1, 1.0)}, "apply", "throttles it in 30 %"),
        # The worst replay decides, and the reason has the mean, as the row does.
        (
            {"before": (0.3, 0.0, 0.1, 1.0), "means": (0.2, 0.0)},
            "apply",
            "throttles it in 20 % of its periods;",
        ),
        ({"before": (0.06, 0.0, 0.1, 1.0), "means": (0.04, 0.0)}, "apply", "6 % of its periods in the worst"),
        ({"before": (0.0, 7.0, 0.1, 1.0), "means": (0.0, 6.5)}, "apply", "its memory limit 6.5 times in"),
        ({"after": (0.0, 0.0, 0.6049, 5.0)}, "leave", "the advice 60.5 % of its work would wait"),
        ({"oom_events": 3}, "care", "met its memory limit 3 times in the history"),
        ({"oom_events": 1}, "care", "met its memory limit once in the history"),
        # What is set now was not enough, whatever it costs more.
        (
            {"oom_events": 3, "oom_limit_is_set": True, "after": (0.0, 0.0, 0.1, 11.0)},
            "care",
            "met its memory limit 3 times in the history",
        ),
        ({"oom_events": 3, "after": (0.0, 0.0, 0.1, 11.0)}, "leave", "not cheaper"),
        ({"before": (0.0, 0.0, 0.4, 5.0)}, "leave", "was enough"),
        ({"before": (0.0, 0.0, 0.9, 5.0)}, "leave", "though most work waited"),
        ({"grown": 0.4}, "care", "peak grew by 40 %"),
        ({"memory_known": False}, "care", "only CPU"),
        ({"days": 0.5}, "care", "12 h holds no whole day"),
        ({"days": 0.01}, "care", "14.4 min holds no whole day"),
        ({"set_known": False, "before": None}, "care", "not known"),
        ({"after": (0.0, 0.0, 0.6, 5.0)}, "leave", "no CPU to spare; give --hosts"),
        ({"after": (0.0, 0.0, 0.6, 5.0), "shared": True}, "leave", "would wait on the hosts that were given"),
        ({"after": (0.0, 0.0, 0.6, 5.0), "days": 0.5}, "leave", "60 % of its work would wait"),
        ({"before": (0.0, 0.0, 0.7, 10.0), "after": (0.0, 0.0, 0.6, 5.0)}, "apply", "less money"),
        # At a bound
        ({"samples": 100}, "apply", "less money"),
        ({"changes": (0.1, 0.0, -0.03, 0.0)}, "apply", "less money"),
        ({"changes": (-0.1, 0.0, -0.03, 0.0)}, "apply", "less money"),
        ({"changes": (0.05, None, 0.0, 0.0)}, "apply", "less money"),
        ({"set_known": False, "changes": (0.05, 0.0, 0.0, 0.0)}, "care", "not known"),
        ({"after": (0.0, 0.0, 0.1, 9.8)}, "apply", "reserves 2 % less"),
        ({"before": (0.05, 0.0, 0.1, 5.0)}, "leave", "not cheaper"),
        ({"after": (0.0, 0.0, 0.5, 5.0)}, "apply", "less money"),
        ({"before": (0.0, 0.0, 0.6, 10.0), "after": (0.0, 0.0, 0.6, 5.0)}, "apply", "less money"),
        ({"before": (0.0, 0.0, 0.1, 0.0), "after": (0.0, 0.0, 0.1, 0.0)}, "apply", "stayed inside the risk"),
        ({"before": (np.nan, np.nan, np.nan, 0.0)}, "care", "requests nothing now"),
        ({"before": None}, "apply", "Its replay stayed inside the risk"),
        (
            {"before": (0.0, 1.0, 0.1, 1.0), "after": (0.0, 0.0, 0.6, 5.0)},
            "care",
            "its memory limit once in the replay; the advice does not. With the advice 60 % of its work",
        ),
        ({"grown": 0.2}, "apply", "less money"),
        ({"days": 1.0}, "apply", "less money"),
        ({"days": 1 / 24}, "care", "The history of 1 h holds"),
        ({"oom_events": 1}, "care", "met its memory limit once"),
        ({"before": (0.0, 0.0, 0.1, 0.5), "after": (0.0, 0.0, 0.1, 0.05)}, "apply", "reserves 90 % less"),
    ],
)
def test_each_doubt_leads_to_its_verdict_and_reason(change, word, why):
    found, reason = verdict(replace(CASE, **change), 0.05)
    assert found == word
    assert why in reason
    assert reason.endswith(".")
