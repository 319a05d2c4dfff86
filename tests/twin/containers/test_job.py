"""A job under limits: its work waits, and it begins anew when it starts again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twin.containers.scripted import Scripted, machine, run, workload
from twin.containers.model import Ranks

MIB = 1 << 20


def job(demand, **given):
    return replace(workload(demand, **given), is_job=True)


def ranks(demand, meets, **given):
    """A job of ranks that meet in these periods of the recording."""
    return replace(job(demand, **given), ranks=Ranks(np.zeros(len(meets), np.int64), np.array(meets, float)))


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


def test_ranks_do_their_start_alone_and_then_go_at_the_pace_of_the_slowest():
    # They meet after two periods. The second has half the CPU that it wants.
    outcome = run(ranks([[1.0, 1.0]] * 40, [2.0, 2.0]), Scripted(quota=[4.0, 0.5]), machine())
    first, second = outcome.series.usage_cores.T.astype(np.float64)
    assert second == pytest.approx(0.5)
    assert first[:2] == pytest.approx(1.0)
    assert first[2:4] == pytest.approx(0.0)  # it waits for the other one at the meeting point
    assert first.sum() == pytest.approx(second.sum(), abs=1.0)  # at most a period ahead
    assert first[-5:] == pytest.approx(0.5, abs=1e-3)


def test_ranks_of_equal_pace_do_what_was_recorded():
    recorded = [[0.9, 0.8], [0.0, 0.3], [1.0, 0.0], [0.4, 1.0], [1.0, 1.0]]
    outcome = run(ranks(recorded, [1.0, 2.0]), Scripted(), machine())
    alone = run(job(recorded), Scripted(), machine())
    assert np.array_equal(outcome.series.usage_cores[:2], alone.series.usage_cores[:2])
    assert outcome.series.usage_cores.sum() == pytest.approx(alone.series.usage_cores.sum(), abs=1.0)


def test_a_killed_rank_takes_those_down_that_it_had_met():
    # The first one's fifth period is too large for its limit.
    memory = [[MIB, MIB]] * 4 + [[20 * MIB, MIB]] * 16
    load = ranks([[1.0, 1.0]] * 20, [2.0, 2.0], memory=memory)
    outcome = run(load, Scripted(limit=[10 * MIB, 100 * MIB], traps_oom=False), machine())
    kinds = list(zip(outcome.events.kind, outcome.events.container, strict=True))
    assert kinds[2:6] == [("oom", 0), ("kill", 0), ("restart", 0), ("restart", 1)]
    assert outcome.series.memory_bytes[5].tolist() == [MIB, MIB]


def test_a_rank_that_is_killed_before_the_meeting_leaves_the_other_waiting():
    memory = [[MIB, MIB]] + [[20 * MIB, MIB]] * 19
    load = ranks([[1.0, 1.0]] * 20, [4.0, 4.0], memory=memory)
    outcome = run(load, Scripted(limit=[10 * MIB, 100 * MIB], traps_oom=False), machine())
    assert ("restart", 1) not in list(zip(outcome.events.kind, outcome.events.container, strict=True))
    assert outcome.series.usage_cores[:4, 1] == pytest.approx(1.0)
    assert outcome.series.usage_cores[4:, 1] == pytest.approx(0.0)


@settings(max_examples=40, deadline=None)
@given(
    quotas=st.lists(st.floats(0.05, 3.0), min_size=3, max_size=3),
    meets=st.lists(st.floats(0.0, 8.0), min_size=3, max_size=3),
    demand=st.floats(0.1, 1.0),
)
def test_no_rank_is_a_period_ahead_of_the_slowest(quotas, meets, demand):
    outcome = run(ranks([[demand] * 3] * 30, meets), Scripted(quota=quotas), machine())
    done = outcome.series.usage_cores.astype(np.float64).cumsum(axis=0) / demand - np.array(meets)
    assert (done.max(axis=1) <= np.maximum(done.min(axis=1), -1.0) + 1.0 + 1e-4).all()
