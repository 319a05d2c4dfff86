"""The HPA's arithmetic and its timing, by examples of Kubernetes' documentation and source."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.hpa import Hpa, HpaSettings, replicas_wanted
from twinbed import ScenarioError

GONE = np.nan


def wanted(usage, requests=1.0, ready=True, target=0.5, current=None, tolerance=0.1):
    used = np.array(usage, np.float64)
    asked = np.broadcast_to(np.float64(requests), used.shape)
    fit = np.broadcast_to(np.bool_(ready), used.shape)
    return replicas_wanted(len(used) if current is None else current, used, asked, fit, target, tolerance)


@pytest.mark.parametrize(
    ("usage", "count"),
    [
        ([1.0], 2),  # 100 % of a target of 50 %
        ([0.25, 0.25], 1),
        ([0.54, 0.54], 2),  # 1.08 times the target is within the tolerance
        ([0.56, 0.56], 3),  # 1.12 × 2, rounded up
        ([0.46, 0.46], 2),
        ([0.44, 0.44, 0.44], 3),  # 0.88 × 3, rounded up
    ],
)
def test_replicas_are_the_ratio_times_the_replicas_rounded_up(usage, count):
    assert wanted(usage) == count


def test_a_utilisation_counts_in_whole_percent():
    # 56.9 % counts as 56 %, 1.12 times the target; 55.9 % as 55 %, which is within the tolerance.
    assert (wanted([0.559, 0.559]), wanted([0.569, 0.569])) == (2, 3)


@pytest.mark.parametrize("percent", range(1, 201))
def test_a_target_is_the_percentage_that_was_meant(percent: int):
    """Kubernetes divides whole percents: twice the target wants twice the replicas, whatever the target."""
    twice = wanted([2 * percent / 100] * 3, target=percent / 100)
    assert (twice, wanted([percent / 100, GONE], target=percent / 100)) == (6, 2)


def test_a_change_as_large_as_the_tolerance_is_not_made():
    assert wanted([0.5, 0.5], target=0.4, tolerance=0.25) == 2  # 1.25 times the target
    # 55/50 is 1.0 + 0.1, though 1.1 − 1.0 is a hair more than 0.1 (replica_calculator.go, isWithin)
    assert (wanted([0.55, 0.55]), wanted([0.45, 0.45])) == (2, 2)


def test_a_replica_without_a_metric_counts_as_idle_on_the_way_up():
    # 100 % of two replicas wants 4; with a third at 0 %, 66 % of three wants 4.
    assert wanted([1.0, 1.0, GONE]) == 4
    # 70 % of one wants 2; with a second at 0 %, 35 % of two would turn round: nothing is changed.
    assert wanted([0.7, GONE]) == 2
    # 80 % of three wants 5; with a fourth at 0 %, 60 % of four wants 5.
    assert wanted([0.8, 0.8, 0.8, GONE]) == 5


def test_a_replica_without_a_metric_counts_as_busy_on_the_way_down():
    # 10 % of three and 100 % of the fourth is 32 %, 0.64 × 4.
    assert wanted([0.1, 0.1, 0.1, GONE]) == 3
    assert wanted([0.3, GONE]) == 2  # 65 % would turn round


def test_a_replica_without_a_metric_counts_as_at_the_target_where_that_is_above_the_request():
    # 90 % of two and 150 % of the third is 110 %, 0.73 × 3; with 100 % of the third, two would be enough
    # (replica_calculator.go, fallbackUtilization).
    assert wanted([0.9, 0.9, GONE], target=1.5) == 3


def test_a_replica_without_a_metric_changes_nothing_where_the_others_are_at_the_target():
    assert wanted([0.5, 0.5, GONE]) == 3


def test_a_replica_that_is_not_ready_counts_as_idle_on_the_way_up_and_not_at_all_on_the_way_down():
    ready = [True, True, False]
    assert wanted([1.0, 1.0, 1.0], ready=ready) == 4
    assert wanted([0.1, 0.1, 1.0], ready=ready) == 1
    # 79 % of two wants 4; with a third at 0 %, 52 % is within the tolerance.
    assert wanted([0.79, 0.79, 1.0], ready=ready) == 3
    # 47 % and 50 % are within it, and 31 % and 33 % of three would not be.
    assert [wanted([used, used, 1.0], ready=ready) for used in (0.47, 0.5)] == [3, 3]


@pytest.mark.parametrize(
    ("usage", "requests", "ready"),
    [
        ([GONE, GONE], 1.0, True),
        ([1.0, 1.0], [1.0, np.nan], True),
        ([1.0], 0.0, True),
        ([1.0, GONE], [0.0, 1.0], True),
        ([1.0], 1.0, False),
    ],
)
def test_without_metrics_or_requests_nothing_is_changed(usage, requests, ready):
    assert wanted(usage, requests, ready) == len(usage)


def sync(hpa, at_s, current, utilisation):
    used = np.full(current, utilisation)
    return hpa.sync(at_s, current, used, np.ones(current), np.ones(current, np.bool_))


@pytest.mark.parametrize("first", [0.1, 0.5])
def test_fewer_replicas_come_when_nobody_wanted_more_for_five_minutes(first):
    hpa, counts = Hpa(HpaSettings(target_utilisation=0.5)), [6]
    for step in range(1, 25):
        counts.append(sync(hpa, 9000 + 15.0 * step, counts[-1], first if step == 1 else 0.1))
    # The first recommendation, after 15 s, is the present number of replicas, and six are needed or not. 300
    # s later neither counts.
    assert counts[1:22] == [6] * 21
    assert counts[22] == 2


def test_more_replicas_come_at_once_but_no_more_than_twice_as_many_or_four():
    hpa = Hpa(HpaSettings(target_utilisation=0.1, max_replicas=30))
    assert [sync(hpa, at_s, count, 1.0) for at_s, count in ((15, 1), (30, 4), (45, 8), (60, 16))] == [
        4,
        8,
        16,
        30,
    ]


@given(
    st.lists(st.tuples(st.floats(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(5, 20),
)
def test_whatever_is_measured_the_bounds_hold(replicas, least, most):
    usage = np.array([np.nan if gone else use for use, gone, _ in replicas])
    ready = np.array([is_ready for _, _, is_ready in replicas])
    hpa = Hpa(HpaSettings(min_replicas=least, max_replicas=most))
    count = hpa.sync(15.0, len(usage), usage, np.ones(len(usage)), ready)
    assert least <= count <= max(most, least)
    assert count <= max(2 * len(usage), 4, least)


def test_bounds_that_exclude_each_other_are_named():
    with pytest.raises(ScenarioError, match=r"hpa\.max_replicas: 2 is below min_replicas, 3"):
        HpaSettings(min_replicas=3, max_replicas=2)
    with pytest.raises(ScenarioError, match=r"hpa\.tolerance: -0\.1"):
        HpaSettings(tolerance=-0.1)
