"""A job under limits: its work waits, and it begins anew when it starts again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.scripted import Scripted, machine, run, workload

MIB = 1 << 20


def job(demand, **given):
    return replace(workload(demand, **given), is_job=True)


def test_without_limits_it_does_what_was_recorded():
    recorded = [0.5, 1.0, 0.0, 0.2]
    outcome = run(job(recorded, memory=[MIB, 2 * MIB, 3 * MIB, MIB]), Scripted(), machine())
    assert outcome.series.usage_cores[:, 0] == pytest.approx(recorded)
    assert outcome.series.memory_bytes[:, 0].tolist() == [MIB, 2 * MIB, 3 * MIB, MIB]
    assert outcome.arrived_s == pytest.approx(outcome.done_s)


def test_at_half_the_cpu_all_takes_twice_as_long_and_nothing_is_caught_up():
    # 1 core for two periods takes four at half a core; then it uses 0.2 cores, as recorded.
    outcome = run(
        job([1.0, 1.0] + [0.2] * 6, memory=[MIB, 2 * MIB] + [3 * MIB] * 6), Scripted(quota=0.5), machine()
    )
    assert outcome.series.usage_cores[:, 0] == pytest.approx([0.5] * 4 + [0.2] * 4, abs=0.02)
    assert outcome.series.memory_bytes[:, 0].tolist()[:4] == [MIB, MIB, 2 * MIB, 2 * MIB]
    assert not outcome.series.backlog_s.any()


def test_a_wait_takes_its_time_whatever_the_quota():
    outcome = run(job([0.1, 0.0, 0.0, 1.0, 0.0]), Scripted(quota=0.2), machine())
    assert outcome.series.usage_cores[:4, 0] == pytest.approx([0.1, 0.0, 0.0, 0.2])


def test_a_place_that_rounding_puts_just_behind_a_wait_is_left_again():
    outcome = run(job([0.3, 0.7, 0.0, 0.9] * 6, threads=2.0), Scripted(quota=0.6), machine())
    assert (outcome.series.usage_cores[-6:, 0] > 0.0).any()
    tiny = run(job([0.5, 1e-17, 0.5, 0.5]), Scripted(), machine())
    assert tiny.series.usage_cores[:, 0] == pytest.approx([0.5, 0.0, 0.5, 0.5])


def test_a_killed_job_begins_anew_with_its_start_up_and_without_further_time():
    # 20 MiB in the third period is too much.
    load = job([0.7, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1], memory=[MIB, 2 * MIB, 20 * MIB] + [3 * MIB] * 4)
    outcome = run(load, Scripted(limit=10 * MIB, traps_oom=False), machine(restart_s=5.0, restart_cpu_s=1.0))
    assert outcome.events.kind[1:4] == ["oom", "kill", "restart"]
    assert outcome.series.usage_cores[:6, 0] == pytest.approx([0.7, 0.3, 0.1, 0.7, 0.3, 0.1])
    assert outcome.series.memory_bytes[3:5, 0].tolist() == [MIB, 2 * MIB]


@settings(max_examples=40, deadline=None)
@given(recorded=st.lists(st.floats(0.0, 2.0), min_size=2, max_size=20), quota=st.floats(0.05, 3.0))
def test_it_never_does_more_than_was_recorded_nor_than_its_quota(recorded, quota):
    outcome = run(job(recorded, threads=2.0), Scripted(quota=quota), machine())
    usage = outcome.series.usage_cores[:, 0].astype(np.float64)
    assert (usage <= quota + 1e-6).all()
    assert usage.sum() <= sum(recorded) + max(recorded) + 1e-5
    assert outcome.arrived_s == pytest.approx(outcome.done_s)
