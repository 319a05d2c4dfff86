from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.scheduler import make
from control.scheduler.model import NO_SHARING, Assignment, Sharing
from control.scheduler.placement import greedy
from tests.control.scheduler.worlds import after, cluster, lines, state, table


@given(st.lists(st.integers(1, 8), max_size=30), st.integers(0, 40))
def test_greedy_takes_what_a_loop_would_take(sizes: list[int], capacity: int) -> None:
    left, expected = capacity, []
    for size in sizes:
        expected.append(size <= left)
        left -= size if size <= left else 0
    assert greedy(np.array(sizes, np.int64), capacity).tolist() == expected


def test_the_head_of_fifo_blocks_and_backfill_passes_it() -> None:
    where = cluster((0, 4))
    before = state(where, [3, 4, 1])
    assert make("fifo", where, 0).on_round(before).row.tolist() == [0]
    assert make("fifo-backfill", where, 0).on_round(before).row.tolist() == [0, 2]
    # So it is with jobs that stand still when they are spread.
    still = replace(before, throughput=before.throughput * [1.0, 0.0])
    assert make("fifo-backfill", where, 0).on_round(still).row.tolist() == [0, 2]


def test_backfill_tries_a_job_as_large_that_has_more_places() -> None:
    where = cluster((0, 2), (1, 3))
    # Both jobs want 3 GPUs. Job 0 can run on type 0 only, which has 2.
    types = state(where, [3, 3], throughput=table((1, 0), (1, 1)))
    assert lines(types, make("fifo-backfill", where, 0).on_round(types)) == {(1, 1, 3)}
    apart = cluster((0, 2), (0, 2), racks=[0, 1])
    # Job 0 must stay together, and job 1 need not.
    before = state(apart, [3, 3], together=np.array([True, False]))
    assert lines(before, make("fifo-backfill", apart, 0).on_round(before)) == {(1, 0, 2), (1, 1, 1)}


def test_backfill_tries_a_larger_job_that_must_stay_together_on_the_servers_of_a_rack() -> None:
    where = cluster((0, 4), (0, 4), (0, 4))
    # The running jobs leave 2 GPUs on each server: too few for a gang of 3, but not for one of 5.
    held = Assignment(np.arange(3), np.arange(3), np.full(3, 2))
    before = state(where, [2, 2, 2, 3, 5], together=np.ones(5, np.bool_), held=held)
    given = make("fifo-backfill", where, 0).on_round(before)
    assert {row for row, _, _ in lines(before, given)} == {0, 1, 2, 4}


def test_a_gang_takes_the_fullest_server_that_holds_it() -> None:
    where = cluster((0, 8), (0, 4), (0, 2))
    given = make("fifo", where, 0).on_round(state(where, [2, 3]))
    assert given.server.tolist() == [2, 1]


def test_a_gang_that_must_stay_together_waits_for_a_server_or_a_rack() -> None:
    where = cluster((0, 2), (0, 2), (0, 2), racks=[0, 1, 1])
    apart, together = state(where, [1, 1, 1, 2]), np.ones(4, np.bool_)
    assert make("fifo", where, 0).on_round(apart).row.size == 4
    given = make("fifo", where, 0).on_round(replace(state(where, [3]), together=together[:1]))
    # A gang of 3 fits on no server; rack 1 has two servers with 4 GPUs.
    assert sorted(given.server.tolist()) == [1, 2]
    split = cluster((0, 2), (0, 2), racks=[0, 1])
    assert make("fifo", split, 0).on_round(replace(state(split, [3]), together=together[:1])).row.size == 0


def test_fifo_is_blind_to_types_unless_it_takes_the_fastest() -> None:
    where = cluster((0, 1), (1, 1))
    before = state(where, [1], throughput=table((1, 9)))
    for policy, types in (("fifo", {0, 1}), ("yarn", {0, 1}), ("fifo-fastest", {1})):
        chosen = {make(policy, where, seed).on_round(before).server.tolist()[0] for seed in range(20)}
        assert chosen == types


def test_fifo_that_moves_gives_the_earlier_job_the_faster_type_once_it_is_free() -> None:
    where = cluster((0, 2), (1, 2))
    fast = table((1, 9), (1, 9), (1, 9))
    before = state(where, [1, 2, 2], throughput=fast)
    moving = make("fifo-moving", where, 0)
    given = moving.on_round(before)
    # The fast type has no room for the gang of job 1 beside job 0, and job 2 waits behind it.
    assert lines(before, given) == {(0, 1, 1), (1, 0, 2)}
    held = Assignment(np.array([0]), np.array([0]), np.array([2]))
    ended = state(where, [2, 2], throughput=fast[1:], held=held)
    assert lines(ended, moving.on_round(ended)) == {(0, 1, 2), (1, 0, 2)}
    assert lines(ended, make("fifo-fastest", where, 0).on_round(ended)) == {(0, 0, 2), (1, 1, 2)}


def test_a_queue_borrows_idle_gpus_up_to_its_most_and_the_other_comes_next() -> None:
    where = cluster((0, 4), queue_share=np.array([0.5, 0.5]), queue_most=np.array([0.75, 1.0]))
    before = state(where, [1] * 5)
    yarn = make("yarn", where, 0)
    # All jobs are in queue 0, which may use 3 of the 4 GPUs.
    first = yarn.on_round(before)
    assert first.row.tolist() == [0, 1, 2]
    two = replace(after(before, first), queue=np.array([0, 0, 0, 0, 1]))
    assert yarn.on_round(two).row.tolist() == [0, 1, 2, 4]


def test_the_queue_with_the_least_use_for_its_share_is_next_while_it_has_jobs() -> None:
    where = cluster((0, 1), (0, 3), queue_share=np.array([0.75, 0.25]), queue_most=np.ones(2))
    before = state(where, [1] * 8, queue=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    assert make("yarn", where, 0).on_round(before).row.tolist() == [0, 1, 2, 4]
    few = state(where, [1] * 4, queue=np.array([0, 1, 1, 1]))
    assert make("yarn", where, 0).on_round(few).row.tolist() == [0, 1, 2, 3]


def test_jobs_on_a_server_that_fails_wait_again() -> None:
    where = cluster((0, 2), (0, 2))
    before = state(where, [2, 2])
    fifo = make("fifo", where, 0)
    given = fifo.on_round(before)
    # A backend takes the lines of a failed server out of `held` before it asks again.
    lost = replace(after(before, given), up=np.array([True, False]))
    lost = replace(lost, held=given.of(np.array([True, False])))
    assert lines(lost, fifo.on_round(lost)) == {(0, 0, 2)}


def test_packed_fifo_puts_the_first_job_that_does_not_fit_beside_its_best_partner() -> None:
    where = cluster((0, 1), (0, 1), (0, 2))
    kept = np.array([[0.5, 0.7, 0.9], [0.8, 0.5, 0.5], [0.7, 0.5, 0.5]])
    sharing = Sharing(np.array([1, 2, 0, 0, 0]), kept[:, :, None])
    # Job 2 is a gang of two. Job 3 keeps 0.7 and job 0 0.8 beside it, and 0.9 and 0.7 beside job 1.
    before = state(where, [1, 1, 2, 1, 1], sharing=sharing)
    packed = make("fifo-packed", where, 0)
    given = packed.on_round(before)
    assert lines(before, given) == {(0, 0, 1), (1, 1, 1), (2, 2, 2), (3, 1, 1), (4, 0, 1)}
    assert sorted(map(sorted, given.shared.tolist())) == [[0, 4], [1, 3]]
    # Pairs stay. A job whose partner ended continues alone, and takes another one.
    again = packed.on_round(after(before, given))
    assert lines(before, again) == lines(before, given)
    assert sorted(map(sorted, again.shared.tolist())) == [[0, 4], [1, 3]]


def test_packed_fifo_blocks_at_a_job_without_a_partner() -> None:
    where = cluster((0, 1))
    kept = np.array([[0.9, 0.6], [0.6, 0.6]])[:, :, None]
    before = state(where, [1, 1, 1], sharing=Sharing(np.array([0, 1, 0]), kept))
    # Job 2 would keep enough of its speed beside job 0, but job 1 comes first.
    assert make("fifo-packed", where, 0).on_round(before).row.tolist() == [0]
    plain = replace(before, sharing=NO_SHARING)
    assert make("fifo-packed", where, 0).on_round(plain).row.tolist() == [0]
