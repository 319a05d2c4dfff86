import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.scripted import Scripted, machine, run, workload

MIB = 1 << 20


def killed_at_the_end_of_the_first_period():
    """Wants 100 MiB for one period, and hardly anything later."""
    return workload([0.0] * 40, memory=[[100 * MIB]] + [[MIB]] * 39)


def down_periods(outcome):
    return int(np.count_nonzero(~outcome.series.up[:, 0]))


@pytest.mark.parametrize(("quota", "periods"), [(1.0, 3), (0.5, 5), (0.1, 25)])
def test_a_start_takes_its_cpu_time_at_the_containers_quota(quota, periods):
    policy = Scripted(quota=quota, limit=50 * MIB, traps_oom=False)
    slow_start = machine(restart_s=0.25, restart_cpu_s=0.25)
    outcome = run(killed_at_the_end_of_the_first_period(), policy, slow_start)
    assert outcome.events.kind.count("restart") == 1
    assert down_periods(outcome) in (periods - 1, periods)
    assert outcome.done_s[0] == pytest.approx(0.25)
    burnt = outcome.series.usage_cores[1:, 0]
    assert burnt.max() == pytest.approx(min(quota, 1.0))


def test_a_start_is_seen_as_use_and_as_throttling():
    policy = Scripted(quota=0.1, limit=50 * MIB, traps_oom=False)
    outcome = run(
        killed_at_the_end_of_the_first_period(), policy, machine(restart_s=0.05, restart_cpu_s=0.05)
    )
    assert outcome.series.usage_cores[1:5, 0] == pytest.approx([0.1] * 4)
    assert outcome.series.throttled[1:5, 0].all()
    assert outcome.series.throttled_s[1:5, 0] == pytest.approx([0.09] * 4)
    assert policy.periods[2].usage_cores == pytest.approx([0.1])


def test_what_is_no_cpu_of_a_start_passes_first():
    policy = Scripted(quota=1.0, limit=50 * MIB, traps_oom=False)
    outcome = run(killed_at_the_end_of_the_first_period(), policy, machine(restart_s=1.0, restart_cpu_s=0.1))
    assert outcome.series.usage_cores[1:9, 0] == pytest.approx([0.0] * 8)
    assert outcome.done_s[0] == pytest.approx(0.1)
    assert down_periods(outcome) in (9, 10)


@settings(max_examples=30, deadline=None)
@given(quota=st.floats(0.01, 2.0), cpu_s=st.floats(0.001, 1.0), idle_s=st.floats(0.0, 1.0))
def test_whatever_the_quota_a_start_burns_what_it_needs_and_never_more_than_the_quota(quota, cpu_s, idle_s):
    policy = Scripted(quota=quota, limit=50 * MIB, traps_oom=False)
    slow_start = machine(restart_s=cpu_s + idle_s, restart_cpu_s=cpu_s)
    outcome = run(killed_at_the_end_of_the_first_period(), policy, slow_start)
    usage = outcome.series.usage_cores[:, 0]
    assert outcome.arrived_s[0] == pytest.approx(outcome.done_s[0])
    assert usage.max() <= min(quota, 1.0) * (1 + 1e-6)
    if outcome.series.up[-1, 0]:
        assert outcome.done_s[0] == pytest.approx(cpu_s, abs=1e-9)
    else:
        assert outcome.done_s[0] <= cpu_s + 1e-9
