"""What --abort-if takes, and when it is met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.containers.apply.conditions import Condition, Happened, parse
from twinbed import ScenarioError


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("throttled > 5%", Condition("throttled", 0.05)),
        (" throttled>0.5% ", Condition("throttled", 0.005)),
        ("oom > 0", Condition("oom", 0)),
        ("restarts > 2", Condition("restarts", 2)),
    ],
)
def test_a_condition_is_read(text: str, condition: Condition) -> None:
    assert parse(text) == condition


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("throttled > 5", "throttled is compared with a percentage"),
        ("throttled > 101%", "throttled is compared with a percentage"),
        ("oom > 1%", "oom is compared with a number without %"),
        ("oom < 1", "expected 'throttled > 5%'"),
        ("latency > 1", "expected 'throttled > 5%'"),
        ("oom > 1; reboot", "expected 'throttled > 5%'"),
        ("oom > 1e3", "expected 'throttled > 5%'"),
        ("", "expected 'throttled > 5%'"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as raised:
        parse(text)
    assert "\n" not in str(raised.value)


@given(st.text())
def test_no_text_does_worse_than_being_refused(text: str) -> None:
    said = ""
    try:
        parse(text)
    except ScenarioError as error:
        said = str(error)
    assert said.isprintable()


def test_a_throttled_share_counts_after_five_seconds_or_at_the_end() -> None:
    condition = parse("throttled > 5%")
    few = Happened(periods=10, throttled=9, oom=0, restarts=0)
    assert condition.met(few, last=False) is None
    assert condition.met(few, last=True) == "throttled in 90.0 % of 10 periods, more than 5 %"
    assert condition.met(Happened(0, 0, 0, 0), last=True) is None
    assert condition.met(Happened(1000, 50, 0, 0), last=True) is None
