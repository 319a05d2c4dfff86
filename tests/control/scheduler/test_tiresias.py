from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control import scheduler as schedulers
from control.scheduler.model import Assignment, Cluster, State
from control.scheduler.tiresias import chosen
from tests.control.scheduler.worlds import after, cluster, lines, state, table, worlds
from twin.containers.compiled import compiled


def tiresias(where, **own):
    return schedulers.make("tiresias", where, 0, {"tiresias": schedulers.settings("tiresias", own)})


def test_a_job_with_much_service_gives_way_to_a_new_one() -> None:
    where = cluster((0, 4))
    before = state(where, [4, 4])
    scheduler = tiresias(where)
    first = scheduler.on_round(before)
    assert first.row.tolist() == [0]
    # 4 GPUs reach 3600 GPU-s after 900 s.
    assert np.isclose(scheduler.wake_s(before, first), before.now_s + 900)
    assert scheduler.on_round(after(before, first, passes_s=899)).row.tolist() == [0]
    assert scheduler.on_round(after(before, first, passes_s=901)).row.tolist() == [1]


def test_a_job_in_the_last_queue_drops_no_further() -> None:
    where = cluster((0, 4))
    spent = state(where, [4], attained_gpu_s=np.array([3600.0]))
    scheduler = tiresias(where, knob=0.0)
    assert scheduler.wake_s(spent, scheduler.on_round(spent)) == np.inf


def test_a_job_takes_idle_gpus_of_another_type_and_preempts_nobody() -> None:
    where = cluster((0, 1), (1, 1))
    scheduler, before = tiresias(where), state(where, [1])
    spent = after(before, scheduler.on_round(before), passes_s=4000)
    both = replace(state(where, [1, 1], attained_gpu_s=np.array([4000.0, 0.0])), held=spent.held)
    assert lines(both, scheduler.on_round(both)) == {(0, 0, 1), (1, 1, 1)}


def test_a_preempted_job_moves_to_another_type_with_idle_gpus() -> None:
    where = cluster((0, 2), (1, 1))
    scheduler, before = tiresias(where), state(where, [1])
    spent = after(before, scheduler.on_round(before), passes_s=4000)
    both = replace(state(where, [1, 2], attained_gpu_s=np.array([4000.0, 0.0])), held=spent.held)
    assert lines(both, scheduler.on_round(both)) == {(0, 1, 1), (1, 0, 2)}


@given(worlds())
@settings(max_examples=60, deadline=None)
def test_nobody_waits_who_fits_on_idle_gpus(world: tuple[Cluster, State]) -> None:
    where, drawn = world
    before = replace(drawn, together=np.zeros(len(drawn), np.bool_))
    given = tiresias(where).on_round(before)
    used = np.bincount(where.server_type[given.server], given.gpus, len(where.types))
    idle = where.capacity(before.up) - used
    assert (idle >= 0).all()
    waiting = np.setdiff1d(np.arange(len(before)), given.row)
    fits = (before.gpus[waiting, None] <= idle) & (before.throughput[waiting, :, 0] > 0)
    assert not fits.any()


@given(worlds(), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_jobs_are_asked_queue_by_queue_and_first_started_first(
    world: tuple[Cluster, State], seed: int
) -> None:
    where, before = world
    n, numbers = len(before), np.random.default_rng(seed)
    queue, place = numbers.integers(0, 3, n), numbers.permutation(n)
    first_start_s = numbers.choice([1.0, 2.0, 3.0, np.inf], n)
    held = schedulers.make("fifo-backfill", where, 0).on_round(before).of(numbers.random(n) < 0.7)
    capacity, expected = where.capacity(before.up), [-1] * n
    on = dict(zip(held.row.tolist(), where.server_type[held.server].tolist(), strict=True))
    left = dict(enumerate(capacity.tolist()))
    idle = {kind: left[kind] - sum(int(before.gpus[row]) for row in on if on[row] == kind) for kind in left}
    for at in sorted(range(n), key=lambda at: (queue[place[at]], first_start_s[place[at]], at)):
        row = int(place[at])
        asks, able = int(before.gpus[row]), before.throughput[row, :, 0] > 0
        kind = on.get(row, -1)
        if kind < 0 or not able[kind] or left[kind] < asks:
            if kind >= 0:
                idle[kind] += asks
            fits = [other for other in left if able[other] and left[other] >= asks]
            if not fits:
                continue
            kind = next((other for other in fits if idle[other] >= asks), fits[0])
            idle[kind] -= asks
        expected[row] = kind
        left[kind] -= asks
    for function in (chosen, compiled(chosen)):
        wanted = function(
            queue, 3, place, held.row, held.server, first_start_s, before.gpus, before.throughput,
            before.up, where.server_gpus, where.server_type, len(where.types),
        )  # fmt: skip
        assert wanted.tolist() == expected


def test_what_does_not_fit_is_skipped() -> None:
    where = cluster((0, 4))
    assert tiresias(where).on_round(state(where, [3, 2, 1])).row.tolist() == [0, 2]


def test_a_starved_job_returns_to_the_first_queue() -> None:
    where = cluster((0, 1))
    base = replace(
        state(where, [1, 1]),
        attained_gpu_s=np.array([4000.0, 5000.0]),
        ran_s=np.array([4000.0, 5000.0]),
        first_start_s=np.array([10.0, 5.0]),
        idle_since_s=np.array([0.0, 0.0]),
    )
    waits = replace(base, now_s=8 * 4000.0 + 1)
    # Both jobs are in the second queue. Without promotion, the job that started first runs.
    assert tiresias(where, knob=0.0).on_round(waits).row.tolist() == [1]
    assert tiresias(where).on_round(waits).row.tolist() == [0]


@pytest.mark.parametrize("knob", [0.5, 2.0])
def test_it_wakes_when_a_waiting_job_is_promoted_or_a_running_one_drops_a_queue(knob) -> None:
    where = cluster((0, 2))
    scheduler = tiresias(where, knob=knob)
    ran_s = np.array([1800.0, 3000.0, 9000.0])
    before = replace(
        state(where, [2, 2, 2]),
        now_s=200.0,
        attained_gpu_s=2 * ran_s,
        ran_s=ran_s,
        first_start_s=np.array([10.0, 5.0, 20.0]),
        idle_since_s=np.array([100.0, 0.0, 150.0]),
    )
    first = scheduler.on_round(before)
    assert first.row.tolist() == [1]
    runs = replace(before, held=first)
    # Job 0 is in the second queue from 3600 GPU-s, and waits since 100 s. Job 2 ran five times as long.
    promoted_s = 100 + knob * 1800
    assert scheduler.wake_s(runs, first) == promoted_s
    assert scheduler.on_round(replace(runs, now_s=promoted_s - 0.5)).row.tolist() == [1]
    at_once = replace(runs, now_s=promoted_s)
    given = scheduler.on_round(at_once)
    assert given.row.tolist() == [0]
    # Its service counts from its promotion, and 2 GPUs reach 3600 GPU-s after 1800 s.
    later = after(at_once, given, passes_s=100)
    drops_s, next_s = promoted_s + 1800, promoted_s + knob * 3000
    assert scheduler.wake_s(later, given) == pytest.approx(min(drops_s, next_s), abs=1e-4)
    # The time that the job ran before its promotion does not count in its next wait either.
    gone = replace(
        later,
        attained_gpu_s=np.array([10_000.0, 6000.0, 18_000.0]),
        ran_s=np.array([3800.0, 3000.0, 9000.0]),
        idle_since_s=np.array([later.now_s, 1e6, 1e6]),
        held=first,
    )
    assert scheduler.wake_s(gone, first) == later.now_s + knob * 2000


def test_without_a_knob_no_job_is_promoted() -> None:
    where = cluster((0, 1))
    before = state(
        where, [1, 1], attained_gpu_s=np.array([4000.0, 0.0]), first_start_s=np.array([5.0, np.inf])
    )
    assert tiresias(where, knob=0.0).on_round(replace(before, now_s=1e6)).row.tolist() == [1]


def test_a_job_has_dropped_a_queue_when_it_said_that_it_would() -> None:
    where = cluster((0, 4))
    scheduler, before = tiresias(where), state(where, [4, 4])
    first = scheduler.on_round(before)
    half = after(before, first, passes_s=450)
    wake_s = scheduler.wake_s(half, first)
    assert scheduler.on_round(after(half, first, passes_s=wake_s - half.now_s)).row.tolist() == [1]


def test_a_job_keeps_its_type_and_gets_only_a_type_on_which_it_runs() -> None:
    where = cluster((0, 1), (1, 1))
    before = state(where, [1, 1], throughput=table((0, 0.5), (0.5, 0.5)))
    scheduler = tiresias(where)
    first = scheduler.on_round(before)
    assert lines(before, first) == {(0, 1, 1), (1, 0, 1)}
    # Job 1 now comes first, and type 1 is no better for it.
    old = replace(after(before, first), attained_gpu_s=np.array([4000.0, 0.0]))
    assert lines(old, scheduler.on_round(old)) == {(0, 1, 1), (1, 0, 1)}
    # The job stays on type 1 if it runs there.
    swapped = replace(old, held=Assignment(np.array([1]), np.array([1]), np.array([1])))
    assert lines(swapped, scheduler.on_round(swapped)) == {(1, 1, 1)}
    # A job that takes its only GPU preempts a job, which moves in the same round.
    one = replace(
        old,
        throughput=table((0.5, 0), (0.5, 0.5))[:, :, None].repeat(2, axis=2),
        attained_gpu_s=np.array([0.0, 4000.0]),
        held=Assignment(np.array([1]), np.array([0]), np.array([1])),
    )
    assert lines(one, scheduler.on_round(one)) == {(0, 0, 1), (1, 1, 1)}


@pytest.mark.parametrize("thresholds_gpu_s", [[1e12], []])
def test_one_queue_is_fifo_with_backfill(thresholds_gpu_s: list[float]) -> None:
    where = cluster((0, 4), (0, 4))
    before = state(where, [3, 8, 4, 1, 2])
    one = tiresias(where, thresholds_gpu_s=thresholds_gpu_s, knob=8.0)
    fifo = schedulers.make("fifo-backfill", where, 0)
    for _ in range(2):
        given, same = one.on_round(before), fifo.on_round(before)
        assert sorted(set(given.row.tolist())) == sorted(set(same.row.tolist()))
        assert one.wake_s(before, given) > before.now_s
        before = after(before, same)
