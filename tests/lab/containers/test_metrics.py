import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from control.services import RequestStatus as Status
from lab.ask.scenario import build
from lab.containers.input.sections import Price
from lab.containers.input.workload import prepare
from lab.containers.metrics import (
    BY_KEY,
    LATENCY_QUANTILES,
    METRICS,
    OSCILLATION_PERIODS,
    UNLIMITED_BYTES,
)
from lab.containers.run.figures import figures, latencies, quantiles, taken_back
from tests.lab.sample_traces import usage_trace
from twin.containers.model import Events, Outcome, Series
from twin.containers.requests.model import RequestLog
from twinbed import InvariantError

MIB = 1 << 20
PRICE = Price(cpu_core_hour=2.0, memory_gib_hour=3.0)


def made(periods=10, count=2, memory=True):
    """A replay, and a run of it in which every container used 0.5 of 2 cores and 100 of 164 MiB."""
    trace = usage_trace(periods, count, memory=memory)
    replay = prepare(build({"name": "m", "trace": {"source": "x"}}), trace, np.random.SeedSequence(0))
    shape = (periods, count)
    series = Series(
        demand_cores=np.full(shape, 0.5, np.float32),
        usage_cores=np.full(shape, 0.5, np.float32),
        quota_cores=np.full(shape, 2.0, np.float32),
        backlog_s=np.zeros(shape, np.float32),
        throttled=np.zeros(shape, np.bool_),
        throttled_s=np.zeros(shape, np.float32),
        memory_bytes=np.full(shape, 100 * MIB),
        limit_bytes=np.full(shape, 164 * MIB),
        cpu_reason=np.zeros(shape, np.uint8),
        up=np.ones(shape, np.bool_),
    )
    done = np.full(count, 0.05 * periods)
    counts = np.zeros(count, np.int64)
    return replay, Outcome(series, Events([], [], [], []), 0, done, done, counts + periods, counts, 0, 0.0)


def test_every_metric_has_a_value_and_a_column_per_container():
    result = figures(*made(), PRICE)
    assert list(result.summary) == [metric.key for metric in METRICS]
    assert set(result.per_container) == {metric.key for metric in METRICS if metric.per_container}


def test_the_definition_of_oscillation_names_its_periods():
    assert f" {OSCILLATION_PERIODS:,} periods" in BY_KEY["taken_back_per_s"].definition


def test_a_plain_run_gives_the_figures_one_can_do_by_hand():
    summary = figures(*made(), PRICE).summary
    assert summary["cpu_slack_p50_cores"] == 1.5
    assert summary["memory_slack_p99_mib"] == 64
    assert summary["throttled_share"] == 0
    assert summary["lateness_p99_s"] == pytest.approx(0, abs=1e-6)
    assert summary["mean_reserved_cores"] == pytest.approx(4.0)
    hours = 1.0 / 3600  # 10 periods of 100 ms
    assert summary["reserved_core_h"] == pytest.approx(4.0 * hours)
    assert summary["reserved_gib_h"] == pytest.approx(2 * 164 / 1024 * hours)
    assert summary["cost"] == pytest.approx((4.0 * 2 + 328 / 1024 * 3) * hours)


def test_only_containers_that_are_up_count():
    replay, outcome = made()
    outcome.series.up[5:, 1] = False
    outcome.series.quota_cores[5:, 1] = 99
    outcome.series.throttled[:, 0] = True
    outcome.series.throttled[5:, 1] = True
    result = figures(replay, outcome, PRICE)
    assert result.summary["cpu_slack_p99_cores"] == 1.5
    assert result.summary["throttled_share"] == pytest.approx(10 / 15)
    assert result.per_container["throttled_share"].tolist() == [1.0, 0.0]
    assert result.summary["mean_reserved_cores"] == pytest.approx(3.0)


def test_without_limits_there_is_no_slack_and_the_whole_host_is_reserved():
    replay, outcome = made()
    outcome.series.quota_cores[:] = np.inf
    outcome.series.limit_bytes[:] = UNLIMITED_BYTES
    summary = figures(replay, outcome, PRICE).summary
    assert math.isnan(summary["cpu_slack_p50_cores"])
    assert math.isnan(summary["memory_slack_p50_mib"])
    assert summary["mean_reserved_cores"] == pytest.approx(8.0)  # two hosts of the assumed 4 cores


def test_memory_that_is_unknown_has_no_slack_and_no_price():
    summary = figures(*made(memory=False), PRICE).summary
    assert math.isnan(summary["memory_slack_p50_mib"])
    assert math.isnan(summary["reserved_gib_h"])
    assert summary["cost"] == pytest.approx(summary["reserved_core_h"] * 2)


def test_events_are_counted_by_kind_and_container():
    replay, outcome = made()
    events = Events([0.1, 0.2, 0.3, 0.4], [1, 1, 0, 1], ["oom", "kill", "oom", "restart"], [0] * 4)
    result = figures(replay, replace(outcome, events=events, limit_changes=5), PRICE)
    assert (result.summary["oom_events"], result.summary["oom_kills"], result.summary["restarts"]) == (
        2,
        1,
        1,
    )
    assert result.per_container["oom_events"].tolist() == [1, 1]
    assert result.summary["limit_changes_per_s"] == pytest.approx(5.0)


def test_work_done_late_is_late_and_work_never_done_is_undone():
    replay, outcome = made(count=1)
    outcome.series.usage_cores[:5] = 0
    outcome.series.usage_cores[5:] = 1.0
    summary = figures(replay, outcome, PRICE).summary
    assert 0.1 < summary["lateness_p50_s"] <= 0.5
    assert summary["undone_core_s"] == 0
    lost = replace(outcome, done_s=outcome.done_s - 0.2)
    assert figures(replay, lost, PRICE).summary["undone_core_s"] == pytest.approx(0.2)
    rounded = replace(outcome, done_s=outcome.arrived_s * (1 - 1e-14))
    assert figures(replay, rounded, PRICE).summary["undone_core_s"] == 0


def test_a_container_that_was_never_up_has_no_share():
    replay, outcome = made()
    outcome.series.up[:, 0] = False
    shares = figures(replay, outcome, PRICE).per_container["throttled_share"]
    assert math.isnan(shares[0])
    assert shares[1] == 0


def log(status, end_s, dropped=(0, 0)):
    """Requests due at 0, 1, 2, … tenths of a second."""
    count = len(status)
    zeros = np.zeros(2, np.int64)
    return RequestLog(
        at_s=np.arange(count) / 10,
        kind=np.zeros(count, np.int64),
        end_s=np.array(end_s, np.float64),
        status=np.array(status, np.uint8),
        visits=zeros,
        dropped=np.array(dropped, np.int64),
        refused=zeros,
        hops=count,
        orphans=0,
        in_flight=0,
        lost_s=np.zeros(2),
        waiting_s=np.zeros(2),
    )


def test_clients_are_judged_by_the_answers_they_got_and_did_not_get():
    replay, outcome = made()
    ok, given_up, turned_away, pending = Status.OK, Status.TIMED_OUT, Status.DROPPED, Status.PENDING
    asked = log([ok, ok, given_up, turned_away, pending], [0.2, 0.5, 9.0, 0.3, np.nan], dropped=(0, 7))
    result = figures(replay, replace(outcome, requests=asked), PRICE)
    summary = result.summary
    assert summary["throughput_rps"] == pytest.approx(2.0)  # 2 answers in 10 periods of 100 ms
    assert summary["failed_share"] == pytest.approx(3 / 5)
    # Answered after 0.2 and 0.4 s; the other three waited at least 0.8, 0.7 and 0.6 s until the run's end, 1
    # s.
    assert summary["latency_mean_s"] == pytest.approx((0.2 + 0.4 + 0.8 + 0.7 + 0.6) / 5)
    assert summary["latency_p50_s"] == pytest.approx(0.6)
    assert summary["latency_p90_s"] == pytest.approx(0.7 + 0.6 * 0.1)
    assert result.censored == {
        "latency_mean_s",
        "latency_p50_s",
        "latency_p90_s",
        "latency_p99_s",
        "latency_p999_s",
    }
    assert summary["turned_away"] == 7
    assert result.per_container["turned_away"].tolist() == [0, 7]


def test_a_quantile_among_the_answered_is_exact_though_others_were_not_answered():
    replay, outcome = made()
    asked = log([Status.OK] * 3 + [Status.PENDING], [0.1, 0.2, 0.3, np.nan])
    result = figures(replay, replace(outcome, requests=asked), PRICE)
    assert result.summary["latency_p50_s"] == pytest.approx(0.1)
    assert result.censored == {"latency_mean_s", "latency_p90_s", "latency_p99_s", "latency_p999_s"}


def test_without_any_answer_latency_is_at_least_the_time_to_the_runs_end():
    replay, outcome = made()
    result = figures(replay, replace(outcome, requests=log([Status.FAILED], [0.1])), PRICE)
    assert result.summary["failed_share"] == 1
    assert result.summary["throughput_rps"] == 0
    assert result.summary["latency_p99_s"] == result.summary["latency_mean_s"] == pytest.approx(1.0)
    assert {"latency_p99_s", "latency_mean_s"} <= result.censored


@given(
    st.lists(st.tuples(st.floats(0, 9.9), st.floats(0, 5), st.booleans()), min_size=1, max_size=30),
    st.lists(st.floats(0, 100), min_size=30, max_size=30),
)
def test_a_bound_is_true_whenever_the_answers_would_have_come(rows, beyond):
    at_s, latency_s, answered = (np.array(column) for column in zip(*rows, strict=True))
    values, censored = latencies(latency_s, at_s, answered, 10.0)
    later = 10.0 - at_s + np.array(beyond)[: len(rows)]
    true = np.where(answered, latency_s, later)
    least = np.quantile(true, list(LATENCY_QUANTILES.values()))
    for key, value in zip(LATENCY_QUANTILES, least, strict=True):
        assert key not in censored or values[key] <= value + 1e-9
    assert values["latency_mean_s"] <= true.mean() + 1e-9
    assert ("latency_mean_s" in censored) == (not answered.all())


def test_without_clients_nothing_is_said_of_requests():
    summary = figures(*made(), PRICE).summary
    assert all(math.isnan(summary[metric.key]) for metric in METRICS if metric.section == "requests")


def test_slack_has_its_80th_percentile():
    replay, outcome = made(count=1)
    outcome.series.quota_cores[:, 0] = 0.5 + np.arange(10)
    assert figures(replay, outcome, PRICE).summary["cpu_slack_p80_cores"] == pytest.approx(7.2)


def test_a_run_that_was_not_recorded_is_our_bug():
    replay, outcome = made()
    with pytest.raises(InvariantError):
        figures(replay, replace(outcome, series=None), PRICE)


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float32, st.integers(1, 50), elements=st.floats(-100, 100, width=32)),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
def test_quantiles_are_numpys(values, wanted):
    expected = np.quantile(values.astype(np.float64), wanted)
    np.testing.assert_allclose(quantiles(values, tuple(wanted)), expected, atol=1e-4)


def test_quantiles_of_nothing_are_not_a_number():
    assert all(math.isnan(value) for value in quantiles(np.empty(0, np.float32), (0.5, 0.99)))


def test_a_container_without_a_quota_reserves_its_request():
    replay, outcome = made()
    outcome.series.quota_cores[:] = np.inf
    outcome.series.request_cores = np.full(outcome.series.up.shape, 0.25, np.float32)
    outcome.series.request_cores[:, 1] = np.nan
    reserved = figures(replay, outcome, PRICE).per_container["mean_reserved_cores"]
    assert reserved.tolist() == [0.25, replay.workload.host_cores[1]]


def test_a_limit_that_flaps_counts_once_for_each_change_that_is_taken_back():
    replay, outcome = made()
    outcome.series.quota_cores[::2, 0] = 1.0
    # 1, 2, 1, 2, … in ten periods of 100 ms: nine changes, of which the last is not taken back.
    assert figures(replay, outcome, PRICE).summary["taken_back_per_s"] == pytest.approx(8.0)


INF = np.inf


def count(quotas, within=3, up=None, memory=None):
    quota = np.array([quotas], np.float32).T
    limit = np.full(quota.shape, 1 << 30) if memory is None else np.array([memory]).T
    there = np.ones(quota.shape, np.bool_) if up is None else np.array([up], np.bool_).T
    return taken_back(SimpleNamespace(quota_cores=quota, limit_bytes=limit, up=there), within).tolist()


@pytest.mark.parametrize(
    ("quotas", "back"),
    [
        ([1, 1, 1, 1], 0),
        ([1, 2, 3, 4], 0),
        ([1, 2, 1, 1], 1),  # the raise; the cut back to 1 stays
        ([1, 2, 1, 2], 2),
        ([2, 1, 1, 1, 2], 1),  # three periods after the cut
        ([2, 1, 1, 1, 1, 2], 0),  # four
        ([1, 4, 3, 2, 2, 2], 0),  # lowered, and still above the old value
        ([1, 4, 3, 0.5, 0.5], 1),  # the raise to 4; the cuts from 4 and from 3 stay
        ([INF, 1, INF, INF], 1),
        ([1, INF, INF, 1], 1),
    ],
)
def test_a_change_counts_when_the_limit_is_back_in_time(quotas, back):
    assert count(quotas) == [back]


def test_memory_limits_count_as_well():
    assert count([1, 1, 1], memory=[100, 200, 100]) == [1]


def test_periods_in_which_a_container_is_down_are_left_out():
    assert count([1, 2, 0, 0, 0, 1], up=[1, 1, 0, 0, 0, 1]) == [1]
    assert count([1, 1, 0, 0, 1, 1], up=[1, 1, 0, 0, 1, 1]) == [0]
    assert count([0, 0], up=[0, 0]) == [0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 9))
def test_the_arrays_count_what_the_definition_says(limits, within):
    expected = 0
    for at, (before, after) in enumerate(pairwise(limits), 1):
        later = limits[at : at + within + 1]
        expected += after > before and min(later) <= before
        expected += after < before and max(later) >= before
    assert count(limits, within) == [expected]
