import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.containers.validate.rule import QUANTITIES, RULE, Verdict, judge, own_agreement, reached, share

BY_KEY = {each.key: each for each in QUANTITIES}
VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("key", "twin", "testbed", "verdict"),
    [
        # 5 % of 100 is 5.
        ("throughput_rps", 105.0, [99.0, 100.0, 101.0], Verdict.LIMIT),
        ("throughput_rps", 105.1, [99.0, 100.0, 101.0], Verdict.OUTSIDE),
        ("throughput_rps", 94.0, [93.0, 100.0, 101.0], Verdict.SPREAD),
        # 10 % of 0.1 is 0.01, but 0.02 cores are allowed in any case.
        ("cpu_slack_mean_cores", 0.119, [0.1, 0.1, 0.1], Verdict.LIMIT),
        ("cpu_slack_mean_cores", 1.09, [1.0, 1.0, 1.0], Verdict.LIMIT),
        ("cpu_slack_mean_cores", 1.11, [1.0, 1.0, 1.0], Verdict.OUTSIDE),
        # Points, not percent of the value.
        ("throttled_share", 0.049, [0.0, 0.0, 0.0], Verdict.LIMIT),
        ("throttled_share", 0.051, [0.0, 0.0, 0.0], Verdict.OUTSIDE),
        ("latency_p50_s", 0.0115, [0.01], Verdict.LIMIT),
        ("latency_p99_s", 0.0131, [0.01], Verdict.OUTSIDE),
        # Nothing is 10 % of nothing.
        ("memory_slack_mean_mib", 0.1, [0.0, 0.0], Verdict.OUTSIDE),
        ("memory_slack_mean_mib", 0.0, [0.0, 0.0], Verdict.LIMIT),
        ("latency_p50_s", math.nan, [0.01], Verdict.ONE_SIDED),
        ("latency_p50_s", 0.01, [math.nan, math.nan], Verdict.ONE_SIDED),
        ("latency_p50_s", math.nan, [math.nan], Verdict.NONE),
    ],
)
def test_the_verdict_follows_the_limits(key, twin, testbed, verdict):
    assert judge(BY_KEY[key], [twin], testbed).verdict is verdict


def test_both_sides_are_medians_and_undefined_repeats_are_left_out():
    found = judge(BY_KEY["latency_p50_s"], [1.0, 2.0, 9.0], [1.0, 2.0, math.nan, 30.0])
    assert (found.twin, found.testbed, found.low, found.high) == (2.0, 2.0, 1.0, 30.0)
    assert found.error == 0.0
    assert found.verdict is Verdict.LIMIT


@given(key=st.sampled_from(sorted(BY_KEY)), twin=VALUES, testbed=VALUES)
def test_agreement_is_within_the_limit_or_between_the_testbeds_own_values(key, twin, testbed):
    found = judge(BY_KEY[key], twin, testbed)
    between = min(testbed) <= found.twin <= max(testbed)
    assert found.verdict.agrees == (found.badness <= 1.0 or between)
    assert found.low <= found.testbed <= found.high


@given(key=st.sampled_from(sorted(BY_KEY)), values=VALUES)
def test_a_twin_that_says_what_the_testbed_says_is_inside_the_limit(key, values):
    assert judge(BY_KEY[key], values, values).verdict is Verdict.LIMIT


def test_what_neither_side_has_is_not_counted():
    quantity = BY_KEY["latency_p50_s"]
    found = [
        judge(quantity, [1.0], [1.0]),
        judge(quantity, [9.0], [1.0]),
        judge(quantity, [math.nan], [math.nan]),
    ]
    assert share(found) == 0.5
    assert math.isnan(share(found[2:]))


def test_the_rule_names_every_limit():
    for each in QUANTITIES:
        assert f"{each.limit} ({each.title})" in RULE
    assert BY_KEY["throttled_share"].limit == "5 points"
    assert BY_KEY["cpu_slack_mean_cores"].limit == "10 % or 0.02 cores"


def test_a_machine_agrees_with_itself_as_far_as_one_repeat_agrees_with_the_others():
    # Limit 15 % of the others' median: 1.0 and 1.1 are near each other; 2.0 is near nobody.
    assert own_agreement(BY_KEY["latency_p50_s"], [1.0, 1.1, 2.0]) == (1, 3)
    assert own_agreement(BY_KEY["latency_p50_s"], [1.0, 1.0, 1.05, 1.1, 2.0]) == (4, 5)
    assert own_agreement(BY_KEY["latency_p50_s"], [1.0]) == (0, 0)
    assert own_agreement(BY_KEY["latency_p50_s"], [math.nan, math.nan]) == (0, 0)


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=8))
def test_equal_repeats_always_agree_and_their_order_does_not_count(values):
    quantity = BY_KEY["throughput_rps"]
    agree, total = own_agreement(quantity, values)
    assert 0 <= agree <= total == len(values)
    assert own_agreement(quantity, values[::-1]) == (agree, total)
    assert own_agreement(quantity, [values[0]] * len(values)) == (total, total)


@pytest.mark.parametrize(
    ("twins", "own", "enough"),
    [(0.95, 1.0, True), (0.94, 1.0, False), (0.72, 0.76, True), (0.7, 0.76, False), (0.95, math.nan, True)],
)
def test_a_twin_need_not_be_nearer_than_the_machine_is_to_itself(twins, own, enough):
    assert reached(twins, own) is enough
