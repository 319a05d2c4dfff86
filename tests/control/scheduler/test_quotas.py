from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler import POLICIES, make
from control.scheduler.model import NOTHING, Assignment, Cluster, State
from control.scheduler.ports import Scheduler
from control.scheduler.quotas import Quotas
from lab.check.watched_scheduler import require_possible
from tests.control.scheduler.worlds import after, cluster, lines, permuted, state, worlds

CAPPED = [name for name in POLICIES if name not in ("isolated", "hadar-e", "pollux")]


@pytest.mark.parametrize("policy", CAPPED)
@given(worlds())
@settings(max_examples=15, deadline=None)
def test_no_queue_holds_more_than_its_quota(policy: str, world: tuple[Cluster, State]) -> None:
    where, before = world
    where = replace(where, queue_most=np.array([0.4, 1.0]))
    scheduler = make(policy, where, 0)
    for _ in range(3):
        given = scheduler.on_round(before)
        require_possible(where, before, given, mixes_types=scheduler.mixes_types)
        assert scheduler.wake_s(before, given) > before.now_s
        counted = given.counted()
        mine = before.queue[given.row[counted]] == 0
        assert given.gpus[counted][mine].sum() <= 0.4 * where.server_gpus.sum() + 1e-9
        before = after(before, given)


def test_the_next_job_of_a_queue_is_admitted_when_one_ends() -> None:
    where = cluster((0, 4), queue_most=np.array([0.5, 1.0]), queues=2)
    before = state(where, [2, 1, 2], queue=np.array([0, 0, 1]))
    scheduler = make("tiresias", where, 0)
    given = scheduler.on_round(before)
    assert lines(before, given) == {(0, 0, 2), (2, 0, 2)}
    left = permuted(replace(before, held=given), np.array([0, 1, 2]))
    ended = replace(
        state(where, [1, 2], queue=np.array([0, 1])),
        job=np.array([1, 2]),
        held=left.held.of(np.zeros(3, bool)),
    )
    assert {job for job, _, _ in lines(ended, scheduler.on_round(ended))} == {1, 2}


def test_it_wakes_when_the_scheduler_behind_it_would() -> None:
    where = cluster((0, 2), queue_most=np.array([0.4, 1.0, 1.0]), queues=3)
    # Job 0 is over its quota, and job 2 waits. Job 1 has 3600 GPU-s after 1800 s, and then drops a queue.
    before = state(where, [1, 2, 1], queue=np.array([0, 1, 2]))
    scheduler = make("tiresias", where, 0)
    given = scheduler.on_round(before)
    assert given.row.tolist() == [1]
    assert scheduler.wake_s(before, given) == pytest.approx(before.now_s + 1800, abs=1e-3)


@pytest.mark.parametrize("policy", ["fifo", "yarn", "isolated"])
def test_nothing_is_put_before_a_scheduler_without_a_cap_or_with_quotas_of_its_own(policy: str) -> None:
    capped = cluster((0, 4), queue_most=np.array([0.5]))
    assert not isinstance(make(policy, cluster((0, 4)), 0), Quotas)
    assert isinstance(make(policy, capped, 0), Quotas) == (policy == "fifo")


def test_a_queue_that_may_use_all_gpus_keeps_its_scheduler() -> None:
    where = cluster((0, 2), queue_most=np.array([0.5, 1.0]), queues=2)
    running = Assignment(np.arange(2), np.zeros(2, np.int64), np.ones(2, np.int64))
    # Jobs 0 and 1 have had so much service that job 2 comes first. All are in the queue without a quota.
    before = state(where, [1, 1, 1], queue=np.ones(3, np.int64), attained_gpu_s=np.array([9e3, 9e3, 0.0]))
    before = replace(before, held=running, first_start_s=np.array([0.0, 1.0, np.inf]))
    assert set(make("tiresias", where, 0).on_round(before).row.tolist()) == {0, 2}


class Seen(Scheduler):
    """Notes the jobs that it is shown, and gives them nothing."""

    def on_round(self, state: State) -> Assignment:
        self.jobs = state.job.tolist()
        return NOTHING


@given(worlds(), st.lists(st.floats(0.05, 1.0), min_size=2, max_size=2))
@settings(max_examples=100, deadline=None)
def test_jobs_are_admitted_as_one_after_the_other_would_be(
    world: tuple[Cluster, State], most: list[float]
) -> None:
    where, before = world
    seen = Seen()
    Quotas(replace(where, queue_most=np.array(most)), seen).on_round(before)
    left = [int(share * where.server_gpus.sum() + 1e-9) if share < 1 else np.inf for share in most]
    expected = []
    for row in before.by_arrival().tolist():
        queue, gpus = int(before.queue[row]), int(before.gpus[row])
        # A job that does not fit blocks those behind it.
        left[queue] = left[queue] - gpus if gpus <= left[queue] else -1
        if left[queue] >= 0:
            expected.append(int(before.job[row]))
    assert sorted(seen.jobs) == sorted(expected)
